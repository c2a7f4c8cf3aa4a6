"""In which queue does a held turn wait, and which queues may a replica serve?"""

from immutables import Map

from luftpause.kit.model_names import is_pattern
from luftpause.scheduler.core.events import Kind
from luftpause.scheduler.core.indexes import Draft, count_caller, heed, mark_dirty
from luftpause.scheduler.core.model import GENERATIVE, Flow, Health, PlaceInFlow, Queue, QueueKey, Turn
from luftpause.scheduler.core.serving import fits, patterns_of, serves, takes_kind
from luftpause.scheduler.core.sorted_set import SortedSet

EMPTY_FLOW: Flow = SortedSet()


def enqueue(d: Draft, turn: Turn, key: QueueKey, *, counted: bool = True) -> PlaceInFlow:
    """Hold the turn in this queue, in its flow where it was first held: returns that place. Not `counted`: it only moves."""
    place = turn.place
    if not place:
        d.serial += 1
        place = d.policy.place_in_flow(d, turn)
    queue = d.queues.get(key)
    if queue is None:
        queue = Queue(Map())
        d.queue_keys = d.queue_keys.add(key)
        _index_queue(d, key)
    flow, heads = queue.flows.get(turn.flow), queue.heads
    if flow is None:
        flow, heads = EMPTY_FLOW, heads.add((place, turn.flow))
    elif place < (first := flow.first()[0]):
        heads = heads.remove((first, turn.flow)).add((place, turn.flow))
    grown = flow.add((place, turn.id))
    d.queues = d.queues.set(key, Queue(queue.flows.set(turn.flow, grown), heads, queue.size + 1))
    d.held += 1
    if turn.kind != GENERATIVE:
        d.passes_held += 1
    if counted:
        if d.policy.waits is not None:
            heed(d, d.policy.waits(d, turn, 1))
        count_caller(d, turn.flow, held=1)
    return place


def dequeue(d: Draft, turn: Turn, key: QueueKey, *, in_flight: int = 0, counted: bool = True) -> None:
    """The turn no longer waits in this queue (and is in flight if that is 1)."""
    queue = d.queues[key]
    if queue.size == 1:
        d.queues = d.queues.delete(key)
        d.queue_keys = d.queue_keys.remove(key)
        d.stale = d.stale.remove(key)
        _unindex_queue(d, key)
    else:
        d.queues = d.queues.set(key, _without(queue, turn))
    d.held -= 1
    if turn.kind != GENERATIVE:
        d.passes_held -= 1
    if counted:
        if d.policy.waits is not None:
            heed(d, d.policy.waits(d, turn, -1))
        count_caller(d, turn.flow, in_flight=in_flight, held=-1)


def _without(queue: Queue, turn: Turn) -> Queue:
    name, heads, flow = turn.flow, queue.heads, queue.flows[turn.flow]
    leads = flow.first()[1] == turn.id
    if leads:
        heads = heads.remove((turn.place, name))
    if flow.size == 1:
        return Queue(queue.flows.delete(name), heads, queue.size - 1)
    flow = flow.remove((turn.place, turn.id))
    if leads:
        heads = heads.add((flow.first()[0], name))
    return Queue(queue.flows.set(name, flow), heads, queue.size - 1)


def bound_home(d: Draft, key: QueueKey) -> str:
    """The home that this queue's turns must go to; empty if there is none, or it can't serve them any more."""
    if not key.home:
        return ""
    replica = d.replicas.get(key.home)
    if replica is None or replica.health is Health.UNHEALTHY:
        return ""
    if serves(replica, key.kind, key.model, key.api):
        return key.home
    # What it serves is told by its first probe; until then the prefix may well be there.
    return key.home if replica.health is Health.UNKNOWN and replica.models is None and not replica.removed else ""


def servers_of(d: Draft, kind: str, model: str) -> tuple[str, ...]:
    """Replicas that serve the model, in configured order. Costs one look-up, and where there are patterns one question per replica."""
    named = d.servers.get((kind, model), ())
    if not d.patterns:
        return named
    fitting = {name for name, patterns in d.patterns.items() if takes_kind(d.replicas[name], kind) and fits(patterns, model)}
    return tuple([name for name in d.names if name in fitting or name in named]) if fitting else named


def _index_queue(d: Draft, key: QueueKey) -> None:
    home = bound_home(d, key)
    if home:
        d.queues_of_home = d.queues_of_home.set(home, tuple(sorted((*d.queues_of_home.get(home, ()), key))))
    else:
        of = (key.kind, key.model)
        d.queues_of_model = d.queues_of_model.set(of, tuple(sorted((*d.queues_of_model.get(of, ()), key))))


def _unindex_queue(d: Draft, key: QueueKey) -> None:
    home = bound_home(d, key)
    if home:
        rest = tuple(other for other in d.queues_of_home[home] if other != key)
        d.queues_of_home = d.queues_of_home.set(home, rest) if rest else d.queues_of_home.delete(home)
    else:
        of = (key.kind, key.model)
        rest = tuple(other for other in d.queues_of_model[of] if other != key)
        d.queues_of_model = d.queues_of_model.set(of, rest) if rest else d.queues_of_model.delete(of)


def replicas_changed(d: Draft) -> None:
    """Health, models or configuration changed: where held turns may go is worked out anew, and each may have to be told something else."""
    servers: dict[tuple[str, str], tuple[str, ...]] = {}
    for name in d.names:
        replica = d.replicas[name]
        for model in replica.models or ():
            if is_pattern(model):
                continue
            for kind in Kind:
                if takes_kind(replica, kind.value):
                    servers[kind.value, model] = (*servers.get((kind.value, model), ()), name)
    d.servers = Map(servers)
    d.patterns = Map({name: patterns for name in d.names if (patterns := patterns_of(d.replicas[name]))})
    d.hosted = tuple([name for name in d.names if d.replicas[name].spec.quota])
    d.queues_of_home, d.queues_of_model = Map(), Map()
    for key in d.queue_keys:
        _index_queue(d, key)
    d.stale = d.queue_keys
    mark_dirty(d, *d.names)
