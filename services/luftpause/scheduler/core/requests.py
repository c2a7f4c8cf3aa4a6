"""Who asks for a place, and for which run?"""

from msgspec.structs import replace

from luftpause.scheduler.core.decisions import Held, HoldReason, Refuse
from luftpause.scheduler.core.events import Kind, ToolCallSeen, TurnRequested
from luftpause.scheduler.core.holding import queue_key, refuse_unknown
from luftpause.scheduler.core.identity import Identity, answered, by_ids, carried, id_key, resolve
from luftpause.scheduler.core.indexes import Draft, arm, bump, dataplane_of, put_dataplane, put_turn
from luftpause.scheduler.core.model import GENERATIVE, IdKey, Run, Turn, TurnPhase, run_key
from luftpause.scheduler.core.placement import place_or_hold
from luftpause.scheduler.core.places import place, placed
from luftpause.scheduler.core.queues import servers_of
from luftpause.scheduler.core.quota_cost import configured, usual_priority
from luftpause.scheduler.core.quota_grants import fallen
from luftpause.scheduler.core.quota_model import TurnQuota
from luftpause.scheduler.core.runs import store_run
from luftpause.scheduler.core.timing import Timer
from luftpause.scheduler.core.tombstones import ended_at
from luftpause.scheduler.core.turns import end
from luftpause.scheduler.core.twins import inherit, twin_of
from luftpause.scheduler.core.verdicts import RUN_ENDED, Refusal, candidates, verdict


def requested(d: Draft, e: TurnRequested) -> None:
    known = d.turns.get(e.turn)
    if known is not None and _asked_again(d, known, e):
        return
    if e.sent_to and e.kind is not Kind.GENERATIVE:
        _sent(d, e)
    else:
        _waits(d, e)


def _waits(d: Draft, e: TurnRequested) -> None:
    if e.priority >= 0 and (refusal := _may_not_claim(d, e)) is not None:
        refuse_unknown(d, _turn(d, e, Identity(e.run), (), ()), refusal)
        return
    ids, keys = _carried_ids(e) if e.tool_call_ids else ((), ())
    identity = resolve(d, e, keys) if e.kind is Kind.GENERATIVE else Identity(e.run)
    turn = _turn(d, e, identity, ids, keys)
    if (turn.kind, turn.model) not in d.servers and not (d.patterns and servers_of(d, turn.kind, turn.model)):
        judged = verdict(d, key := queue_key(d, turn), candidates(d, key))
        if isinstance(judged, Refusal):  # before it is registered anywhere
            refuse_unknown(d, turn, judged)
            return
    if d.ended_runs and identity.stated and turn.arrived < ended_at(d, run_key(e.principal, turn.run_id)):
        refuse_unknown(d, turn, RUN_ENDED)  # it was held when the run was ended, and did not hear of it
        return
    dataplane = dataplane_of(d, e.dataplane)
    put_dataplane(d, replace(dataplane, turns_count=dataplane.turns_count + 1))
    if identity.unknown_response and not d.open:
        _wait_for_ids(d, replace(turn, previous_response=e.previous_response))
    elif identity.unknown_ids and (not d.open or _others_active(d, e.dataplane)):
        _wait_for_ids(d, turn)
    else:
        admit(d, turn)


def _sent(d: Draft, e: TurnRequested) -> None:
    """A single pass that its engine has, or is about to get: it is counted there, whatever became of that replica meanwhile."""
    turn = _turn(d, e, Identity(e.run), (), ())
    dataplane = dataplane_of(d, e.dataplane)
    put_dataplane(d, replace(dataplane, turns_count=dataplane.turns_count + 1))
    place(d, turn, queue_key(d, turn), e.sent_to, sent=True)


def _may_not_claim(d: Draft, e: TurnRequested) -> Refusal | None:
    usual = usual_priority(d, e.caller, e.turn_class)
    if e.priority >= usual or configured(d, e.caller).may_claim:
        return None
    message = (
        f"caller {e.caller!r} may not claim priority {e.priority}: its turns have {usual}; "
        "leave x-luftpause-priority out, or set governor.callers.<name>.may_claim"
    )
    return Refusal(403, "priority_not_allowed", message)


def _carried_ids(e: TurnRequested) -> tuple[tuple[str, ...], tuple[IdKey, ...]]:
    """The ids that the request carries, and where those that say something are looked up."""
    ids = tuple([id_ for id_ in e.tool_call_ids if id_])
    return ids, tuple([key for id_ in ids if (key := id_key(e.principal, e.caller, id_, e.head_digest)) is not None])


def _turn(d: Draft, e: TurnRequested, identity: Identity, ids: tuple[str, ...], keys: tuple[IdKey, ...]) -> Turn:
    """The turn in one go: each copy of it with another field would cost a third of a microsecond."""
    principal, caller, run = e.principal, e.caller, identity.run or e.fresh_run
    arrived = e.arrived if 0.0 < e.arrived < e.now else e.now
    hold_seconds = d.settings.hold_seconds_max
    quota = TurnQuota(min(e.priority, 2), e.answer_tokens_max) if d.hosted else None
    return Turn(
        id=e.turn, attempt=e.attempt, dataplane=e.dataplane, run=run_key(principal, run) if e.kind is Kind.GENERATIVE else "", run_id=run,
        model=e.model, kind=e.kind._value_, turn_class=e.turn_class, caller=caller, principal=principal,
        flow=run_key(principal, caller) if principal else caller, arrived=arrived, api=e.api, parent=e.parent, stated=identity.stated,
        ids=ids, id_keys=keys, head_digest=e.head_digest, body_hash=e.body_hash, body_bytes=e.body_bytes, kept_home=identity.home,
        without=tuple(sorted(set(e.without))) if e.without else (), hold_until=0.0 if hold_seconds is None else arrived + hold_seconds,
        quota=quota,
    )  # fmt: skip


def _asked_again(d: Draft, turn: Turn, e: TurnRequested) -> bool:
    """The key of a request is (turn, attempt): the same key gets the same answer, an older one none. False: it is a new attempt."""
    if turn.dataplane != e.dataplane:  # ids are random: somebody makes them up
        refuse_id(d, e)
    elif e.attempt > turn.attempt:  # its return was lost with a session
        end(d, turn, "unlisted")
        return False
    elif e.attempt == turn.attempt and turn.phase is TurnPhase.IN_FLIGHT:
        d.decisions.append(placed(d, turn, sent=bool(e.sent_to)))
    elif e.attempt == turn.attempt and turn.reason is not None:
        run = "" if turn.phase is TurnPhase.IDENTIFYING else turn.run_id
        d.decisions.append(Held(turn.dataplane, turn.id, turn.attempt, run, turn.reason, turn.waits_for))
    return True


def refuse_id(d: Draft, e: TurnRequested) -> None:
    """Another dataplane has a turn of this id, which goes on."""
    bump(d, "refused/turn_id_taken")
    message = f"another dataplane has a turn with the id {e.turn!r}; a turn needs an id of its own"
    d.decisions.append(Refuse(e.dataplane, e.turn, e.attempt, e.run or e.fresh_run, 409, "turn_id_taken", message))


def admit(d: Draft, turn: Turn) -> None:
    """Its run is known now: place it or hold it."""
    asked = turn.arrived
    if d.run_quotas:
        turn = fallen(d, turn)
    twin = twin_of(d, turn) if d.twins else None
    if twin is not None:
        turn = replace(turn, arrived=min(twin.arrived, turn.arrived))
    place_or_hold(d, turn, _asks(d, turn, asked) if turn.kind == GENERATIVE else None)
    if twin is not None and turn.id in d.turns:  # one that is refused inherits nothing: its next try does
        inherit(d, twin)


def _asks(d: Draft, turn: Turn, asked: float) -> Run:
    """The run as this turn leaves it, not stored; a new one if it is not known."""
    run = d.runs.get(turn.run)
    if run is None:
        run = Run(turn.run, turn.run_id, turn.principal, turn.caller, turn.turn_class, turn.parent, seen=d.now, asked=asked, born=asked)
    else:
        asked = run.asked if run.asked > asked else asked  # noqa: FURB136 (a call of max costs more than the rest)
        run = replace(run, turn_class=turn.turn_class, caller=turn.caller, seen=d.now, asked=asked, ended=False)
    return carried(d, run, turn) if turn.id_keys else run


# ---- whose is it? -----------------------------------------------------------------------------------------------


def _others_active(d: Draft, dataplane: str) -> bool:
    """Another session is connected and had a turn in flight lately, so its report of these ids may be on the way."""
    since = d.now - d.settings.identity_recent_seconds
    for name in d.dataplane_names:
        other = d.dataplanes[name]
        if name != dataplane and other.connected and (other.turns_count or other.active_at >= since):
            return True
    return False


def _wait_for_ids(d: Draft, turn: Turn) -> None:
    """After a start until all have told what they remember (`identify_all`). No run is told: that would make it a new one."""
    d.identifying = d.identifying.add(turn.id)
    if d.open:
        arm(d, d.now + d.settings.identity_grace_seconds, Timer.IDENTITY, turn.id)
    put_turn(d, replace(turn, run="", phase=TurnPhase.IDENTIFYING, reason=HoldReason.IDENTITY))
    bump(d, f"held/{HoldReason.IDENTITY.value}")
    d.decisions.append(Held(turn.dataplane, turn.id, turn.attempt, "", HoldReason.IDENTITY))


def identify_all(d: Draft) -> None:
    """Placing is about to begin, and what dataplanes remembered is known."""
    for id_ in d.identifying:
        waiting = d.turns[id_]
        response = d.responses.get((waiting.principal, waiting.previous_response))
        if response is not None:
            run = waiting.run_id if waiting.stated else response.run
            identified(d, replace(waiting, stated=True, kept_home=response.replica), run)
        elif waiting.stated or not waiting.id_keys:
            identified(d, waiting, "")
        else:
            found, _ = by_ids(d, waiting.id_keys, waiting.head_digest)
            identified(d, waiting, found.id if found else "")


def identified(d: Draft, turn: Turn, run: str) -> None:
    """The wait for ids is over; `run` empty: nobody knew them."""
    d.identifying = d.identifying.remove(turn.id)
    run = run or turn.run_id
    admit(d, replace(turn, run_id=run, run=run_key(turn.principal, run) if turn.kind == GENERATIVE else "", phase=TurnPhase.HELD))


def tool_call_seen(d: Draft, e: ToolCallSeen) -> None:
    turn = d.turns.get(e.turn)
    if turn is None or turn.phase is not TurnPhase.IN_FLIGHT or turn.run not in d.runs or turn.dataplane != e.dataplane:
        return
    run, turn = answered(d, d.runs[turn.run], turn, e.ids)
    store_run(d, replace(run, seen=d.now))
    put_turn(d, turn)
    for id_ in d.identifying:
        waiting = d.turns[id_]
        if set(waiting.ids).isdisjoint(e.ids) or not waiting.id_keys or waiting.previous_response:
            continue
        found, _ = by_ids(d, waiting.id_keys, waiting.head_digest)
        if found is not None:
            identified(d, waiting, found.id)
