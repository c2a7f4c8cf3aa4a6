"""How do the state's tables and indexes change together within one step?

`Draft` is the state while `decide` works on it: its fields are rebound, the persistent values behind them never change. Every count and
index is kept by the functions here, so that the tests can compare them with a recount from scratch.
"""

from math import ceil
from typing import TYPE_CHECKING, cast

from immutables import Map
from msgspec.structs import replace

from luftpause.scheduler.core.decisions import Decision
from luftpause.scheduler.core.events import ReplicaSpec
from luftpause.scheduler.core.model import Caller, Dataplane, Replica, State, Tables, Turn
from luftpause.scheduler.core.policies import NOTHING, POLICIES, Learned, Policy
from luftpause.scheduler.core.timing import Second, Timer

NOBODY = Caller()
NOTHING_DUE: Second = Map()
LAST_EXACT = Timer.LOST.value
_BECOME = object.__dict__["__class__"].__set__  # a plain assignment is refused where the class is frozen


class Draft(Tables, gc=False):
    """A state being worked on, and what was decided so far."""

    if TYPE_CHECKING:  # narrower than in the tables; a field of its own would make it another layout
        policy: Policy  # pyright: ignore[reportIncompatibleVariableOverride, reportGeneralTypeIssues]
        decisions: list[Decision]  # pyright: ignore[reportIncompatibleVariableOverride, reportGeneralTypeIssues]


def thaw(s: State) -> Draft:
    """A draft that begins as a copy of the state. A state and a draft differ in their class only, so that one copy per step is enough."""
    d = cast("Draft", s.__copy__())  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]
    _BECOME(d, Draft)
    settings = d.settings
    d.policy = POLICIES[settings.policy]
    d.decisions = []
    d.places_left = settings.places_per_step_max
    d.expiries_left = settings.expiries_per_step_max
    return d


def freeze(d: Draft) -> State:
    """The draft itself becomes the state: nothing changes it any more."""
    d.policy = d.decisions = None  # pyright: ignore[reportAttributeAccessIssue]
    d.places_left = d.expiries_left = 0
    _BECOME(d, State)
    return cast("State", d)


# ---- small tables -----------------------------------------------------------------------------------------------


def bump(d: Draft, counter: str, by: int = 1) -> None:
    d.counters = d.counters.set(counter, d.counters.get(counter, 0) + by)


def arm(d: Draft, at: float, timer: Timer, of: str, detail: str = "") -> None:
    number = timer._value_  # a plain int: the enum's own hash is another
    if number <= LAST_EXACT:
        d.timers = d.timers.add((at, number, of, detail))
        return
    second = ceil(at)
    due = d.wheel.get(second)
    if due is None:
        due = NOTHING_DUE
        d.seconds = d.seconds.add(second)
    d.wheel = d.wheel.set(second, due.set((at, number, of, detail), True))


def disarm(d: Draft, at: float, timer: Timer, of: str, detail: str = "") -> None:
    number = timer._value_
    item = (at, number, of, detail)
    if number <= LAST_EXACT:
        d.timers = d.timers.remove(item)
        return
    second = ceil(at)
    due = d.wheel.get(second)
    if due is not None and item in due:
        put_second(d, second, due.delete(item))


def look_at(d: Draft, at: float) -> None:
    """At this time all turns in flight are looked at, whether they have expired: one timer for all, as hardly any ever does."""
    d.expiry_at = at
    arm(d, at, Timer.TURN, "")


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


def turns_of(d: Draft, dataplane: str) -> list[str]:
    """The ids of its turns, held and in flight, in order. Looks at all turns."""
    return sorted(id_ for id_, turn in d.turns.items() if turn.dataplane == dataplane)


def put_dataplane(d: Draft, dataplane: Dataplane) -> None:
    d.dataplanes = d.dataplanes.set(dataplane.name, dataplane)


def put_turn(d: Draft, turn: Turn) -> None:
    d.turns = d.turns.set(turn.id, turn)


def count_caller(d: Draft, flow: str, *, in_flight: int = 0, held: int = 0) -> None:
    """Keeps the order of the flows that have held turns."""
    old = d.callers.get(flow, NOBODY)
    new = Caller(old.in_flight + in_flight, old.held + held)
    if old.held or new.held:
        new = _ranked(d, flow, old, new)
    if new.in_flight or new.held:
        d.callers = d.callers.set(flow, new)
    elif flow in d.callers:
        d.callers = d.callers.delete(flow)


def _ranked(d: Draft, flow: str, old: Caller, new: Caller) -> Caller:
    """The caller at its place in the order, if it still has one."""
    rank = d.policy.flow_key(d, flow, new)
    if old.held and (rank != old.rank or not new.held):
        d.ranks = d.ranks.remove((old.rank, flow))
    if not new.held:
        return new
    if rank != old.rank or not old.held:
        d.ranks = d.ranks.add((rank, flow))
    return Caller(new.in_flight, new.held, rank)


def heed(d: Draft, learned: Learned) -> None:
    """Keep what the policy learned, and what depends on that."""
    if learned is NOTHING:
        return
    d.policy_state = learned.policy_state
    if learned.replicas:
        mark_dirty(d, *learned.replicas)
    for flow in learned.flows:
        caller = d.callers.get(flow)
        if caller is not None and caller.held:
            d.callers = d.callers.set(flow, _ranked(d, flow, caller, caller))
