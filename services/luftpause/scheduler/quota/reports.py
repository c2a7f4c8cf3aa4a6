"""What do the ends of leases, and answers, change in the ledger?"""

from collections.abc import Iterator
from math import inf, isnan

from msgspec.structs import replace

from luftpause.scheduler.quota import breaker, learning, ledger
from luftpause.scheduler.quota.decisions import Expired, Stale
from luftpause.scheduler.quota.draft import Draft, end_lease, renew, spent
from luftpause.scheduler.quota.events import AnswerReported, LeaseReleased, LeaseRenewed, LimitsObserved
from luftpause.scheduler.quota.headers import LimitKind
from luftpause.scheduler.quota.model import STANDING, Lease, Origin, Tables
from luftpause.scheduler.quota.rules import RULES
from luftpause.scheduler.quota.samples import WITHOUT_NAME, Sample
from luftpause.scheduler.quota.specs import ScopeSpec
from luftpause.scheduler.quota.wishes import earn_retry, fit_waiters, known

UNHEARD_WINDOWS = 10  # after so many a learned limit that is told no more may go


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
    event = replace(event, samples=told_by(d, lease, event))
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


def told_by(tables: Tables, lease: Lease | None, event: AnswerReported | LimitsObserved) -> tuple[Sample, ...]:
    """What the answer says of limits, each under the name of its scope here: in words, and by what was served or refused."""
    unnamed = _unnamed(tables, lease)
    samples = tuple(replace(one, scope=unnamed) if one.scope == WITHOUT_NAME else one for one in event.samples)
    if lease is None or isinstance(event, LimitsObserved):
        return samples
    said = {one.scope for one in samples if one.limit}
    return samples + tuple(Sample(name, limit) for name, limit in _found_out(tables, lease, event) if name not in said)


def _found_out(tables: Tables, lease: Lease, event: AnswerReported) -> Iterator[tuple[str, float]]:
    """Limits that a call was to find out about: it was more than they are. Served, they are another; too large, they are so."""
    actual = dict(known(tables, event.actual))
    for name, reserved in lease.cost:
        scope = tables.scopes.get(name)
        if scope is None or reserved <= scope.limit or not ledger.is_limit_doubtful(scope, lease.granted):
            continue
        if event.kind is LimitKind.TOO_LARGE:
            yield name, scope.limit
        elif event.outcome == "ok" and (used := min(actual.get(name, reserved), reserved)) > scope.limit:
            yield name, used if scope.origin is not Origin.CONFIGURED else scope.spec.limit


def _unnamed(tables: Tables, lease: Lease | None) -> str:
    """Whose figures come without a name: of the one limit that the call named and nobody configured, else as the target says."""
    learns = tables.spec.learns
    if learns is None or not learns.unnamed or any(scope.name == WITHOUT_NAME for scope in tables.spec.scopes):
        return WITHOUT_NAME
    units = {unit for scope in tables.spec.scopes for unit in (scope.name, *scope.counts)}
    asked = () if lease is None else lease.cost if lease.waiter is None else lease.waiter.asked
    named = [name for name, _ in asked if name not in units]
    return named[0] if len(named) == 1 else learns.unnamed


def observed(d: Draft, event: LimitsObserved) -> None:
    event = replace(event, samples=told_by(d, None, event))
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
        if sample.scope in d.scopes or _appeared(d, sample):
            scope = d.scopes[sample.scope]
            d.scopes[sample.scope] = ledger.sampled(learning.refit(scope, sample), sample, d.now, granted)
            if sample.remaining is not None:
                told.add(sample.scope)
    return told


def _appeared(d: Draft, sample: Sample) -> bool:
    scope = learning.appears(d.spec.learns, sample, d.now) if d.spec.learns is not None else None
    if scope is None or not _has_room(d):
        return False
    out = sum(units for lease in d.leases.values() for name, units in lease.cost if name == sample.scope)  # of one that was forgotten
    d.scopes[sample.scope] = replace(scope, out=out)
    fit_waiters(d)
    return True


def _has_room(d: Draft) -> bool:
    """For one more learned scope: where all are taken, one that nobody has told for long makes way. Some name each answer's anew."""
    learned = [scope for scope in d.scopes.values() if scope.origin is not Origin.CONFIGURED]
    if len(learned) < d.settings.learned_max:
        return True
    oldest = min(learned, key=ledger.heard_at)
    if d.now - ledger.heard_at(oldest) < max(ledger.TOLD_SECONDS_MAX, UNHEARD_WINDOWS * oldest.spec.window_seconds):
        return False
    del d.scopes[oldest.spec.name]
    return True
