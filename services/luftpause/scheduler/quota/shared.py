"""What changes where the ledger is shared with other nodes, so that a grant holds only once the store agrees?"""

from collections.abc import Iterable

from msgspec.structs import replace

from luftpause.scheduler.quota import breaker, enabling, ledger, rates, shares
from luftpause.scheduler.quota.admission import PACED_SECONDS_MAX, RANK_PROMOTED, UNASKED
from luftpause.scheduler.quota.decisions import Stale
from luftpause.scheduler.quota.draft import Draft, end_lease, join, spent
from luftpause.scheduler.quota.events import GrantConfirmed, GrantDeclined, LeaseLost, LedgerTold, ScopeShared
from luftpause.scheduler.quota.model import Lease, Light, Mode, Scope
from luftpause.scheduler.quota.reports import expire
from luftpause.scheduler.quota.wishes import fitted, grant

NEWS_SECONDS = 0.05  # a block that ends later than was known by less than this is the same one


def confirmed(d: Draft, event: GrantConfirmed) -> None:
    """The store's fence is the lease's from now on, as that grows over all nodes."""
    lease = _lease(d, event.want, event.fence)
    if lease is not None:
        lease = replace(lease, fence=event.shared_fence)
        d.leases = d.leases.set(lease.want, lease)
        d.fence = max(d.fence, lease.fence)
        d.decisions.append(grant(d, lease))


def declined(d: Draft, event: GrantDeclined) -> None:
    """The waiter is back where it was, as if nothing had been granted, and its class and worse ones don't ask again at once."""
    lease = _lease(d, event.want, event.fence)
    if lease is None:
        return
    end_lease(d, lease)
    d.breaker = rates.sent(d.breaker, d.now, -1.0)
    for name, units in lease.cost:
        if name in d.scopes:
            d.scopes[name] = _unpaced(d, spent(d, lease, name, -units), lease, units)
    if lease.promoted:
        d.floor_at = min(d.floor_at, d.now)
    if lease.waiter is not None:
        join(d, fitted(d, lease.waiter))
    _shut_for(d, event.scope, lease.priority, d.now + event.retry_seconds)


def rank_of(lease: Lease) -> int:
    """The class that it was granted as."""
    return RANK_PROMOTED if lease.promoted else lease.priority


def _shut_for(d: Draft, scope: str, rank: int, until: float) -> None:
    times = d.declined.get(scope, UNASKED)
    worse = [max(until, time) if at >= rank else time for at, time in enumerate(times)]
    d.declined = {**d.declined, scope: (worse[0], worse[1], worse[2])}


def _unpaced(d: Draft, scope: Scope, lease: Lease, units: float) -> Scope:
    rank = rank_of(lease)
    if not rank or scope.spec.kind != "fixed" or ledger.light(scope, d.now) is Light.GREEN:
        return scope
    rate = ledger.pace(scope, rank, d.now, d.settings)
    paced = list(scope.paced)
    paced[rank] -= min(units / rate, PACED_SECONDS_MAX) if rate > 0 else PACED_SECONDS_MAX
    return replace(scope, paced=(paced[0], paced[1], paced[2]))


def lost(d: Draft, event: LeaseLost) -> None:
    """The store has taken the lease back."""
    lease = _lease(d, event.want, event.fence)
    if lease is not None:
        expire(d, lease)


def told(d: Draft, event: LedgerTold) -> None:
    """What all nodes together have used and have out. What others have out is not there for this one."""
    pending = [d.leases[want] for want in event.tentative if want in d.leases]
    if event.enabled:
        enabling.enabled(d)
    for one in event.scopes:
        scope = d.scopes.get(one.name)
        if scope is not None and scope.spec.kind != "concurrent":
            d.scopes[one.name] = _shared(d, scope, one, pending)
    if d.breaker.mode is Mode.DISABLED and not event.disabled:
        breaker.begin_episode(d, Mode.OPEN, d.now)  # so it is known there
    if event.disabled or event.blocked_seconds > 0:
        breaker.told(d, d.now + event.blocked_seconds, disabled=event.disabled, news_seconds=NEWS_SECONDS)
    if event.anew:
        d.declined = {}


def _shared(d: Draft, scope: Scope, one: ScopeShared, pending: Iterable[Lease]) -> Scope:
    known = scope.out - sum(units for lease in pending for name, units in lease.cost if name == one.name)
    reset_at = d.now + one.reset_seconds if one.reset_seconds >= 0 and scope.spec.kind == "fixed" else scope.reset_at
    remaining = one.remaining - one.out + max(0.0, known)
    told_at = d.now if one.limit != scope.limit else scope.told_at
    at = d.now if scope.spec.kind == "bucket" or abs(remaining - scope.remaining) > ledger.NEAR else scope.at
    scope = shares.told(scope, d.spec.reservations, one.owned, d.now)
    return replace(
        scope, limit=one.limit, remaining=remaining, at=at, told_at=told_at, reset_at=reset_at, elsewhere=one.wanted, elsewhere_at=d.now
    )  # fmt: skip


def _lease(d: Draft, want: str, fence: int) -> Lease | None:
    lease = d.leases.get(want)
    if lease is not None and lease.fence == fence:
        return lease
    d.decisions.append(Stale(d.spec.name, want, fence))
    return None
