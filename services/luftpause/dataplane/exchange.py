"""What do a connection and whoever answers a request on it say to each other?"""

from collections.abc import Callable
from typing import Protocol

from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.request_head import RequestHead


class Request:
    """A complete request. `digits` are those of its Content-Length, where they may be others than in the head.

    `principal`: the caller whose own token it came with; empty: what the headers say of the caller is believed.
    """

    __slots__ = ("body", "digits", "head", "principal")

    def __init__(self, head: RequestHead, body: bytes, digits: bytes = b"", principal: str = "") -> None:
        self.head = head
        self.body = body
        self.digits = digits
        self.principal = principal


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
    """
    A connection as its handler sees it. `more` are header lines for every answer, `keeps`: another request may follow.

    `half_close_seconds`: a client that closed its side is gone after so long without a further sign; a handler may make it shorter.
    """

    half_close_seconds: float
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


class Stopped(Protocol):
    """Whoever the dataplane tells that it stops."""

    def stop_waiting(self, rejection: Rejection) -> None:
        """Nothing is placed any more: answer with this, unless the answer is under way."""
        ...

    def kill(self, rejection: Rejection) -> None:
        """The dataplane ends now."""
        ...
