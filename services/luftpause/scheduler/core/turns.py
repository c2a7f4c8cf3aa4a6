"""What does each report about a turn change?"""

from msgspec.structs import replace

from luftpause.scheduler.core.admission import full
from luftpause.scheduler.core.decisions import EndRun, Expire, Held, HoldReason, Located
from luftpause.scheduler.core.events import (
    FirstToken,
    Kind,
    ResponseSeen,
    ResponseSought,
    ReturnReason,
    RunEnded,
    ToolCallSeen,
    TurnAbandoned,
    TurnFailed,
    TurnFinished,
    TurnRequested,
    TurnReturned,
    TurnStarted,
)  # fmt: skip
from luftpause.scheduler.core.identity import Identity, answered, by_ids, carried, forget_response, id_key, remember_response, resolve
from luftpause.scheduler.core.indexes import Draft, arm, bump, dataplane_of, disarm, put_dataplane, put_replica, put_turn
from luftpause.scheduler.core.model import GENERATIVE, Run, Timer, Turn, TurnPhase, Twin, TwinKey
from luftpause.scheduler.core.placement import drop_waiting, place_or_hold, placed, queue_key, refuse, requeue_lane, uncount
from luftpause.scheduler.core.runs import forget, forget_memory, forget_unused, lane_of, pause, put_run, run_key, store_run, with_lane
from luftpause.scheduler.core.verdicts import RUN_ENDED, Refusal, candidates, verdict

FAILURES_COUNTED = frozenset({
    "client_left", "engine_died", "engine_error", "first_byte_timeout", "idle_timeout", "stream_error", "stopped", "abandoned", "unlisted",
})  # fmt: skip


# ---- asking for a place -----------------------------------------------------------------------------------------


def requested(d: Draft, e: TurnRequested) -> None:
    known = d.turns.get(e.turn)
    if known is not None and _asked_again(d, known, e):
        return
    turn = _turn(e)
    identity = resolve(d, e, turn.id_keys) if e.kind is Kind.GENERATIVE else Identity()
    turn = replace(turn, run_id=identity.run or e.fresh_run, stated=identity.stated, kept_home=identity.home)
    if (turn.kind, turn.model) not in d.servers:
        judged = verdict(d, key := queue_key(d, turn), candidates(d, key))
        if isinstance(judged, Refusal):  # before it is registered anywhere
            refuse(d, turn, judged)
            return
    dataplane = dataplane_of(d, e.dataplane)
    put_dataplane(d, replace(dataplane, turns=dataplane.turns.set(turn.id, True)))
    if identity.unknown_ids and _others_active(d, e.dataplane):
        _wait_for_ids(d, turn)
    else:
        admit(d, turn)


def _turn(e: TurnRequested) -> Turn:
    ids, keys = e.tool_call_ids, ()
    if ids:
        ids = tuple([id_ for id_ in ids if id_])
        keys = tuple([key for id_ in ids if (key := id_key(e.principal, e.caller, id_, e.head_digest)) is not None])
    return Turn(
        id=e.turn, attempt=e.attempt, dataplane=e.dataplane, run="", run_id=e.fresh_run, model=e.model, kind=e.kind.value,
        turn_class=e.turn_class, caller=e.caller, principal=e.principal, flow=run_key(e.principal, e.caller) if e.principal else e.caller,
        arrived=e.arrived if 0.0 < e.arrived < e.now else e.now, api=e.api, parent=e.parent, ids=ids, id_keys=keys,
        head_digest=e.head_digest, body_hash=e.body_hash, without=tuple(sorted(set(e.without))) if e.without else (),
    )  # fmt: skip


def _asked_again(d: Draft, turn: Turn, e: TurnRequested) -> bool:
    """The key of a request is (turn, attempt): the same key gets the same answer, an older one none. False: it is a new attempt."""
    if e.attempt > turn.attempt:  # its return was lost with a session
        end(d, turn, "unlisted")
        return False
    if e.attempt == turn.attempt and turn.phase is TurnPhase.IN_FLIGHT:
        d.decisions.append(placed(turn))
    elif e.attempt == turn.attempt and turn.reason is not None:
        d.decisions.append(Held(turn.dataplane, turn.id, turn.attempt, turn.run_id, turn.reason))
    return True


def admit(d: Draft, turn: Turn) -> None:
    """Its run is known now: place it or hold it."""
    if d.twins:
        turn = replace(turn, arrived=_inherited(d, turn))
    if turn.kind == GENERATIVE:
        key = run_key(turn.principal, turn.run_id)
        turn = replace(turn, run=key)
        run = d.runs.get(key)
        if run is None:
            run = Run(key, turn.run_id, turn.principal, turn.caller, turn.turn_class, turn.parent, seen=d.now)
            put_run(d, carried(d, run, turn))
        else:
            run = carried(d, replace(run, turn_class=turn.turn_class, caller=turn.caller, seen=d.now, ended=False), turn)
            store_run(d, run)
    place_or_hold(d, turn)


def _inherited(d: Draft, turn: Turn) -> float:
    """The arrival of a twin that was abandoned while held, if there is one: load balancers cut silent connections."""
    for key in _twin_keys(turn):
        for twin in d.twins.get(key, ()):
            if twin.until >= d.now:
                _drop_twin(d, twin)
                return min(twin.arrived, turn.arrived)
    return turn.arrived


def _twin_keys(turn: Turn) -> tuple[TwinKey, ...]:
    """The same request first, then the same run: of several branches that were cut off each finds its own."""
    body: tuple[TwinKey, ...] = ((turn.flow, turn.body_hash.hex()),) if turn.body_hash else ()
    return (*body, ("run", run_key(turn.principal, turn.run_id))) if turn.kind == GENERATIVE else body


def _leave_twin(d: Draft, turn: Turn) -> None:
    twin = Twin(turn.id, turn.arrived, d.now + d.settings.inherit_seconds, _twin_keys(turn))
    for key in twin.keys:
        known = d.twins.get(key, ())
        if len(known) >= d.settings.twins_per_key_max:  # the older ones have waited longer
            continue
        _put_twins(d, key, (*known, twin))


def _drop_twin(d: Draft, twin: Twin) -> None:
    """It is inherited once, whichever key it was found by."""
    for key in twin.keys:
        _put_twins(d, key, tuple([other for other in d.twins.get(key, ()) if other != twin]))


def forget_twins(d: Draft, key: TwinKey) -> None:
    """The timer of the oldest twin under this key has fired."""
    _put_twins(d, key, tuple([twin for twin in d.twins.get(key, ()) if twin.until > d.now]))


def _put_twins(d: Draft, key: TwinKey, twins: tuple[Twin, ...]) -> None:
    """One timer per key, at its oldest twin."""
    old = d.twins.get(key, ())
    if old and old[:1] != twins[:1]:
        disarm(d, old[0].until, Timer.TWIN, *key)
    if twins:
        d.twins = d.twins.set(key, twins)
        if old[:1] != twins[:1]:
            arm(d, twins[0].until, Timer.TWIN, *key)
    elif old:
        d.twins = d.twins.delete(key)


# ---- whose is it? -----------------------------------------------------------------------------------------------


def _others_active(d: Draft, dataplane: str) -> bool:
    """Another session is connected and had a turn in flight lately, so its report of these ids may be on the way."""
    since = d.now - d.settings.identity_recent_seconds
    for name in d.dataplane_names:
        other = d.dataplanes[name]
        if name != dataplane and other.connected and (other.turns or other.active_at >= since):
            return True
    return False


def _wait_for_ids(d: Draft, turn: Turn) -> None:
    d.identifying = d.identifying.add(turn.id)
    arm(d, d.now + d.settings.identity_grace_seconds, Timer.IDENTITY, turn.id)
    put_turn(d, replace(turn, phase=TurnPhase.IDENTIFYING, reason=HoldReason.IDENTITY))
    bump(d, f"held/{HoldReason.IDENTITY.value}")
    d.decisions.append(Held(turn.dataplane, turn.id, turn.attempt, turn.run_id, HoldReason.IDENTITY))


def identified(d: Draft, turn: Turn, run: str) -> None:
    """The wait for ids is over; `run` empty: nobody knew them."""
    d.identifying = d.identifying.remove(turn.id)
    admit(d, replace(turn, run_id=run or turn.run_id, phase=TurnPhase.HELD))


def tool_call_seen(d: Draft, e: ToolCallSeen) -> None:
    turn = d.turns.get(e.turn)
    if turn is None or turn.phase is not TurnPhase.IN_FLIGHT or turn.run not in d.runs:
        return
    run, turn = answered(d, d.runs[turn.run], turn, e.ids)
    store_run(d, replace(run, seen=d.now))
    put_turn(d, turn)
    for id_ in d.identifying:
        waiting = d.turns[id_]
        if set(waiting.ids).isdisjoint(e.ids):
            continue
        found, _ = by_ids(d, waiting.id_keys, waiting.head_digest)
        if found is not None:
            identified(d, waiting, found.id)


def response_seen(d: Draft, e: ResponseSeen) -> None:
    turn = d.turns.get(e.turn)
    run = d.runs.get(turn.run) if turn else None
    if turn is not None and run is not None and turn.phase is TurnPhase.IN_FLIGHT:
        put_run(d, remember_response(d, run, e.response, turn.replica, d.now))


def response_sought(d: Draft, e: ResponseSought) -> None:
    known = d.responses.get((e.principal, e.response))
    run = d.runs.get(known.run) if known else None
    d.decisions.append(Located(e.dataplane, e.query, known.replica if known else "", run.id if run else ""))


# ---- giving it up, giving it back -------------------------------------------------------------------------------


def abandoned(d: Draft, e: TurnAbandoned) -> None:
    turn = d.turns.get(e.turn)
    if turn is None or turn.attempt != e.attempt:
        return
    bump(d, "abandoned")
    if turn.phase is TurnPhase.IN_FLIGHT:
        end(d, turn, "abandoned")
        return
    _leave_twin(d, turn)
    drop_waiting(d, turn)
    forget_unused(d, turn.run)


def returned(d: Draft, e: TurnReturned) -> None:
    turn = d.turns.get(e.turn)
    if turn is None or turn.attempt != e.attempt or turn.phase is not TurnPhase.IN_FLIGHT:
        return
    bump(d, f"returned/{e.reason.value}")
    uncount(d, turn)
    _run_rests(d, turn)
    name = turn.replica
    turn = replace(turn, attempt=turn.attempt + 1, phase=TurnPhase.HELD, replica="", turn_seq=0, reason=None, first_token=False)
    if e.reason is ReturnReason.UNREACHABLE:  # what its lane does elsewhere binds it from now on
        kept = turn.kept_home if turn.kept_home != name else ""
        turn = replace(turn, without=tuple(sorted((*turn.without, name))), kept_home=kept)
    else:
        turn = replace(turn, kept_home=turn.kept_home or (name if turn.strict else ""))
        if (replica := d.replicas.get(name)) is not None:
            put_replica(d, full(replica))
    dataplane = dataplane_of(d, turn.dataplane)
    put_dataplane(d, replace(dataplane, turns=dataplane.turns.set(turn.id, True)))
    put_turn(d, turn)
    place_or_hold(d, turn)
    _run_over(d, turn.run)


# ---- in flight --------------------------------------------------------------------------------------------------


def started(d: Draft, e: TurnStarted) -> None:
    turn = d.turns.get(e.turn)
    if turn is not None and turn.attempt == e.attempt:
        bump(d, "started")


def first_token(d: Draft, e: FirstToken) -> None:
    turn = d.turns.get(e.turn)
    if turn is not None and turn.phase is TurnPhase.IN_FLIGHT and not turn.first_token:
        put_turn(d, replace(turn, first_token=True))


def finished(d: Draft, e: TurnFinished) -> None:
    turn = d.turns.get(e.turn)
    if turn is None or turn.attempt != e.attempt:
        return
    if turn.phase is not TurnPhase.IN_FLIGHT:
        end(d, turn, "unlisted")
        return
    run = d.runs.get(turn.run)
    if run is not None and e.tool_call_ids:
        run, turn = answered(d, run, turn, e.tool_call_ids)
        store_run(d, run)
    uncount(d, turn)
    bump(d, "finished/paused" if e.paused else "finished/idle")
    _run_rests(d, turn, paused=e.paused and not turn.followed)
    _run_over(d, turn.run)


def failed(d: Draft, e: TurnFailed) -> None:
    turn = d.turns.get(e.turn)
    if turn is not None and turn.attempt == e.attempt:
        end(d, turn, e.reason)


def end(d: Draft, turn: Turn, reason: str) -> None:
    """The turn is over without an answer: in flight or held."""
    if turn.phase is TurnPhase.IN_FLIGHT:
        uncount(d, turn)
        _run_rests(d, turn)
    else:
        drop_waiting(d, turn)
    bump(d, f"failed/{reason if reason in FAILURES_COUNTED else 'other'}")
    _run_over(d, turn.run)


def expired(d: Draft, turn: Turn) -> None:
    """Its end was never reported."""
    d.decisions.append(Expire(turn.id, turn.replica))
    bump(d, "expired")
    uncount(d, turn)
    _run_rests(d, turn)
    _run_over(d, turn.run)


def prolong(d: Draft, turn: Turn, until: float) -> None:
    """Its dataplane has named it as alive: it expires later. Its timer has fired."""
    arm(d, until, Timer.TURN, turn.id)
    put_turn(d, replace(turn, expires=until))


def _run_rests(d: Draft, turn: Turn, *, paused: bool = False) -> None:
    """One turn less generates in its lane; `paused`: its answer ended in tool calls."""
    run = d.runs.get(turn.run)
    lane = lane_of(run, turn.model) if run else None
    if run is None or lane is None:
        return
    lane = replace(lane, in_flight=lane.in_flight - 1, ended=d.now)
    if paused and not run.ended:
        lane = pause(d, run, lane, turn, d.now)
    run = put_run(d, replace(run, lanes=with_lane(run, lane), in_flight=run.in_flight - 1, seen=d.now))
    if run.held:
        requeue_lane(d, run, turn.model)


# ---- the end of a run -------------------------------------------------------------------------------------------


def run_ended(d: Draft, e: RunEnded) -> None:
    d.decisions.append(EndRun(e.run, e.principal))
    run = d.runs.get(run_key(e.principal, e.run))
    if run is None:
        return
    for id_ in run.held:
        refuse(d, d.turns[id_], RUN_ENDED)
    run = forget_memory(d, d.runs[run.key])
    for response in run.responses:
        forget_response(d, run.principal, response)
    put_run(d, replace(run, responses=(), ended=True))
    _run_over(d, run.key)


def _run_over(d: Draft, key: str) -> None:
    """Forget a run that was ended once its last turn is over."""
    run = d.runs.get(key)
    if run is not None and run.ended and not run.in_flight and not run.held:
        forget(d, run)
