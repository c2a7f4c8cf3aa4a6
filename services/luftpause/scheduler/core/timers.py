"""What is due by now?"""

from math import ceil, inf
from typing import assert_never

from msgspec.structs import replace

from luftpause.scheduler.core import dataplanes, identity, quota_grants, replicas, requests, responses, runs, tombstones, turns, twins
from luftpause.scheduler.core.decisions import HoldReason
from luftpause.scheduler.core.holding import queue_key, refuse, tell
from luftpause.scheduler.core.indexes import Draft, look_at, put_second, put_turn
from luftpause.scheduler.core.model import Replica, Turn, TurnPhase
from luftpause.scheduler.core.placement import full_reason
from luftpause.scheduler.core.quota_wait import review
from luftpause.scheduler.core.timing import Due, Timer
from luftpause.scheduler.core.verdicts import Refusal, candidates, held_too_long, no_replica, possible, verdict

TURNS_LOOKED_AT_PER_SECOND = 10_000  # with more of them, those that expire may be late by as many seconds
PASSING = frozenset({HoldReason.NO_REPLICA, HoldReason.STARTING, HoldReason.IDENTITY})  # over once a replica can serve the turn


def fire(d: Draft) -> None:
    """Let everything happen that is due, oldest first, until this step has expired enough."""
    while d.timers.size and d.expiries_left > 0:
        due = d.timers.first()
        if due[0] > d.now:
            break
        d.timers = d.timers.remove(due)
        _fire(d, due)
    while d.seconds.size and d.expiries_left > 0:
        second = d.seconds.first()
        if second > d.now:
            break
        for due in sorted(d.wheel[second])[: d.expiries_left]:
            # What fired before may have ended what this was for, and armed something else.
            left = d.wheel.get(second)
            if left is not None and due in left:
                put_second(d, second, left.delete(due))
                _fire(d, due)


def next_due(d: Draft) -> float | None:
    """When `fire` has something to do again."""
    exact = d.timers.first()[0] if d.timers.size else None
    if not d.seconds.size:
        return exact
    second = d.seconds.first()
    return float(second) if exact is None or second < exact else exact


def _fire(d: Draft, due: Due) -> None:
    _, timer, of, detail = due
    d.expiries_left -= 1
    _fired(d, Timer(timer), of, detail)


def _fired(d: Draft, timer: Timer, of: str, detail: str) -> None:
    match timer:
        case Timer.GATE:
            dataplanes.open_gate(d)
        case Timer.IDENTITY:
            _identity(d, of)
        case Timer.RESERVE:
            runs.reserve_ended(d, of, detail)
        case Timer.LOAD:
            replicas.load_too_old(d, of)
        case Timer.NO_REPLICA:
            _no_replica(d, of)
        case Timer.LOST:
            dataplanes.lost_for_good(d, of, detail)
        case Timer.HOLD | Timer.QUOTA:
            (_held_too_long if timer is Timer.HOLD else quota_grants.waited_too_long)(d, of)
        case _:
            _forgotten(d, timer, of, detail)


def _forgotten(d: Draft, timer: Timer, of: str, detail: str) -> None:
    match timer:
        case Timer.TURN:
            _turns(d)
        case Timer.RUN:
            _run(d, of)
        case Timer.IDS:
            identity.sweep_ids(d, of)
        case Timer.TWIN:
            twins.forget_twins(d, (of, detail))
        case Timer.RESPONSE:
            responses.sweep(d)
        case Timer.TOMBSTONE:
            tombstones.sweep(d)
        case Timer.GATE | Timer.IDENTITY | Timer.RESERVE | Timer.LOAD | Timer.NO_REPLICA | Timer.LOST | Timer.HOLD | Timer.QUOTA:
            pass  # handled by _fired
        case _:
            assert_never(timer)


def _identity(d: Draft, id_: str) -> None:
    turn = d.turns.get(id_)
    if turn is not None and turn.phase is TurnPhase.IDENTIFYING:
        requests.identified(d, turn, "")


def _no_replica(d: Draft, id_: str) -> None:
    """`no_replica: refuse`: it has waited long enough for a replica to heal."""
    turn = d.turns.get(id_)
    if turn is None or turn.phase is not TurnPhase.HELD or turn.reason is not HoldReason.NO_REPLICA:
        return
    if d.now >= turn.no_replica_since + d.settings.no_replica_seconds:
        refuse(d, turn, no_replica(turn.model, d.settings.probe_seconds))
        runs.forget_unused(d, turn.run)


def _held_too_long(d: Draft, id_: str) -> None:
    """`hold_seconds_max`: its timer ends with its hold."""
    turn = d.turns[id_]
    refuse(d, turn, held_too_long(d, turn))
    runs.forget_unused(d, turn.run)


def _turns(d: Draft) -> None:
    """Turns whose second is over, in the order of their expiry. Looks at all that are in flight: 0.1 us each."""
    d.expiries_left += 1  # the timer itself is no record
    late: list[tuple[float, str]] = []
    next_at = inf
    for turn in d.turns.values():
        if turn.phase is not TurnPhase.IN_FLIGHT:
            continue
        if ceil(turn.expires) <= d.now:
            late.append((turn.expires, turn.id))
        elif turn.expires < next_at:
            next_at = turn.expires
    next_at = max(next_at, d.now + len(d.turns) // TURNS_LOOKED_AT_PER_SECOND)
    for at, id_ in sorted(late):
        if d.expiries_left <= 0:
            next_at = at
            break
        d.expiries_left -= 1
        next_at = min(next_at, _turn(d, d.turns[id_]))
    d.expiry_at = None
    if next_at < inf:
        look_at(d, next_at)


def _turn(d: Draft, turn: Turn) -> float:
    """Its end was not reported for long. A turn that its dataplane has lately named as alive stays: until when, else infinity."""
    dataplane = d.dataplanes.get(turn.dataplane)
    if dataplane is not None and d.settings.turn_expiry == "silent" and turn.id in dataplane.listed:
        until = dataplane.listed_at + d.settings.turn_timeout_seconds
        if until > d.now:
            turns.prolong(d, turn, until)
            return until
    turns.expired(d, turn)
    return inf


def _run(d: Draft, key: str) -> None:
    run = d.runs.get(key)
    if run is None:
        return
    due = run.seen + d.settings.run_idle_seconds
    if run.held or run.in_flight:
        due = max(due, d.now + d.settings.run_idle_seconds)
    if due > d.now:
        runs.prolong(d, run, due)
    else:
        runs.forget(d, run)


# ---- held turns that must be told something else ----------------------------------------------------------------


def retell(d: Draft) -> None:
    """Refuse or explain anew the turns of queues whose replicas changed. What is too much for this step stays in `stale`."""
    while d.stale.size and d.expiries_left > 0:
        key = d.stale.first()
        able = candidates(d, key)
        judged = verdict(d, key, able)
        waits_for = possible(d, key)
        queue = d.queues[key]
        waiting = [id_ for _, flow in queue.heads for _, id_ in queue.flows[flow]]
        for id_ in waiting:
            if d.expiries_left <= 0:
                return
            _retell(d, d.turns[id_], judged, able, waits_for)
        d.stale = d.stale.remove(key)


def _retell(d: Draft, turn: Turn, judged: Refusal | HoldReason | None, able: list[Replica], waits_for: tuple[str, ...]) -> None:
    if isinstance(judged, Refusal):
        d.expiries_left -= 1
        refuse(d, turn, judged)
        runs.forget_unused(d, turn.run)
        return
    if d.hosted or turn.quota is not None:
        before, turn = turn, review(d, turn, able)
        d.expiries_left -= turn is not before
        if judged is None and turn.reason is None:  # it asks, and need not be told before that takes a while
            return
    reason = judged
    if reason is None:
        reason = turn.reason  # why a pool is full may change with every turn that ends: that is not news
        if reason is None or reason in PASSING or waits_for != turn.waits_for:
            reason = full_reason(d, turn, queue_key(d, turn), able)
    if reason is not turn.reason or waits_for != turn.waits_for:
        d.expiries_left -= 1
        since = tell(d, turn, reason, waits_for)
        put_turn(d, replace(turn, reason=reason, waits_for=waits_for, no_replica_since=since))
