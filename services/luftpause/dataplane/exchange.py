"""What do a connection and whoever answers a request on it say to each other?"""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct


class Request(Struct, gc=False):
    """A complete request. `path` has no query and no slash at its end; header names are lower case.

    `principal`: the caller whose own token it came with; empty: what the headers say of the caller is believed.
    """

    method: str
    path: str
    target: bytes
    headers: list[tuple[bytes, bytes]]
    named: dict[bytes, bytes]
    body: bytes
    version: str
    principal: str = ""


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


class Client(Protocol):
    """A connection as its handler sees it. `more` are header lines for every answer, `keeps`: another request may follow."""

    handler: Handler | None
    headed: bool
    keeps: bool
    more: bytes

    @property
    def write(self) -> Callable[[bytes], None]: ...

    def write_head(self, data: bytes) -> None: ...

    def let_go(self) -> None:
        """The request's body is not held any longer."""
        ...

    def answer(self, data: bytes) -> None:
        """A complete answer, head and body."""
        ...

    def finish(self) -> None:
        """The answer is complete."""
        ...

    def break_off(self, *, reset: bool) -> None:
        """The answer can't be completed. `reset` where an orderly close would look complete."""
        ...
