"""Which held turn is next for a replica?

Class first, then the flow with the smallest key (`original`: fewest turns in flight), then first come. Keys of flows live in one global
order (`ranks`), not in every queue: a turn that ends changes one entry, however many queues its caller waits in.
"""

import heapq
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from luftpause.scheduler.core.events import Kind
from luftpause.scheduler.core.indexes import Draft
from luftpause.scheduler.core.model import GENERATIVE, PlaceInFlow, Queue, QueueKey, Replica, Turn

FLOWS_COMPARED_MAX = 16  # up to here asking every flow is cheaper than walking two orders

Candidate = tuple[int, Any, PlaceInFlow, str]  # class, flow key, place, turn
Admits = Callable[[Turn], bool]


def next_turn(d: Draft, replica: Replica, turn_class: int) -> Candidate | None:
    """The first held turn of this class, in order, that the replica admits."""
    best: Candidate | None = None
    for key in _queues_for(d, replica, turn_class):
        if d.policy.opens(d, replica, key) is not None:
            continue
        for candidate in in_order(d, key):
            if best is not None and candidate >= best:
                break
            if d.policy.admits(d, replica, d.turns[candidate[3]]) is None:
                best = candidate
                break
    return best


def _queues_for(d: Draft, replica: Replica, turn_class: int) -> Iterator[QueueKey]:
    """Non-empty queues whose turns may go there."""
    for key in d.queues_of_home.get(replica.name, ()):
        if key.turn_class == turn_class and not _barred(replica, key):
            yield key
    if not d.queues_of_model:
        return
    kinds = ("classifier",) if replica.spec.kind is Kind.CLASSIFIER else (GENERATIVE, "embedding")
    for model in replica.models or ():
        for kind in kinds:
            for key in d.queues_of_model.get((kind, model), ()):
                if key.turn_class == turn_class and not _barred(replica, key):
                    yield key


def _barred(replica: Replica, key: QueueKey) -> bool:
    name = replica.name
    if name in key.without or name in key.unusable or name in key.suspect:
        return True
    return bool(replica.apis) and key.kind == GENERATIVE and key.api not in replica.apis


def in_order(d: Draft, key: QueueKey) -> Iterator[Candidate]:
    """All turns of a queue, best first. The first costs little; the others are sorted when somebody asks for them."""
    queue = d.queues[key]
    place, flow = _first(d, queue)
    turn = queue.flows[flow].first()[1]
    yield key.turn_class, d.callers[flow].rank, place, turn
    callers = d.callers
    heap: list[tuple[Any, PlaceInFlow, str, Iterator[tuple[PlaceInFlow, str]]]] = []
    for _, name in queue.heads:
        turns = iter(queue.flows[name])
        head, first = next(turns)
        heap.append((callers[name].rank, head, first, turns))
    heapq.heapify(heap)
    while heap:
        rank, place, here, turns = heapq.heappop(heap)
        if here != turn:
            yield key.turn_class, rank, place, here
        following = next(turns, None)
        if following is not None:
            heapq.heappush(heap, (rank, *following, turns))


def _first(d: Draft, queue: Queue) -> tuple[PlaceInFlow, str]:
    """
    The (place, flow) that goes first: least (flow key, place).

    With many flows: the first flow in the global order that waits here has the least key; the oldest head with that key is the answer.
    Keys tie much, so both are found after a few steps; at worst each flow of the queue is looked at twice.
    """
    callers = d.callers
    if len(queue.flows) > FLOWS_COMPARED_MAX:
        for rank, flow in islice(d.ranks, len(queue.flows)):
            if flow in queue.flows:
                return next(head for head in queue.heads if callers[head[1]].rank == rank)
    return min(queue.heads, key=lambda head: (callers[head[1]].rank, head[0]))
