"""How does one turn go, from its request to the end of its answer, and what is the scheduler told meanwhile?

Facts of a turn, in this order: `ask`; for each place `started`, or `give_back` with or without it; `first_token` and
`tool_calls_seen`; and at the end exactly one of `finished`, `failed` and `abandon`, or the scheduler's own refusal.
"""

import time
from enum import Enum
from typing import TYPE_CHECKING, Final

from luftpause.dataplane.attempt import Attempt
from luftpause.dataplane.digest import body_hash
from luftpause.dataplane.early import Early, rejection_of
from luftpause.dataplane.formats import Format
from luftpause.dataplane.observe import Observed
from luftpause.dataplane.outgoing import body_for, engine_request
from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.responses import refusal
from luftpause.dataplane.sweep import NEVER
from luftpause.dataplane.turn_words import ask_of, held_lines, name_lines, placed_lines
from luftpause.dataplane.turns import Placement, Refusal, ReturnReason
from luftpause.kit import ids

if TYPE_CHECKING:
    from luftpause.dataplane.exchange import Client, Request
    from luftpause.dataplane.relay import Relay

NO_REPLICA: Final = "no_replica"
TIMEOUTS: Final = frozenset({"first_byte_timeout", "idle_timeout"})


class Stage(Enum):
    NEW = "new"
    HELD = "held"  # the scheduler has the word
    PLACED = "placed"  # a connection is being made
    SENT = "sent"  # an engine has it
    OVER = "over"


NEW, HELD, PLACED, SENT, OVER = Stage  # a name of the module costs a tenth of an attribute of an Enum


class Turn:
    __slots__ = (
        "_attempt", "_body", "_conn", "_died", "_early", "_headers", "_held_at", "_hold_reason", "_lacks_usage", "_no_place",
        "_placement", "_run", "_stage", "_target", "_unreachable", "api", "deadline", "hides_usage", "id", "relay", "stores",
        "told_first_token", "version",
    )  # fmt: skip

    def __init__(self, relay: "Relay", conn: "Client", request: "Request", api: Format) -> None:
        self.relay = relay
        self._conn = conn
        self.api = api
        self.version = request.head.version
        self._body = request.body
        _, mark, query = request.head.target.partition(b"?")
        self._target = api.path.encode() + mark + query
        self._headers = b""
        self.id = ""
        self._run = ""
        self._stage = NEW
        self._attempt: Attempt | None = None
        self._placement: Placement | None = None
        self._unreachable = ""  # why the last place did not take it
        self._no_place = ""  # the code of that, if there is no other place
        self._died = False  # an engine went away before it answered; that is tried once more
        self._held_at = NEVER  # when the scheduler first said so
        self._hold_reason = ""  # the last one that it told
        self._early: Early | None = None
        self._lacks_usage = False  # of its answer, unless it is asked for
        self.hides_usage = False
        self.stores = False  # the answer can be asked for later
        self.told_first_token = False
        self.deadline = NEVER

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
        ask = ask_of(self.api, identity, reading, turn=self.id, fresh_run=fresh_run, body_bytes=body_bytes, body_hash=hashed)
        self.relay.scheduler.ask(ask, self)

    def reject(self, rejection: Rejection) -> None:
        """Answer with an error. Nothing of an engine's answer has gone on."""
        early = self._early
        self._over()
        if early is not None and early.begun:
            early.fail(self.api.error_event(rejection))
            return
        conn = self._conn
        more = conn.more + self.ours() if self._run else conn.more
        conn.answer(refusal(rejection, more=more, close=not conn.keeps))

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
        pool = self.relay.upstreams.pool(placement.replica)
        origin = pool.origin
        asks = self.relay.asks_usage
        self.hides_usage = self._lacks_usage and (placement.replica.asks_usage if asks is None else asks)
        body = body_for(self._body, usage=self.hides_usage, priority=placement.priority)
        out = engine_request(
            origin.prefix + self._target, origin.host_header, self._headers, origin.key_line(placement.replica.api_key), body
        )
        attempt = self._attempt = Attempt(self, self._conn)
        attempt.start(pool, out)

    def refused(self, refusal: Refusal) -> None:
        if self._stage is not HELD:
            return
        self._run = refusal.run
        if self._unreachable and refusal.status == 502:
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

    def broken(self, reason: str, why: str) -> None:
        """The engine has the turn and no good answer came; after the head went on the client must see that."""
        if self._stage is not SENT or self._attempt is None:
            return
        passed, attempt = self._attempt.passed, self._attempt
        if why == "engine_died" and not passed and not self._died and self.relay.config.failover:
            self._died = True
            self._elsewhere(reason, "engine_failed")
            return
        self.relay.scheduler.failed(self.id, why, attempt.usage)
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
        self.relay.scheduler.failed(self.id, "engine_error")
        self.reject(rejection_of(status, body))

    def answered(self, status: int, seen: Observed) -> None:
        """The whole answer is here."""
        scheduler = self.relay.scheduler
        if not 200 <= status < 300:
            scheduler.failed(self.id, "engine_error", seen.usage)
        elif seen.error:
            scheduler.failed(self.id, "stream_error", seen.usage)
        else:
            scheduler.finished(self.id, seen.finish_reason, seen.usage, paused=seen.paused, tool_call_ids=seen.ids, tools=seen.tools)
        self._over()

    def ours(self) -> bytes:
        """The header lines that say what happened to the turn."""
        if self._placement is not None:
            return placed_lines(self.id, self._placement)
        return self.names() + held_lines(self._held_at, self._hold_reason)

    def names(self) -> bytes:
        """The header lines with the ids that are known."""
        return name_lines(self.id, self._run)

    def waits_for(self) -> bytes:
        """Why it is held; empty: it is not."""
        if self._stage is not HELD:
            return b""
        return self._hold_reason.encode() or b"no scheduler"

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

    def _unhurried(self) -> None:
        if self.deadline != NEVER:
            self.deadline = NEVER
            self.relay.sweep.forget(self)

    # ---- ends that don't come from the engine

    def client_left(self) -> None:
        self._end_early("client_left")

    def stop_waiting(self, rejection: Rejection) -> None:
        """The dataplane stops: a turn that no engine has goes back to its client."""
        if self._stage is HELD:
            self._conn.keeps = False
            self.relay.scheduler.abandon(self.id)
            self.reject(rejection)

    def kill(self, rejection: Rejection) -> None:
        """The dataplane ends now."""
        attempt = self._attempt
        self._conn.keeps = False
        self._end_early("stopped")
        if attempt is not None and attempt.passed:
            attempt.break_off()
        else:
            self.reject(rejection)

    def _end_early(self, why: str) -> None:
        stage, attempt = self._stage, self._attempt
        self._over()
        if attempt is not None:
            attempt.abort()
        if stage is SENT:
            self.relay.scheduler.failed(self.id, why, attempt.usage if attempt is not None else None)
        elif stage is HELD or stage is PLACED:
            self.relay.scheduler.abandon(self.id)

    def _over(self) -> None:
        if self._stage is not NEW and self._stage is not OVER:
            self.relay.leave(self)
        self._stage = OVER
        self._attempt = None  # it knows the turn: without this the two would wait for the garbage collector
        self._unhurried()
        self._quiet()

    def _quiet(self) -> None:
        if self._early is not None:
            self._early.stop()

    # ---- Handler

    def pause(self) -> None:
        if self._attempt is not None and self._attempt.upstream is not None:
            self._attempt.upstream.pause()

    def resume(self) -> None:
        if self._attempt is not None and self._attempt.upstream is not None:
            self._attempt.upstream.resume()

    def last_sign(self) -> float:
        upstream = self._attempt.upstream if self._attempt is not None else None
        return upstream.last_read if upstream is not None else 0.0
