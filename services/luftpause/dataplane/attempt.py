"""How does the answer of one engine go on to the client, and what is seen in it on the way?

An `Attempt` is one placement of a turn. Until it passes the head on, the turn can still go elsewhere.
"""

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from luftpause.dataplane.answer_head import AnswerHead
from luftpause.dataplane.connection import Connection, Straight
from luftpause.dataplane.gate import COMPRESSED, EVENT_STREAM, JSON, PAGE, Verdict, judge, kind_of, needs_look
from luftpause.dataplane.limits import REFUSED, is_refusal, refuses, told
from luftpause.dataplane.observe import EventStream, Excerpt, NoAnswer, Observer, Unread, WholeJson
from luftpause.dataplane.passing import Emit, Passing
from luftpause.dataplane.responses import CLOSE
from luftpause.dataplane.seen_chat import USAGE, is_usage_only
from luftpause.dataplane.sse import EventFilter
from luftpause.dataplane.sweep import NEVER
from luftpause.dataplane.turns import Usage
from luftpause.kit.quota_evidence import excerpt_of

if TYPE_CHECKING:
    from luftpause.dataplane.exchange import Client
    from luftpause.dataplane.turn import Turn
    from luftpause.dataplane.upstream import Connecting, Pool

NOT_YET: Final = Unread()
NO_BYTES_MAX: Final = 65_536  # read of an answer that is told by an event


class Attempt:
    """Called by `Connection` (its `Receiver`); ends with exactly one of `Turn.unreachable`, `busy`, `broken` and `answered`, or `abort`."""

    __slots__ = (
        "_conn", "_emit", "_head", "_holds_limits", "_looked_at", "_no", "_observer", "_raw", "_told_response", "_turn", "_until_close",
        "deadline", "passed", "sent_at", "straight", "upstream",
    )  # fmt: skip

    def __init__(self, turn: "Turn", conn: "Client") -> None:
        self._turn = turn
        self._conn = conn
        self._head: AnswerHead | None = None
        self._looked_at: bytes | None = None  # payload that came while the head waits
        self._raw = b""  # the same as it came
        self._no: bytes | None = None  # the body of an answer that can't follow the head that the client has
        self._observer: Observer = NOT_YET
        self._emit: Emit | None = None
        self._until_close = False
        self._holds_limits = False  # this may be a refusal by quota, which nobody is to see
        self._told_response = False
        self.passed = False  # the client has the head
        self.sent_at = 0.0
        self.deadline = NEVER
        self.straight: Straight | None = None
        self.upstream: Connection | Connecting | None = None

    @property
    def usage(self) -> Usage | None:
        """What the engine has said of it so far."""
        return self._observer.seen.usage

    def start(self, pool: "Pool", out: bytes) -> None:
        pool.send(out, self)

    def abort(self) -> None:
        self._turn.relay.sweep.forget(self)
        upstream, self.upstream = self.upstream, None
        if upstream is not None:
            upstream.abort()

    def tell_limits(self, status: int = 0, excerpt: bytes = b"") -> None:
        """Before the turn's end: what this answer says of the limits of its engine, where that has a quota."""
        turn, head = self._turn, self._head
        if head is None or not turn.tells_limits:
            return
        if (error := self._observer.seen.error_told) and is_refusal(error):  # of a good answer that ended so, too late to be hidden
            status, excerpt = REFUSED, error
        excerpt = excerpt or (self._observer.start if isinstance(self._observer, Excerpt) else self._no or b"")
        text = excerpt_of(excerpt, "unknown" if head.kind == COMPRESSED else "") if excerpt else ""
        turn.relay.scheduler.answer_told(turn.id, status or head.status, told(head.lines), text)

    def break_off(self) -> None:
        """The client has part of an answer that never ends."""
        self._conn.break_off(reset=self._until_close)

    # ---- Receiver

    def sent(self) -> None:
        self.sent_at = self._turn.relay.sweep.now
        self._turn.sent()

    def unreachable(self, reason: str) -> None:
        self._turn.unreachable(reason)

    def broken(self, reason: str, why: str) -> None:
        self._turn.relay.sweep.forget(self)
        self._turn.broken(reason, why)

    def head(self, head: AnswerHead) -> None:
        self._head = head
        if self._turn.holds_limits:
            self._holds_limits = head.status == 200 or refuses(head.status, head.lines)
        turn = self._turn
        if needs_look(head.status, holds_busy=turn.relay.holds_busy, holds_limits=self._holds_limits, asked_usage=turn.hides_usage):
            self._looked_at = b""
        elif self._turn.begun:
            self._no = b""
        else:
            self._conn.write_head(self._pass(head))

    def body(self, raw: bytes, payload: bytes, done: bool) -> None:
        if self._looked_at is not None:
            self._look(raw, payload, done=done)
            return
        if self._no is not None:
            self._collect(self._no + payload, done=done)
            return
        observer = self._observer
        if payload:
            observer.feed(payload)
            if observer.seen.news:
                self._report()
        emit = self._emit
        if done:
            self._end(b"", raw, payload)
        elif emit is None:
            self._conn.write(raw)
            self._straighten(observer)
        else:
            kept = emit(raw, payload, False)
            if kept:
                self._conn.write(kept)

    # ---- the head waits

    def _look(self, raw: bytes, payload: bytes, *, done: bool) -> None:
        head = self._head
        if head is None or self._looked_at is None:
            return
        if payload and not self._looked_at and head.status == 200 and (kind := kind_of(head.kind, payload)) != head.kind:
            head = self._head = replace(head, kind=kind)  # others of that engine may be what they are called
        if payload and not self._raw and head.status == 200 and head.kind != EVENT_STREAM:
            self._looked_at = None
            self._pass_with(head, raw, payload, done=done)
            return
        raw = self._raw = self._raw + raw
        payload = self._looked_at = self._looked_at + payload
        relay = self._turn.relay
        verdict = judge(
            head.status,
            payload,
            stream=head.kind == EVENT_STREAM,
            done=done,
            holds_busy=relay.holds_busy,
            full=len(raw) > relay.config.look_bytes_max,
            holds_limits=self._holds_limits,
            asked_usage=self._turn.hides_usage,
        )
        self._judged(verdict, head, payload, done=done)

    def _judged(self, verdict: Verdict, head: AnswerHead, payload: bytes, *, done: bool) -> None:
        match verdict:
            case Verdict.WAIT:
                pass
            case Verdict.GO:
                raw, self._raw = self._raw, b""
                self._looked_at = None
                self._pass_with(head, raw, payload, done=done)
            case Verdict.BUSY:
                self._forget(done=done)
                self._turn.busy()
            case Verdict.UNASKABLE:
                self._forget(done=done)
                self._turn.unaskable()
            case Verdict.LIMITED:
                self._forget(done=done)
                self.tell_limits(REFUSED if head.status == 200 else head.status, payload)
                self._turn.limited(head, payload)
            case Verdict.EMPTY:
                self._turn.broken("answered with an empty body", "engine_fault")

    def _forget(self, *, done: bool) -> None:
        if not done:
            self.abort()  # what else it says about its full queue is of no use
        self._looked_at = None
        self._raw = b""

    def _collect(self, payload: bytes, *, done: bool) -> None:
        """The client has the head of a stream, and this is none: it is told by an event, when all of it is here, or enough."""
        self._no = payload
        if not done and len(payload) <= NO_BYTES_MAX:
            return
        if not done:
            self.abort()
        self.tell_limits()
        self._turn.told(self._head.status if self._head is not None else 0, payload)

    def _pass_with(self, head: AnswerHead, raw: bytes, payload: bytes, *, done: bool) -> None:
        """Head and first bytes in one write."""
        if self._turn.begun and (head.status != 200 or head.kind != EVENT_STREAM):
            self._collect(payload, done=done)
            return
        first = self._pass(head)
        self._observer.feed(payload)
        if self._observer.seen.news:
            self._report()
        if done:
            self._end(first, raw, payload)
        else:
            kept = raw if self._emit is None else self._emit(raw, payload, False)
            if first:
                self._conn.write_head(first + kept)
            elif kept:
                self._conn.write(kept)
            if self._emit is None:
                self._straighten(self._observer)

    # ---- the answer goes on

    def _straighten(self, observer: Observer) -> None:
        skips = observer.skips
        self.straight = (skips, self._conn.write) if skips is not None else None

    def _pass(self, head: AnswerHead) -> bytes:
        """From now on every byte is the client's. Returns the head for it; empty: it has one."""
        turn, conn = self._turn, self._conn
        begun = turn.begun
        self.passed = True
        turn.passed()
        stream = head.kind == EVENT_STREAM
        self._observer = self._observing(head, stream=stream)
        hide = EventFilter(is_usage_only, USAGE, turn.relay.config.event_bytes_max) if turn.hides_usage and stream else None
        passing = Passing(head, turn.version, hide, begun=begun)
        self._emit = passing.emit
        self._until_close = passing.until_close
        if passing.until_close:
            conn.keeps = False
        if stream:
            self.deadline = self.sent_at + turn.relay.config.first_byte_seconds
            turn.relay.sweep.watch(self)
        if begun:
            return b""
        ours = turn.ours()
        if stream and not head.caches:
            ours += b"cache-control: no-cache\r\n"
        return b"%b%b%b%b%b\r\n" % (head.lines, ours, conn.more, passing.framing, b"" if conn.keeps else CLOSE)

    def _observing(self, head: AnswerHead, *, stream: bool) -> Observer:
        config = self._turn.relay.config
        if not 200 <= head.status < 300:
            return Excerpt() if self._turn.tells_limits else Unread()
        if stream:
            return EventStream(self._turn.api.seen(), config.event_bytes_max)
        if head.kind == JSON:
            return WholeJson(self._turn.api.seen(), config.answer_bytes_max)
        return NoAnswer() if head.kind == PAGE else Unread()

    def _report(self) -> None:
        seen, turn = self._observer.seen, self._turn
        seen.news = False
        if seen.first_token and not turn.told_first_token:
            turn.told_first_token = True
            turn.relay.scheduler.first_token(turn.id)
        if seen.fresh_ids:
            turn.relay.scheduler.tool_calls_seen(turn.id, seen.fresh_ids)
            seen.fresh_ids = []
        if seen.response and not self._told_response:
            self._told_response = True
            if turn.stores:
                turn.relay.scheduler.response_seen(turn.id, seen.response)

    def _end(self, first: bytes, raw: bytes, payload: bytes) -> None:
        """The scheduler knows how the turn ended before the client can act on it."""
        self._turn.relay.sweep.forget(self)
        observer = self._observer
        observer.end()
        if observer.seen.news:
            self._report()
        status = self._head.status if self._head is not None else 0
        self.tell_limits()
        self._turn.answered(status, observer.seen)
        last = raw if self._emit is None else self._emit(raw, payload, True)
        conn = self._conn
        if first:
            conn.write_head(first + last)
        elif last:
            conn.write(last)
        conn.finish()

    def expire(self, now: float) -> None:
        """A stream that never brought an event, however many comments: `first_byte_seconds` are over."""
        self.deadline = NEVER
        if self._observer.seen.events or isinstance(self._observer, Unread):
            self._turn.relay.sweep.forget(self)
            return
        self.abort()
        self._turn.broken("sent no event", "first_byte_timeout")
