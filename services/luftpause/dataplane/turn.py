"""How does one turn go, from its request to the end of its answer, and what is the scheduler told meanwhile?

Facts of a turn, in this order: `ask`; for each place `started`, or `give_back` with or without it; `first_token` and
`tool_calls_seen`; and at the end exactly one of `finished`, `failed` and `abandon`, or the scheduler's own refusal.
"""

import time
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from luftpause.dataplane.answer_head import AnswerHead
from luftpause.dataplane.attempt import Attempt
from luftpause.dataplane.digest import body_hash
from luftpause.dataplane.early import Early, rejection_of
from luftpause.dataplane.limits import answer_tokens_max
from luftpause.dataplane.observe import A_PAGE, Observed
from luftpause.dataplane.outgoing import body_for, engine_request
from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.responses import CLOSE
from luftpause.dataplane.turn_ends import HELD, PLACED, SENT, TurnEnds
from luftpause.dataplane.turn_span import TurnSpan, with_traceparent
from luftpause.dataplane.turn_words import ask_of
from luftpause.dataplane.turns import Placement, Refusal, ReturnReason
from luftpause.kit import ids

if TYPE_CHECKING:
    from luftpause.dataplane.exchange import Request

NO_REPLICA: Final = "no_replica"
OF_QUOTAS: Final = "quota_"  # how the codes of such refusals begin
TIMEOUTS: Final = frozenset({"first_byte_timeout", "idle_timeout"})


class Turn(TurnEnds):
    """Of one request; `begin` is called once, everything else by the scheduler, the attempt and the connection."""

    __slots__ = ()

    # ---- from the request to the scheduler

    def begin(self, request: "Request") -> None:
        identity = request.head.identity(request.principal)
        if isinstance(identity, Rejection):
            self.reject(identity)
            return
        reading = self.api.read(self._body, self.relay.key)
        if isinstance(reading, Rejection):
            self.reject(reading)
            return
        self.stores = reading.stores
        body_bytes, hashed = len(self._body), body_hash(self._body)
        self._headers = request.head.forwarded(self.relay.forwarded)
        self._lacks_usage = reading.stream and not reading.mentions_usage
        chance = ids.random_text(2 * ids.LENGTH)  # one call to the operating system for two ids
        self.id = ids.TURN_PREFIX + chance[: ids.LENGTH]
        fresh_run = ids.RUN_PREFIX + chance[ids.LENGTH :]
        self._stage = HELD
        self._conn.handler = self
        self.relay.enter(self)
        if reading.stream and self.relay.config.hold_keepalive_s:
            self._early = Early(self, self._conn, self.relay.sweep.now, self.relay.config.hold_keepalive_s)
        if self.relay.tracer is not None:
            self._span = span = TurnSpan(self.relay.tracer, self.api, identity, reading.model, self.id)
            identity = replace(identity, traceparent=span.header)
            if b"traceparent" in self.relay.forwarded:
                self._headers = with_traceparent(self._headers, span.header)
        most = answer_tokens_max(self._body) if self.relay.scheduler.hosted else 0
        ask = ask_of(
            self.api, identity, reading, turn=self.id, fresh_run=fresh_run, body_bytes=body_bytes, body_hash=hashed, answer_tokens_max=most
        )  # fmt: skip
        self.relay.scheduler.ask(ask, self)

    # ---- Waiter

    def held(self, run: str, reason: str) -> None:
        if self._stage is not HELD:
            return
        self._run, self._hold_reason = run, reason
        self._held_at = min(self._held_at, time.monotonic())
        if self._unreachable and reason == NO_REPLICA:
            self._give_up()
        elif self._unreachable:
            self._unhurried()  # another replica can take it, only not yet

    def placed(self, placement: Placement) -> None:
        if self._stage is not HELD:
            return
        self._stage = PLACED
        self._unhurried()
        self._run = placement.run
        self._placement = placement
        self.holds_limits = placement.replica.holds_limits
        self._send(placement)

    def _send(self, placement: Placement) -> None:
        pool = self.relay.upstreams.pool(placement.replica)
        origin = pool.origin
        asks = self.relay.asks_usage
        self.hides_usage = self._lacks_usage and (placement.replica.asks_usage if asks is None else asks) and pool.tells_usage
        body = body_for(self._body, usage=self.hides_usage, priority=placement.priority, lease=placement.lease)
        out = engine_request(origin.at(self._target), origin.host_header, self._headers, origin.key_line(placement.replica.api_key), body)
        attempt = self._attempt = Attempt(self, self._conn)
        attempt.start(pool, out)

    def refused(self, refusal: Refusal) -> None:
        if self._stage is not HELD:
            return
        self._run = refusal.run
        if self._kept is not None and refusal.code.startswith(OF_QUOTAS):
            self._answer_kept(*self._kept)
        elif self._unreachable and refusal.status == 502:
            self.reject(Rejection(502, self._no_place, self._unreachable, refusal.retry_after_s))
        else:
            self.reject(Rejection(refusal.status, refusal.code, refusal.message, refusal.retry_after_s))

    # ---- from the attempt

    def sent(self) -> None:
        if self._stage is PLACED:
            self._stage = SENT
            self.relay.scheduler.started(self.id)

    def passed(self) -> None:
        """The engine's answer goes on: no other engine can answer this turn any more."""
        self._body = b""
        self._quiet()
        self._conn.let_go()

    def unreachable(self, reason: str) -> None:
        if self._stage is not PLACED and self._stage is not SENT:
            return
        if self.relay.config.failover:
            self._elsewhere(reason, "engine_unreachable")
            return
        self.sent()
        self.relay.scheduler.failed(self.id, "unreachable")
        self.reject(Rejection(502, "engine_unreachable", self._named(reason)))

    def busy(self) -> None:
        self._stage = HELD
        self._attempt = None
        self._give_back(ReturnReason.BUSY)

    def unaskable(self) -> None:
        """Its engine refused what we asked besides: once more without that, as all that follows there."""
        placement = self._placement
        if placement is not None:
            self.relay.upstreams.pool(placement.replica).no_usage(placement.replica.name)
            self._send(placement)

    def limited(self, head: AnswerHead, body: bytes) -> None:
        """Its quota is used up: the client sees nothing of it, unless the wait for its window is too long."""
        self._kept = (head, body) if head.status != 200 else None
        self._stage = HELD
        self._attempt = None
        self._give_back(ReturnReason.LIMITED)

    def _answer_kept(self, head: AnswerHead, body: bytes) -> None:
        """The engine's own refusal, unchanged."""
        if self.begun:
            self.reject(rejection_of(head.status, body))
            return
        conn = self._conn
        more = self.ours() + conn.more
        self._over()
        conn.answer(b"%b%bcontent-length: %d\r\n%b\r\n%b" % (head.lines, more, len(body), b"" if conn.keeps else CLOSE, body))

    @property
    def tells_limits(self) -> bool:
        return self._placement is not None and self._placement.replica.tells_limits

    def broken(self, reason: str, why: str) -> None:
        """The engine has the turn and no good answer came; after the head went on the client must see that."""
        if self._stage is not SENT or self._attempt is None:
            return
        passed, attempt = self._attempt.passed, self._attempt
        if why == "engine_died" and not passed and not self._died and self.relay.config.failover:
            self._died = True
            self._elsewhere(reason, "engine_failed")
            return
        attempt.tell_limits()
        self.relay.scheduler.failed(self.id, why, attempt.usage)
        if self._span is not None:
            self._span.failed(why)
        if passed:
            self._over()
            attempt.break_off()
        else:
            status, code = (504, why) if why in TIMEOUTS else (502, "engine_failed")
            self.reject(Rejection(status, code, self._named(reason)))

    @property
    def begun(self) -> bool:
        """Has the client a head already, of an event stream?"""
        return self._early is not None and self._early.begun

    def told(self, status: int, body: bytes) -> None:
        """The engine's answer is none that can follow the early head."""
        self.relay.scheduler.failed(self.id, self._refusal_of(status))
        self.reject(rejection_of(status, body))

    def answered(self, status: int, seen: Observed) -> None:
        """The whole answer is here."""
        scheduler = self.relay.scheduler
        if self._span is not None:
            self._span.answered(status, seen)
        if not 200 <= status < 300:
            scheduler.failed(self.id, self._refusal_of(status), seen.usage)
        elif seen.error:
            scheduler.failed(self.id, "engine_fault" if seen.error == A_PAGE else "stream_error", seen.usage)
        else:
            scheduler.finished(self.id, seen.finish_reason, seen.usage, paused=seen.paused, tool_call_ids=seen.ids, tools=seen.tools)
        self._over()

    # ---- another place, or none

    def _named(self, reason: str) -> str:
        return f"engine {self._placement.replica.name if self._placement is not None else '?'}: {reason}"

    def _elsewhere(self, reason: str, code: str) -> None:
        """The engine is gone and no byte went on: back to the scheduler, which has a moment to find another one."""
        self._unreachable, self._no_place = self._named(reason), code
        self._stage = HELD
        self._attempt = None
        self.deadline = self.relay.sweep.now + self.relay.config.failover_seconds
        self.relay.sweep.watch(self)
        if self._placement is not None:
            self.relay.scheduler.suspect(self._placement.replica.name, reason)
        self._give_back(ReturnReason.UNREACHABLE)

    def _give_back(self, reason: ReturnReason) -> None:
        self.relay.scheduler.give_back(self.id, reason)
        if self.relay.stopping is not None:
            self.stop_waiting(self.relay.stopping)

    def expire(self, now: float) -> None:
        self._give_up()

    def _give_up(self) -> None:
        self.relay.scheduler.abandon(self.id)
        self.reject(Rejection(502, self._no_place, self._unreachable))

    def _refusal_of(self, status: int) -> str:
        """
        Whose fault is it? The key is the replica's own, so an engine that takes it for wrong serves nobody. 501 is said of what the request
        wants; and of a 503 that `on_busy: pass` passes on nobody has seen whether the engine is just full.
        """
        if status == 501 or (status == 503 and not self.relay.holds_busy):
            return "engine_error"
        return "engine_fault" if status >= 500 or status == 401 else "engine_error"
