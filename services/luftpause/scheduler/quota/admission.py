"""May this waiter's call go out now, and if not, what closes the way and when may that change by itself?"""

from collections.abc import Iterator
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from luftpause.scheduler.quota import breaker, ledger, rates, shares
from luftpause.scheduler.quota.draft import Draft, flying, head, is_sequential
from luftpause.scheduler.quota.model import CLASSES, STANDING, Light, Mode, Scope, Waiter
from luftpause.scheduler.quota.wishes import Refusal, hopeless

LOOK_AGAIN_SECONDS = 0.5  # forecasts and lights move all the time
WINDOW_PARTS = 600.0
PACED_SECONDS_MAX = 60.0
RANK_PROMOTED = 1
KEPT = "kept"  # by the owners of shares: no reason to stop another owner
UNASKED = (-inf, -inf, -inf)


class Shut(Struct, frozen=True, gc=False):
    """`scope`: closed for all behind; empty: the whole target is. `until`: when to look again; inf: something else must happen first."""

    scope: str
    until: float
    why: str


class Choice(Struct, frozen=True, gc=False):
    """Who is served next and the class that it ranks as; `refusal`: it is refused, as no wait would help."""

    waiter: Waiter
    rank: int
    promoted: bool = False
    refusal: Refusal | None = None


def choose(d: Draft) -> Choice | None:
    """
    The first that can be served. What a better one was refused on is closed for all behind it.

    None: nobody can, and `wake` says when that may change by itself.
    """
    closed, kept = set[str](), set[str]()
    d.wake = inf
    for waiter, rank, promoted in in_order(d):
        if not closed.isdisjoint(waiter.scopes) or (kept and not owns(d, waiter, kept)):
            continue
        if (refusal := hopeless(d, waiter)) is not None:
            return Choice(waiter, rank, refusal=refusal)
        way = shut(d, waiter, rank)
        if way is None:
            return Choice(waiter, rank, promoted)
        d.wake = min(d.wake, way.until)
        if not way.scope:
            return None
        (kept if way.why == KEPT else closed).add(way.scope)
    return None


def shut(d: Draft, waiter: Waiter, rank: int) -> Shut | None:
    """What is in the way of a waiter that ranks as this class; None: nothing."""
    closed = _target_shut(d, rank)
    if closed is not None:
        return closed
    for name, units in waiter.cost:
        closed = _scope_shut(d, waiter, name, units, rank)
        if closed is not None:
            return closed
    return None


def _target_shut(d: Draft, rank: int) -> Shut | None:
    b, now = d.breaker, d.now
    if (closed := _not_asked(d, rank)) is not None:
        return closed
    if b.mode in {Mode.OPEN, Mode.DISABLED}:
        return Shut("", b.open_until, "open")
    if b.mode is Mode.HALF_OPEN or b.window < inf:
        ends = b.open_until + d.settings.exclusive_seconds[rank]
        if now < ends:
            return Shut("", ends, "exclusive")
    if b.mode is not Mode.HALF_OPEN and b.rate < inf and (have := rates.tokens(b, now)) < 1.0 - ledger.NEAR:  # a probe comes at once
        return Shut("", now + max((1.0 - have) / b.rate, 1e-3), "rate")
    return _too_many(d)


def _not_asked(d: Draft, rank: int) -> Shut | None:
    """A shared store said no a moment ago, or nobody knows yet what is out."""
    if d.declined and d.now < d.declined.get("", UNASKED)[rank]:
        return Shut("", d.declined[""][rank], "declined")
    return Shut("", d.learning_until, "learning") if rank == CLASSES - 1 and d.now < d.learning_until else None


def _too_many(d: Draft) -> Shut | None:
    """So many are in flight that one must end first."""
    b = d.breaker
    if d.probes >= d.settings.probes_max if b.mode is Mode.HALF_OPEN else flying(d) >= b.window:
        return Shut("", inf, "window")
    if flying(d) >= b.in_flight_max:
        return Shut("", max(breaker.rises_at(b, d.settings), d.now + LOOK_AGAIN_SECONDS), "concurrency")
    return Shut("", inf, "sequential") if is_sequential(d) and flying(d) else None


def _scope_shut(d: Draft, waiter: Waiter, name: str, units: float, rank: int) -> Shut | None:
    scope, now = d.scopes[name], d.now
    if d.declined and now < d.declined.get(name, UNASKED)[rank]:
        return Shut(name, d.declined[name][rank], "declined")
    if now < scope.blocked_until:
        return Shut(name, scope.blocked_until, "blocked")
    if units > scope.limit:  # which is doubtful, else it would have been refused: one call finds out
        return Shut(name, inf, "tried") if scope.out > scope.limit else None
    if scope.spec.kind == "concurrent":
        return Shut(name, inf, "concurrent") if ledger.left(scope) < units - ledger.NEAR else None
    return _no_room(d, name, scope, units, rank, waiter.caller) or (_no_pace(d, name, scope, rank) if rank else None)


def _no_room(d: Draft, name: str, scope: Scope, units: float, rank: int, caller: str) -> Shut | None:
    """
    Whoever goes leaves to better classes, and to owners of shares, what they need.

    But a scope that is full takes anybody: nobody waits for ever.
    """
    most, why = ledger.capacity(scope), "room"
    leave = ledger.headroom(scope, rank, d.now, d.settings)
    free = ledger.left(scope) - min(units, most)
    if d.spec.reservations and rank and free >= min(leave, max(0.0, most - units)) - ledger.NEAR:
        leave, why = leave + _kept(d, scope, units, rank, caller), KEPT
    leave = min(leave, max(0.0, most - units))
    lacks = leave - free
    if lacks <= ledger.NEAR or ledger.is_doubtful(scope, d.now):
        return None
    if scope.spec.kind == "bucket":
        again = d.now + min(max(lacks * scope.spec.window_seconds / scope.limit, 1e-3), LOOK_AGAIN_SECONDS if rank else inf)
    else:
        again = min(scope.reset_at, ledger.doubtful_at(scope), _look_again(d, scope) if leave else inf)
    return Shut(name, again, why)


def _kept(d: Draft, scope: Scope, units: float, rank: int, caller: str) -> float:
    """What the owners of shares need is not in the way of one that stays within its own."""
    if shares.is_entitled(scope, d.spec.reservations, caller, units, d.now):
        return 0.0
    return shares.kept(scope, d.spec.reservations, caller, rank, d.now, d.settings)


def owns(d: Draft, waiter: Waiter, names: set[str]) -> bool:
    """Is what it costs of these scopes within its own share?"""
    cost = [(d.scopes[name], units) for name, units in waiter.cost if name in names]
    return all(shares.is_entitled(scope, d.spec.reservations, waiter.caller, units, d.now) for scope, units in cost)


def _no_pace(d: Draft, name: str, scope: Scope, rank: int) -> Shut | None:
    again = min(scope.reset_at, _look_again(d, scope))
    if rank == CLASSES - 1:
        if ledger.light(scope, d.now) is Light.RED:
            return Shut(name, again, "red")
        if ledger.health(scope, d.now) < d.settings.yield_health and ledger.better_are_forecast(scope, rank, d.now):
            return Shut(name, again, "yield")
    if scope.spec.kind == "fixed" and d.now < scope.paced[rank] and ledger.light(scope, d.now) is not Light.GREEN:
        return Shut(name, min(scope.paced[rank], scope.reset_at), "pace")
    return None


def _look_again(d: Draft, scope: Scope) -> float:
    return d.now + max(LOOK_AGAIN_SECONDS, scope.spec.window_seconds / WINDOW_PARTS)


def spend(d: Draft, waiter: Waiter, rank: int, *, promoted: bool) -> None:
    """Say when its class may next, of each window that is not green, and P2's floor. To be asked before the cost is taken."""
    if promoted:
        d.floor_at = floor_spent(d, waiter)
    for name, units in waiter.cost if rank else ():
        scope = d.scopes[name]
        if scope.spec.kind == "fixed" and ledger.light(scope, d.now) is not Light.GREEN:
            rate = ledger.pace(scope, rank, d.now, d.settings)
            wait = min(units / rate, PACED_SECONDS_MAX) if rate > 0 else PACED_SECONDS_MAX
            paced = list(scope.paced)
            paced[rank] = max(d.now, paced[rank]) + wait
            d.scopes[name] = replace(scope, paced=(paced[0], paced[1], paced[2]))


# ---- order ------------------------------------------------------------------------------------------------------


def in_order(d: Draft) -> Iterator[tuple[Waiter, int, bool]]:
    """The waiters that may be next, each with the class that it ranks as and whether that is a promotion; best first."""
    found = [((key[0], 1, line.heads.first()), head(d, line), key[0], False) for key, line in d.lines.items()]
    if (waiter := promotable(d)) is not None:
        found.append(((RANK_PROMOTED, 0, (0, 0, waiter.number, "")), waiter, RANK_PROMOTED, True))
    found.sort(key=lambda one: one[0])
    for _, waiter, rank, promoted in found:
        yield waiter, rank, promoted


def promotable(d: Draft) -> Waiter | None:
    """The P2 that ranks as P1: the oldest one if it has waited too long, else the first in order if P2's floor is due; one at a time."""
    if not d.eldest or d.promoted or _starts_again(d) or _declined(d):
        return None
    oldest = d.waiters[d.eldest.first()[1]]
    if d.unblocked - oldest.unblocked_at >= d.settings.promote_seconds - ledger.NEAR:
        return oldest
    if d.now < d.floor_at:
        return None
    heads = [(line.heads.first(), line) for key, line in d.lines.items() if key[0] == CLASSES - 1]
    return head(d, min(heads, key=lambda one: one[0])[1])


def _declined(d: Draft) -> bool:
    """A shared store has lately had no room for whoever is last."""
    return any(d.now < until[-1] for until in d.declined.values())


def _starts_again(d: Draft) -> bool:
    """So soon after a block, or a loss of the ledger, nobody ranks better than it is: the classes have times of their own then."""
    b = d.breaker
    ends = b.open_until + d.settings.exclusive_seconds[-1] if b.mode is Mode.HALF_OPEN or b.window < inf else -inf
    return d.now < max(ends, d.learning_until)


def promotion_due(d: Draft) -> float:
    """When the next P2 ranks as P1; while the target is blocked the clock of its waiting stands."""
    if not d.eldest or d.promoted or d.breaker.mode in STANDING:
        return inf
    oldest = d.waiters[d.eldest.first()[1]]
    aged = d.now + d.settings.promote_seconds - (d.unblocked - oldest.unblocked_at)
    return min((at for at in (aged, d.floor_at) if at > d.now), default=inf)


def floor_spent(d: Draft, waiter: Waiter) -> float:
    """When P2's floor is due again after this one: its cost at that part of the limit."""
    waits = [1.0]
    for name, units in waiter.cost:
        scope = d.scopes[name]
        if scope.spec.kind != "concurrent" and scope.spec.floor > 0:
            waits.append(units * scope.spec.window_seconds / (scope.spec.floor * scope.limit))
    wait = max(waits[1:]) if len(waits) > 1 else waits[0]
    return max(d.now, d.floor_at) + min(wait, d.settings.promote_seconds)  # by then it would rank as P1 anyway
