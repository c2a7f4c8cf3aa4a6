"""What must hold after every decision of the scheduler?

`Watcher` sees each event with the state before and after. What it can, it works out from events and plain counts, not with the core's own
functions; the full recount costs milliseconds and is taken as often as the state's size allows.
"""

from collections.abc import Iterator
from typing import Final

from luftpause.scheduler.core.decide import decide
from luftpause.scheduler.core.decisions import Expire, Held, Place, Step
from luftpause.scheduler.core.events import (
    ConfigChanged,
    Event,
    ProbeOutcome,
    ReplicaProbed,
    Resync,
    RunEnded,
    TurnAbandoned,
    TurnClass,
    TurnRequested,
    TurnReturned,
)  # fmt: skip
from luftpause.scheduler.core.indexes import thaw
from luftpause.scheduler.core.model import GENERATIVE, Health, QueueKey, Replica, State, Turn, TurnPhase
from luftpause.scheduler.core.runs import lane_of
from luftpause.scheduler.core.verdicts import candidates
from luftpause_bench.sim.audit import Auditor
from luftpause_bench.sim.pools import serves_model
from luftpause_bench.sim.recount import recount
from luftpause_bench.sim.unasked import Allowed
from luftpause_bench.sim.world import BrokenPromiseError, World, in_words

IN_FLIGHT: Final = TurnPhase.IN_FLIGHT
INTERACTIVE: Final = int(TurnClass.INTERACTIVE)
TURNS_PER_RECOUNT: Final = 2  # in the state, for each event since the last recount
EVENTS_PER_RECOUNT: Final = 16  # at least
NEVER: Final = 1 << 60
BACKLOG_SECONDS: Final = 0.1  # by then a process that stood still has done what waited


class Watcher:
    """Watches one scheduler after the other; `starts` begins with a new one. From event `recount_from` on it recounts after each."""

    def __init__(self, world: World, *, recount_from: int) -> None:
        self.events = 0
        self.recounted = 0  # events until the last recount that found nothing wrong
        self.placed = 0
        self.sent = 0  # of those, by dataplanes themselves
        self.asked_runs: dict[tuple[str, str], float] = {}  # (run, principal): when a turn of it last asked, or was placed, whoever waited
        self.on_recount = lambda: None
        self.expired: set[str] = set()  # turns of which the scheduler had heard nothing for too long
        self.unreported: set[str] = set()  # turns whose end was lost on its way
        self._world = world
        self._recount_from = recount_from
        self._log: list[Event] = []
        self._first: State
        self._auditor: Auditor
        self._allowed: Allowed
        self._reports: dict[str, ReplicaProbed] = {}  # the last good probe of each replica

    def starts(self, state: State) -> None:
        self._log, self._first, self._reports = [], state, {}
        specs = [state.replicas[name].spec for name in state.names]
        self._allowed = Allowed(state)
        self._auditor = Auditor(state.settings, specs, state.now, self._world.promise)

    def decided(self, before: State, event: Event, step: Step) -> None:
        """Raises BrokenPromiseError."""
        self.events += 1
        self._log.append(event)
        if isinstance(event, ReplicaProbed) and event.outcome is ProbeOutcome.OK:
            self._reports[event.replica] = event
        elif isinstance(event, ConfigChanged):
            self._reports = {}
        try:
            self._check(before, event, step)
        except BrokenPromiseError:
            raise
        except AssertionError as error:
            raise BrokenPromiseError(f"{in_words(error)} (after {event})") from error

    def replay(self, state: State) -> None:
        """The log of events leads to this state again."""
        again = self._first
        for event in self._log:
            again = decide(again, event).state
        assert again == state, "the log of events does not lead to the same state again"

    def _went_on(self, after: State, step: Step) -> None:
        """A turn of a run that asks or is placed after somebody ended the run begins it anew."""
        for decision in step.decisions:
            turn = after.turns.get(decision.turn) if isinstance(decision, Place | Held) else None
            if turn is not None:
                at = self._world.now if isinstance(decision, Place) else turn.arrived
                key = turn.run_id, turn.principal
                self.asked_runs[key] = max(at, self.asked_runs.get(key, 0.0))

    def _check(self, before: State, event: Event, step: Step) -> None:
        after = step.state
        placed = [decision for decision in step.decisions if isinstance(decision, Place) and not _left_at_once(event, decision, after)]
        self.placed += len(placed)
        self._went_on(after, step)
        if isinstance(event, Resync) and self._world.now - max(self._world.resumed_at, self._world.jumped_at) < BACKLOG_SECONDS:
            # It waited for a scheduler that stood still: what it tells by its age is taken for later than it was.
            self.asked_runs |= {(memory.run, memory.principal): self._world.now for memory in event.runs}
        self._auditor.check(event, step)
        if before.turns is not after.turns:
            self._nothing_expires_that_was_reported(before, step)
        if placed:
            fresh = list(_fresh(before, event, after, placed))
            for place in fresh:
                self._may_go_there(before, event, after, place)
            if len(fresh) == 1 and after.settings.policy == "original":
                first_in_order(before, after, fresh[0])
            interactive_goes_first(before, after, fresh, goes_on=bool(before.dirty) or _due_first(event, step, fresh))
        self._allowed.follow(before, after, self._world.now)
        if after.open and not after.dirty:
            nobody_waits_in_vain(after)
        waiting = self.events - self.recounted
        due = waiting >= EVENTS_PER_RECOUNT and waiting * TURNS_PER_RECOUNT >= len(after.turns) + len(after.runs)
        if due or self.events > self._recount_from:
            recount(after)
            self._auditor.check_all(after, goes_on=step.more)
            self.on_recount()
            self.recounted = self.events

    def _may_go_there(self, before: State, event: Event, after: State, place: Place) -> None:
        if place.sent:
            self.sent += 1
            self._allowed.check(before, after, place, since=max(self._world.resumed_at, self._world.jumped_at))
        else:
            may_be_placed(after, place, self._reports.get(place.replica))
            home_is_kept(before, event, after, place)

    def _nothing_expires_that_was_reported(self, before: State, step: Step) -> None:
        """Expiry is for ends that nobody could report; else it would hide a place that is not given back."""
        for decision in step.decisions:
            if isinstance(decision, Expire):
                self.expired.add(decision.turn)
            if isinstance(decision, Expire) and decision.turn not in self.unreported:
                if before.turns[decision.turn].placed < self._world.jumped_at:
                    continue  # it was reported in time by clocks that stood still
                dataplane = before.dataplanes[before.turns[decision.turn].dataplane]
                assert not dataplane.connected, f"turn {decision.turn} expired at {decision.replica}, and its end was reported"


# ---- turns ------------------------------------------------------------------------------------------------------


def _left_at_once(event: Event, place: Place, after: State) -> bool:
    """It was placed as time had passed, and only then its client's leaving was read."""
    return isinstance(event, TurnAbandoned) and event.turn == place.turn and place.turn not in after.turns


def _fresh(before: State, event: Event, after: State, placed: list[Place]) -> Iterator[Place]:
    """Places that are no repeated answers; each turn has at most one, and none had a place already."""
    seen: set[str] = set()
    for place in placed:
        known, now = before.turns.get(place.turn), after.turns.get(place.turn)
        assert now is not None, f"turn {place.turn} is placed and not counted"
        assert (now.phase, now.replica, now.attempt) == (IN_FLIGHT, place.replica, place.attempt), (
            f"turn {place.turn} is not where it was placed"
        )
        assert place.turn not in seen, f"turn {place.turn} is placed twice in one step"
        seen.add(place.turn)
        if known is None or known.phase is not IN_FLIGHT:
            yield place
        elif known.attempt == place.attempt:
            again = isinstance(event, TurnRequested) and event.turn == place.turn and known.replica == place.replica
            assert again, f"turn {place.turn} is placed twice at once"
        else:
            mine = isinstance(event, TurnReturned | TurnRequested) and event.turn == place.turn
            assert mine, f"turn {place.turn} is placed anew, and its former place was not given back"
            yield place


# ---- places -----------------------------------------------------------------------------------------------------


def may_be_placed(after: State, place: Place, report: ReplicaProbed | None) -> None:
    """The replica is healthy, serves the model, and has room by what it last reported."""
    replica, turn = after.replicas[place.replica], after.turns[place.turn]
    where = f"turn {place.turn} at {place.replica}"
    models = replica.models or ()
    assert replica.health is Health.HEALTHY, f"{where}, which is {replica.health.value}"
    assert serves_model(models, turn.model), f"{where}, which does not serve {turn.model}"
    assert place.replica not in turn.without, f"{where}, which gave it back"
    assert after.dataplanes[turn.dataplane].connected, f"{where}, and {turn.dataplane} is lost"
    assert place.replica not in after.dataplanes[turn.dataplane].unusable, f"{where}, whose key {turn.dataplane} lacks"
    if turn.kind != GENERATIVE:
        return
    cap = replica.spec.max_in_flight or 1 << 30
    load = report.load if report is not None and replica.spec.capped and replica.load is not None else None
    if load is not None and load.waiting and replica.queued:  # else it may be what has just come
        cap = min(cap, max(1, load.running))
    if replica.cap is not None:
        cap = min(cap, max(1, replica.cap))
    assert replica.in_flight <= max(cap, 1), f"{where}, which has {replica.in_flight} in flight and a cap of {cap}"
    if turn.turn_class is TurnClass.BATCH and not after.settings.batch_min_share:
        reserved = _reserved(after, place.replica, but=turn.run)
        assert replica.in_flight + reserved <= cap, f"{where}: batch in a place kept for a paused run ({reserved} kept, cap {cap})"
    most = after.settings.burst_turns_max
    if load is not None and most != 0 and replica.load is not None:
        most = max(8, load.running) if most is None else most
        more = replica.in_flight - replica.seen
        assert more <= most, f"{where}: {more} turns more than at its last report, at most {most} may be"


def _reserved(state: State, replica: str, *, but: str) -> int:
    """Places kept there. The run that was just placed may have moved its own there with it."""
    lanes = [lane for key, run in state.runs.items() if key != but for lane in run.lanes if lane.home == replica and lane.branches]
    return sum(branch.reserves for lane in lanes for branch in lane.branches)


def home_is_kept(before: State, event: Event, after: State, place: Place) -> None:
    """A generating or paused lane does not move while its home can serve."""
    turn = after.turns[place.turn]
    run = before.runs.get(turn.run)
    lane = lane_of(run, turn.model) if run is not None else None
    if run is None or lane is None or turn.kept_home or after.settings.stickiness == "off" or isinstance(event, RunEnded | Resync):
        return
    if run.due <= after.now or not _anchored(after, run.key, lane.home, turn, paused=bool(lane.branches)):
        return
    if isinstance(event, TurnReturned) and event.replica == lane.home and before.turns[event.turn].run == run.key:
        return  # that turn may go elsewhere, and takes the lane's home with it
    home = after.replicas.get(lane.home)
    if home is None or not _serves(home, turn) or lane.home in after.dataplanes[turn.dataplane].unusable:
        return
    assert place.replica == lane.home, f"run {turn.run_id} moved from {lane.home} to {place.replica} with turn {turn.id}"


def _anchored(after: State, run: str, home: str, turn: Turn, *, paused: bool) -> bool:
    if paused:
        return True
    others = (other for other in after.turns.values() if other.run == run and other.model == turn.model and other.id != turn.id)
    return any(other.phase is IN_FLIGHT and other.replica == home for other in others)


def _serves(replica: Replica, turn: Turn) -> bool:
    barred = replica.removed or replica.name in turn.without
    return replica.health is Health.HEALTHY and serves_model(replica.models or (), turn.model) and not barred


# ---- order ------------------------------------------------------------------------------------------------------


def first_in_order(before: State, after: State, place: Place) -> None:
    """Of those that could go to the same replicas it had the fewest in flight of its caller, then came first."""
    known = before.turns.get(place.turn)
    queue = after.queues.get(known.queue) if known is not None and known.queue is not None else None
    if known is None or queue is None or known.phase is not TurnPhase.HELD:
        return
    mine = (after.callers[known.flow].in_flight - 1, known.place)
    for flow, turns in queue.flows.items():
        flying = after.callers[flow].in_flight - (flow == known.flow)
        arrival, other = turns.first()
        old = before.turns.get(other)
        if old is not None and old.queue == known.queue:
            assert mine <= (flying, arrival), f"turn {place.turn} went before {other}: {mine} against {(flying, arrival)}"


def interactive_goes_first(before: State, after: State, fresh: list[Place], *, goes_on: bool) -> None:
    """No batch turn starts at a replica while an interactive turn that fits there is held, unless batch has a share.

    A step that `goes_on` with places that the last one had to leave, or that are due by time, makes them before it takes a new turn.
    """
    batch = {place.replica for place in fresh if _is_batch(after.turns[place.turn])}
    if not batch or after.settings.batch_min_share > 0.0:
        return
    d = thaw(after)
    for key in after.queue_keys:
        if key.turn_class != INTERACTIVE or key.kind != GENERATIVE:
            continue
        fits = batch & {replica.name for replica in candidates(d, key)}
        held = next((turn for turn in _held_in(after, key) if _was_there(before, turn, goes_on=goes_on)), None) if fits else None
        assert held is None, f"batch started at {sorted(fits)} while {held and held.id} was held"


def _due_first(event: Event, step: Step, fresh: list[Place]) -> bool:
    """Was all this placed because of what was due before the event, whose turn was told only then that it is held?"""
    if not isinstance(event, TurnRequested):
        return False
    told = next((at for at, decision in enumerate(step.decisions) if isinstance(decision, Held) and decision.turn == event.turn), None)
    return told is not None and all(step.decisions.index(place) < told for place in fresh)


def _was_there(before: State, turn: Turn, *, goes_on: bool) -> bool:
    old = before.turns.get(turn.id)
    return not goes_on if old is None else old.queue == turn.queue


def nobody_waits_in_vain(after: State) -> None:
    """No held turn that the policy admits stays held; where time alone makes it admit one, none that an idle replica could take."""
    d = thaw(after)
    timeless = after.settings.policy == "original"
    for key in after.queue_keys:
        for replica in candidates(d, key):
            if (timeless or replica.in_flight == 0) and d.policy.opens(d, replica, key) is None:
                fitting = [turn.id for turn in _held_in(after, key) if d.policy.admits(d, replica, turn) is None]
                assert not fitting, f"turn {fitting[0]} is held while {replica.name} would take it"


def _is_batch(turn: Turn) -> bool:
    return turn.turn_class is TurnClass.BATCH and turn.kind == GENERATIVE


def _held_in(state: State, key: QueueKey) -> Iterator[Turn]:
    for flow in state.queues[key].flows.values():
        for _, id_ in flow:
            yield state.turns[id_]
