"""Which turns wait, for how long and for what?"""

import heapq
from collections.abc import Iterator
from itertools import islice

from msgspec import Struct

from luftpause.scheduler.core.decisions import HoldReason
from luftpause.scheduler.core.events import TurnClass
from luftpause.scheduler.core.indexes import Draft, thaw
from luftpause.scheduler.core.model import PlaceInFlow, Queue, State, Turn
from luftpause.scheduler.core.queues import bound_home
from luftpause.scheduler.core.shares import Shares

CLASSES = tuple(turn_class.name.lower() for turn_class in TurnClass)  # a class's number is its index
SEPARATOR = "\x1f"  # a flow is a caller, or a caller and its principal


class HeldView(Struct, frozen=True):
    """`waits_for` says it in words; `replicas` are those that it may go to, now or once they are healthy; `home`: the only one."""

    turn: str
    run: str
    turn_class: str
    caller: str
    model: str
    kind: str
    dataplane: str
    reason: str
    held_seconds: float
    home: str
    replicas: tuple[str, ...]
    waits_for: str


class HeldCount(Struct, frozen=True):
    name: str
    held: int
    in_flight: int
    longest_wait_seconds: float


class CallerView(Struct, frozen=True):
    """`longest_wait_seconds` None: not worked out in this list. Single passes are counted too."""

    name: str
    held: int
    in_flight: int
    by_class: dict[str, dict[str, int]]  # class -> held, in_flight
    longest_wait_seconds: float | None


def oldest_by_class(state: State) -> dict[int, float]:
    """When the turn that has waited longest arrived, by class; nothing for a class that has none held."""
    first: dict[int, float] = {}
    turns = [state.turns[id_] for id_ in state.identifying]
    turns += [_first(state, queue, queue.heads.first()[1]) for queue in state.queues.values()]
    for turn in turns:
        first[turn.turn_class] = min(turn.arrived, first.get(turn.turn_class, turn.arrived))
    return first


def by_class(state: State, shares: Shares, now: float) -> tuple[HeldCount, ...]:
    first = oldest_by_class(state)
    return tuple(
        HeldCount(
            name,
            held=sum(shares.held[number].values()),
            in_flight=sum(shares.in_flight[number].values()),
            longest_wait_seconds=round(now - first.get(number, now), 3),
        )
        for number, name in enumerate(CLASSES)
    )


def by_reason(shares: Shares) -> dict[str, dict[str, int]]:
    return {reason.value: {name: shares.held[number].get(reason.value, 0) for number, name in enumerate(CLASSES)} for reason in HoldReason}


def by_caller(state: State, shares: Shares, most: int, now: float) -> tuple[CallerView, ...]:
    """Callers with held turns, longest wait first. Callers of different principals that have one name stand apart."""
    found: dict[str, float] = {}
    heads = heapq.merge(*(_heads(state.queues[key]) for key in state.queue_keys), key=_place)
    for _, flow, queue in heads if most else ():
        if flow not in found:
            found[flow] = _first(state, queue, flow).arrived
            if len(found) == most:
                break
    return tuple(_caller(shares, flow, round(now - arrived, 3)) for flow, arrived in found.items())


def busiest(shares: Shares, most: int) -> tuple[CallerView, ...]:
    return tuple(_caller(shares, flow, None) for flow in islice(shares.busiest(), most))


def _caller(shares: Shares, flow: str, wait: float | None) -> CallerView:
    counts = shares.callers[flow]
    return CallerView(
        name=flow.partition(SEPARATOR)[0],
        held=counts[0] + counts[2],
        in_flight=counts[1] + counts[3],
        by_class={name: {"held": counts[2 * number], "in_flight": counts[2 * number + 1]} for number, name in enumerate(CLASSES)},
        longest_wait_seconds=wait,
    )


def oldest(state: State, most: int, now: float) -> tuple[HeldView, ...]:
    """The turns that were held first, in the order of their places: with every policy so far that of their arrival."""
    queues = heapq.merge(*(_in_place_order(state.queues[key]) for key in state.queue_keys))
    turns = [state.turns[id_] for id_ in (*state.identifying, *(id_ for _, id_ in islice(queues, most)))]
    turns.sort(key=lambda turn: (turn.arrived, turn.id))
    d = thaw(state)
    return tuple(_held(d, state, turn, now) for turn in turns[:most])


def _heads(queue: Queue) -> Iterator[tuple[PlaceInFlow, str, Queue]]:
    """The first turn of each flow: its place, the flow, and the queue."""
    return ((place, flow, queue) for place, flow in queue.heads)


def _place(head: tuple[PlaceInFlow, str, Queue]) -> tuple[PlaceInFlow, str]:
    return head[:2]


def _first(state: State, queue: Queue, flow: str) -> Turn:
    return state.turns[queue.flows[flow].first()[1]]


def _in_place_order(queue: Queue) -> Iterator[tuple[PlaceInFlow, str]]:
    """All turns of a queue, least place first, whoever's they are: no flow is looked into before its first turn is due."""
    heap: list[tuple[PlaceInFlow, str, Iterator[tuple[PlaceInFlow, str]]]] = []
    for head, flow in queue.heads:
        while heap and heap[0][0] < head:
            yield _next(heap)
        turns = iter(queue.flows[flow])
        heapq.heappush(heap, (*next(turns), turns))
    while heap:
        yield _next(heap)


def _next(heap: list[tuple[PlaceInFlow, str, Iterator[tuple[PlaceInFlow, str]]]]) -> tuple[PlaceInFlow, str]:
    """Take the least of the heap; the next of its flow takes its stead."""
    place, id_, turns = heap[0]
    following = next(turns, None)
    if following is None:
        heapq.heappop(heap)
    else:
        heapq.heapreplace(heap, (*following, turns))
    return place, id_


def _held(d: Draft, state: State, turn: Turn, now: float) -> HeldView:
    home = bound_home(d, turn.queue) if turn.queue else ""
    return HeldView(
        turn=turn.id,
        run=turn.run_id,
        turn_class=CLASSES[turn.turn_class],
        caller=turn.caller,
        model=turn.model,
        kind=turn.kind,
        dataplane=turn.dataplane,
        reason=turn.reason.value if turn.reason else "",
        held_seconds=round(now - turn.arrived, 3),
        home=home,
        replicas=turn.waits_for,
        waits_for=_waits_for(turn, home),
    )


def _waits_for(turn: Turn, home: str) -> str:
    match turn.reason:
        case HoldReason.STARTING:
            return "the dataplanes that are expected after a start"
        case HoldReason.IDENTITY:
            return "another dataplane's report of its tool calls"
        case HoldReason.NO_REPLICA:
            servers = turn.waits_for
            return f"health of {', '.join(servers)}" if servers else f"a replica that serves {turn.model}"
        case HoldReason.STICKY:
            return f"room on {home or 'its home'}"
        case HoldReason.RESERVED:
            return "room beside paused interactive runs" + (f" on {home}" if home else "")
        case _:
            asks = turn.quota.asks if turn.quota is not None else ()
            return f"quota of {' or '.join(asks)}" if asks else f"room on {' or '.join(turn.waits_for)}"


def held_for(state: State) -> dict[str, dict[int, int]]:
    """How many turns wait for a home that binds them: replica -> class -> count."""
    d = thaw(state)
    found: dict[str, dict[int, int]] = {}
    for key in state.queue_keys:
        if home := bound_home(d, key):
            classes = found.setdefault(home, dict.fromkeys(range(len(CLASSES)), 0))
            classes[key.turn_class] += state.queues[key].size
    return found
