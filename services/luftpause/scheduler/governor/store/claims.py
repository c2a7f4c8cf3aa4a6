"""How do the governor's nouns become questions to a shared ledger, and its answers events? Pure."""

from collections.abc import Iterable, Mapping
from math import inf, isnan

from msgspec.structs import replace

from luftpause.scheduler.governor.store.port import Answer, Counts, Left, Penalty, Report, Rules, SampleTold, ScopeAsked
from luftpause.scheduler.quota import breaker, ledger, shares
from luftpause.scheduler.quota.events import AnswerReported, LedgerTold, LimitsObserved, ScopeShared
from luftpause.scheduler.quota.headers import LimitKind
from luftpause.scheduler.quota.model import CLASSES, Cost, Lease, Scope, Settings, Target
from luftpause.scheduler.quota.reports import bounded, is_whole, used_of
from luftpause.scheduler.quota.samples import Sample
from luftpause.scheduler.quota.shared import rank_of
from luftpause.scheduler.quota.specs import TargetSpec
from luftpause.scheduler.quota.wishes import known

FOREVER_SECONDS = 1e200


def rules_of(settings: Settings) -> Rules:
    return Rules(
        guard=settings.guard_seconds,
        exclusive=settings.exclusive_seconds,
        probes_max=settings.probes_max,
        close_after=settings.close_after,
        window_max=settings.window_max,
        capacity=settings.capacity_seconds,
        forget=settings.penalty_forget_seconds,
    )


def scopes_of(target: Target, settings: Settings, now: float, lease: Lease | None = None) -> tuple[ScopeAsked, ...]:
    """All limits of the target, with what the lease takes and must leave of each."""
    cost = dict(lease.cost) if lease is not None else {}
    rank = rank_of(lease) if lease is not None else 0
    return tuple(
        ScopeAsked(
            name,
            scope.spec.kind,
            scope.spec.limit,
            scope.spec.window_seconds,
            scope.spec.burst,
            cost=(units := cost.get(name, 0.0)),
            headroom=ledger.headroom(scope, rank, now, settings) if units else 0.0,
            wanted=ledger.wanted_here(scope, now),
            owned=shares.owned(scope, target.spec.reservations, now),
        )
        for name, scope in target.scopes.items()
    )


def waiting_of(target: Target, asked_for: int | None = None) -> Counts:
    """Calls that wait, by class. `asked_for`: the class of one that is lent already, but may have to wait."""
    counts = [int(at == asked_for) for at in range(CLASSES)]
    for key, line in target.lines.items():
        counts[key[0]] += sum(len(flow) for flow in line.flows.values())
    return counts[0], counts[1], counts[2]


def samples_of(samples: tuple[Sample, ...]) -> tuple[SampleTold, ...]:
    return tuple(
        SampleTold(
            one.scope,
            limit=-1.0 if one.limit is None else one.limit,
            remaining=one.remaining or 0.0,
            has_remaining=one.remaining is not None,
            reset_seconds=-1.0 if one.reset_seconds is None else one.reset_seconds,
        )
        for one in samples
    )


def used(target: Target, lease: Lease, event: AnswerReported) -> Cost:
    """What the call of the lease is charged."""
    return tuple((name, units) for name, _, units in used_of(target, lease, event))


def used_elsewhere(target: Target, event: AnswerReported) -> Cost:
    """The same of a call whose lease another node has: what was reserved is known to the store only, which has the last word."""
    return tuple((name, bounded(units, 0.0, target.scopes[name].limit)) for name, units in known(target, event.actual) if not isnan(units))


def whole_of(target: Target, event: AnswerReported) -> tuple[str, ...]:
    """Scopes of which at least what was reserved is charged."""
    return tuple(name for name, scope in target.scopes.items() if is_whole(scope.spec, event))


def refused(report: Report, event: AnswerReported | LimitsObserved, spec: TargetSpec, settings: Settings) -> Report:
    """With what the event says of a refusal, and what such a one costs where nobody says."""
    kind = event.kind.value if event.kind is not None else ""
    wait = -1.0 if event.wait_seconds is None else event.wait_seconds
    return replace(report, kind=kind, wait_seconds=wait, penalty=penalty_of(spec, settings, event.kind))


def penalty_of(spec: TargetSpec, settings: Settings, kind: LimitKind | None) -> Penalty:
    none, first, most = breaker.penalties(spec, settings, kind)
    return Penalty(none, first, most)


def left_of(target: Target, now: float) -> tuple[Left, ...]:
    """What this node believes to be left."""
    return tuple(
        Left(name, max(0.0, ledger.left(scope)), scope.reset_at - now if scope.reset_at < inf else -1.0)
        for name, scope in ((name, ledger.roll(scope, now)) for name, scope in target.scopes.items())
        if scope.spec.kind != "concurrent"
    )


def without(target: Target, wants: Iterable[str]) -> list[Scope]:
    """The scopes as if these leases were not."""
    leases = [target.leases[want] for want in wants if want in target.leases]
    return [
        replace(scope, out=scope.out - sum(units for lease in leases for cost, units in lease.cost if cost == name))
        for name, scope in target.scopes.items()
    ]


def told_of(
    target: str,
    answer: Answer,
    now: float,
    tentative: tuple[str, ...],
    *,
    spare: Mapping[str, float],
    anew: bool = False,
    enabled: bool = False,
) -> LedgerTold:
    """`spare`: of what is out, this node may still grant so much by itself."""
    return LedgerTold(
        now,
        target,
        tuple(
            ScopeShared(one.name, one.limit, one.remaining, one.out - spare.get(one.name, 0.0), one.reset_seconds, one.wanted, one.owned)
            for one in answer.scopes
        ),
        blocked_seconds=answer.blocked_seconds if answer.blocked_seconds < FOREVER_SECONDS else inf,
        disabled=answer.disabled,
        tentative=tentative,
        anew=anew,
        enabled=enabled,
    )
