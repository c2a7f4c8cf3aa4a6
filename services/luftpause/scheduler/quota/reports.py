"""What do the ends of leases, and answers, change in the ledger?"""

from math import inf, isnan

from luftpause.scheduler.quota import breaker, learning, ledger
from luftpause.scheduler.quota.decisions import Expired, Stale
from luftpause.scheduler.quota.draft import Draft, end_lease, renew, spent
from luftpause.scheduler.quota.events import AnswerReported, LeaseReleased, LeaseRenewed, LimitsObserved
from luftpause.scheduler.quota.headers import LimitKind
from luftpause.scheduler.quota.model import STANDING, Lease, Origin, Scope, Tables
from luftpause.scheduler.quota.rules import RULES
from luftpause.scheduler.quota.samples import Sample
from luftpause.scheduler.quota.specs import ScopeSpec
from luftpause.scheduler.quota.wishes import earn_retry, fit_waiters, known


def expire(d: Draft, lease: Lease) -> None:
    """Whoever vanished may have called: what it had counts as used unless the provider has told the rest since."""
    end_lease(d, lease)
    for name, units in lease.cost:
        scope = d.scopes.get(name)
        if scope is not None and scope.sample_at <= lease.granted:
            d.scopes[name] = ledger.charge(scope, units, d.now)
    d.decisions.append(Expired(d.spec.name, lease.want, lease.fence, lease.caller))


def _lease(d: Draft, event: LeaseRenewed | LeaseReleased | AnswerReported) -> Lease | None:
    """The lease it speaks of; None, and said so: it is another one by now, or gone."""
    lease = d.leases.get(event.want)
    if lease is not None and lease.fence == event.fence:
        return lease
    d.decisions.append(Stale(d.spec.name, event.want, event.fence))
    return None


def renewed(d: Draft, event: LeaseRenewed) -> None:
    lease = _lease(d, event)
    if lease is not None:
        renew(d, lease)


def released(d: Draft, event: LeaseReleased) -> None:
    lease = _lease(d, event)
    if lease is not None:
        end_lease(d, lease)
        for name, units in lease.cost:
            if name in d.scopes:
                d.scopes[name] = spent(d, lease, name, -units)


def reported(d: Draft, event: AnswerReported) -> None:
    lease = _lease(d, event)
    if lease is None:
        _sample(d, event.samples, -inf)
        return
    end_lease(d, lease)
    told = _sample(d, event.samples, lease.granted)
    _settle_cost(d, lease, event, told)
    if event.outcome == "ok":
        earn_retry(d, lease.caller)
        breaker.answered(d, lease)
    elif event.outcome == "limited":
        RULES[d.settings.policy].limited(d, lease, event)
    else:
        breaker.failed(d, lease)


def _settle_cost(d: Draft, lease: Lease, event: AnswerReported, told: set[str]) -> None:
    """What was used, where no sample says what is left. Unknown: what was reserved. A request that is too large was not served."""
    for name, reserved, used in used_of(d, lease, event):
        scope = spent(d, lease, name, used - reserved)
        d.scopes[name] = scope if name in told else ledger.charge(scope, used, d.now)


def used_of(tables: Tables, lease: Lease, event: AnswerReported) -> list[tuple[str, float, float]]:
    """Scope, units reserved, units to be charged: a mistake of one caller costs at most what was reserved, or a whole limit."""
    actual, found = dict(known(tables, event.actual)), list[tuple[str, float, float]]()
    for name, reserved in lease.cost:
        if (scope := tables.scopes.get(name)) is not None:
            used = bounded(actual.get(name, 0.0 if event.kind is LimitKind.TOO_LARGE else reserved), reserved, scope.limit)
            found.append((name, reserved, max(used, reserved) if is_whole(scope.spec, event) else used))
    return found


def bounded(units: float, reserved: float, limit: float) -> float:
    """What a caller says that it used, as far as it is believed."""
    return reserved if isnan(units) else min(max(units, 0.0), max(reserved, limit))


def is_whole(spec: ScopeSpec, event: AnswerReported) -> bool:
    """Does the provider debit all that was asked for, even if less was used?"""
    return spec.charge == "reserved" and event.outcome == "ok"


def observed(d: Draft, event: LimitsObserved) -> None:
    _sample(d, event.samples, -inf)
    if event.limited:
        refusal = AnswerReported(event.now, event.target, "", 0, "limited", (), event.samples, event.wait_seconds, event.kind)
        RULES[d.settings.policy].limited(d, _unknown_lease(d), refusal)


def _unknown_lease(d: Draft) -> Lease:
    """Of a call that nobody announced. Where there was a block a moment ago it may be from before, and is no news."""
    b = d.breaker
    granted = d.now if b.mode not in STANDING and b.window == inf else -inf
    return Lease("", 0, "", 1, (), granted=granted, expires=granted, seconds=0.0, episode=b.episode)


def _sample(d: Draft, samples: tuple[Sample, ...], granted: float) -> set[str]:
    """The scopes of which the provider has said what remains. One that nobody knew may appear."""
    told: set[str] = set()
    for sample in samples:
        scope = d.scopes.get(sample.scope) or _appeared(d, sample)
        if scope is not None:
            d.scopes[sample.scope] = ledger.sampled(learning.refit(scope, sample), sample, d.now, granted)
            if sample.remaining is not None:
                told.add(sample.scope)
    return told


def _appeared(d: Draft, sample: Sample) -> Scope | None:
    if d.spec.learns is None or sum(scope.origin is not Origin.CONFIGURED for scope in d.scopes.values()) >= d.settings.learned_max:
        return None
    scope = learning.appears(d.spec.learns, sample, d.now)
    if scope is not None:
        d.scopes[sample.scope] = scope
        fit_waiters(d)
    return scope
