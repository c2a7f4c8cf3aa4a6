"""What does each report about a turn change?"""

from msgspec.structs import replace

from luftpause.scheduler.core.admission import full, passes_unasked
from luftpause.scheduler.core.decisions import Expire, Outcome, ReplicasChanged
from luftpause.scheduler.core.events import (
    ReturnReason,
    TurnAbandoned,
    TurnFailed,
    TurnFinished,
    TurnReturned,
)  # fmt: skip
from luftpause.scheduler.core.faults import ENGINE_FAULT, faulted
from luftpause.scheduler.core.holding import drop_waiting, requeue_lanes
from luftpause.scheduler.core.identity import answered
from luftpause.scheduler.core.indexes import Draft, bump, dataplane_of, put_dataplane, put_replica, put_turn
from luftpause.scheduler.core.model import GENERATIVE, Turn, TurnPhase
from luftpause.scheduler.core.placement import place_or_hold
from luftpause.scheduler.core.places import uncount
from luftpause.scheduler.core.quota_model import TurnQuota
from luftpause.scheduler.core.runs import forget_unused, lane_of, over, pause, phase_of, put_run, store_run, with_lane
from luftpause.scheduler.core.twins import leave_twin

FAILURES_COUNTED = frozenset({
    "client_left", "engine_died", "engine_error", ENGINE_FAULT, "first_byte_timeout", "idle_timeout", "stream_error", "stopped",
    "abandoned", "unlisted",
})  # fmt: skip


# What each end says of a lease.
OUTCOMES = {ReturnReason.UNREACHABLE: Outcome.UNUSED, ReturnReason.BUSY: Outcome.FAILED, ReturnReason.LIMITED: Outcome.LIMITED}
ENDS = {"abandoned": Outcome.UNUSED, "unlisted": Outcome.LOST}


# ---- giving it up, giving it back -------------------------------------------------------------------------------


def abandoned(d: Draft, e: TurnAbandoned) -> None:
    turn = d.turns.get(e.turn)
    if turn is None or turn.attempt != e.attempt or turn.dataplane != e.dataplane:
        return
    bump(d, "abandoned")
    if turn.phase is TurnPhase.IN_FLIGHT:
        end(d, turn, "abandoned")
        return
    leave_twin(d, turn)
    drop_waiting(d, turn)
    forget_unused(d, turn.run)


def returned(d: Draft, e: TurnReturned) -> None:
    turn = d.turns.get(e.turn)
    if turn is None or turn.attempt != e.attempt or turn.phase is not TurnPhase.IN_FLIGHT or turn.dataplane != e.dataplane:
        return
    bump(d, f"returned/{e.reason.value}")
    uncount(d, turn, outcome=OUTCOMES[e.reason])
    name = turn.replica
    back = turn.resumes and e.reason is not ReturnReason.UNREACHABLE and _lives_at(d, turn, name)
    _run_rests(d, turn, goes_on=True, returned=back)
    turn = replace(turn, attempt=turn.attempt + 1, phase=TurnPhase.HELD, replica="", turn_seq=0, reason=None, resumes=False, returned=back)
    leased = turn.quota is not None and turn.quota.fence > 0
    if turn.quota is not None:
        turn = replace(turn, quota=_asks_anew(turn.quota, e.reason))
    if e.reason is ReturnReason.UNREACHABLE:  # what its lane does elsewhere binds it from now on
        kept = turn.kept_home if turn.kept_home != name else ""
        turn = replace(turn, without=tuple(sorted((*turn.without, name))), kept_home=kept)
    else:
        if leased and e.reason is ReturnReason.LIMITED:  # its engine has room, only its account has none
            replica = None
        else:
            turn, replica = replace(turn, kept_home=turn.kept_home or (name if turn.strict else "")), d.replicas.get(name)
        if replica is not None:
            put_replica(d, now_full := full(replica, turn.kind))
            if passes_unasked(replica) and not passes_unasked(now_full):
                d.decisions.append(ReplicasChanged())
    dataplane = dataplane_of(d, turn.dataplane)
    put_dataplane(d, replace(dataplane, turns_count=dataplane.turns_count + 1))
    put_turn(d, turn)
    place_or_hold(d, turn)
    over(d, turn.run)


def _asks_anew(quota: TurnQuota, reason: ReturnReason) -> TurnQuota:
    """For its next attempt. Time spent waiting counts on where its engine refused by quota."""
    limited = reason is ReturnReason.LIMITED
    return replace(
        quota, asks=(), lines=(), given_up=(), deferred=False, moved=False, fence=0, level=0, answer_share=1.0, answer_least=0, until=0.0,
        since=quota.since if limited else 0.0, tries=quota.tries + limited,
    )  # fmt: skip


# ---- in flight --------------------------------------------------------------------------------------------------


def finished(d: Draft, e: TurnFinished) -> None:
    turn = d.turns.get(e.turn)
    if turn is None or turn.attempt != e.attempt or turn.dataplane != e.dataplane:
        return
    if turn.phase is not TurnPhase.IN_FLIGHT:
        end(d, turn, "unlisted")
        return
    if e.tool_call_ids and e.tool_call_ids != turn.answer_ids and (run := d.runs.get(turn.run)) is not None:
        run, turn = answered(d, run, turn, e.tool_call_ids)
        store_run(d, run)
    uncount(d, turn, e, Outcome.ANSWERED)
    bump(d, "finished/paused" if e.paused else "finished/idle")
    _run_rests(d, turn, answered=True, paused=e.paused and not turn.followed)


def failed(d: Draft, e: TurnFailed) -> None:
    turn = d.turns.get(e.turn)
    if turn is not None and turn.attempt == e.attempt and turn.dataplane == e.dataplane:
        end(d, turn, e.reason)


def end(d: Draft, turn: Turn, reason: str) -> None:
    """The turn is over without an answer: in flight or held."""
    if turn.phase is TurnPhase.IN_FLIGHT:
        uncount(d, turn, outcome=ENDS.get(reason, Outcome.FAILED))
        _run_rests(d, turn)
        if reason == ENGINE_FAULT and turn.kind == GENERATIVE:
            faulted(d, turn)
    else:
        drop_waiting(d, turn)
        forget_unused(d, turn.run)
        over(d, turn.run)
    bump(d, f"failed/{reason if reason in FAILURES_COUNTED else 'other'}")


def expired(d: Draft, turn: Turn) -> None:
    """Its end was never reported. What its lane did since its place is not known: a dataplane that comes back may tell."""
    d.decisions.append(Expire(turn.id, turn.replica))
    bump(d, "expired")
    uncount(d, turn, outcome=Outcome.LOST)
    _run_rests(d, turn)


def prolong(d: Draft, turn: Turn, until: float) -> None:
    """Its dataplane has named it as alive: it expires later."""
    put_turn(d, replace(turn, expires=until))


def _lives_at(d: Draft, turn: Turn, name: str) -> bool:
    """The turn's lane has its home there."""
    run = d.runs.get(turn.run)
    lane = lane_of(run, turn.model) if run else None
    return lane is not None and lane.home == name


def _run_rests(
    d: Draft, turn: Turn, *, answered: bool = False, paused: bool = False, goes_on: bool = False, returned: bool = False
) -> None:  # fmt: skip
    """
    One turn less generates in its lane.

    `paused`: its answer ended in tool calls; `goes_on`: it is placed anew; `returned`: its lane waits for the home that gave it back.
    """
    run = d.runs.get(turn.run)
    lane = lane_of(run, turn.model) if run else None
    if run is None or lane is None:
        return
    before, in_flight = run.lanes, run.in_flight - 1
    newest = max(lane.answered, turn.turn_seq) if answered else lane.answered
    lane = replace(lane, in_flight=lane.in_flight - 1, answered=newest, ended=d.now, returned=lane.returned + returned)
    if paused and not run.ended:
        lane = pause(d, run, lane, turn, d.now)
    lanes = with_lane(run, lane)
    run = put_run(d, replace(run, lanes=lanes, in_flight=in_flight, seen=d.now, phase=phase_of(in_flight, lanes)))
    if run.held:
        requeue_lanes(d, before, run)
    if run.ended and not goes_on:
        over(d, run.key)
