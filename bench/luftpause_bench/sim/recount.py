"""Does a state agree with a recount from scratch?

Every count, index and timer that `decide` keeps incrementally is worked out here again from turns, runs and replicas alone.
"""

from collections import Counter

from luftpause.scheduler.core.admission import admits, limit
from luftpause.scheduler.core.decisions import Place
from luftpause.scheduler.core.events import TurnClass
from luftpause.scheduler.core.indexes import thaw
from luftpause.scheduler.core.model import GENERATIVE, Health, QueueKey, State, Timer, Turn, TurnPhase
from luftpause.scheduler.core.order import first_in, in_order
from luftpause.scheduler.core.placement import queue_key
from luftpause.scheduler.core.queues import bound_home
from luftpause.scheduler.core.runs import phase_slot
from luftpause.scheduler.core.serving import serves
from luftpause.scheduler.core.verdicts import candidates


def recount(state: State) -> None:
    replicas(state)
    callers(state)
    runs(state)
    dataplanes(state)
    queues(state)
    identity(state)
    timers(state)
    if not state.dirty:
        nobody_waits_in_vain(state)


def in_flight(state: State) -> list[Turn]:
    return [turn for turn in state.turns.values() if turn.phase is TurnPhase.IN_FLIGHT]


def held(state: State) -> list[Turn]:
    return [turn for turn in state.turns.values() if turn.phase is TurnPhase.HELD]


def replicas(state: State) -> None:
    generating = Counter(turn.replica for turn in in_flight(state) if turn.kind == GENERATIVE)
    passing = Counter(turn.replica for turn in in_flight(state) if turn.kind != GENERATIVE)
    reserving = Counter(lane.home for run in state.runs.values() for lane in run.lanes for branch in lane.branches if branch.reserves)
    assert set(state.names) <= set(state.replicas)
    for replica in state.replicas.values():
        name = replica.name
        assert (replica.in_flight, replica.passes, replica.reserved) == (generating[name], passing[name], reserving[name]), name
        fresh = [
            turn for turn in in_flight(state)
            if turn.replica == name and turn.kind == GENERATIVE and turn.report == replica.report
        ]  # fmt: skip
        assert replica.burst == len(fresh), name
        assert not replica.removed or replica.in_flight + replica.passes + replica.reserved > 0
        assert replica.removed == (name not in state.names)


def callers(state: State) -> None:
    flying = Counter(turn.flow for turn in in_flight(state))
    waiting = Counter(turn.flow for turn in held(state))
    assert {flow: (caller.in_flight, caller.held) for flow, caller in state.callers.items()} == {
        flow: (flying[flow], waiting[flow]) for flow in flying | waiting
    }
    assert list(state.ranks) == sorted((flying[flow], flow) for flow in waiting)


def runs(state: State) -> None:
    phases: Counter[int] = Counter()
    for key, run in state.runs.items():
        assert run.key == key
        mine = [turn for turn in in_flight(state) if turn.run == key]
        assert run.in_flight == len(mine) == sum(lane.in_flight for lane in run.lanes)
        assert sorted(run.held) == sorted(turn.id for turn in held(state) if turn.run == key)
        for lane in run.lanes:
            assert lane.in_flight == sum(turn.model == lane.model for turn in mine)
        paused = any(lane.branches for lane in run.lanes)
        assert run.phase == ("generating" if mine else "paused" if paused else "idle")
        phases[phase_slot(run.phase, run.turn_class)] += 1
    assert state.phases == tuple(phases[slot] for slot in range(6))


def dataplanes(state: State) -> None:
    assert list(state.dataplane_names) == sorted(state.dataplanes)
    for name, dataplane in state.dataplanes.items():
        assert sorted(dataplane.turns) == sorted(turn.id for turn in state.turns.values() if turn.dataplane == name)
    assert {turn.dataplane for turn in state.turns.values()} <= set(state.dataplanes)
    assert list(state.identifying) == sorted(turn.id for turn in state.turns.values() if turn.phase is TurnPhase.IDENTIFYING)


def queues(state: State) -> None:
    d = thaw(state)
    expected: dict[QueueKey, list[Turn]] = {}
    for turn in held(state):
        assert turn.queue is not None
        assert turn.queue == queue_key(d, turn), turn
        expected.setdefault(turn.queue, []).append(turn)
    assert state.passes_held == sum(turn.kind != GENERATIVE for turn in held(state))
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
        order = sorted((key.turn_class, state.callers[turn.flow].in_flight, turn.place, turn.id) for turn in turns)
        assert list(in_order(d, key)) == order
        assert first_in(d, key) == order[0]


def identity(state: State) -> None:
    mine = {(run.key, key) for run in state.runs.values() for _, key in run.ids}
    known = {(sighting.run, key) for key, entry in state.ids.items() for sighting in entry.sightings}
    assert mine == known
    assert not any(key[2] == "" for key in state.ids)
    assert all(len(run.ids) <= state.settings.ids_per_run_max for run in state.runs.values())
    assert all(list(run.ids) == sorted(run.ids, key=lambda item: item[0]) for run in state.runs.values())


def timers(state: State) -> None:
    """Nothing that ends by time lacks its timer, and no timer outlives what it is for."""
    transient = {Timer.GATE, Timer.IDENTITY, Timer.NO_REPLICA, Timer.LOST}  # looked at again when they fire
    assert list(state.seconds) == sorted(state.wheel)
    for second, due in state.wheel.items():
        assert due
        assert all(second - 1 < at <= second for at, *_ in due)
    lasting = [due for due in (*state.timers, *(due for second in state.wheel.values() for due in second)) if due[1] not in transient]
    armed = {(timer, of, detail): at for at, timer, of, detail in lasting}
    assert len(armed) == len(lasting)
    expected: set[tuple[int, str, str]] = set()
    for turn in in_flight(state):
        expected.add((Timer.TURN, turn.id, ""))
        assert armed[Timer.TURN, turn.id, ""] == turn.expires
    for run in state.runs.values():
        expected.add((Timer.RUN, run.key, ""))
        if run.ids:
            expected.add((Timer.IDS, run.key, ""))
        expected |= {
            (Timer.RESERVE, run.key, f"{branch.turn}\x1f{lane.model}")
            for lane in run.lanes for branch in lane.branches if branch.reserves and branch.until < float("inf")
        }  # fmt: skip
    expected |= {(Timer.TWIN, *key) for key in state.twins}
    expected |= {(Timer.RESPONSE, response, principal) for principal, response in state.responses}
    expected |= {(Timer.LOAD, replica.name, "") for replica in state.replicas.values() if replica.load is not None and not replica.removed}
    assert set(armed) == expected


def nobody_waits_in_vain(state: State) -> None:
    """No held turn that `admits` says yes to stays held."""
    if not state.open:
        return
    d = thaw(state)
    for turn in held(state):
        assert turn.queue is not None
        for replica in candidates(d, turn.queue):
            assert admits(replica, turn.kind, turn.turn_class, state.settings) is not None, (turn, replica)


def placements(before: State, after: State, placed: list[Place]) -> None:
    """Caps are kept, batch leaves room, and no batch turn starts where an interactive turn that fits is held."""
    batch: Counter[str] = Counter()
    for place in placed:
        replica = after.replicas[place.replica]
        turn = after.turns[place.turn]
        assert replica.health is Health.HEALTHY
        assert serves(replica, turn.kind, turn.model, turn.api)
        assert place.replica not in turn.without
        if turn.kind != GENERATIVE:
            continue
        assert replica.in_flight <= limit(replica, after.settings)
        if turn.turn_class is TurnClass.BATCH:
            batch[place.replica] += 1
            brought = sum(branch.reserves for lane in after.runs[turn.run].lanes for branch in lane.branches)
            assert replica.in_flight + replica.reserved - brought <= limit(replica, after.settings)
    d = thaw(after)
    for turn in held(after):
        if turn.turn_class is TurnClass.BATCH or turn.queue is None or not after.open or turn.kind != GENERATIVE:
            continue
        known = before.turns.get(turn.id)
        if known is not None and known.queue != turn.queue:
            continue  # a placement moved its lane: before that it could not have gone there
        for replica in candidates(d, turn.queue):
            assert not batch[replica.name], f"{turn.id} was held while batch started at {replica.name}"
