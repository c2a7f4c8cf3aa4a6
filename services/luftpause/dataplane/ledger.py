"""Which turns wait for a place or have one, what does the session with the scheduler change, and what does an order mean for whom?

Sans I/O: orders are methods, callbacks go to the turns' waiters.
"""

from collections.abc import Collection, Iterable, Sequence
from types import MappingProxyType
from typing import Final, TypeVar

from luftpause.dataplane import wire
from luftpause.dataplane.announced import Listed, read_replicas
from luftpause.dataplane.facts import CLOSED, OPEN, OPENING, Facts, Line
from luftpause.dataplane.leases import LeaseEnd
from luftpause.dataplane.turns import Ask, Found, Kind, Lease, Placement, Refusal, ReturnReason, Waiter
from luftpause.dataplane.unasked import Unasked
from luftpause.dataplane.waiting import Parked, Turn

PARKED_SECONDS_MAX: Final = 1.0
GENERATIVE: Final = Kind.GENERATIVE  # a name of the module costs a tenth of an attribute of an Enum

F = TypeVar("F")

__all__ = ["Ledger", "Line"]


class Ledger(Facts[F]):
    """What `Facts` knows, and what comes from the scheduler."""

    def ask(self, ask: Ask, waiter: Waiter) -> None:
        """Where there is but one place for a single pass, it has that before the scheduler hears of it."""
        replica = self._unasked.replica_for(ask) if ask.kind is not GENERATIVE and self.line is OPEN else None
        if replica is None:
            super().ask(ask, waiter)
            return
        turn = self._begin(ask, waiter)
        ask, now, turn.asked_in = turn.ask, turn.arrived, self._sessions
        fact = self._words.requested(ask, attempt=1, run=ask.run, arrived=now, now=now, without=(), sent_to=replica.name)
        self._say_soon("requested", fact)
        turn.run, turn.replica = ask.run or ask.fresh_run, replica.name
        self._has_place(turn, now, "")
        self._deliver(ask.turn, turn, Parked("", 0, now, None, None))

    def _has_place(self, turn: Turn, now: float, why: str, *, turn_seq: int = 0, model: str = "") -> None:
        """`why` it was held before; empty: it was not. `model`: that it goes on with, if it does not name it."""
        self._ended.resumed(turn.run, turn.ask.principal)
        self.tally.placed(turn, now, why)
        self.memory.placed(
            now, turn.ask, attempt=turn.attempt, run=turn.run, replica=turn.replica, turn_seq=turn_seq, fence=turn.fence, model=model
        )  # fmt: skip

    # ---- the session ----------------------------------------------------------------------------------------------

    def opening(self) -> None:
        """The memory is being sent: from now on facts follow it."""
        self.line = OPENING
        self._starts.clear()  # turns in flight are in the memory
        self._sessions += 1
        self._unusable = {}
        self._unasked = Unasked()  # until it has read an announcement of this session

    def opened(self) -> None:
        """The scheduler has the memory: ask for all that is held."""
        self.line = OPEN
        self.contacted = True
        now = self._clock()
        for run, principal, when in self._ended.since(now):
            self._say("run_ended", self._words.run_ended(run, principal, when, now))
        for ended in self._leases_ended:
            self._say("lease_told", self._words.lease_ended(ended))
        self._leases_ended.clear()
        for turn in self._turns.values():
            if not turn.replica:
                self._request(turn, now)

    def closed(self) -> None:
        """No session: nothing is sent and nothing kept for sending."""
        self.line = CLOSED
        for turn_id in list(self._parked):  # the next session lists it as held
            turn = self._turns[turn_id]
            self._lease_over(turn, LeaseEnd.UNUSED)
            self._withdraw(turn, turn_id)
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
        """Twice a second: tell of turns that were started, give up places on replicas that nobody announced."""
        self.tell_starts()
        now = self._clock()
        for turn_id, parked in list(self._parked.items()):
            if now - parked.since >= PARKED_SECONDS_MAX:
                self.give_back(turn_id, ReturnReason.UNREACHABLE)

    def sweep(self) -> None:
        """Forget what was last heard of longer ago than the memory lasts. To be called often: each time there is little to do."""
        now = self._clock()
        self.memory.sweep(now)
        self._calls.sweep(now)
        self._ended.sweep(now)

    # ---- what is no turn's ------------------------------------------------------------------------------------------

    def run_of_call(self, id_: str, principal: str) -> str:
        """The run whose model made this tool call; empty: nobody can tell."""
        return self._calls.run_of(self._clock(), id_, principal)

    def end_run(self, run: str, principal: str) -> None:
        self.memory.end_run(run, principal)
        now = self._clock()
        self._ended.add(now, run, principal)
        if self.line is OPEN:
            self._say("run_ended", self._words.run_ended(run, principal, now, now))
            return
        for turn_id, turn in list(self._turns.items()):
            if not turn.replica and run in (turn.run, turn.ask.run) and turn.ask.principal == principal:
                del self._turns[turn_id]
                self._refuse(turn, Refusal(run, 409, "run_ended", f"run {run} was ended while this turn was held"))

    def suspect(self, replica: str, reason: str) -> None:
        self._unasked.doubt(replica, self._requests)
        self._say("suspected", self._words.suspected(replica, reason))

    def locate(self, response: str, principal: str, found: Found) -> str:
        """Ask which replica stores a response; returns the id of the query, for `unseek`. Without a session the answer is none, at once."""
        query = self._seekers.add(found)
        if self.line is OPEN and (known := wire.ids((response,))):
            self._say("locate", self._words.locate(query, known[0], principal))
        else:
            self._seekers.answer(query, "")
        return query

    def unseek(self, query: str) -> None:
        self._seekers.drop(query)

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
            try:
                turn.waiter.held(run, reason)
            except Exception:  # noqa: BLE001 (whatever it is, it is logged with its traceback)
                self._waiter_failed(turn)

    def placed(
        self,
        turn_id: str,
        attempt: int,
        *,
        run: str,
        replica: str,
        turn_seq: int,
        why: str,
        held_ms: int,
        priority: int | None = None,
        lease: Lease | None = None,
    ) -> None:
        """`why` it was held; empty: it was not. `priority`: what its request says to the engine; None: nothing."""
        turn = self._asked("placed", turn_id, attempt)
        if turn is None:
            if turn_id not in self._turns:  # whatever became of it: the place must not stay counted
                self._say("abandoned", self._words.abandoned(turn_id, attempt))
            return
        now = self._clock()
        turn.run, turn.replica = run, replica
        self._unasked.trust(replica, turn.number)
        model = ""
        if lease is not None:
            turn.fence, turn.told, model = lease.fence, None, lease.model
        self._has_place(turn, now, why, turn_seq=turn_seq, model=model)
        self._deliver(turn_id, turn, Parked(why, held_ms, now, priority, lease))

    def _deliver(self, turn_id: str, turn: Turn, place: Parked) -> None:
        """Tell the waiter of its place; one on a replica not yet announced stays parked, one that can't be used goes back."""
        if turn.replica in self._unusable:
            self.counts["unusable_place"] += 1
            self.give_back(turn_id, ReturnReason.UNREACHABLE)
        elif replica := self.replicas.get(turn.replica):
            self._parked.pop(turn_id, None)
            try:
                turn.waiter.placed(Placement(replica, turn.run, turn.attempt, place.why, place.held_ms, place.priority, place.lease))
            except Exception:  # noqa: BLE001 (whatever it is, it is logged with its traceback)
                self._waiter_failed(turn)
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
        self._unasked.announced(usable)
        self.hosted = any(replica.tells_limits for replica in usable.values())
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
