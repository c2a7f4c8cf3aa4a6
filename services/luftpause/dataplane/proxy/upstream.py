"""How do connections to a target differ from those to an engine?

A call is not repeated on its own where that could do its work twice, the answer to a HEAD has no body, and the base URL's path is all kept.
"""

from typing import TYPE_CHECKING, Protocol, cast
from urllib.parse import urlsplit

from msgspec.structs import replace

from luftpause.dataplane.answer_head import BODILESS, AnswerHead
from luftpause.dataplane.connection import Connection, Receiver
from luftpause.dataplane.flows import Flow
from luftpause.dataplane.framing import Counted
from luftpause.dataplane.sweep import Sweep
from luftpause.dataplane.upstream import Pool, origin_of
from luftpause.kit.config import DataplaneConfig

if TYPE_CHECKING:
    from luftpause.dataplane.upstream import Connecting


class TargetReceiver(Receiver, Protocol):
    """`repeatable`: sending it twice does no harm. `bodiless`: its answer has a head only."""

    upstream: "Connection | Connecting | None"
    repeatable: bool
    bodiless: bool


class TargetConnection(Connection):
    __slots__ = ()

    def send(self, out: bytes, receiver: Receiver) -> None:
        super().send(out, receiver)
        if not cast("TargetReceiver", receiver).repeatable:
            self._out = b""  # a connection that turns out to be stale then breaks the call

    def _take(self, head: AnswerHead, rest: bytes) -> None:
        receiver = self._receiver
        if receiver is not None and cast("TargetReceiver", receiver).bodiless:
            head = _without_body(head)
        super()._take(head, rest)


class TargetPool(Pool):
    """The connections to one target. `url` is its base: what it has as path precedes that of each call."""

    protocol = TargetConnection

    def __init__(self, url: str, config: DataplaneConfig, sweep: Sweep, flow: Flow) -> None:
        super().__init__(url, config, sweep, flow)
        self.origin = replace(origin_of(url), prefix=urlsplit(url).path.rstrip("/").encode())


def _without_body(head: AnswerHead) -> AnswerHead:
    """The length that a GET would have stays as a line."""
    framing = head.framing
    length = b"content-length: %d\r\n" % framing.length if isinstance(framing, Counted) and head.status not in BODILESS else b""
    keeps = head.keeps or not isinstance(framing, Counted)
    return replace(head, lines=head.lines + length, framing=Counted(0), keeps=keeps and head.keeps)
