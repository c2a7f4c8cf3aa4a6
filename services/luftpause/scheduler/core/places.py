"""What changes when a turn comes to have a place, and when that ends?"""

from msgspec import UNSET
from msgspec.structs import replace

from luftpause.scheduler.core.admission import owes, shared, with_arrival
from luftpause.scheduler.core.decisions import Lease, Outcome, Place
from luftpause.scheduler.core.events import TurnClass, TurnFinished
from luftpause.scheduler.core.holding import requeue_lanes, waits_no_more
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
from luftpause.scheduler.core.model import GENERATIVE, Lane, QueueKey, Replica, Run, Turn, TurnPhase
from luftpause.scheduler.core.order import waits_for
from luftpause.scheduler.core.queues import dequeue
from luftpause.scheduler.core.quota_wait import settle_lease, stop
from luftpause.scheduler.core.runs import follow, lane_of, move_home, phase_of, put_run, with_lane


def place(d: Draft, turn: Turn, key: QueueKey, name: str, run: Run | None = None, *, sent: bool = False) -> None:
    """
    Give the turn to this replica. `key`: where it may go; it need not be held. `run`: its run, if that is not stored yet.

    `sent`: its dataplane has done so.
    """
    now, queue = d.now, turn.queue
    if turn.quota is not None:
        turn = stop(d, turn)
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
    d.decisions.append(placed(d, turn, sent=sent))


def _share(d: Draft, turn: Turn, name: str) -> None:
    """`batch_min_share`: each interactive turn placed where a batch turn waits owes it a part of a place; a batch turn pays."""
    replica = d.replicas[name]
    if turn.turn_class is not TurnClass.BATCH and not waits_for(d, replica, int(TurnClass.BATCH)):
        return
    replica = shared(replica, turn.turn_class, d.settings)
    put_replica(d, replica)
    if owes(replica, d.settings):
        mark_dirty(d, name)


def placed(d: Draft, turn: Turn, *, sent: bool = False) -> Place:
    priority = d.policy.priority(d, turn) if d.policy.priority is not None else UNSET
    lease, quota = UNSET, turn.quota
    if quota is not None and (quota.fence or quota.model):
        lease = Lease(quota.fence, quota.level, quota.answer_share, quota.answer_least, turn.model if quota.model else "")
    return Place(
        turn.dataplane, turn.id, turn.attempt, turn.run_id, turn.replica, turn.turn_seq, turn.reason, turn.held_seconds, priority, lease,
        sent or UNSET,
    )  # fmt: skip


def count_in_flight(d: Draft, turn: Turn, run: Run | None = None, *, counted_now: bool = True) -> Turn:
    """
    Count the turn at its replica and run, and store both; caller and dataplane know it already.

    `run`: if that is not stored yet. Not `counted_now`: it was placed by an earlier scheduler.
    """
    replica = replica_of(d, turn.replica)
    generative = turn.kind == GENERATIVE
    if generative:
        arrivals = with_arrival(replica, d.now, d.policy.arriving_seconds(d.settings)) if counted_now else replica.arrivals
        in_flight, seen = replica.in_flight + 1, replica.seen + (not counted_now)
        put_replica(d, replace(replica, in_flight=in_flight, seen=seen, arrivals=arrivals))
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


def uncount(d: Draft, turn: Turn, finished: TurnFinished | None = None, outcome: Outcome = Outcome.FAILED) -> None:
    """A turn in flight has ended in whatever way: its place is free. Its run is the caller's affair."""
    if turn.quota is not None and turn.quota.fence:
        settle_lease(d, turn, turn.quota, outcome, finished.usage if finished is not None else None)
    replica = replica_of(d, turn.replica)
    if turn.kind == GENERATIVE:
        peak = max(replica.peak, replica.in_flight + replica.reserved)
        faults = replica.faults if finished is None else ()
        put_replica(d, replace(replica, in_flight=replica.in_flight - 1, peak=peak, faults=faults))
    else:
        put_replica(d, replace(replica, passes=replica.passes - 1))
    mark_dirty(d, turn.replica)
    count_caller(d, turn.flow, in_flight=-1)
    dataplane = dataplane_of(d, turn.dataplane)
    put_dataplane(d, replace(dataplane, turns_count=dataplane.turns_count - 1, active_at=d.now))
    d.turns = d.turns.delete(turn.id)
    if d.policy.ended is not None:
        heed(d, d.policy.ended(d, turn, finished))
