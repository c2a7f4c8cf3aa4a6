"""Where does a turn go now, or why does it wait?"""

from msgspec import UNSET
from msgspec.structs import replace

from luftpause.scheduler.core.admission import owes, shared
from luftpause.scheduler.core.decisions import HoldReason, Place
from luftpause.scheduler.core.events import TurnClass, TurnFinished
from luftpause.scheduler.core.holding import (
    hold,
    hold_new,
    limited,
    over_limit,
    queue_key,
    refuse,
    requeue_lanes,
    waits_no_more,
)
from luftpause.scheduler.core.indexes import (
    Draft,
    bump,
    count_caller,
    dataplane_of,
    heed,
    look_at,
    mark_dirty,
    put_dataplane,
    put_replica,
    put_turn,
    replica_of,
)
from luftpause.scheduler.core.model import GENERATIVE, Health, Lane, QueueKey, Replica, Run, Turn, TurnPhase
from luftpause.scheduler.core.order import Candidate, next_turn, waits_for
from luftpause.scheduler.core.queues import bound_home, dequeue
from luftpause.scheduler.core.runs import follow, forget_unused, lane_of, move_home, phase_of, put_run, with_lane
from luftpause.scheduler.core.verdicts import Refusal, candidates, possible, verdict

CLASSES = tuple([int(turn_class) for turn_class in TurnClass])  # 0, 1: first comes first
ANY_OF_CLASS = tuple([QueueKey(turn_class, GENERATIVE, "", "", "", (), (), ()) for turn_class in CLASSES])
SAID_AT_ONCE = (HoldReason.RESERVED, HoldReason.KV, HoldReason.PROTECT)
ANY_INTERACTIVE = ANY_OF_CLASS[TurnClass.INTERACTIVE]


def settle(d: Draft) -> None:
    """Place held turns until nothing moves or this step has placed enough."""
    while d.dirty and d.places_left > 0:
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
        place(d, turn, key, bound_home(d, key) or choose(d, turn, key, candidates(d, key)))


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


# ---- placing ----------------------------------------------------------------------------------------------------


def place(d: Draft, turn: Turn, key: QueueKey, name: str, run: Run | None = None) -> None:
    """Give the turn to this replica. `key`: where it may go; it need not be held. `run`: its run, if that is not stored yet."""
    now, queue = d.now, turn.queue
    if d.settings.batch_min_share and turn.kind == GENERATIVE:
        _share(d, turn, name)
    d.places_left -= 1
    if queue is not None:
        waits_no_more(d, turn)
    held_seconds = max(now - turn.arrived, 0.0) if turn.reason is not None else 0.0
    turn = replace(
        turn, phase=TurnPhase.IN_FLIGHT, replica=name, placed=now, expires=now + d.settings.turn_timeout_seconds,
        held_seconds=held_seconds, strict=key.home == name, queue=None,
    )  # fmt: skip
    if queue is not None:
        dequeue(d, turn, queue, in_flight=1)
    else:
        count_caller(d, turn.flow, in_flight=1)
    turn = count_in_flight(d, turn, run)
    bump(d, "placed")
    d.decisions.append(placed(d, turn))


def _share(d: Draft, turn: Turn, name: str) -> None:
    """`batch_min_share`: each interactive turn placed where a batch turn waits owes it a part of a place; a batch turn pays."""
    replica = d.replicas[name]
    if turn.turn_class is not TurnClass.BATCH and not waits_for(d, replica, int(TurnClass.BATCH)):
        return
    replica = shared(replica, turn.turn_class, d.settings)
    put_replica(d, replica)
    if owes(replica, d.settings):
        mark_dirty(d, name)


def placed(d: Draft, turn: Turn) -> Place:
    priority = d.policy.priority(d, turn) if d.policy.priority is not None else UNSET
    return Place(turn.dataplane, turn.id, turn.attempt, turn.run_id, turn.replica, turn.turn_seq, turn.reason, turn.held_seconds, priority)


def count_in_flight(d: Draft, turn: Turn, run: Run | None = None, *, counted_now: bool = True) -> Turn:
    """
    Count the turn at its replica and run, and store both; caller and dataplane know it already.

    `run`: if that is not stored yet. Not `counted_now`: it was placed by an earlier scheduler.
    """
    replica = replica_of(d, turn.replica)
    generative = turn.kind == GENERATIVE
    if generative:
        put_replica(d, replace(replica, in_flight=replica.in_flight + 1, seen=replica.seen + (not counted_now)))
    else:
        put_replica(d, replace(replica, passes=replica.passes + 1))
    if d.expiry_at is None:  # else an older turn expires before: each lives for as long
        look_at(d, turn.expires)
    if generative:
        turn = _run_generates(d, turn, run or d.runs[turn.run], replica)
    put_turn(d, turn)
    if d.policy.placed is not None:
        heed(d, d.policy.placed(d, turn))
    return turn


def _run_generates(d: Draft, turn: Turn, run: Run, replica: Replica) -> Turn:
    """Its lane generates at the turn's replica from now on. Returns the turn with its number in the run."""
    before, in_flight = run.lanes, run.in_flight + 1
    if turn.turn_seq == 0:
        turn = replace(turn, turn_seq=run.turn_seq + 1)
        run = follow(d, run, turn)
        if turn.strict and run.lanes is not before:
            turn = replace(turn, resumes=lane_of(run, turn.model) not in before)
    lane = lane_of(run, turn.model) or Lane(turn.model)
    if turn.returned:
        turn, lane = replace(turn, returned=False, resumes=turn.strict), replace(lane, returned=lane.returned - 1)
    turn_seq = lane.turn_seq
    if turn.turn_seq >= turn_seq:
        turn_seq = turn.turn_seq
        if lane.home and lane.home != turn.replica:
            bump(d, "moved")
        home = turn.replica if turn.placed >= replica.since else ""  # that is how an earlier scheduler knew it
        lane = move_home(d, lane, home)
    lanes = with_lane(run, replace(lane, in_flight=lane.in_flight + 1, turn_seq=turn_seq))
    run = replace(
        run, lanes=lanes, in_flight=in_flight, turn_seq=max(run.turn_seq, turn.turn_seq), seen=d.now,
        held=run.held.delete(turn.id) if turn.id in run.held else run.held, phase=phase_of(in_flight, lanes),
    )  # fmt: skip
    run = put_run(d, run)
    if run.held:
        requeue_lanes(d, before, run)  # `follow` may have ended a branch of any of them
    return turn


def uncount(d: Draft, turn: Turn, finished: TurnFinished | None = None) -> None:
    """A turn in flight has ended in whatever way: its place is free. Its run is the caller's affair."""
    replica = replica_of(d, turn.replica)
    if turn.kind == GENERATIVE:
        peak = max(replica.peak, replica.in_flight + replica.reserved)
        put_replica(d, replace(replica, in_flight=replica.in_flight - 1, peak=peak))
    else:
        put_replica(d, replace(replica, passes=replica.passes - 1))
    mark_dirty(d, turn.replica)
    count_caller(d, turn.flow, in_flight=-1)
    dataplane = dataplane_of(d, turn.dataplane)
    put_dataplane(d, replace(dataplane, turns_count=dataplane.turns_count - 1, active_at=d.now))
    d.turns = d.turns.delete(turn.id)
    if d.policy.ended is not None:
        heed(d, d.policy.ended(d, turn, finished))
