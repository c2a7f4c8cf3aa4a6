"""Where does a turn go now, or why does it wait?"""

from msgspec.structs import replace

from luftpause.scheduler.core.admission import owes
from luftpause.scheduler.core.decisions import HoldReason
from luftpause.scheduler.core.events import TurnClass
from luftpause.scheduler.core.holding import hold, hold_new, limited, over_limit, queue_key, refuse, tell
from luftpause.scheduler.core.indexes import Draft, mark_dirty, put_turn
from luftpause.scheduler.core.model import GENERATIVE, Health, QueueKey, Replica, Run, Turn, TurnPhase
from luftpause.scheduler.core.order import Candidate, next_turn
from luftpause.scheduler.core.places import place
from luftpause.scheduler.core.queues import bound_home
from luftpause.scheduler.core.quota_wait import ask, wake
from luftpause.scheduler.core.runs import forget_unused, lane_of, put_run
from luftpause.scheduler.core.verdicts import Refusal, candidates, possible, verdict

CLASSES = tuple([int(turn_class) for turn_class in TurnClass])  # 0, 1: first comes first
ANY_OF_CLASS = tuple([QueueKey(turn_class, GENERATIVE, "", "", "", (), (), ()) for turn_class in CLASSES])
SAID_AT_ONCE = (HoldReason.RESERVED, HoldReason.KV, HoldReason.PROTECT)
ANY_INTERACTIVE = ANY_OF_CLASS[TurnClass.INTERACTIVE]


def settle(d: Draft) -> None:
    """Place held turns until nothing moves or this step has placed enough."""
    while d.dirty and d.places_left > 0:
        if d.hosted:
            wake(d)
        if not d.open or not d.queue_keys.size:
            d.dirty = ()
            return
        if d.settings.batch_min_share and _place_owed(d):
            continue
        best = _best(d)
        if best is None:
            d.dirty = ()
            return
        turn = d.turns[best[3]]
        key = turn.queue or queue_key(d, turn)
        place(d, turn, key, bound_home(d, key) or choose(d, turn, key, _free(d, candidates(d, key)) if d.hosted else candidates(d, key)))


def _free(d: Draft, able: list[Replica]) -> list[Replica]:
    """Those that take turns by the held order: they have no quota."""
    return [replica for replica in able if replica.name not in d.hosted]


def _place_owed(d: Draft) -> bool:
    """
    `batch_min_share`: place a batch turn where one is owed. Whether it did.

    Such a turn is admitted as an interactive one would be: places kept for paused runs must not make the guarantee void.
    """
    for name in d.names:
        replica = d.replicas[name]
        if name not in d.dirty or not owes(replica, d.settings) or d.policy.opens(d, replica, ANY_INTERACTIVE) is not None:
            continue
        found = next_turn(d, replica, int(TurnClass.BATCH), admitted_as=TurnClass.INTERACTIVE)
        if found is not None:
            turn = d.turns[found[3]]
            place(d, turn, turn.queue or queue_key(d, turn), name)
            return True
    return False


def _best(d: Draft) -> Candidate | None:
    """
    The next turn for any replica that may have room: classes in order over all of them, then flow and arrival.

    Replicas without room are dropped from `dirty` on the way, so that they are not asked again for the next placement.
    """
    first_class = d.queue_keys.first().turn_class  # keys begin with the class
    d.dirty = tuple([name for name in d.dirty if _may_take(d, name, first_class)])
    if not d.dirty:
        return None
    for turn_class in CLASSES[first_class:]:
        best: Candidate | None = None
        idle: list[str] = []
        for name in d.dirty:
            found = next_turn(d, d.replicas[name], turn_class)
            if found is None:
                idle.append(name)
            elif best is None or found < best:
                best = found
        if best is not None:
            if turn_class == CLASSES[-1] and idle:
                d.dirty = tuple([name for name in d.dirty if name not in idle])
            return best
    return None


def _may_take(d: Draft, name: str, first_class: int) -> bool:
    """A replica that takes no turn of the first class that waits takes none of the others: then only single passes could go there."""
    replica = d.replicas.get(name)
    if replica is None or replica.health is not Health.HEALTHY:
        return False
    return d.passes_held > 0 or d.policy.opens(d, replica, ANY_OF_CLASS[first_class]) is None


def choose(d: Draft, turn: Turn, key: QueueKey, able: list[Replica]) -> str:
    """The replica among `able` that it goes to now; empty if none admits it."""
    if len(able) == 1:
        replica = able[0]
        return replica.name if d.policy.opens(d, replica, key) is None and d.policy.admits(d, replica, turn) is None else ""
    admitting = [replica for replica in able if d.policy.opens(d, replica, key) is None and d.policy.admits(d, replica, turn) is None]
    if not admitting:
        return ""
    home = ""
    if d.settings.stickiness == "strict" and turn.kind == GENERATIVE:
        run = d.runs.get(turn.run)
        lane = lane_of(run, turn.model) if run else None
        home = lane.home if lane else ""
    return d.policy.choose(d, turn, home, admitting).name


def place_or_hold(d: Draft, turn: Turn, run: Run | None = None) -> None:
    """A turn that is in no queue: place it, hold it or refuse it. `run`: its run as it is from now on, if that is not stored yet."""
    key = queue_key(d, turn)
    able = candidates(d, key)
    if d.hosted and d.open and any(replica.spec.quota for replica in able):
        _place_or_ask(d, turn, key, able, run)
        return
    judged = None if able and d.open else verdict(d, key, able)
    overtakes = (d.dirty and d.queue_keys.size) or (d.settings.batch_min_share and _owed(d, turn, able))
    if judged is None and not overtakes and (name := choose(d, turn, key, able)):
        place(d, turn, key, name, run)
        return
    if isinstance(judged, Refusal):
        if run is not None:
            put_run(d, run)
        refuse(d, turn, judged)
        forget_unused(d, turn.run)
        return
    waits = (key.home,) if able and _bound(key, able) else possible(d, key)
    if judged is not None:
        hold_new(d, turn, key, judged, waits, run)
    elif overtakes:
        _hold_in_order(d, turn, key, able, waits, run)
    else:
        hold_new(d, turn, key, full_reason(d, turn, key, able), waits, run)


def _place_or_ask(d: Draft, turn: Turn, key: QueueKey, able: list[Replica], run: Run | None) -> None:
    """Some of its replicas, `able`, have a quota: it asks there, unless one of the others takes it now."""
    free = _free(d, able)
    overtakes = free and ((d.dirty and d.queue_keys.size) or (d.settings.batch_min_share and _owed(d, turn, free)))
    if free and not overtakes and (name := choose(d, turn, key, free)):
        place(d, turn, key, name, run)
        return
    hold(d, turn, key, None, (), run)
    ask_or_tell(d, d.turns[turn.id], key, able)
    if overtakes:
        mark_dirty(d, *(replica.name for replica in free))


def ask_or_tell(d: Draft, turn: Turn, key: QueueKey, able: list[Replica]) -> None:
    """A held turn asks where it may. Where those are full its dataplane is told; else that can wait until it takes a while."""
    turn = ask(d, turn, key, able)
    if able and not (turn.quota is not None and turn.quota.asks):
        reason, waits = full_reason(d, turn, key, able), possible(d, key)
        turn = replace(turn, reason=reason, waits_for=waits, no_replica_since=tell(d, turn, reason, waits))
    put_turn(d, turn)


def _bound(key: QueueKey, able: list[Replica]) -> bool:
    """`able`, its candidates, are its home: that is never among others, as it binds wherever it can serve."""
    return bool(key.home) and able[0].name == key.home


def _hold_in_order(d: Draft, turn: Turn, key: QueueKey, able: list[Replica], waits: tuple[str, ...], run: Run | None) -> None:
    """Turns that were held before it may have to go first, or one may be owed: settle finds the order."""
    hold(d, turn, key, full_reason(d, turn, key, able), waits, run)
    mark_dirty(d, *(replica.name for replica in able))
    if not limited(d):
        return
    settle(d)
    turn = d.turns[turn.id]
    if turn.phase is TurnPhase.HELD and d.places_left > 0 and (refusal := over_limit(d, turn)) is not None:
        refuse(d, turn, refusal)
        forget_unused(d, turn.run)


def _owed(d: Draft, turn: Turn, able: list[Replica]) -> bool:
    """One of its replicas owes a place to batch and has one."""
    batch = turn.turn_class is TurnClass.BATCH and turn.kind == GENERATIVE
    return batch and any(owes(replica, d.settings) and d.policy.opens(d, replica, ANY_INTERACTIVE) is None for replica in able)


def full_reason(d: Draft, turn: Turn, key: QueueKey, able: list[Replica]) -> HoldReason:
    """Why a turn waits although healthy replicas, `able`, serve its model."""
    if turn.quota is not None and turn.quota.asks:
        return HoldReason.QUOTA
    bound = _bound(key, able)
    if bound and turn.turn_class is TurnClass.INTERACTIVE:
        return HoldReason.STICKY
    reason = HoldReason.CAPPED
    for replica in able:
        refused = d.policy.opens(d, replica, key) or d.policy.admits(d, replica, turn)
        if refused in SAID_AT_ONCE:
            return refused
        reason = refused or reason
        if turn.turn_class is TurnClass.INTERACTIVE:
            break  # nothing is kept from it: the first says it all
    return HoldReason.STICKY if bound else reason
