"""How does the dataplane say no?"""

from msgspec import Struct

from luftpause.kit.errors import error_body


class Rejection(Struct, frozen=True, gc=False):
    """An error that luftpause itself answers with. `code` is stable; the message names the mistake and the mend.

    `retry_after_s` 0: no `Retry-After`, but 1 s with 429 and 503. `allow`: the methods that would do (405).
    """

    status: int
    code: str
    message: str
    retry_after_s: int = 0
    allow: str = ""

    def body(self) -> bytes:
        return error_body(self.message, code=self.code, status=self.status)
