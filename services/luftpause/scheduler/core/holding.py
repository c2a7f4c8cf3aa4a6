"""Where does a turn wait, why, and how does that end without a place?"""

from collections.abc import Iterable

from msgspec.structs import replace

from luftpause.scheduler.core.decisions import Held, HoldReason, Refuse
from luftpause.scheduler.core.indexes import Draft, arm, bump, dataplane_of, disarm, mark_dirty, put_dataplane, put_turn
from luftpause.scheduler.core.model import GENERATIVE, Lane, QueueKey, Run, Turn, TurnPhase
from luftpause.scheduler.core.queues import dequeue, enqueue
from luftpause.scheduler.core.quota_wait import stop
from luftpause.scheduler.core.runs import forget_unused, lane_of, put_run, with_lane
from luftpause.scheduler.core.timing import Timer
from luftpause.scheduler.core.verdicts import Refusal, candidates, held_too_long, too_many


def queue_key(d: Draft, turn: Turn) -> QueueKey:
    """Where the turn may go, as things stand."""
    dataplane = dataplane_of(d, turn.dataplane)
    home = strict_home(d, turn)
    if home in turn.without or home in dataplane.unusable:
        home = ""
    fields = (int(turn.turn_class), turn.kind, turn.model, turn.api, home, turn.without, dataplane.unusable, dataplane.suspects)
    return tuple.__new__(QueueKey, fields)  # half the price of a NamedTuple's own constructor


def strict_home(d: Draft, turn: Turn) -> str:
    """The only replica for this turn while it can serve: its lane generates or is paused there, or it stores the previous response."""
    if turn.kind != GENERATIVE or d.settings.stickiness == "off":
        return ""
    if turn.kept_home and turn.previous_response:
        return turn.kept_home
    run = d.runs.get(turn.run)
    return binding(lane_of(run, turn.model) if run else None) or turn.kept_home


def binding(lane: Lane | None) -> str:
    """The home that turns of the lane may not leave; empty if it is idle."""
    return lane.home if lane and (lane.in_flight or lane.branches or lane.returned) else ""


def hold_new(d: Draft, turn: Turn, key: QueueKey, reason: HoldReason, waits_for: tuple[str, ...], run: Run | None = None) -> None:
    """Hold a turn that can't be placed, or refuse it if the deployment limits that. `run`: its run, if that is not stored yet."""
    refusal = None
    if limited(d):
        if run is not None:
            run = put_run(d, run)
        refusal = over_limit(d, replace(turn, reason=reason, waits_for=waits_for))
    if refusal is None:
        hold(d, turn, key, reason, waits_for, run)
    else:
        refuse(d, turn, refusal)
        forget_unused(d, turn.run)


def limited(d: Draft) -> bool:
    limits = d.settings
    return not (limits.hold_seconds_max is limits.held_turns_max is limits.held_turns_per_caller_max is None)


def over_limit(d: Draft, turn: Turn) -> Refusal | None:
    """One that was placed before and came back is held however many are."""
    if turn.hold_until and turn.hold_until <= d.now:
        return held_too_long(d, turn)
    return too_many(d, turn) if turn.attempt == 1 else None


def hold(d: Draft, turn: Turn, key: QueueKey, reason: HoldReason | None, waits_for: tuple[str, ...], run: Run | None = None) -> None:
    """`reason` None: its dataplane is told nothing yet. `run`: its run, if that is not stored yet."""
    if run is not None:
        put_run(d, replace(run, held=run.held.set(turn.id, True)))
    elif (run := d.runs.get(turn.run)) is not None:
        d.runs = d.runs.set(run.key, replace(run, held=run.held.set(turn.id, True)))
    if turn.hold_until:
        arm(d, turn.hold_until, Timer.HOLD, turn.id)
    place = enqueue(d, turn, key)
    since = 0.0 if reason is None else tell(d, turn, reason, waits_for)
    put_turn(
        d,
        replace(
            turn, phase=TurnPhase.HELD, queue=key, place=place, reason=reason or turn.reason, waits_for=waits_for, no_replica_since=since
        ),
    )


def tell(d: Draft, turn: Turn, reason: HoldReason, waits_for: tuple[str, ...]) -> float:
    """Tell why it is held and for what, if that is news. Returns since when it is held for that reason."""
    if turn.reason is reason and turn.waits_for == waits_for:
        return turn.no_replica_since
    d.decisions.append(Held(turn.dataplane, turn.id, turn.attempt, turn.run_id, reason, waits_for))
    if turn.reason is reason:
        return turn.no_replica_since
    if reason is HoldReason.NO_REPLICA and d.settings.no_replica == "refuse":
        arm(d, d.now + d.settings.no_replica_seconds, Timer.NO_REPLICA, turn.id)
    bump(d, "held/" + reason._value_)
    return d.now


def refuse(d: Draft, turn: Turn, refusal: Refusal) -> None:
    """Answer with an error; the turn is gone."""
    drop_waiting(d, turn)
    refuse_unknown(d, turn, refusal)


def refuse_unknown(d: Draft, turn: Turn, refusal: Refusal) -> None:
    """As `refuse`, for a turn that is registered nowhere."""
    bump(d, f"refused/{refusal.code}")
    d.decisions.append(
        Refuse(
            turn.dataplane, turn.id, turn.attempt, turn.run_id, refusal.status, refusal.code, refusal.message, refusal.retry_after_seconds
        )
    )


def drop_waiting(d: Draft, turn: Turn) -> None:
    """Take a turn that is held (or about to be) out of everything that knows it."""
    if turn.quota is not None:
        turn = stop(d, turn)
    if turn.queue is not None:
        dequeue(d, turn, turn.queue)
        waits_no_more(d, turn)
    if turn.phase is TurnPhase.IDENTIFYING:
        d.identifying = d.identifying.remove(turn.id)
    if turn.id in d.turns:
        d.turns = d.turns.delete(turn.id)
    dataplane = dataplane_of(d, turn.dataplane)
    put_dataplane(d, replace(dataplane, turns_count=dataplane.turns_count - 1))
    run = d.runs.get(turn.run)
    if run is None or not (turn.returned or turn.id in run.held):
        return
    before, run = run.lanes, replace(run, held=run.held.delete(turn.id) if turn.id in run.held else run.held)
    if turn.returned and (lane := lane_of(run, turn.model)) is not None:
        run = replace(run, lanes=with_lane(run, replace(lane, returned=lane.returned - 1)))
    d.runs = d.runs.set(run.key, run)
    if turn.returned and run.held:
        requeue_lanes(d, before, run)


def waits_for_home_no_more(d: Draft, turn: Turn) -> Turn:
    """Its lane's home gave it back, and it goes elsewhere: others of the lane may, too."""
    run = d.runs.get(turn.run)
    if run is not None and (lane := lane_of(run, turn.model)) is not None:
        before = run.lanes
        held = run.held.delete(turn.id) if turn.id in run.held else run.held
        run = replace(run, held=held, lanes=with_lane(run, replace(lane, returned=lane.returned - 1)))
        d.runs = d.runs.set(run.key, run)
        requeue_lanes(d, before, run)
    return replace(turn, returned=False)


def waits_no_more(d: Draft, turn: Turn) -> None:
    """For a turn that is in a queue."""
    if turn.hold_until:
        disarm(d, turn.hold_until, Timer.HOLD, turn.id)


def requeue_lanes(d: Draft, before: tuple[Lane, ...], run: Run) -> None:
    """
    Held turns of lanes whose phase or home changed may go elsewhere now, or only home.

    Of the others none is looked at: somebody may give one run's id to ten thousand requests.
    """
    for lane in run.lanes:
        old = next((other for other in before if other.model == lane.model), None)
        if binding(old) != binding(lane):
            requeue(d, [turn for id_ in sorted(run.held) if (turn := d.turns[id_]).model == lane.model])


def requeue(d: Draft, turns: Iterable[Turn]) -> None:
    """Where these turns may go may have changed."""
    keys: dict[QueueKey, None] = {}
    for turn in turns:
        key = queue_key(d, turn) if turn.phase is TurnPhase.HELD else turn.queue
        if key is not None and key != turn.queue:
            if turn.queue is not None:
                dequeue(d, turn, turn.queue, counted=False)
            place = enqueue(d, turn, key, counted=False)
            put_turn(d, replace(turn, queue=key, place=place))
            keys[key] = None
    for key in keys:
        d.stale = d.stale.add(key)
        mark_dirty(d, *(replica.name for replica in candidates(d, key)))
