"""Which held turn is next for a replica?

Class first, then the flow with the smallest key (`original`: fewest turns in flight), then first come. Keys of flows live in one global
order (`ranks`), not in every queue: a turn that ends changes one entry, however many queues its caller waits in.
"""

import heapq
from collections.abc import Iterator
from itertools import islice
from typing import Any

from msgspec.structs import replace

from luftpause.scheduler.core.events import TurnClass
from luftpause.scheduler.core.indexes import Draft
from luftpause.scheduler.core.model import GENERATIVE, PlaceInFlow, Queue, QueueKey, Replica
from luftpause.scheduler.core.serving import fits, speaks

FLOWS_COMPARED_MAX = 16  # up to here asking every flow is cheaper than walking two orders

KINDS_TAKEN = {"generative": ("generative", "embedding"), "classifier": ("classifier",), "embedding": ("embedding",)}

Candidate = tuple[int, Any, PlaceInFlow, str]  # class, flow key, place, turn


def waits_for(d: Draft, replica: Replica, turn_class: int) -> bool:
    """A generative turn of this class may go there, whether or not there is room."""
    return any(key.kind == GENERATIVE for key in _queues_for(d, replica, turn_class))


def next_turn(d: Draft, replica: Replica, turn_class: int, admitted_as: TurnClass | None = None) -> Candidate | None:
    """The first held turn of this class, that the replica admits. `admitted_as`: a generative one, as if it were of that class."""
    if admitted_as is not None:
        return _next_as(d, replica, turn_class, admitted_as)
    best: Candidate | None = None
    for key in _queues_for(d, replica, turn_class):
        if d.policy.opens(d, replica, key) is not None:
            continue
        first = first_in(d, key)
        if best is not None and first >= best:
            continue
        best = first if d.policy.admits(d, replica, d.turns[first[3]]) is None else _later(d, replica, key, best)
    return best


def _next_as(d: Draft, replica: Replica, turn_class: int, admitted_as: TurnClass) -> Candidate | None:
    best: Candidate | None = None
    for key in _queues_for(d, replica, turn_class):
        if key.kind != GENERATIVE or d.policy.opens(d, replica, key._replace(turn_class=int(admitted_as))) is not None:
            continue
        for candidate in in_order(d, key):
            if best is not None and candidate >= best:
                break
            if d.policy.admits(d, replica, replace(d.turns[candidate[3]], turn_class=admitted_as)) is None:
                best = candidate
                break
    return best


def _later(d: Draft, replica: Replica, key: QueueKey, best: Candidate | None) -> Candidate | None:
    """As the queue's first turn is not admitted: the first of the next few that is, if it goes before `best`."""
    for candidate in islice(in_order(d, key), d.settings.asked_turns_max):
        if best is not None and candidate >= best:
            break
        if d.policy.admits(d, replica, d.turns[candidate[3]]) is None:
            return candidate
    return best


def _queues_for(d: Draft, replica: Replica, turn_class: int) -> list[QueueKey]:
    """Non-empty queues whose turns may go there."""
    found = d.queues_of_home.get(replica.name, ())
    if d.queues_of_model:
        kinds = KINDS_TAKEN[replica.kind]
        if replica.name in d.patterns:
            found += tuple(_fitting(d, replica, turn_class))
        for model in replica.models or ():
            for kind in kinds:
                found += d.queues_of_model.get((kind, model), ())
    return [key for key in found if key.turn_class == turn_class and not _barred(replica, key)]


def _fitting(d: Draft, replica: Replica, turn_class: int) -> list[QueueKey]:
    """Queues of models that it does not name, but has a pattern for. Costs as much as there are queues."""
    patterns, named, kinds = d.patterns[replica.name], replica.models or (), KINDS_TAKEN[replica.kind]
    keys = [key for key in d.queue_keys if key.turn_class == turn_class and key.kind in kinds and key.model not in named]
    return [key for key in keys if fits(patterns, key.model) and key in d.queues_of_model.get((key.kind, key.model), ())]


def _barred(replica: Replica, key: QueueKey) -> bool:
    _, kind, _, api, _, without, unusable, suspect = key
    if replica.apis and not speaks(replica, kind, api):
        return True
    return bool(without or unusable or suspect) and replica.name in without + unusable + suspect


def in_order(d: Draft, key: QueueKey) -> Iterator[Candidate]:
    """All turns of a queue, best first."""
    queue = d.queues[key]
    callers = d.callers
    heap: list[tuple[Any, PlaceInFlow, str, Iterator[tuple[PlaceInFlow, str]]]] = []
    for _, name in queue.heads:
        turns = iter(queue.flows[name])
        head, first = next(turns)
        heap.append((callers[name].rank, head, first, turns))
    heapq.heapify(heap)
    while heap:
        rank, place, here, turns = heapq.heappop(heap)
        yield key.turn_class, rank, place, here
        following = next(turns, None)
        if following is not None:
            heapq.heappush(heap, (rank, *following, turns))


def first_in(d: Draft, key: QueueKey) -> Candidate:
    """The turn that goes first in a queue: least flow key, then least place."""
    queue = d.queues[key]
    callers = d.callers
    if queue.heads.size > FLOWS_COMPARED_MAX:
        place, flow = _first_of_many(d, queue)
        return key.turn_class, callers[flow].rank, place, queue.flows[flow].first()[1]
    heads = iter(queue.heads)
    place, flow = next(heads)
    least = callers[flow].rank
    for head in heads:  # in order of their places
        rank = callers[head[1]].rank
        if rank < least:
            least, (place, flow) = rank, head
    return key.turn_class, least, place, queue.flows[flow].first()[1]


def _first_of_many(d: Draft, queue: Queue) -> tuple[PlaceInFlow, str]:
    """
    The (place, flow) that goes first, without asking every flow.

    The first flow in the global order that waits here has the least key. Then two orders are walked side by side: the flows with that key,
    whose oldest head is the answer, and the oldest heads, of which the first with that key is the answer. Where many flows have the key the
    second ends soon, where few have it the first.
    """
    flows, callers = queue.flows, d.callers
    ranks = iter(d.ranks)
    least, flow = next(ranks)
    while (mine := flows.get(flow)) is None:
        least, flow = next(ranks)
    place = mine.first()[0]
    for head, (rank, name) in zip(queue.heads, ranks, strict=False):
        if callers[head[1]].rank == least:
            return head
        if rank != least:
            break
        mine = flows.get(name)
        if mine is not None and (first := mine.first()[0]) < place:
            place, flow = first, name
    return place, flow
