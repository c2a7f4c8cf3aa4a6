"""Which turns wait for a place or have one, what does a report change, and what does an order mean for whom?

Sans I/O: facts go to `send`, orders are methods, callbacks go to the turns' waiters. The key of a request is (turn, attempt).
"""

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from luftpause.dataplane import wire
from luftpause.dataplane.announced import Listed, read_replicas
from luftpause.dataplane.called import CallRuns
from luftpause.dataplane.ended import EndedRuns
from luftpause.dataplane.memory import Memory
from luftpause.dataplane.seeking import Seekers
from luftpause.dataplane.tally import Tally
from luftpause.dataplane.turns import Ask, Found, Placement, Refusal, Replica, ReturnReason, Usage, Waiter
from luftpause.dataplane.waiting import Parked, Turn
from luftpause.dataplane.words import Words
from luftpause.kit.clock import Clock
from luftpause.kit.logs import Log

PARKED_SECONDS_MAX: Final = 1.0

F = TypeVar("F")


class Line(Enum):
    """How far the session has come."""

    CLOSED = "closed"  # facts change the memory only
    OPENING = "opening"  # the memory is being sent: facts follow it, asks wait for the Welcome
    OPEN = "open"


class Ledger(Generic[F]):
    """`send` takes what must leave at once, `send_soon` what may wait for a few milliseconds. `counts` is for metrics and tests."""

    def __init__(
        self,
        memory: Memory,
        clock: Clock,
        *,
        words: Words[F],
        send: Callable[[F], None],
        send_soon: Callable[[F], None],
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.memory = memory
        self.line = Line.CLOSED
        self.contacted = False
        self.replicas: Mapping[str, Replica] = MappingProxyType({})
        self.counts: Counter[str] = Counter()
        self.tally = Tally()
        self._clock = clock
        self._words = words
        self._send = send
        self._send_soon = send_soon
        self._environ = os.environ if environ is None else environ
        self._turns: dict[str, Turn] = {}
        self._parked: dict[str, Parked] = {}
        self._unusable: dict[str, str] = {}  # replica -> reason
        self._ended = EndedRuns(memory.seconds)
        self._calls = CallRuns(memory.seconds)
        self._seekers = Seekers()
        self._sessions = 0
        self._log = Log("dataplane")

    # ---- the session ----------------------------------------------------------------------------------------------

    def opening(self) -> None:
        """The memory is being sent: from now on facts follow it."""
        self.line = Line.OPENING
        self._sessions += 1
        self._unusable = {}

    def opened(self) -> None:
        """The scheduler has the memory: ask for all that is held."""
        self.line = Line.OPEN
        self.contacted = True
        now = self._clock()
        for run, principal, when in self._ended.since(now):
            self._say("run_ended", self._words.run_ended(run, principal, when, now))
        for turn in self._turns.values():
            if not turn.replica:
                self._request(turn)

    def closed(self) -> None:
        """No session: nothing is sent and nothing kept for sending."""
        self.line = Line.CLOSED
        for turn_id in list(self._parked):  # the next session lists it as held
            self._withdraw(self._turns[turn_id], turn_id)
        self._seekers.nothing()

    def in_flight(self) -> list[str]:
        """The turns that have a place."""
        return [turn_id for turn_id, turn in self._turns.items() if turn.replica]

    @property
    def sessions(self) -> int:
        """Begun since the start."""
        return self._sessions

    def turns(self) -> Collection[Turn]:
        """Those that are held (without replica) or in flight."""
        return self._turns.values()

    def tick(self) -> None:
        """Once a second: give up places on replicas that nobody announced."""
        now = self._clock()
        for turn_id, parked in list(self._parked.items()):
            if now - parked.since >= PARKED_SECONDS_MAX:
                self.give_back(turn_id, ReturnReason.UNREACHABLE)

    # ---- facts ----------------------------------------------------------------------------------------------------

    def ask(self, ask: Ask, waiter: Waiter) -> None:
        if ask.turn in self._turns:
            raise ValueError(f"turn {ask.turn} was asked for before")
        turn = self._turns[ask.turn] = Turn(wire.bounded(ask), waiter, self._clock())
        self.tally.asked(ask)
        if self.line is Line.OPEN:
            self._request(turn)

    def abandon(self, turn_id: str) -> None:
        turn = self._turns.get(turn_id)
        if turn is None:
            return
        if turn.started:
            self.failed(turn_id, "client_left")
            return
        del self._turns[turn_id]
        self._parked.pop(turn_id, None)
        self.memory.withdrawn(self._clock(), turn_id, held_again=False)
        self.tally.over(turn, "abandoned")
        self._say("abandoned", self._words.abandoned(turn_id, turn.attempt))

    def give_back(self, turn_id: str, reason: ReturnReason) -> None:
        turn = self._turns.get(turn_id)
        if turn is None or not turn.replica:
            return
        replica, attempt = turn.replica, self._withdraw(turn, turn_id)
        if reason is ReturnReason.UNREACHABLE:  # a busy or limited one may have room later
            turn.without = (*turn.without, replica)
        self.tally.returns.add((replica, reason.value))
        self._say("returned", self._words.returned(turn_id, attempt, replica, reason))
        if self.line is Line.OPEN and turn.asked_in != self._sessions:
            self._request(turn)  # this scheduler knows the turn from Hello only: it has not seen what was asked

    def _withdraw(self, turn: Turn, turn_id: str) -> int:
        """The turn is held again; returns the attempt that ended."""
        self._parked.pop(turn_id, None)
        self.memory.withdrawn(self._clock(), turn_id)
        ended, turn.attempt = turn.attempt, turn.attempt + 1
        turn.replica, turn.started = "", False
        return ended

    def started(self, turn_id: str) -> None:
        if (turn := self._in_flight(turn_id)) and not turn.started:
            turn.started = True
            self._say_soon("started", self._words.started(turn_id, turn.attempt))

    def first_token(self, turn_id: str) -> None:
        if turn := self._in_flight(turn_id):
            self.memory.first_token(turn_id)
            self.tally.first_token(turn, self._clock())
            self._say_soon("first_token", self._words.first_token(turn_id))

    def tool_calls_seen(self, turn_id: str, ids: Sequence[str]) -> None:
        if (turn := self._in_flight(turn_id)) and (ids := wire.ids(ids)):
            self.memory.tool_calls_seen(self._clock(), turn_id, ids)
            self._calls.saw(self._clock(), ids, turn.run, turn.ask.principal)
            self._say("tool_calls_seen", self._words.tool_calls_seen(turn_id, ids))

    def response_seen(self, turn_id: str, response: str) -> None:
        if self._in_flight(turn_id) and (known := wire.ids((response,))):
            self.memory.response_seen(self._clock(), turn_id, known[0])
            self._say_soon("response_seen", self._words.response_seen(turn_id, known[0]))

    def finished(
        self,
        turn_id: str,
        finish_reason: str,
        usage: Usage | None,
        *,
        paused: bool,
        tool_call_ids: Sequence[str] = (),
        tools: Sequence[str] = (),
    ) -> None:
        if turn := self._in_flight(turn_id):
            del self._turns[turn_id]
            ids, called = wire.ids(tool_call_ids), wire.tools(tools)
            now = self._clock()
            self.tally.finished(turn, now, usage, "paused" if paused else "finished")
            self.memory.finished(now, turn_id, paused=paused, tool_call_ids=ids)
            self._calls.saw(now, ids, turn.run, turn.ask.principal)
            fact = self._words.finished(turn_id, turn.attempt, finish_reason, usage, paused=paused, tool_call_ids=ids, tools=called)
            self._say("finished", fact)

    def failed(self, turn_id: str, reason: str, usage: Usage | None = None) -> None:
        turn = self._in_flight(turn_id)
        if turn is None:
            self.abandon(turn_id)  # it was held
            return
        del self._turns[turn_id]
        self.memory.failed(self._clock(), turn_id)
        self.tally.over(turn, reason, usage)
        self._say("failed", self._words.failed(turn_id, turn.attempt, reason))

    def run_of_call(self, id_: str, principal: str) -> str:
        """The run whose model made this tool call; empty: nobody can tell."""
        return self._calls.run_of(self._clock(), id_, principal)

    def end_run(self, run: str, principal: str) -> None:
        self.memory.end_run(run, principal)
        now = self._clock()
        self._ended.add(now, run, principal)
        if self.line is Line.OPEN:
            self._say("run_ended", self._words.run_ended(run, principal, now, now))
            return
        for turn_id, turn in list(self._turns.items()):
            if not turn.replica and run in (turn.run, turn.ask.run) and turn.ask.principal == principal:
                del self._turns[turn_id]
                self._refuse(turn, Refusal(run, 409, "run_ended", f"run {run} was ended while this turn was held"))

    def suspect(self, replica: str, reason: str) -> None:
        self._say("suspected", self._words.suspected(replica, reason))

    def locate(self, response: str, principal: str, found: Found) -> str:
        """Ask which replica stores a response; returns the id of the query, for `unseek`. Without a session the answer is none, at once."""
        query = self._seekers.add(found)
        if self.line is Line.OPEN and (known := wire.ids((response,))):
            self._say("locate", self._words.locate(query, known[0], principal))
        else:
            self._seekers.answer(query, "")
        return query

    def unseek(self, query: str) -> None:
        self._seekers.drop(query)

    def _in_flight(self, turn_id: str) -> Turn | None:
        """None: not known, or it has no place that its waiter knows of."""
        turn = self._turns.get(turn_id)
        return turn if turn is not None and turn.replica and turn_id not in self._parked else None

    def _say(self, kind: str, fact: F) -> None:
        if self.line is not Line.CLOSED:
            self.tally.facts[kind] += 1
            self._send(fact)

    def _say_soon(self, kind: str, fact: F) -> None:
        if self.line is not Line.CLOSED:
            self.tally.facts[kind] += 1
            self._send_soon(fact)

    def _request(self, turn: Turn) -> None:
        turn.asked_in = self._sessions
        run = turn.run or turn.ask.run  # once the scheduler named its run, it stays that run
        now = self._clock()
        self.tally.facts["requested"] += 1
        self._send(self._words.requested(turn.ask, attempt=turn.attempt, run=run, arrived=turn.arrived, now=now, without=turn.without))

    # ---- orders ---------------------------------------------------------------------------------------------------

    def _asked(self, kind: str, turn_id: str, attempt: int) -> Turn | None:
        """The held turn that the order `kind` answers; None: there is none (counted)."""
        self.tally.orders[kind] += 1
        turn = self._turns.get(turn_id)
        if turn is None:
            self.counts["unknown_turn"] += 1
        elif turn.attempt != attempt or turn.replica:
            self.counts["stale_attempt"] += 1
            turn = None
        return turn

    def held(self, turn_id: str, attempt: int, run: str, reason: str) -> None:
        if turn := self._asked("held", turn_id, attempt):
            turn.run = run
            self._tell(turn, lambda waiter: waiter.held(run, reason))

    def placed(
        self, turn_id: str, attempt: int, *, run: str, replica: str, turn_seq: int, why: str, held_ms: int, priority: int | None = None
    ) -> None:
        """`why` it was held; empty: it was not. `priority`: what its request says to the engine; None: nothing."""
        turn = self._asked("placed", turn_id, attempt)
        if turn is None:
            if turn_id not in self._turns:  # whatever became of it: the place must not stay counted
                self._say("abandoned", self._words.abandoned(turn_id, attempt))
            return
        now = self._clock()
        turn.run, turn.replica = run, replica
        self._ended.resumed(run, turn.ask.principal)
        self.tally.placed(turn, now, why)
        self.memory.placed(now, turn.ask, attempt=attempt, run=run, replica=replica, turn_seq=turn_seq)
        self._deliver(turn_id, turn, Parked(why, held_ms, now, priority))

    def _deliver(self, turn_id: str, turn: Turn, place: Parked) -> None:
        """Tell the waiter of its place; one on a replica not yet announced stays parked, one that can't be used goes back."""
        if turn.replica in self._unusable:
            self.counts["unusable_place"] += 1
            self.give_back(turn_id, ReturnReason.UNREACHABLE)
        elif replica := self.replicas.get(turn.replica):
            self._parked.pop(turn_id, None)
            placement = Placement(replica, turn.run, turn.attempt, place.why, place.held_ms, place.priority)
            self._tell(turn, lambda waiter: waiter.placed(placement))
        else:
            self._parked[turn_id] = place

    def refused(self, turn_id: str, attempt: int, *, run: str, status: int, code: str, message: str, retry_after_s: int) -> None:
        if turn := self._asked("refused", turn_id, attempt):
            del self._turns[turn_id]
            self._refuse(turn, Refusal(run, status, code, message, retry_after_s))

    def announced(self, replicas: Iterable[Listed]) -> None:
        """All that there are."""
        self.tally.orders["replicas"] += 1
        usable, unusable = read_replicas(replicas, self._environ)
        for name, reason in unusable.items():
            if self._unusable.get(name) != reason:
                self._log.warning("can't use a replica", replica=name, reason=reason)
                self._say("unusable", self._words.unusable(name, reason))
        self.replicas, self._unusable = MappingProxyType(usable), unusable
        for turn_id, place in list(self._parked.items()):
            if turn := self._turns.get(turn_id):
                self._deliver(turn_id, turn, place)

    def forgotten(self, run: str, principal: str) -> None:
        """Some dataplane ended it."""
        self.tally.orders["run_forgotten"] += 1
        self.memory.end_run(run, principal)

    def followed_elsewhere(self, run: str, principal: str, model: str, ids: Sequence[str]) -> None:
        """A turn through another dataplane follows an answer that was given here."""
        self.tally.orders["branch_followed"] += 1
        self.memory.followed_elsewhere(run, principal, model, ids)

    def located(self, query: str, replica: str) -> None:
        self.tally.orders["located"] += 1
        if not self._seekers.answer(query, replica):
            self.counts["unknown_query"] += 1

    def _refuse(self, turn: Turn, refusal: Refusal) -> None:
        self.tally.over(turn, "refused")
        self._tell(turn, lambda waiter: waiter.refused(refusal))

    def _tell(self, turn: Turn, say: Callable[[Waiter], None]) -> None:
        """A waiter that fails must not end the session that all others share."""
        try:
            say(turn.waiter)
        except Exception:  # noqa: BLE001 (whatever it is, it is logged with its traceback)
            self.counts["waiter_failed"] += 1
            self._log.exception("a turn's waiter failed", turn=turn.ask.turn)
