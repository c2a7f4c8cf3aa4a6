"""What does the scheduler look like from outside?

`overview` is what `GET :5001/status` shows. It walks replicas, held turns and callers, never all runs: those are counted as they change.
"""

from msgspec import Struct
from msgspec.structs import replace

from luftpause.scheduler.core.admission import limit, load_unknown
from luftpause.scheduler.core.decisions import HoldReason
from luftpause.scheduler.core.events import TurnClass
from luftpause.scheduler.core.indexes import thaw
from luftpause.scheduler.core.model import PHASES, UNLIMITED, QueueKey, Replica, State, Turn
from luftpause.scheduler.core.queues import bound_home
from luftpause.scheduler.core.runs import phase_slot

CLASSES = tuple(TurnClass)
HELD_SHOWN_MAX = 200
CALLERS_SHOWN_MAX = 200


class ReplicaView(Struct, frozen=True):
    """`cap` None: not capped. `load`: known, unknown (metrics went missing), or none (it never had any)."""

    name: str
    url: str
    kind: str
    health: str
    models: tuple[str, ...] | None
    apis: tuple[str, ...]
    in_flight: int
    passes: int
    cap: int | None
    load: str
    running: int | None
    waiting: int | None
    load_age_seconds: float | None
    paused_interactive: int
    probed_seconds_ago: float | None


class HeldView(Struct, frozen=True):
    """`waits_for`: the replicas that it may go to, or why there are none."""

    turn: str
    run: str
    turn_class: str
    caller: str
    model: str
    reason: str
    held_seconds: float
    waits_for: str


class HeldCount(Struct, frozen=True):
    name: str
    held: int
    in_flight: int | None
    longest_wait_seconds: float


class Overview(Struct, frozen=True):
    """`held_by_caller` and `held_turns` are cut; `held` is the whole number."""

    policy: str
    placing: bool  # False: still waiting for dataplanes after a start
    uptime_seconds: float
    dataplanes: dict[str, bool]  # connected?
    replicas: tuple[ReplicaView, ...]
    held: int
    held_by_class: tuple[HeldCount, ...]
    held_by_caller: tuple[HeldCount, ...]
    held_turns: tuple[HeldView, ...]
    runs: dict[str, dict[str, int]]  # phase -> class -> count
    counters: dict[str, int]


def overview(state: State, now: float) -> Overview:
    """The state as a person wants to see it at `now`. Costs a few microseconds per replica, held turn shown and caller."""
    held = [turn for key in state.queue_keys for turn in _turns_of(state, key)]
    return Overview(
        policy=state.settings.policy,
        placing=state.open,
        uptime_seconds=round(now - state.started_at, 3),
        dataplanes={name: state.dataplanes[name].connected for name in state.dataplane_names},
        replicas=tuple(_replica(state, state.replicas[name], now) for name in state.names),
        held=len(held) + len(state.identifying),
        held_by_class=_by_class(held, now),
        held_by_caller=_by_caller(state, held, now),
        held_turns=_oldest(state, held, now),
        runs={phase: {c.name.lower(): state.phases[phase_slot(phase, c)] for c in CLASSES} for phase in PHASES},
        counters={name: state.counters[name] for name in sorted(state.counters)},
    )


def _turns_of(state: State, key: QueueKey) -> list[Turn]:
    queue = state.queues[key]
    return [state.turns[id_] for _, flow in queue.heads for _, id_ in queue.flows[flow]]


def _replica(state: State, replica: Replica, now: float) -> ReplicaView:
    cap = limit(replace(replica, passes=0), state.settings)  # shown beside all turns in flight
    load = replica.load
    return ReplicaView(
        name=replica.name,
        url=replica.spec.url,
        kind=replica.spec.kind.value,
        health=replica.health.value,
        models=replica.models,
        apis=replica.apis,
        in_flight=replica.in_flight,
        passes=replica.passes,
        cap=None if cap >= UNLIMITED else cap,
        load="known" if load else "unknown" if load_unknown(replica) else "none",
        running=load.running if load else None,
        waiting=load.waiting if load else None,
        load_age_seconds=round(now - replica.load_at, 3) if load else None,
        paused_interactive=replica.reserved,
        probed_seconds_ago=round(now - replica.probed_at, 3) if replica.probed_at else None,
    )


def _by_class(held: list[Turn], now: float) -> tuple[HeldCount, ...]:
    found: list[HeldCount] = []
    for turn_class in CLASSES:
        mine = [turn.arrived for turn in held if turn.turn_class == turn_class]
        found.append(HeldCount(turn_class.name.lower(), len(mine), None, round(now - min(mine, default=now), 3)))
    return tuple(found)


def _by_caller(state: State, held: list[Turn], now: float) -> tuple[HeldCount, ...]:
    """Callers with held turns, longest wait first. Callers of different principals that have one name stand apart."""
    first: dict[str, Turn] = {}
    for turn in held:
        if turn.flow not in first or turn.arrived < first[turn.flow].arrived:
            first[turn.flow] = turn
    order = sorted(first.values(), key=lambda turn: (turn.arrived, turn.flow))[:CALLERS_SHOWN_MAX]
    counts = [(turn, state.callers[turn.flow]) for turn in order]
    return tuple(HeldCount(turn.caller, caller.held, caller.in_flight, round(now - turn.arrived, 3)) for turn, caller in counts)


def _oldest(state: State, held: list[Turn], now: float) -> tuple[HeldView, ...]:
    identifying = [state.turns[id_] for id_ in state.identifying]
    order = sorted((*identifying, *held), key=lambda turn: (turn.arrived, turn.id))[:HELD_SHOWN_MAX]
    d = thaw(state)
    return tuple(
        HeldView(
            turn=turn.id,
            run=turn.run_id,
            turn_class=TurnClass(turn.turn_class).name.lower(),
            caller=turn.caller,
            model=turn.model,
            reason=turn.reason.value if turn.reason else "",
            held_seconds=round(now - turn.arrived, 3),
            waits_for=_waits_for(state, turn, bound_home(d, turn.queue) if turn.queue else ""),
        )
        for turn in order
    )


def _waits_for(state: State, turn: Turn, home: str) -> str:
    match turn.reason:
        case HoldReason.STARTING:
            return "the dataplanes that are expected after a start"
        case HoldReason.IDENTITY:
            return "another dataplane's report of its tool calls"
        case HoldReason.NO_REPLICA:
            servers = state.servers.get((turn.kind, turn.model), ())
            return f"health of {', '.join(servers)}" if servers else f"a replica that serves {turn.model}"
        case HoldReason.STICKY:
            return f"room on {home or 'its home'}"
        case HoldReason.RESERVED:
            return "room beside paused interactive runs" + (f" on {home}" if home else "")
        case _:
            names = (home,) if home else state.servers.get((turn.kind, turn.model), ())
            return f"room on {' or '.join(names)}"
