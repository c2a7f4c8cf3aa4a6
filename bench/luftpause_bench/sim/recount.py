"""Does a state agree with a recount from scratch?

Every count, index and timer that `decide` keeps incrementally is worked out here again from turns, runs and replicas alone.
"""

from collections import Counter
from math import ceil

from luftpause.scheduler.core.admission import admits, burst_limit, limit, owes
from luftpause.scheduler.core.decisions import Place
from luftpause.scheduler.core.events import TurnClass
from luftpause.scheduler.core.holding import queue_key
from luftpause.scheduler.core.indexes import thaw
from luftpause.scheduler.core.model import GENERATIVE, UNLIMITED, Health, QueueKey, Replica, State, Turn, TurnPhase
from luftpause.scheduler.core.order import first_in, in_order
from luftpause.scheduler.core.queues import bound_home
from luftpause.scheduler.core.runs import phase_slot
from luftpause.scheduler.core.serving import serves
from luftpause.scheduler.core.timing import Timer
from luftpause.scheduler.core.verdicts import candidates
from luftpause_bench.sim.recount_guard import recount_guard
from luftpause_bench.sim.recount_quota import asks_where_it_may, recount_quota


def recount(state: State) -> None:
    """Raises AssertionError. Costs a few milliseconds at a thousand turns."""
    flying = [turn for turn in state.turns.values() if turn.phase is TurnPhase.IN_FLIGHT]
    waiting = [turn for turn in state.turns.values() if turn.phase is TurnPhase.HELD]
    replicas(state, flying)
    callers(state, flying, waiting)
    runs(state, flying, waiting)
    dataplanes(state)
    queues(state, waiting)
    identity(state)
    timers(state, flying)
    returned = Counter((turn.run, turn.model) for turn in waiting if turn.returned)
    assert returned == Counter({(run.key, lane.model): lane.returned for run in state.runs.values() for lane in run.lanes if lane.returned})
    recount_quota(state, waiting)
    if state.settings.policy == "guard":
        recount_guard(state)
    if not state.dirty:
        nobody_waits_in_vain(state, waiting)


def replicas(state: State, flying: list[Turn]) -> None:
    generating = Counter(turn.replica for turn in flying if turn.kind == GENERATIVE)
    passing = Counter(turn.replica for turn in flying if turn.kind != GENERATIVE)
    reserving = Counter(lane.home for run in state.runs.values() for lane in run.lanes for branch in lane.branches if branch.reserves)
    assert set(state.names) | set(generating) | set(passing) <= set(state.replicas)
    for replica in state.replicas.values():
        name = replica.name
        assert (replica.in_flight, replica.passes, replica.reserved) == (generating[name], passing[name], reserving[name]), name
        assert not replica.removed or replica.in_flight + replica.passes + replica.reserved > 0
        assert replica.removed == (name not in state.names)


def callers(state: State, in_flight: list[Turn], held: list[Turn]) -> None:
    flying = Counter(turn.flow for turn in in_flight)
    waiting = Counter(turn.flow for turn in held)
    assert {flow: (caller.in_flight, caller.held) for flow, caller in state.callers.items()} == {
        flow: (flying[flow], waiting[flow]) for flow in flying | waiting
    }
    assert list(state.ranks) == sorted((state.callers[flow].rank, flow) for flow in waiting)
    if state.settings.policy == "original":
        assert all(state.callers[flow].rank == flying[flow] for flow in waiting)


def runs(state: State, flying: list[Turn], waiting: list[Turn]) -> None:
    in_run = Counter(turn.run for turn in flying)
    in_lane = Counter((turn.run, turn.model) for turn in flying)
    held: dict[str, list[str]] = {}
    for turn in waiting:
        held.setdefault(turn.run, []).append(turn.id)
    assert {turn.run for turn in (*flying, *waiting) if turn.run} <= set(state.runs)
    phases: Counter[int] = Counter()
    for key, run in state.runs.items():
        assert run.key == key
        assert run.in_flight == in_run[key] == sum(lane.in_flight for lane in run.lanes), key
        assert sorted(run.held) == sorted(held.get(key, ())), key
        assert all(lane.in_flight == in_lane[key, lane.model] for lane in run.lanes), key
        paused = any(lane.branches for lane in run.lanes)
        assert run.phase == ("generating" if run.in_flight else "paused" if paused else "idle"), key
        phases[phase_slot(run.phase, run.turn_class)] += 1
    assert state.phases == tuple(phases[slot] for slot in range(6))


def dataplanes(state: State) -> None:
    assert list(state.dataplane_names) == sorted(state.dataplanes)
    turns = Counter(turn.dataplane for turn in state.turns.values())
    assert set(turns) <= set(state.dataplanes)
    for name, dataplane in state.dataplanes.items():
        assert dataplane.turns_count == turns[name], name
    assert list(state.identifying) == sorted(turn.id for turn in state.turns.values() if turn.phase is TurnPhase.IDENTIFYING)


def queues(state: State, waiting: list[Turn]) -> None:
    d = thaw(state)
    expected: dict[QueueKey, list[Turn]] = {}
    for turn in waiting:
        assert turn.queue is not None
        assert turn.queue == queue_key(d, turn), turn
        expected.setdefault(turn.queue, []).append(turn)
    assert state.held == len(waiting)
    assert state.passes_held == sum(turn.kind != GENERATIVE for turn in waiting)
    assert set(state.queues) == set(expected)
    assert list(state.queue_keys) == sorted(expected)
    assert set(state.stale) <= set(expected)
    homes = {key for keys in state.queues_of_home.values() for key in keys}
    models = {key for keys in state.queues_of_model.values() for key in keys}
    assert homes | models == set(expected)
    assert not homes & models
    for key, turns in expected.items():
        queue = state.queues[key]
        assert key in (state.queues_of_home[bound_home(d, key)] if bound_home(d, key) else state.queues_of_model[key.kind, key.model])
        assert queue.size == len(turns)
        order = sorted((key.turn_class, state.callers[turn.flow].rank, turn.place, turn.id) for turn in turns)
        assert list(in_order(d, key)) == order
        assert first_in(d, key) == order[0]


def identity(state: State) -> None:
    mine = {(run.key, key) for run in state.runs.values() for _, key in run.ids}
    known = {(sighting.run, key) for key, entry in state.ids.items() for sighting in entry.sightings}
    assert mine == known
    assert not any(key[2] == "" for key in state.ids)
    assert all(len(run.ids) <= state.settings.ids_per_run_max for run in state.runs.values())
    assert all(list(run.ids) == sorted(run.ids, key=lambda item: item[0]) for run in state.runs.values())


def timers(state: State, flying: list[Turn]) -> None:
    """Nothing that ends by time lacks its timer, and no timer outlives what it is for."""
    transient = {Timer.GATE, Timer.IDENTITY, Timer.NO_REPLICA, Timer.LOST, Timer.QUOTA}  # looked at again when they fire
    assert list(state.seconds) == sorted(state.wheel)
    for second, due in state.wheel.items():
        assert due
        assert all(second - 1 < at <= second for at, *_ in due)
    lasting = [due for due in (*state.timers, *(due for second in state.wheel.values() for due in second)) if due[1] not in transient]
    armed = {(timer, of, detail): at for at, timer, of, detail in lasting}
    assert len(armed) == len(lasting)
    expected: set[tuple[int, str, str]] = set()
    if state.expiry_at is not None:
        expected.add((Timer.TURN, "", ""))
        assert armed[Timer.TURN, "", ""] == state.expiry_at
    assert all(state.expiry_at is not None and ceil(state.expiry_at) <= ceil(turn.expires) for turn in flying)
    for run in state.runs.values():
        expected.add((Timer.RUN, run.key, ""))
        if run.ids:
            expected.add((Timer.IDS, run.key, ""))
        expected |= {
            (Timer.RESERVE, run.key, f"{branch.turn}\x1f{lane.model}")
            for lane in run.lanes for branch in lane.branches if branch.reserves and branch.until < float("inf")
        }  # fmt: skip
    if state.settings.hold_seconds_max is not None:
        expected |= {(Timer.HOLD, turn.id, "") for turn in state.turns.values() if turn.phase is TurnPhase.HELD}
    expected |= {(Timer.TWIN, *key) for key in state.twins}
    assert list(state.ended_order) == sorted((at, key) for key, at in state.ended_runs.items())
    assert len(state.ended_runs) <= state.settings.ended_runs_max
    if state.ended_runs:
        expected.add((Timer.TOMBSTONE, "", ""))
    assert list(state.response_order) == sorted((known.seen, *key) for key, known in state.responses.items())
    assert len(state.responses) <= state.settings.responses_max
    if state.responses:
        expected.add((Timer.RESPONSE, "", ""))
    expected |= {(Timer.LOAD, replica.name, "") for replica in state.replicas.values() if replica.load is not None and not replica.removed}
    assert set(armed) == expected


def nobody_waits_in_vain(state: State, waiting: list[Turn]) -> None:
    """No held turn that `original` admits stays held; whatever the policy, none that an idle replica could take."""
    if not state.open:
        return
    d = thaw(state)
    for turn in waiting:
        assert turn.queue is not None
        for replica in candidates(d, turn.queue):
            if replica.spec.quota:
                if turn.queue not in state.stale:  # else it is about to be looked at
                    asks_where_it_may(d, turn, turn.queue, replica)
                continue
            if state.settings.policy != "original":
                idle = replica.in_flight == 0 or turn.turn_class is TurnClass.INTERACTIVE
                assert not idle or d.policy.opens(d, replica, turn.queue) is not None, (turn, replica)
                continue
            owed = state.settings.batch_min_share and turn.turn_class is TurnClass.BATCH and owes(replica, state.settings)
            turn_class = TurnClass.INTERACTIVE if owed else turn.turn_class
            assert admits(replica, turn.kind, turn_class, state.settings) is not None, (turn, replica)


def _served_first(state: State, turn: Turn, replica: Replica) -> bool:
    """Its engine has a priority queue: no cap keeps it."""
    return state.settings.policy == "guard" and replica.spec.priority != "off" and turn.turn_class is TurnClass.INTERACTIVE


def placements(before: State, after: State, placed: list[Place]) -> None:
    """Caps are kept, batch leaves room, and no batch turn starts where an interactive turn that fits is held."""
    batch: Counter[str] = Counter()
    for place in placed:
        replica = after.replicas[place.replica]
        turn = after.turns[place.turn]
        if place.sent:  # it went there whatever the replica's state is by now
            assert turn.kind != GENERATIVE
            continue
        assert replica.health is Health.HEALTHY
        assert serves(replica, turn.kind, turn.model, turn.api)
        assert place.replica not in turn.without
        if turn.kind != GENERATIVE:
            assert replica.passes <= min(
                replica.spec.max_in_flight or UNLIMITED, UNLIMITED if replica.passes_cap is None else replica.passes_cap
            )
            continue
        if _served_first(after, turn, replica):
            continue
        assert replica.in_flight <= limit(replica, after.settings, int(after.settings.policy == "guard" and replica.spec.priority != "off"))
        assert replica.in_flight - replica.seen <= burst_limit(replica, after.settings)
        if turn.turn_class is TurnClass.BATCH and not after.settings.batch_min_share:
            batch[place.replica] += 1
            brought = sum(branch.reserves for lane in after.runs[turn.run].lanes for branch in lane.branches)
            assert replica.in_flight + replica.reserved - brought <= limit(replica, after.settings)
    _none_overtaken(before, after, batch)


def _none_overtaken(before: State, after: State, batch: Counter[str]) -> None:
    """`batch`: how many batch turns were placed, by replica."""
    d = thaw(after)
    for turn in (turn for turn in after.turns.values() if turn.phase is TurnPhase.HELD):
        if turn.turn_class is TurnClass.BATCH or turn.queue is None or not after.open or turn.kind != GENERATIVE:
            continue
        known = before.turns.get(turn.id)
        if known is not None and known.queue != turn.queue:
            continue  # a placement moved its lane: before that it could not have gone there
        for replica in candidates(d, turn.queue):
            assert replica.spec.quota or not batch[replica.name], f"{turn.id} was held while batch started at {replica.name}"
