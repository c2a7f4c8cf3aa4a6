"""Does what the scheduler decided, and what its state says, agree with the books?"""

from collections.abc import Callable, Iterable
from math import inf
from typing import Final

from luftpause.scheduler.core.decisions import Expire, HoldReason, Place, Step
from luftpause.scheduler.core.events import ConfigChanged, Event, ReplicaProbed, ReplicaSpec, Resync, TurnClass
from luftpause.scheduler.core.model import State, TurnPhase
from luftpause.scheduler.core.settings import Settings
from luftpause_bench.sim.books import Books, Entry
from luftpause_bench.sim.pools import GONE

SLACK_SECONDS: Final = 2.0  # timers of one whole second, and a tick each second
CLOCK_ERROR_SECONDS: Final = 1e-6

Promise = Callable[[bool, Callable[[], str]], None]


class Auditor:
    """`promise` is told each time whether it was kept."""

    def __init__(self, settings: Settings, specs: Iterable[ReplicaSpec], now: float, promise: Promise) -> None:
        self.books = Books(settings, specs, now)
        self._promise = promise
        self._goes_on = False  # the last step could not place all that may be placed

    def check(self, event: Event, step: Step) -> None:
        """After each event; costs microseconds."""
        books = self.books
        placed = [decision for decision in step.decisions if isinstance(decision, Place)]
        decided = [place for place in placed if not place.sent]
        room = {place.replica: self._room(place.replica) for place in placed}
        suspected = [place for place in placed if place.replica in books.peer(place.dataplane).suspects]
        known = {place.turn for place in placed if (entry := books.turns.get(place.turn)) is not None and entry.replica}
        for decision in step.decisions:
            if isinstance(decision, Expire):
                self._expires_in_time(decision, event.now)
        self._begins_in_time(decided, event)
        books.take(event, step.decisions)
        self._counts(step.state)
        fresh = [place for place in placed if place.turn not in known and place.turn in books.turns]
        if fresh and not isinstance(event, Resync | ConfigChanged):
            self._places(fresh, room, [place for place in suspected if place in fresh], event)
        self._health(event, step.state)
        self._few_are_held()
        if step.state.open and not step.more:
            self._nobody_waits_for_an_idle_engine()
        self._goes_on = step.more

    def _places(self, fresh: list[Place], room: dict[str, tuple[float, float]], suspected: list[Place], event: Event) -> None:
        books = self.books
        for place in fresh:
            self._has_room(place, *room[place.replica])
            self._inherits(place)
        for place in suspected:
            trusted = place.replica not in books.peer(place.dataplane).suspects
            text = f"turn {place.turn} was placed at {place.replica}, which {place.dataplane} suspects"
            self._promise(trusted, lambda text=text: text)
        self._interactive_first(fresh, event)
        if len(fresh) == 1 and not self._goes_on and self._original:
            self._first_come(books.turns[fresh[0].turn], fresh[0])

    def check_all(self, state: State, *, goes_on: bool) -> None:
        """Now and then; costs as much as there are turns. `goes_on`: the last step could not do all that was due."""
        books = self.books
        told = {
            turn.id: (turn.attempt, turn.dataplane, turn.replica if turn.phase is TurnPhase.IN_FLIGHT else "")
            for turn in state.turns.values()
        }
        mine = {entry.turn: (entry.attempt, entry.dataplane, entry.replica) for entry in books.turns.values()}
        wrong = sorted(name for name in told.keys() | mine.keys() if told.get(name) != mine.get(name))
        self._promise(not wrong, lambda: f"turn {wrong[0]}: the books say {mine.get(wrong[0])}, the state {told.get(wrong[0])}")
        for entry in () if goes_on else books.turns.values():
            self._is_not_overdue(entry)
        unused = next((run.id for run in state.runs.values() if not (run.turn_seq or run.held or run.in_flight or run.responses)), None)
        self._promise(unused is None, lambda: f"run {unused} is remembered, and never had a place")

    def _room(self, name: str) -> tuple[float, float]:
        """Cap, and most since the last report."""
        books, pool = self.books, self.books.pool(name)
        return pool.cap(books.now, books.settings), pool.burst(books.now, books.settings)

    # ---- places -------------------------------------------------------------------------------------------------

    def _counts(self, state: State) -> None:
        books = self.books
        self._promise(len(state.turns) == len(books.turns), lambda: f"{len(state.turns)} turns, and {len(books.turns)} by the books")
        for name, pool in books.pools.items():
            replica = state.replicas.get(name)
            counted = (replica.in_flight, replica.passes, replica.seen) if replica is not None else (0, 0, 0)
            reports = pool.spec is not GONE and not pool.unknown(books.now, books.settings)
            mine = (pool.flying, pool.passes, pool.seen if reports else counted[2])
            text = f"{name} counts {counted} (in flight, passes, in flight at its report), and {mine} by the books"
            self._promise(counted == mine, lambda text=text: text)

    @property
    def _original(self) -> bool:
        """Other policies have an order of their own, and keep no places."""
        return self.books.settings.policy == "original"

    def _has_room(self, place: Place, cap: float, burst: float) -> None:
        """`cap` and `burst` were so before this event, which may have changed them behind the placement."""
        books, entry = self.books, self.books.turns[place.turn]
        if place.sent:  # it is there, whatever became of the replica meanwhile (`unasked`)
            return
        pool = books.pool(place.replica)
        where = f"turn {place.turn} at {place.replica}"
        self._promise(pool.serves(entry.model) or pool.spec is GONE, lambda: f"{where}, which does not serve {entry.model}")
        if not entry.generative:
            full = pool.passes_most is not None and pool.passes > pool.passes_most and not self._goes_on
            self._promise(not full, lambda: f"{where}, which takes {pool.passes_most} single passes, and has {pool.passes}, by the books")
            return
        cap, burst = (max(before, now) for before, now in zip((cap, burst), self._room(place.replica), strict=True))
        self._promise(pool.flying <= cap, lambda: f"{where}, which has {pool.flying} in flight and a cap of {cap} by the books")
        self._promise(
            pool.flying - pool.seen <= burst,
            lambda: f"{where}: {pool.flying - pool.seen} turns more than at its last report, at most {burst} may be, by the books",
        )
        rests = pool.full_when_empty and pool.flying == 1 and not self._goes_on
        self._promise(not rests, lambda: f"{where}, which said it is full when it had nothing, and was not probed since")
        if entry.turn_class is TurnClass.BATCH and cap < inf and not books.settings.batch_min_share and self._original:
            kept = books.reserved(place.replica, but=entry.run_key)
            text = f"{where}: batch where {pool.flying} are in flight and {kept} places kept, with a cap of {cap} by the books"
            self._promise(pool.flying + kept <= cap, lambda: text)

    def _inherits(self, place: Place) -> None:
        """At least what the same body has left is inherited for certain; at most what the same body or run has left."""
        if place.hold_reason is None:
            return
        entry, now, held = self.books.turns[place.turn], self.books.now, place.held_seconds
        least, most = now - entry.arrived, now - entry.earliest
        text = f"turn {place.turn} was held for {least:.3f} to {most:.3f} s by the books, and for {held:.3f} s by its place"
        self._promise(least - CLOCK_ERROR_SECONDS <= held <= most + CLOCK_ERROR_SECONDS, lambda: text)

    def _interactive_first(self, fresh: list[Place], event: Event) -> None:
        """A turn of a new run that was held before this event and could have gone there goes before any batch turn."""
        books = self.books
        if books.settings.batch_min_share > 0.0:
            return
        learned = event.replica if isinstance(event, ReplicaProbed) and event.models is not None else ""
        where = {place.replica for place in fresh if self._is_batch(books.turns[place.turn]) and place.replica != learned}
        for entry in books.waiting.values() if where else ():
            if entry.turn_class is TurnClass.BATCH or not 0 < entry.first_told < books.number or not books.is_new(entry):
                continue
            name = next((name for name in sorted(where) if books.could_go(entry, name)), None)
            self._promise(name is None, lambda entry=entry, name=name: f"batch went to {name} while {entry.turn} was held, by the books")

    def _first_come(self, placed: Entry, place: Place) -> None:
        """Of those of its class that could have gone there too, its caller had fewest in flight, and it was first.

        Its arrival is the one that its place tells of (`_inherits` looks at that): it may be inherited from a turn of its run. A batch turn
        of a run that was there before may have a place that was kept for it, where others have none.
        """
        if placed.turn_class is TurnClass.BATCH and not placed.new_run:
            return
        books = self.books
        arrived = placed.arrived if place.hold_reason is None else books.now - place.held_seconds
        mine = (books.flows[placed.flow] - 1, arrived - CLOCK_ERROR_SECONDS)
        for entry in books.waiting.values() if placed.generative else ():
            other = (books.flows[entry.flow] - (entry.flow == placed.flow), entry.arrived)
            if other >= mine or entry.turn_class is not placed.turn_class or not 0 < entry.first_told < books.number:
                continue
            passed_over = books.is_new(entry) and books.could_go(entry, placed.replica)
            text = f"turn {placed.turn} {mine} went to {placed.replica} before {entry.turn} {other} (in flight of its caller, arrival)"
            self._promise(not passed_over, lambda text=text: text)

    def _begins_in_time(self, placed: list[Place], event: Event) -> None:
        """Before its grace is over a scheduler places nothing, unless all that it expects are here."""
        books, settings = self.books, self.books.settings
        if placed and max(books.now, event.now) < books.started_at + settings.start_grace_seconds:
            here = {name for name, peer in books.peers.items() if peer.session}
            here |= {event.dataplane} if isinstance(event, Resync) else set()
            expected = set(settings.dataplanes_expected)
            self._promise(bool(expected) and expected <= here, lambda: f"turn {placed[0].turn} was placed while dataplanes were expected")

    def _health(self, event: Event, state: State) -> None:
        if not isinstance(event, ReplicaProbed):
            return
        name = event.replica
        replica, mine = state.replicas.get(name), self.books.pool(name)
        if replica is not None and not replica.removed and mine.spec is not GONE:
            text = f"{name} is {replica.health.value}, and {mine.health} by the books ({mine.misses} misses)"
            self._promise(replica.health.value == mine.health, lambda: text)

    def _nobody_waits_for_an_idle_engine(self) -> None:
        books = self.books
        idle = [name for name, pool in books.pools.items() if pool.idle] if books.waiting else []
        for entry in books.waiting.values() if idle else ():
            if entry.turn_class is TurnClass.BATCH or not books.is_new(entry) or entry.reason is HoldReason.IDENTITY:
                continue
            name = next((name for name in idle if books.could_go(entry, name)), None)
            self._promise(name is None, lambda entry=entry, name=name: f"{entry.turn} is held while {name} has nothing to do")

    @staticmethod
    def _is_batch(entry: Entry) -> bool:
        return entry.generative and entry.turn_class is TurnClass.BATCH

    # ---- time ---------------------------------------------------------------------------------------------------

    def _expires_in_time(self, decision: Expire, now: float) -> None:
        books = self.books
        entry = books.turns.get(decision.turn)
        text = f"turn {decision.turn} expired at {decision.replica}"
        self._promise(entry is not None and entry.replica == decision.replica, lambda: f"{text}, and was not there")
        assert entry is not None
        lost = books.peer(entry.dataplane).lost + books.settings.dataplane_lost_seconds
        due = min(entry.placed + books.settings.turn_timeout_seconds, lost)
        self._promise(now >= due - CLOCK_ERROR_SECONDS, lambda: f"{text} {due - now:.3f} s too early")

    def _few_are_held(self) -> None:
        """No turn is held anew beyond what the deployment allows; those that were held before, or came back, may stay."""
        books, settings = self.books, self.books.settings
        for entry in books.held_anew:
            if entry.replica or entry.turn not in books.turns:
                continue
            held = [other for other in books.waiting.values() if other.first_told]
            mine = sum(other.flow == entry.flow for other in held)
            most, of_caller = settings.held_turns_max or inf, settings.held_turns_per_caller_max or inf
            back = sum(other.attempt > 1 for other in held)
            text = f"turn {entry.turn} is held with {len(held) - 1} others, {mine - 1} of its caller"
            self._promise(len(held) <= most + back and mine <= of_caller + back, lambda text=text: text)

    def _is_not_overdue(self, entry: Entry) -> None:
        """What ends by time has ended."""
        books, settings = self.books, self.books.settings
        late = books.now - SLACK_SECONDS
        if entry.replica:
            lost = books.peer(entry.dataplane).lost + settings.dataplane_lost_seconds
            self._promise(lost > late, lambda: f"turn {entry.turn} is still counted, and its dataplane is lost for good")
            return
        patience = settings.hold_seconds_max or inf
        self._promise(
            entry.asked + patience > late or not entry.first_told, lambda: f"turn {entry.turn} is held for more than {patience} s"
        )
        if entry.reason is HoldReason.NO_REPLICA and settings.no_replica == "refuse":
            waits = entry.told + settings.no_replica_seconds > late
            self._promise(waits, lambda: f"turn {entry.turn} is held since {entry.told:.1f} for want of a replica, and not refused")
