"""What of one limit do callers with a reservation find when they come?

There is no stock of shares that could be given away or forgotten: a share is what its owner is forecast to want of it, and nobody who
is not entitled takes that.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from luftpause.scheduler.quota import ledger
from luftpause.scheduler.quota.model import Scope, Settings, Share

NO_SHARE = Share()
Reservations = tuple[tuple[str, float], ...]


def share_of(reservations: Reservations, caller: str) -> float:
    """The part of each limit that is the caller's own; 0: none."""
    return next((share for owner, share in reservations if owner == caller), 0.0)


def used(scope: Scope, owner: str, now: float) -> float:
    """Units: of a fixed window since it began; of a bucket a decaying sum over its window, which stands at the rate times the window."""
    share = scope.shares.get(owner, NO_SHARE)
    return share.used if scope.spec.kind == "fixed" else ledger.decayed(share.used, share.used_at, now, scope.spec.window_seconds)


def took(scope: Scope, owner: str, units: float, now: float) -> Scope:
    """With so many units more in the owner's account, or less."""
    share = replace(scope.shares.get(owner, NO_SHARE), used=max(0.0, used(scope, owner, now) + units), used_at=now)
    return replace(scope, shares=scope.shares.set(owner, share))


def wanted(scope: Scope, owner: str, priority: int, units: float, now: float) -> Scope:
    """With this wish in the owner's forecast."""
    share = scope.shares.get(owner, NO_SHARE)
    demand = ledger.with_wish(scope, (share.demand, share.demand_at), priority, units, now)
    return replace(scope, shares=scope.shares.set(owner, replace(share, demand=demand, demand_at=now)))


def is_entitled(scope: Scope, reservations: Reservations, caller: str, units: float, now: float) -> bool:
    """Is this cost within the caller's own share?"""
    share = share_of(reservations, caller)
    return share > 0 and used(scope, caller, now) + units <= share * scope.limit + ledger.NEAR


def kept(scope: Scope, reservations: Reservations, caller: str, rank: int, now: float, settings: Settings) -> float:
    """Units that a caller of this class leaves to the owners of shares: what they want of them in classes that are not worse."""
    if scope.spec.kind == "concurrent" or not rank:
        return 0.0
    return sum(_needed(scope, owner, share, range(1, rank + 1), now, settings) for owner, share in reservations if owner != caller)


def _needed(scope: Scope, owner: str, part: float, classes: Iterable[int], now: float, settings: Settings) -> float:
    share = scope.shares.get(owner)
    if share is None:
        return 0.0
    fixed = scope.spec.kind == "fixed"
    seconds = ledger.seconds_left(scope, now) if fixed else settings.forecast_seconds
    rest = max(0.0, part * scope.limit - used(scope, owner, now))
    most = rest if fixed else min(rest, part * scope.limit * seconds / scope.spec.window_seconds)
    fade = ledger.forecast_seconds(scope)
    rate = sum(ledger.decayed(share.demand[rank], share.demand_at, now, fade) for rank in classes) / fade
    return min(most, rate * seconds)
