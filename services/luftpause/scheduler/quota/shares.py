"""What of one limit do callers with a reservation find when they come?

There is no stock of shares that could be given away or forgotten: a share is what its owner is forecast to want of it, and nobody who
is not entitled takes that.
"""

from collections.abc import Iterable

from immutables import Map
from msgspec.structs import replace

from luftpause.scheduler.quota import ledger
from luftpause.scheduler.quota.model import Owned, Scope, Settings, Share

NO_SHARE = Share()
Reservations = tuple[tuple[str, float], ...]


def share_of(reservations: Reservations, caller: str) -> float:
    """The part of each limit that is the caller's own; 0: none."""
    return next((share for owner, share in reservations if owner == caller), 0.0)


def used(scope: Scope, owner: str, now: float) -> float:
    """
    Units, on all nodes: of a fixed window since it began; of a bucket a decaying sum over its window, which stands at the rate times the
    window.
    """
    share = scope.shares.get(owner, NO_SHARE)
    return _used_here(scope, share, now) + _faded(scope, share.used_elsewhere, share.elsewhere_at, now)


def _used_here(scope: Scope, share: Share, now: float) -> float:
    return _faded(scope, share.used, share.used_at, now)


def _faded(scope: Scope, units: float, since: float, now: float) -> float:
    return units if scope.spec.kind == "fixed" else ledger.decayed(units, since, now, scope.spec.window_seconds)


def took(scope: Scope, owner: str, units: float, now: float) -> Scope:
    """With so many units more in the owner's account, or less."""
    share = scope.shares.get(owner, NO_SHARE)
    share = replace(share, used=max(0.0, _used_here(scope, share, now) + units), used_at=now)
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
    here, there = ledger.decayed(1.0, share.demand_at, now, fade), ledger.decayed(1.0, share.elsewhere_at, now, fade)
    rate = sum(share.demand[rank] * here + share.demand_elsewhere[rank] * there for rank in classes) / fade
    return min(most, rate * seconds)


# ---- over nodes -------------------------------------------------------------------------------------------------


def owned(scope: Scope, reservations: Reservations, now: float) -> tuple[Owned, ...]:
    """What other nodes have to know of the owners' calls on this one, as of now."""
    if not scope.shares or scope.spec.kind == "concurrent":
        return ()
    scope, found = ledger.roll(scope, now), list[Owned]()
    for owner, _ in reservations:
        share = scope.shares.get(owner)
        if share is not None:
            p0, p1, p2 = share.demand
            fade = ledger.decayed(1.0, share.demand_at, now, ledger.forecast_seconds(scope))
            found.append(Owned(owner, _used_here(scope, share, now), (p0 * fade, p1 * fade, p2 * fade)))
    return tuple(found)


def told(scope: Scope, reservations: Reservations, others: Iterable[Owned], now: float) -> Scope:
    """With what owners have used and want on the other nodes; of whom nothing is told, nothing."""
    known = {one.caller: one for one in others}
    if not known and not scope.shares:
        return scope
    found = dict(scope.shares)
    for owner, _ in reservations:
        one = known.get(owner)
        if one is not None or owner in found:
            used_there, demand = (one.used, one.demand) if one is not None else (0.0, NO_SHARE.demand)
            share = found.get(owner, NO_SHARE)
            found[owner] = replace(share, used_elsewhere=used_there, demand_elsewhere=demand, elsewhere_at=now)
    return replace(scope, shares=Map(found))
