"""How do dataplane and scheduler run in one process, the one calling the other?

Neither knows the other, so they meet here. Facts become the core's events without a message in between, and orders are told to the
dataplane's ledger while the host carries them out. Everything else is as with two processes: the same host, the same queue, the same order.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, assert_never

from msgspec import UnsetType

from luftpause.dataplane import leases, wire
from luftpause.dataplane.announced import Listed
from luftpause.dataplane.app import plane_of
from luftpause.dataplane.forgetful import NoMemory
from luftpause.dataplane.ledger import Ledger
from luftpause.dataplane.ledger_link import LedgerLink
from luftpause.dataplane.metrics import LinkMetrics
from luftpause.dataplane.turns import Ask, Kind, Lease, ReturnReason, TurnClass, Usage
from luftpause.kit import protocol, serve, tracing
from luftpause.kit.clock import Clock, monotonic
from luftpause.kit.config import Config
from luftpause.kit.config_watch import Watcher
from luftpause.kit.ids import new_boot_id
from luftpause.kit.logs import Log
from luftpause.scheduler import app as scheduler_app
from luftpause.scheduler.core import events
from luftpause.scheduler.core.decisions import BranchFollowed, EndRun, Held, Located, Outcome, Place, Refuse
from luftpause.scheduler.host import Host
from luftpause.scheduler.quota_told import AnswerTold, LeaseTold, Told
from luftpause.scheduler.server import SessionServer
from luftpause.scheduler.translate import Announced, Order, Replicas

LIST_SECONDS: Final = 30.0  # turns in flight are listed this often

CLASSES: Final = {TurnClass.INTERACTIVE: events.TurnClass.INTERACTIVE, TurnClass.BATCH: events.TurnClass.BATCH}
KINDS: Final = {each: events.Kind(each.value) for each in Kind}
KINDS_BACK: Final = {each: Kind(each.value) for each in events.Kind}
Fact = events.Event | Told

REASONS: Final = {each: events.ReturnReason(each.value) for each in ReturnReason}

log = Log("dataplane")


async def run(config: Config, *, announce: Path | None = None, watcher: Watcher | None = None) -> None:
    """Until SIGTERM or SIGINT. Raises LuftpauseError, also when one of the two can't go on."""
    config = _expecting_itself(config)
    async with contextlib.AsyncExitStack() as stack:
        stop = await stack.enter_async_context(serve.stop_signals())
        follow = await stack.enter_async_context(scheduler_app.following(watcher, stop))
        tracer = tracing.from_environment("dataplane")
        await stack.enter_async_context(tracing.stopped(tracer))
        scheduler = await stack.enter_async_context(scheduler_app.running(config))
        link = InProcessLink(config.dataplane.name, scheduler.host, scheduler.sessions, memory_seconds=config.dataplane.memory_seconds)
        plane = plane_of(config, link, LinkMetrics(link.ledger, lambda: scheduler.host.waiting), quotas=scheduler.governing.port)
        plane.relay.tracer = tracer
        link.join()
        await plane.start()
        follow(scheduler)
        plane.collect_when_idle()
        serve.announce(announce, {"http": plane.url, "grpc": scheduler.grpc, "status": scheduler.http})
        log.info("the scheduler runs in this process", grpc=scheduler.grpc, http=scheduler.http)
        ends = [asyncio.create_task(stop.asked.wait()), asyncio.create_task(link.run())]
        try:
            await asyncio.wait({*ends, scheduler.work, plane.serving}, return_when=asyncio.FIRST_COMPLETED)
            if scheduler.work.done():
                stop.now.set()  # nobody will place or end a turn any more
            await plane.stop(stop.now)
            for each in (scheduler.work, ends[1]):
                if each.done():
                    each.result()
            link.leave()
        finally:
            for each in ends:
                each.cancel()


def _expecting_itself(config: Config) -> Config:
    """Nobody else is waited for after the start, unless the configuration names somebody."""
    if config.scheduler.dataplanes_expected:
        return config
    return config.model_copy(update={"scheduler": config.scheduler.model_copy(update={"dataplanes_expected": (config.dataplane.name,)})})


class InProcessLink(LedgerLink[Fact]):
    """The `turns.Scheduler` whose scheduler is in this process. To be joined once, before anything is asked."""

    def __init__(
        self,
        name: str,
        host: Host,
        sessions: SessionServer,
        *,
        memory_seconds: float,
        clock: Clock = monotonic,
        environ: Mapping[str, str] | None = None,
        alive_seconds: float = protocol.ALIVE_SECONDS,
        list_seconds: float = LIST_SECONDS,
    ) -> None:
        memory = NoMemory(seconds=memory_seconds)
        words = Words(name, clock)
        super().__init__(Ledger(memory, clock, words=words, send=host.post, send_soon=host.post, environ=environ))
        self._name = name
        self._host = host
        self._sessions = sessions
        self._clock = clock
        self._alive_seconds = alive_seconds
        self._list_seconds = list_seconds
        self._delivering: set[str] = set()

    def join(self) -> None:
        """From now on turns are placed."""
        self._session = self._sessions.join(self._name, new_boot_id(), self)
        self.ledger.opening()
        self.ledger.opened()

    async def run(self) -> None:
        """Say which turns are in flight and which replicas deliver, so that none expires and none is thought dead."""
        listed = self._clock()
        while True:
            await asyncio.sleep(self._alive_seconds / 2)
            self.ledger.tick()
            self.ledger.sweep()
            now = self._session.heard = self._clock()
            self._session.facts = self.ledger.tally.facts.total()
            lists = now - listed >= self._list_seconds
            if lists:
                listed = now
            turns = tuple(self.ledger.in_flight()) if lists else None
            self._host.post_soon(events.DataplaneAlive(now, self._name, turns, tuple(sorted(self._delivering))))
            self._delivering.clear()

    def leave(self) -> None:
        """Let the scheduler see, count and record the last facts."""
        while self._host.waiting:
            self._host.advance()

    def delivering(self, replica: str) -> None:
        self._delivering.add(replica)

    # ---- orders

    def put(self, order: Order) -> None:
        """Carry out an order; the host's `Orders`."""
        ledger = self.ledger
        match order:
            case Place():
                why = order.hold_reason.value if order.hold_reason is not None else ""
                held_ms = round(order.held_seconds * 1000) if order.held_seconds else 0
                ledger.placed(
                    order.turn, order.attempt, run=order.run, replica=order.replica, turn_seq=order.turn_seq, why=why, held_ms=held_ms,
                    priority=order.priority if isinstance(order.priority, int) else None, lease=_lease(order),
                )  # fmt: skip
            case Held():
                ledger.held(order.turn, order.attempt, order.run, order.reason.value)
            case Refuse():
                ledger.refused(
                    order.turn, order.attempt, run=order.run, status=order.status, code=order.code, message=order.message,
                    retry_after_s=-int(-order.retry_after_seconds // 1),
                )  # fmt: skip
            case EndRun():
                ledger.forgotten(order.run, order.principal)
            case BranchFollowed():
                ledger.followed_elsewhere(order.run, order.principal, order.model, order.ids)
            case Located():
                ledger.located(order.query, order.replica)
            case Replicas():
                ledger.announced(map(_listed, order.replicas))
            case _:
                assert_never(order)


def _listed(each: Announced) -> Listed:
    return Listed(
        each.name, each.url, each.models, KINDS_BACK[each.kind], each.state, each.api_key_env, each.apis, each.asks_usage,
        each.tells_limits, each.holds_limits, each.passes_unasked,
    )  # fmt: skip


def _lease(to: Place) -> Lease | None:
    lease = to.lease
    return None if isinstance(lease, UnsetType) else Lease(lease.fence, lease.level, lease.answer_share, lease.answer_least, lease.model)


class Words:
    """The ledger's facts as the core's events. Texts are bounded as those that go by the wire."""

    def __init__(self, dataplane: str, clock: Clock) -> None:
        self._dataplane = dataplane
        self._clock = clock

    def requested(
        self, ask: Ask, *, attempt: int, run: str, arrived: float, now: float, without: Sequence[str], sent_to: str = ""
    ) -> events.Event:  # fmt: skip
        return events.TurnRequested(
            now=now, dataplane=self._dataplane, turn=ask.turn, attempt=attempt, fresh_run=ask.fresh_run, model=ask.model,
            turn_class=CLASSES[ask.turn_class], caller=ask.caller, run=run, parent=ask.parent, kind=KINDS[ask.kind], api=ask.api,
            tool_call_ids=ask.tool_call_ids, head_digest=ask.head_digest, previous_response=ask.previous_response,
            body_hash=ask.body_hash, arrived=arrived, without=tuple(without), principal=ask.principal, body_bytes=ask.body_bytes,
            priority=ask.priority, answer_tokens_max=ask.answer_tokens_max, traceparent=ask.traceparent,
            sent_to=sent_to,
        )  # fmt: skip

    def abandoned(self, turn: str, attempt: int) -> events.Event:
        return events.TurnAbandoned(self._clock(), self._dataplane, turn, attempt)

    def returned(self, turn: str, attempt: int, replica: str, reason: ReturnReason) -> events.Event:
        return events.TurnReturned(self._clock(), self._dataplane, turn, attempt, replica, REASONS[reason])

    def started(self, turn: str, attempt: int) -> events.Event:
        return events.TurnStarted(self._clock(), self._dataplane, turn, attempt)

    def first_token(self, turn: str) -> events.Event:
        return events.FirstToken(self._clock(), self._dataplane, turn)

    def tool_calls_seen(self, turn: str, ids: Sequence[str]) -> events.Event:
        return events.ToolCallSeen(self._clock(), self._dataplane, turn, tuple(ids))

    def response_seen(self, turn: str, response: str) -> events.Event:
        return events.ResponseSeen(self._clock(), self._dataplane, turn, response)

    def finished(
        self, turn: str, attempt: int, finish_reason: str, usage: Usage | None, *, paused: bool, tool_call_ids: Sequence[str],
        tools: Sequence[str],
    ) -> events.Event:  # fmt: skip
        tokens = events.Usage(usage.prompt, usage.completion, usage.cached) if usage is not None else None
        name = wire.name(finish_reason)
        return events.TurnFinished(self._clock(), self._dataplane, turn, attempt, name, tokens, paused, tuple(tool_call_ids), tuple(tools))

    def answer_told(self, turn: str, attempt: int, told: leases.AnswerTold) -> Fact:
        return AnswerTold(turn, attempt, told.status, told.headers, told.excerpt)

    def lease_ended(self, ended: leases.LeaseEnded) -> Fact:
        usage, told = ended.usage, ended.told
        tokens = (usage.prompt, usage.completion) if usage is not None else (None, None)
        answer = AnswerTold(ended.turn, ended.attempt, told.status, told.headers, told.excerpt) if told is not None else None
        return LeaseTold(ended.turn, ended.attempt, ended.replica, ended.fence, Outcome(ended.end.value), *tokens, answer)

    def failed(self, turn: str, attempt: int, reason: str) -> events.Event:
        return events.TurnFailed(self._clock(), self._dataplane, turn, attempt, wire.name(reason))

    def run_ended(self, run: str, principal: str, ended: float, now: float) -> events.Event:
        return events.RunEnded(now, wire.name(run), wire.name(principal), ended)

    def locate(self, query: str, response: str, principal: str) -> events.Event:
        return events.ResponseSought(self._clock(), self._dataplane, query, response, wire.name(principal))

    def suspected(self, replica: str, reason: str) -> events.Event:
        del reason
        return events.ReplicaSuspected(self._clock(), self._dataplane, replica)

    def unusable(self, replica: str, reason: str) -> events.Event:
        return events.ReplicaUnusable(self._clock(), self._dataplane, replica, wire.name(reason))
