"""What does the scheduler look like from outside?

`overview` is what `GET :5001/status` shows. It walks replicas, queues, dataplanes and what is shown of held turns and callers; never all
runs, turns or callers: those are counted as they change (`Shares`).
"""

from msgspec import Struct
from msgspec.structs import replace

from luftpause.scheduler.core.admission import burst_limit, limit, load_unknown
from luftpause.scheduler.core.model import PHASES, UNLIMITED, Replica, State
from luftpause.scheduler.core.runs import phase_slot
from luftpause.scheduler.core.settings import Settings
from luftpause.scheduler.core.shares import Shares, shares_of
from luftpause.scheduler.core.view_held import (
    CLASSES,
    CallerView,
    HeldCount,
    HeldView,
    busiest,
    by_caller,
    by_class,
    by_reason,
    held_for,
    oldest,
)

HELD_SHOWN_MAX = 200
CALLERS_SHOWN_MAX = 200


class Shown(Struct, frozen=True, gc=False):
    """How much of the long lists: so many held turns, and callers in each list of callers."""

    held: int = HELD_SHOWN_MAX
    callers: int = CALLERS_SHOWN_MAX


class ReplicaView(Struct, frozen=True):
    """
    `cap` None: not capped. `load`: known, unknown (metrics went missing), or none (it never had any).

    `burst`: so many turns more are in flight than at its last report; `burst_max` None: unlimited. `held`: turns that wait for this replica
    and may go nowhere else. `health_seconds`: how long it has been in this health. `paused_interactive`: places kept for paused runs.
    """

    name: str
    url: str
    kind: str
    health: str
    health_seconds: float
    misses: int
    probed_seconds_ago: float | None
    suspected_by: tuple[str, ...]  # dataplanes that could not connect
    unusable_by: tuple[str, ...]  # dataplanes that lack its key
    models: tuple[str, ...] | None
    apis: tuple[str, ...]
    in_flight: int
    in_flight_by_class: dict[str, int]
    passes: int
    held: int
    cap: int | None
    max_in_flight: int | None
    burst: int
    burst_max: int | None
    busy: bool
    load: str
    running: int | None
    waiting: int | None
    load_age_seconds: float | None
    paused_interactive: int


class DataplaneView(Struct, frozen=True):
    """`turns`: held and in flight."""

    name: str
    connected: bool
    turns: int
    suspects: tuple[str, ...]
    unusable: tuple[str, ...]


class Overview(Struct, frozen=True):
    """`held_by_caller`, `callers_busiest` and `held_turns` are cut (see `Shown`); `held` and `callers` are the whole numbers."""

    policy: str
    settings: Settings
    placing: bool  # False: still waiting for dataplanes after a start
    uptime_seconds: float
    dataplanes: tuple[DataplaneView, ...]
    replicas: tuple[ReplicaView, ...]
    replicas_removed: tuple[ReplicaView, ...]  # no longer configured, but something is still counted there
    held: int
    held_by_class: tuple[HeldCount, ...]
    held_by_reason: dict[str, dict[str, int]]  # reason -> class -> count
    held_by_caller: tuple[CallerView, ...]  # longest wait first
    callers: int  # with a turn held or in flight
    callers_busiest: tuple[CallerView, ...]  # most in flight first
    held_turns: tuple[HeldView, ...]  # oldest first
    runs: dict[str, dict[str, int]]  # phase -> class -> count
    counters: dict[str, int]


# ---- the overview -----------------------------------------------------------------------------------------------


def overview(state: State, now: float, shares: Shares | None = None, shown: Shown | None = None) -> Overview:
    """The state as a person wants to see it at `now`. `shares` None: counted now, which costs a microsecond per turn."""
    shares = shares_of(state) if shares is None else shares
    shown = shown or Shown()
    removed = sorted(name for name, replica in state.replicas.items() if replica.removed)
    return Overview(
        policy=state.settings.policy,
        settings=state.settings,
        placing=state.open,
        uptime_seconds=round(now - state.started_at, 3),
        dataplanes=tuple(_dataplane(state, name) for name in state.dataplane_names),
        replicas=_replicas(state, state.names, shares, now),
        replicas_removed=_replicas(state, removed, shares, now),
        held=sum(queue.size for queue in state.queues.values()) + len(state.identifying),
        held_by_class=by_class(state, shares, now),
        held_by_reason=by_reason(shares),
        held_by_caller=by_caller(state, shares, shown.callers, now),
        callers=len(shares.callers),
        callers_busiest=busiest(shares, shown.callers),
        held_turns=oldest(state, shown.held, now),
        runs={phase: {name: state.phases[phase_slot(phase, number)] for number, name in enumerate(CLASSES)} for phase in PHASES},
        counters={name: state.counters[name] for name in sorted(state.counters)},
    )


def _dataplane(state: State, name: str) -> DataplaneView:
    dataplane = state.dataplanes[name]
    return DataplaneView(name, dataplane.connected, dataplane.turns_count, dataplane.suspects, dataplane.unusable)


def cap_of(state: State, replica: Replica) -> int | None:
    """Most turns in flight there, single passes among them; None: not capped."""
    cap = limit(replace(replica, passes=0), state.settings)  # shown beside all turns in flight
    return None if cap >= UNLIMITED else cap


def _replicas(state: State, names: tuple[str, ...] | list[str], shares: Shares, now: float) -> tuple[ReplicaView, ...]:
    held = held_for(state)
    return tuple(_replica(state, state.replicas[name], shares, sum(held.get(name, {}).values()), now) for name in names)


def _replica(state: State, replica: Replica, shares: Shares, held: int, now: float) -> ReplicaView:
    load = replica.load
    burst_max = burst_limit(replica, state.settings)
    since = shares.health_since.get(replica.name, state.started_at)
    dataplanes = [state.dataplanes[name] for name in state.dataplane_names]
    return ReplicaView(
        name=replica.name,
        url=replica.spec.url,
        kind=replica.spec.kind.value,
        health=replica.health.value,
        health_seconds=round(now - since, 3),
        misses=replica.misses,
        probed_seconds_ago=round(now - replica.probed_at, 3) if replica.probed_at else None,
        suspected_by=tuple(each.name for each in dataplanes if replica.name in each.suspects),
        unusable_by=tuple(each.name for each in dataplanes if replica.name in each.unusable),
        models=replica.models,
        apis=replica.apis,
        in_flight=replica.in_flight,
        in_flight_by_class={name: shares.in_flight[number].get(replica.name, 0) for number, name in enumerate(CLASSES)},
        passes=replica.passes,
        held=held,
        cap=cap_of(state, replica),
        max_in_flight=replica.spec.max_in_flight,
        burst=max(0, replica.in_flight - replica.seen),
        burst_max=None if burst_max >= UNLIMITED else burst_max,
        busy=replica.busy,
        load="known" if load else "unknown" if load_unknown(replica) else "none",
        running=load.running if load else None,
        waiting=load.waiting if load else None,
        load_age_seconds=round(now - replica.load_at, 3) if load else None,
        paused_interactive=replica.reserved,
    )
