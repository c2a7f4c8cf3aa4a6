"""How do the state's tables and indexes change together within one step?

`Draft` is the state while `decide` works on it: its fields are rebound, the persistent values behind them never change. Every count and
index is kept by the functions here, so that the tests can compare them with a recount from scratch.
"""

from math import ceil
from typing import Any

from immutables import Map
from msgspec import Struct
from msgspec.structs import replace

from luftpause.scheduler.core.decisions import Decision
from luftpause.scheduler.core.events import ReplicaSpec
from luftpause.scheduler.core.model import (
    Caller,
    Dataplane,
    Due,
    IdKey,
    Known,
    Queue,
    QueueKey,
    Replica,
    ResponseHome,
    Run,
    Second,
    State,
    Timer,
    Turn,
    Twin,
    TwinKey,
)
from luftpause.scheduler.core.policies import POLICIES, Policy
from luftpause.scheduler.core.settings import Settings
from luftpause.scheduler.core.sorted_set import SortedSet

NOBODY = Caller()
NOTHING_DUE: Second = Map()


class Draft(Struct, gc=False):
    """A state being worked on (the same fields in the same order), and what was decided so far."""

    settings: Settings
    now: float
    started_at: float
    open: bool
    replicas: "Map[str, Replica]"
    names: tuple[str, ...]
    urls: "Map[str, str]"
    servers: "Map[tuple[str, str], tuple[str, ...]]"
    patterns: "Map[str, tuple[str, ...]]"
    runs: "Map[str, Run]"
    turns: "Map[str, Turn]"
    callers: "Map[str, Caller]"
    dataplanes: "Map[str, Dataplane]"
    dataplane_names: SortedSet[str]
    ids: "Map[IdKey, Known]"
    responses: "Map[tuple[str, str], ResponseHome]"
    twins: "Map[TwinKey, tuple[Twin, ...]]"
    ended_runs: "Map[str, float]"
    ended_order: SortedSet[tuple[float, str]]
    identifying: SortedSet[str]
    queues: "Map[QueueKey, Queue]"
    queue_keys: SortedSet[QueueKey]
    queues_of_home: "Map[str, tuple[QueueKey, ...]]"
    queues_of_model: "Map[tuple[str, str], tuple[QueueKey, ...]]"
    ranks: SortedSet[tuple[Any, str]]
    timers: SortedSet[Due]
    wheel: "Map[int, Second]"
    seconds: SortedSet[int]
    dirty: tuple[str, ...]
    stale: SortedSet[QueueKey]
    serial: int
    counters: "Map[str, int]"
    phases: tuple[int, ...]
    held: int
    passes_held: int
    policy_state: Any
    policy: Policy
    decisions: list[Decision]
    places_left: int
    expiries_left: int


def thaw(s: State) -> Draft:
    return Draft(
        s.settings, s.now, s.started_at, s.open, s.replicas, s.names, s.urls, s.servers, s.patterns, s.runs, s.turns, s.callers,
        s.dataplanes,         s.dataplane_names, s.ids, s.responses, s.twins, s.ended_runs, s.ended_order, s.identifying, s.queues,
        s.queue_keys, s.queues_of_home, s.queues_of_model, s.ranks, s.timers, s.wheel, s.seconds, s.dirty,
        s.stale, s.serial, s.counters, s.phases, s.held, s.passes_held, s.policy_state,
        POLICIES[s.settings.policy], [], s.settings.places_per_step_max, s.settings.expiries_per_step_max,
    )  # fmt: skip


def freeze(d: Draft) -> State:
    return State(
        d.settings, d.now, d.started_at, d.open, d.replicas, d.names, d.urls, d.servers, d.patterns, d.runs, d.turns, d.callers,
        d.dataplanes,         d.dataplane_names, d.ids, d.responses, d.twins, d.ended_runs, d.ended_order, d.identifying, d.queues,
        d.queue_keys, d.queues_of_home, d.queues_of_model, d.ranks, d.timers, d.wheel, d.seconds, d.dirty,
        d.stale, d.serial, d.counters, d.phases, d.held, d.passes_held, d.policy_state,
    )  # fmt: skip


# ---- small tables -----------------------------------------------------------------------------------------------


def bump(d: Draft, counter: str, by: int = 1) -> None:
    d.counters = d.counters.set(counter, d.counters.get(counter, 0) + by)


def arm(d: Draft, at: float, timer: Timer, of: str, detail: str = "") -> None:
    if timer <= Timer.LOST:
        d.timers = d.timers.add((at, int(timer), of, detail))
        return
    second = ceil(at)
    due = d.wheel.get(second)
    if due is None:
        due = NOTHING_DUE
        d.seconds = d.seconds.add(second)
    d.wheel = d.wheel.set(second, due.set((at, int(timer), of, detail), True))


def disarm(d: Draft, at: float, timer: Timer, of: str, detail: str = "") -> None:
    item = (at, int(timer), of, detail)
    if timer <= Timer.LOST:
        d.timers = d.timers.remove(item)
        return
    second = ceil(at)
    due = d.wheel.get(second)
    if due is not None and item in due:
        put_second(d, second, due.delete(item))


def put_second(d: Draft, second: int, due: Second) -> None:
    """What is due in this second of the wheel."""
    if due:
        d.wheel = d.wheel.set(second, due)
    else:
        d.wheel = d.wheel.delete(second)
        d.seconds = d.seconds.remove(second)


def mark_dirty(d: Draft, *replicas: str) -> None:
    """These may take a held turn now."""
    for name in replicas:
        if name not in d.dirty:
            d.dirty = (*d.dirty, name)


def put_replica(d: Draft, replica: Replica) -> None:
    """Store it; a removed one goes when nothing is counted there any more."""
    if replica.removed and not (replica.in_flight or replica.passes or replica.reserved):
        d.replicas = d.replicas.delete(replica.name) if replica.name in d.replicas else d.replicas
    else:
        d.replicas = d.replicas.set(replica.name, replica)


def replica_of(d: Draft, name: str) -> Replica:
    """The replica, or one that only counts: dataplanes may remember turns at a replica that is not configured (any more)."""
    found = d.replicas.get(name)
    return Replica(name, ReplicaSpec(name, ""), removed=True) if found is None else found


def reserve_places(d: Draft, name: str, by: int) -> None:
    """`by` more paused interactive branches hold a place at this replica."""
    if not name or not by:
        return
    replica = replica_of(d, name)
    put_replica(d, replace(replica, reserved=replica.reserved + by))
    if by < 0:
        mark_dirty(d, name)


def dataplane_of(d: Draft, name: str) -> Dataplane:
    """The record of a dataplane, made if it is not known yet."""
    found = d.dataplanes.get(name)
    if found is None:
        found = Dataplane(name)
        put_dataplane(d, found)
        d.dataplane_names = d.dataplane_names.add(name)
    return found


def put_dataplane(d: Draft, dataplane: Dataplane) -> None:
    d.dataplanes = d.dataplanes.set(dataplane.name, dataplane)


def put_turn(d: Draft, turn: Turn) -> None:
    d.turns = d.turns.set(turn.id, turn)


def count_caller(d: Draft, flow: str, *, in_flight: int = 0, held: int = 0) -> None:
    """Keeps the order of the flows that have held turns."""
    old = d.callers.get(flow, NOBODY)
    new = Caller(old.in_flight + in_flight, old.held + held)
    rank = d.policy.flow_key(d, flow, new)
    if old.held and (rank != old.rank or not new.held):
        d.ranks = d.ranks.remove((old.rank, flow))
    if new.held and (rank != old.rank or not old.held):
        d.ranks = d.ranks.add((rank, flow))
    if new.in_flight or new.held:
        d.callers = d.callers.set(flow, Caller(new.in_flight, new.held, rank))
    elif flow in d.callers:
        d.callers = d.callers.delete(flow)
