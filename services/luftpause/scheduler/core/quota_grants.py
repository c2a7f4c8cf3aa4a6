"""What does the governor's answer to a turn's wish change, and what if it does not come in time?"""

from msgspec.structs import replace

from luftpause.scheduler.core.decisions import HoldReason, Outcome, SettleQuota
from luftpause.scheduler.core.events import QuotaDeferred, QuotaGranted, QuotaRefused
from luftpause.scheduler.core.holding import limited, over_limit, queue_key, refuse, tell, waits_for_home_no_more, waits_no_more
from luftpause.scheduler.core.indexes import Draft, arm, bump, put_turn
from luftpause.scheduler.core.model import GENERATIVE, Replica, Turn, TurnPhase
from luftpause.scheduler.core.placement import ask_or_tell, place_or_hold
from luftpause.scheduler.core.places import place
from luftpause.scheduler.core.queues import dequeue, servers_of
from luftpause.scheduler.core.quota_cost import UNKNOWN, priority_of
from luftpause.scheduler.core.quota_model import LEVEL_FALL, TurnQuota
from luftpause.scheduler.core.quota_wait import ask, has_room, stop
from luftpause.scheduler.core.runs import forget_unused
from luftpause.scheduler.core.timing import Timer
from luftpause.scheduler.core.verdicts import Refusal, candidates, possible, quota_too_late

Answer = QuotaGranted | QuotaDeferred | QuotaRefused


def granted(d: Draft, e: QuotaGranted) -> None:
    """It goes to that replica, if it is still there and the replica has room; else the lease is given back at once."""
    found = _asking(d, e)
    replica = d.replicas.get(e.replica)
    if found is None or replica is None:
        _give_back(d, e)
        return
    turn, quota = found
    key = turn.queue or queue_key(d, turn)
    if replica.name not in {able.name for able in candidates(d, key)} or not has_room(d, turn, key, replica):
        _give_back(d, e)
        ask_or_tell(d, stop(d, turn, at=(e.replica,), answered=e.replica), key, candidates(d, key))
        return
    spared = priority_of(d, turn) == 0  # nothing is cut from what is critical
    level = 0 if spared else e.level
    if level >= LEVEL_FALL and not quota.moved and (model := _next_model(d, turn, replica)):
        _give_back(d, e)
        _fall(d, stop(d, turn, answered=e.replica), model)
        return
    turn = stop(d, turn, answered=e.replica)
    turn = replace(turn, quota=replace(turn.quota or quota, fence=e.fence, level=level))
    if level:
        turn = replace(turn, quota=replace(turn.quota or quota, answer_share=e.answer_share, answer_least=e.answer_least))
    place(d, turn, key, e.replica)


def deferred(d: Draft, e: QuotaDeferred) -> None:
    """Not now: from here on it is held, for all of the quotas that it may use; not for one that opens too late."""
    found = _asking(d, e)
    if found is None:
        return
    turn, quota = found
    until = d.now + e.wait_seconds
    if until > latest(d, quota):
        _give_up(d, stop(d, turn, at=(e.replica,)), e.replica, quota_too_late(d, turn, e.replica, e.wait_seconds))
        return
    if quota.deferred:
        put_turn(d, replace(turn, quota=replace(quota, until=max(quota.until, until))))
        return
    if limited(d) and (refusal := over_limit(d, turn)) is not None:
        refuse(d, turn, refusal)
        forget_unused(d, turn.run)
        return
    key = turn.queue or queue_key(d, turn)
    arm(d, latest(d, quota), Timer.QUOTA, turn.id)
    turn = ask(d, replace(turn, quota=replace(quota, deferred=True, until=until)), key, candidates(d, key))
    waits_for = possible(d, key)
    since = tell(d, turn, HoldReason.QUOTA, waits_for)
    put_turn(d, replace(turn, reason=HoldReason.QUOTA, waits_for=waits_for, no_replica_since=since))


def refused(d: Draft, e: QuotaRefused) -> None:
    """Never: as large as it is, or with that account."""
    found = _asking(d, e)
    if found is not None:
        refusal = Refusal(e.status, e.code, e.message, e.retry_after_seconds)
        _give_up(d, stop(d, found[0], at=(e.replica,), answered=e.replica), e.replica, refusal)


def waited_too_long(d: Draft, id_: str) -> None:
    """`quota_hold_seconds_max`: its client gets the refusal, unless a replica without a quota may take it."""
    turn = d.turns.get(id_)
    if turn is None or turn.phase is not TurnPhase.HELD or turn.quota is None or not turn.quota.asks:
        return
    key = turn.queue or queue_key(d, turn)
    if d.now < latest(d, turn.quota) or any(not replica.spec.quota for replica in candidates(d, key)):
        return
    refuse(d, turn, quota_too_late(d, turn, turn.quota.asks[0], max(0.0, turn.quota.until - d.now)))
    forget_unused(d, turn.run)


def latest(d: Draft, quota: TurnQuota) -> float:
    """A turn waits for quota until then at most."""
    return (quota.since or d.now) + d.settings.quota_hold_seconds_max


def fallen(d: Draft, turn: Turn) -> Turn:
    """A run that fell back to another model stays there until it ends."""
    run = d.run_quotas.get(turn.run)
    model = dict(run.fell).get(turn.model, "") if run is not None else ""
    if not model or not servers_of(d, turn.kind, model):
        return turn
    return replace(turn, model=model, quota=replace(turn.quota or TurnQuota(), model=turn.model))


# ---- parts ------------------------------------------------------------------------------------------------------


def _asking(d: Draft, e: Answer) -> tuple[Turn, TurnQuota] | None:
    """The turn that this answers; None: it is gone, has a place, or asks elsewhere by now."""
    turn = d.turns.get(e.turn)
    if turn is None or turn.attempt != e.attempt or turn.phase is not TurnPhase.HELD or turn.quota is None:
        return None
    return (turn, turn.quota) if e.replica in turn.quota.asks else None


def _give_back(d: Draft, e: QuotaGranted) -> None:
    d.decisions.append(SettleQuota(e.turn, e.attempt, e.replica, e.fence, Outcome.UNUSED))


def _give_up(d: Draft, turn: Turn, name: str, refusal: Refusal) -> None:
    """That quota is none for it. It is refused where nothing else may take it."""
    quota = turn.quota or TurnQuota()
    key = turn.queue or queue_key(d, turn)
    able = candidates(d, key)
    quota = replace(quota, given_up=(*quota.given_up, name))
    turn = replace(turn, quota=quota)
    if quota.asks or quota.lines or any(not replica.spec.quota or replica.name not in quota.given_up for replica in able):
        ask_or_tell(d, turn, key, able)
        return
    refuse(d, turn, refusal)
    forget_unused(d, turn.run)


def _next_model(d: Draft, turn: Turn, replica: Replica) -> str:
    """The next of the replica's chain that somebody can serve now; empty: there is none, or it may not change."""
    chain = replica.spec.fallback
    if not chain or turn.kind != GENERATIVE or turn.kept_home:
        return ""
    rest = chain[chain.index(turn.model) + 1 :] if turn.model in chain else chain
    key, left = queue_key(d, turn), dict(d.run_quotas.get(turn.run, UNKNOWN).fell)  # where two models are each other's fallback
    for model in rest:
        if model not in left and candidates(d, key._replace(model=model, home="")):
            return model
    return ""


def _fall(d: Draft, turn: Turn, model: str) -> None:
    """Its run goes on with this model, from this turn on. The turn asks, or finds a place, anew."""
    quota = turn.quota or TurnQuota()
    asked = quota.model or turn.model
    if turn.queue is not None:
        dequeue(d, turn, turn.queue)
        waits_no_more(d, turn)
    if turn.returned:
        turn = waits_for_home_no_more(d, turn)
    run = d.run_quotas.get(turn.run, UNKNOWN)
    fell = tuple(sorted({**dict(run.fell), asked: model, turn.model: model}.items()))
    d.run_quotas = d.run_quotas.set(turn.run, replace(run, fell=fell))
    quota = replace(quota, model=asked, moved=True, deferred=False, given_up=(), until=0.0)
    turn = replace(turn, model=model, queue=None, place=(), quota=quota)
    bump(d, "fell_back")
    put_turn(d, turn)
    place_or_hold(d, turn)
