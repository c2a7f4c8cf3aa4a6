"""What do a connection and whoever answers a request on it say to each other?"""

from typing import Protocol

from msgspec import Struct


class Request(Struct, gc=False):
    """A complete request. `path` has no query and no slash at its end; header names are lower case."""

    method: str
    path: str
    target: bytes
    headers: list[tuple[bytes, bytes]]
    named: dict[bytes, bytes]
    body: bytes
    version: str


class Handler(Protocol):
    """Whoever answers a request. It calls `Conn.answer`; or `write_head`, `write` and then `finish` or `break_off`."""

    def client_left(self) -> None: ...

    def pause(self) -> None:
        """The client does not read: stop producing."""
        ...

    def resume(self) -> None: ...

    def last_sign(self) -> float:
        """When something was last written to the client, in the loop's time."""
        ...
