"""What is told of the turns that wait for a place or have one, when, and what does it change here?

Sans I/O: facts go to `send`, what a turn must hear to its waiter. The key of a request is (turn, attempt).
"""

import os
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from luftpause.dataplane import wire
from luftpause.dataplane.called import CallRuns
from luftpause.dataplane.ended import EndedRuns
from luftpause.dataplane.leases import AnswerTold, LeaseEnd, LeaseEnded
from luftpause.dataplane.memory import Memory
from luftpause.dataplane.seeking import Seekers
from luftpause.dataplane.tally import Tally
from luftpause.dataplane.turns import Ask, Refusal, Replica, ReturnReason, Usage, Waiter
from luftpause.dataplane.unasked import Unasked
from luftpause.dataplane.waiting import Parked, Turn
from luftpause.dataplane.words import Words
from luftpause.kit.clock import Clock
from luftpause.kit.logs import Log

LEASES_MAX: Final = 10_000  # of turns that ended while there was no session
RETURNS: Final = {
    ReturnReason.UNREACHABLE: LeaseEnd.UNUSED, ReturnReason.BUSY: LeaseEnd.FAILED, ReturnReason.LIMITED: LeaseEnd.LIMITED,
}  # fmt: skip

F = TypeVar("F")


class Line(Enum):
    """How far the session has come."""

    CLOSED = "closed"  # facts change the memory only
    OPENING = "opening"  # the memory is being sent: facts follow it, asks wait for the Welcome
    OPEN = "open"


CLOSED, OPENING, OPEN = Line  # a name of the module costs a tenth of an attribute of an Enum


class Facts(Generic[F]):
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
        self.line = CLOSED
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
        self._starts: dict[str, Turn] = {}  # of which the scheduler has not heard
        self._parked: dict[str, Parked] = {}
        self._unusable: dict[str, str] = {}  # replica -> reason
        self._ended = EndedRuns(memory.seconds)
        self._calls = CallRuns(memory.seconds)
        self._seekers = Seekers()
        self._sessions = self._requests = 0
        self._unasked = Unasked()
        self._leases_ended: deque[LeaseEnded] = deque(maxlen=LEASES_MAX)  # while there was no session
        self.hosted = False  # some replica has a quota
        self._log = Log("dataplane")

    def ask(self, ask: Ask, waiter: Waiter) -> None:
        turn = self._begin(ask, waiter)
        if self.line is OPEN:
            self._request(turn)

    def _begin(self, ask: Ask, waiter: Waiter) -> Turn:
        if ask.turn in self._turns:
            raise ValueError(f"turn {ask.turn} was asked for before")
        turn = self._turns[ask.turn] = Turn(wire.bounded(ask), waiter, self._clock())
        self.tally.asked(ask)
        return turn

    def abandon(self, turn_id: str) -> None:
        turn = self._turns.get(turn_id)
        if turn is None:
            return
        if turn.started:
            self.failed(turn_id, "client_left")
            return
        del self._turns[turn_id]
        self._parked.pop(turn_id, None)
        self._lease_over(turn, LeaseEnd.UNUSED)
        self.memory.withdrawn(self._clock(), turn_id, held_again=False)
        self.tally.over(turn, "abandoned")
        self._say("abandoned", self._words.abandoned(turn_id, turn.attempt))

    def give_back(self, turn_id: str, reason: ReturnReason) -> None:
        turn = self._turns.get(turn_id)
        if turn is None or not turn.replica:
            return
        died = reason is ReturnReason.UNREACHABLE and turn.started  # its engine had it, and may have counted it
        self._lease_over(turn, LeaseEnd.FAILED if died else RETURNS[reason])
        if died and turn.fence:
            self._say("lease_told", self._words.lease_ended(self._lease_ended(turn, LeaseEnd.FAILED)))
        replica, attempt = turn.replica, self._withdraw(turn, turn_id)
        if reason is ReturnReason.UNREACHABLE and replica not in self._unusable:  # a busy one may have room later; this one was not tried
            turn.without = (*turn.without, replica)
        self._unasked.doubt(replica, self._requests)
        self.tally.returns.add((replica, reason.value))
        self._say("returned", self._words.returned(turn_id, attempt, replica, reason))
        if self.line is OPEN and turn.asked_in != self._sessions:
            self._request(turn)  # this scheduler knows the turn from Hello only: it has not seen what was asked

    def _withdraw(self, turn: Turn, turn_id: str) -> int:
        """The turn is held again; returns the attempt that ended."""
        self._parked.pop(turn_id, None)
        self.memory.withdrawn(self._clock(), turn_id)
        ended, turn.attempt = turn.attempt, turn.attempt + 1
        turn.replica, turn.started, turn.fence = "", False, 0
        self._starts.pop(turn_id, None)
        return ended

    def started(self, turn_id: str) -> None:
        """Told by `tell_starts`, or with a failure; not if a token, a tool call, a response or the end of an answer tells it before."""
        if (turn := self._in_flight(turn_id)) and not turn.started:
            turn.started = True
            self._starts[turn_id] = turn

    def tell_starts(self) -> None:
        """Of the turns that an engine has and of which nothing else was told since."""
        for turn_id, turn in self._starts.items():
            self._say_soon("started", self._words.started(turn_id, turn.attempt))
        self._starts.clear()

    def first_token(self, turn_id: str) -> None:
        if turn := self._in_flight(turn_id):
            self._starts.pop(turn_id, None)
            self.memory.first_token(turn_id)
            self.tally.first_token(turn, self._clock())
            self._say_soon("first_token", self._words.first_token(turn_id))

    def tool_calls_seen(self, turn_id: str, ids: Sequence[str]) -> None:
        if (turn := self._in_flight(turn_id)) and (ids := wire.ids(ids)):
            self._starts.pop(turn_id, None)
            self.memory.tool_calls_seen(self._clock(), turn_id, ids)
            self._calls.saw(self._clock(), ids, turn.run, turn.ask.principal)
            self._say("tool_calls_seen", self._words.tool_calls_seen(turn_id, ids))

    def response_seen(self, turn_id: str, response: str) -> None:
        if self._in_flight(turn_id) and (known := wire.ids((response,))):
            self._starts.pop(turn_id, None)
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
            self._starts.pop(turn_id, None)
            self._lease_over(turn, LeaseEnd.ANSWERED, usage)
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
        self._lease_over(turn, LeaseEnd.FAILED, usage)
        if self._starts.pop(turn_id, None) is not None:
            self._say("started", self._words.started(turn_id, turn.attempt))  # else nobody could tell whether an engine had it
        self.memory.failed(self._clock(), turn_id)
        self.tally.over(turn, reason, usage)
        self._say("failed", self._words.failed(turn_id, turn.attempt, reason))

    def answer_told(self, turn_id: str, status: int, headers: Mapping[str, str], excerpt: str) -> None:
        """Kept while there is no session, for when the turn ends."""
        if turn := self._in_flight(turn_id):
            told = AnswerTold(status, headers, excerpt)
            if self.line is CLOSED:
                turn.told = told
            else:
                self._say("answer_told", self._words.answer_told(turn_id, turn.attempt, told))

    def _lease_over(self, turn: Turn, end: LeaseEnd, usage: Usage | None = None) -> None:
        """With a session the end of the turn says it all."""
        if turn.fence and self.line is CLOSED:
            self._leases_ended.append(self._lease_ended(turn, end, usage))

    @staticmethod
    def _lease_ended(turn: Turn, end: LeaseEnd, usage: Usage | None = None) -> LeaseEnded:
        return LeaseEnded(turn.ask.turn, turn.attempt, turn.replica, turn.fence, end, usage, turn.told)

    def _in_flight(self, turn_id: str) -> Turn | None:
        """None: not known, or it has no place that its waiter knows of."""
        turn = self._turns.get(turn_id)
        return turn if turn is not None and turn.replica and turn_id not in self._parked else None

    def _say(self, kind: str, fact: F) -> None:
        if self.line is not CLOSED:
            self.tally.facts[kind] += 1
            self._send(fact)

    def _say_soon(self, kind: str, fact: F) -> None:
        if self.line is not CLOSED:
            self.tally.facts[kind] += 1
            self._send_soon(fact)

    def _request(self, turn: Turn, now: float | None = None) -> None:
        """`now`: one time for all that are asked for together, lest the rounding of their ages changes their order."""
        self._requests += 1
        turn.asked_in, turn.number = self._sessions, self._requests
        run = turn.run or turn.ask.run  # once the scheduler named its run, it stays that run
        now = self._clock() if now is None else now
        self.tally.facts["requested"] += 1
        self._send(self._words.requested(turn.ask, attempt=turn.attempt, run=run, arrived=turn.arrived, now=now, without=turn.without))

    def _refuse(self, turn: Turn, refusal: Refusal) -> None:
        self.tally.over(turn, "refused")
        try:
            turn.waiter.refused(refusal)
        except Exception:  # noqa: BLE001 (whatever it is, it is logged with its traceback)
            self._waiter_failed(turn)

    def _waiter_failed(self, turn: Turn) -> None:
        """It must not end the session that all others share. To be called where the exception is at hand."""
        self.counts["waiter_failed"] += 1
        self._log.exception("a turn's waiter failed", turn=turn.ask.turn)
