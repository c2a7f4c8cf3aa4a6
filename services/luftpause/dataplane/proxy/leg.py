"""What becomes of one sending of a call to its target: an answer that passes to the client, or one that is looked at first?

A refusal is kept until it is whole, so that the call can be sent again without the client's seeing it. Everything else passes as it comes.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from luftpause.dataplane.answer_head import AnswerHead
from luftpause.dataplane.connection import Connection
from luftpause.dataplane.passing import Emit, Passing
from luftpause.dataplane.proxy.headers import told_in
from luftpause.dataplane.proxy.inside import Inside
from luftpause.dataplane.responses import CLOSE
from luftpause.kit.quota_evidence import KEPT_BYTES_MAX, REFUSALS, excerpt_of, limited_inside

if TYPE_CHECKING:
    from luftpause.dataplane.exchange import Client
    from luftpause.dataplane.upstream import Connecting

LOOK_SECONDS: Final = 2.0  # a refusal that is not whole by then is looked at as far as it is there
REPEATABLE: Final = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})  # RFC 9110, 9.2.2


class Failure(Struct, frozen=True, gc=False):
    """No answer, or only a part of one. `why` as in `Receiver.broken`, or `unreachable`: the target has not seen the call."""

    reason: str
    why: str


class Leg:
    """
    A `TargetReceiver`. `begun` ends when it is clear what came: None, the answer passes; a head, it is held back; or a failure.

    `over` ends with the answer: None, or how it broke.
    """

    straight = None

    def __init__(self, conn: "Client", method: str, version: str) -> None:
        self._conn = conn
        self._version = version
        self.bodiless = method == "HEAD"
        self.repeatable = method in REPEATABLE
        self.upstream: Connection | Connecting | None = None
        self.was_sent = False
        self.more = b""  # header lines for the client beside those of the target
        self.answer: AnswerHead | None = None
        self.excerpt = ""  # what the body says of limits
        loop = asyncio.get_running_loop()
        self.begun: asyncio.Future[AnswerHead | Failure | None] = loop.create_future()
        self.over: asyncio.Future[Failure | None] = loop.create_future()
        self.passes = False
        self.until_close = False
        self.whole = False  # of an answer that is held back: all of it is here
        self._inside: Inside | None = None  # the body of an answer that passes
        self._emit: Emit | None = None
        self._raw = b""
        self._payload = b""

    # ---- Receiver

    def sent(self) -> None:
        self.was_sent = True

    def unreachable(self, reason: str) -> None:
        self._fail(Failure(reason, "unreachable"))

    def broken(self, reason: str, why: str) -> None:
        self._fail(Failure(reason, why))

    def head(self, head: AnswerHead) -> None:
        self.answer = head
        if head.status not in REFUSALS:
            self.go(head.lines)
            self.begun.set_result(None)
        else:
            self.begun.get_loop().call_later(LOOK_SECONDS, self._look)

    def body(self, raw: bytes, payload: bytes, done: bool) -> None:
        head = self.answer
        if head is None:
            return
        if done:
            self.upstream = None  # its connection is another call's from now on
        if not self.passes:
            self._keep(raw, payload, done=done)
            return
        if payload and self._inside is None:
            self._inside = Inside(head.kind, payload)
            self.excerpt = limited_inside(payload, head.kind.decode("latin-1"))
        if self._inside is not None:
            self._inside.feed(payload, done=done)
        self._pass(raw, payload, done=done)

    # ---- for the call

    def go(self, lines: bytes) -> None:
        """The answer passes to the client from now on, under these header lines (with a status line before them)."""
        head, conn = self.answer, self._conn
        if head is None:
            return
        self.passes = True
        framing = b""
        if not self.bodiless:
            passing = Passing(head, self._version, None)
            framing, self._emit, self.until_close = passing.framing, passing.emit, passing.until_close
        if self.until_close:
            conn.keeps = False
        conn.let_go()
        conn.write_head(b"%b%b%b%b%b\r\n" % (lines, self.more, conn.more, framing, b"" if conn.keeps else CLOSE))
        if self._raw or self.whole:
            self._pass(self._raw, self._payload, done=self.whole)
            self._raw = self._payload = b""
        if not self.whole:
            self.resume()

    @property
    def refusal(self) -> bytes:
        """What a good answer has said of a quota that is used up; empty: nothing."""
        return self._inside.refusal if self._inside is not None else b""

    def kept(self) -> bytes:
        """The body of an answer that was held back."""
        return self._payload

    def pause(self) -> None:
        if self.upstream is not None:
            self.upstream.pause()

    def resume(self) -> None:
        if self.upstream is not None:
            self.upstream.resume()

    def abort(self) -> None:
        upstream, self.upstream = self.upstream, None
        if upstream is not None and not self.over.done():
            upstream.abort()

    # ---- inside

    def _keep(self, raw: bytes, payload: bytes, *, done: bool) -> None:
        self._raw += raw
        self._payload += payload
        self.whole = done
        if done:
            self._look()
        elif len(self._raw) > KEPT_BYTES_MAX:
            self.pause()
            self._look()

    def _look(self) -> None:
        """Enough has come of an answer that is held back, or it has taken long enough."""
        if self.answer is not None and not self.begun.done():
            self.excerpt = excerpt_of(self._payload, dict(told_in(self.answer.lines)).get("content-encoding", ""))
            self.begun.set_result(self.answer)

    def _pass(self, raw: bytes, payload: bytes, *, done: bool) -> None:
        conn = self._conn
        out = raw if self._emit is None else self._emit(raw, payload, done)
        if out:
            conn.write(out)
        if done:
            conn.finish()
            self.over.set_result(None)

    def _fail(self, failure: Failure) -> None:
        self.upstream = None
        if not self.begun.done():
            self.begun.set_result(failure)
        self.over.set_result(failure)
