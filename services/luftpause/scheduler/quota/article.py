"""Who may call by the rules as they were first published, to be compared with the governor's?

"9 AI Agents, One API Quota" (Tamir Dresher, 2026): the plain ratio of what is left, fixed delays per call, reservations and a pool of what
idle callers donate, one call at a time for five minutes after three callers were limited. What its scripts got wrong (a lock that does
not lock, a red light that stays) is not done again. It looks at every waiter for every decision: a thing for benchmarks.
"""

from collections.abc import Iterator
from math import inf
from typing import Final
from zlib import crc32

from immutables import Map
from msgspec.structs import replace

from luftpause.scheduler.quota import breaker, cascade, ledger, shares
from luftpause.scheduler.quota.admission import Choice
from luftpause.scheduler.quota.draft import Draft, is_sequential
from luftpause.scheduler.quota.events import AnswerReported
from luftpause.scheduler.quota.model import Lease, Settings, Waiter
from luftpause.scheduler.quota.wishes import hopeless

GREEN: Final = 0.40
RED: Final = 0.15
AMBER_SECONDS_MAX: Final = 2.0
RED_SECONDS: Final = 1.0  # that P1 waits per call
BACKGROUND_FLOOR: Final = 0.30
PROMOTE_SECONDS: Final = 300.0
IDLE_SECONDS: Final = 60.0  # then a caller donates
DONATED: Final = ""  # the account of what was taken out of the pool
LOOK_AGAIN_SECONDS: Final = 1.0
STANDARD, BACKGROUND = 1, 2
PLAIN: Final = Settings()


def settings(base: Settings = PLAIN) -> Settings:
    """Those of a governor that keeps these rules, else as `base`."""
    return replace(
        base, policy="article", retry_budget=inf, cascade_quiet_seconds=inf, guard_seconds=0.0, promote_seconds=inf
    )  # fmt: skip


def choose(d: Draft) -> Choice | None:
    """Whoever may go first; None: nobody may, and `wake` says when to look again."""
    d.wake = inf
    for waiter in sorted(d.waiters.values(), key=lambda one: (_rank(d, one), one.number)):
        rank = _rank(d, waiter)
        if (refusal := hopeless(d, waiter)) is not None:
            return Choice(waiter, rank, refusal=refusal)
        if is_sequential(d) and d.leases:
            return None
        until = max(_may_at(d, waiter, rank), _own_retry_at(d, waiter))
        if until <= d.now:
            return Choice(waiter, rank, promoted=rank < waiter.priority)
        d.wake = min(d.wake, until)
    return None


def spend(d: Draft, waiter: Waiter, rank: int, *, promoted: bool) -> None:
    """A standard call above its reservation is taken out of the pool."""
    del promoted
    for name, units in waiter.cost:
        scope = d.scopes[name]
        if rank == STANDARD and d.spec.reservations and not shares.is_entitled(scope, d.spec.reservations, waiter.caller, units, d.now):
            d.scopes[name] = shares.took(scope, DONATED, units, d.now)


def due(d: Draft) -> float:
    """Nothing happens by itself but what `choose` waits for."""
    del d
    return inf


def limited(d: Draft, lease: Lease, event: AnswerReported) -> None:
    """All are red until its end; who was refused tries again in the window of its class, from its own refusal on."""
    ends = d.now + breaker.refused(d, event.wait_seconds)
    first, last = d.settings.exclusive_seconds[lease.priority], d.settings.retry_until_seconds[lease.priority]
    draw = crc32(f"{lease.want}/{lease.fence}".encode()) / 2**32  # no two the same, and the same in each run
    standing = {caller: until for caller, until in d.refused.items() if until > d.now}
    d.refused = Map({**standing, lease.caller: ends + first + draw * (last - first)})
    cascade.vote(d, lease.caller)


def _rank(d: Draft, waiter: Waiter) -> int:
    old = waiter.priority == BACKGROUND and d.now - waiter.since >= PROMOTE_SECONDS
    return STANDARD if old else waiter.priority


def _own_retry_at(d: Draft, waiter: Waiter) -> float:
    return d.refused.get(waiter.caller, -inf) if waiter.retry else -inf


def _may_at(d: Draft, waiter: Waiter, rank: int) -> float:
    """When a call of this class may go as things stand; P0 always may."""
    if rank == 0:
        return d.now
    if _ends_too_soon(d, waiter) or (rank == STANDARD and not _has_quota(d, waiter)):
        return _later(d, waiter)
    ratio = min(_ratios(d, waiter), default=1.0)
    if rank == BACKGROUND and ratio < BACKGROUND_FLOOR:
        return _later(d, waiter)
    if ratio >= GREEN:
        return d.now
    return waiter.since + (AMBER_SECONDS_MAX * (GREEN - ratio) / (GREEN - RED) if ratio >= RED else RED_SECONDS)


def _later(d: Draft, waiter: Waiter) -> float:
    """It yields and asks again; a background call ranks as standard one day."""
    old = waiter.since + PROMOTE_SECONDS
    return min(d.now + LOOK_AGAIN_SECONDS, old if old > d.now else inf)


def _ratios(d: Draft, waiter: Waiter) -> Iterator[float]:
    """What remains of each limit, whatever is under way and whenever it renews; nothing while a refusal says so."""
    for name, _ in waiter.cost:
        scope = d.scopes[name]
        if scope.spec.kind != "concurrent":
            yield 0.0 if d.now < d.breaker.open_until else scope.remaining / scope.limit


def _ends_too_soon(d: Draft, waiter: Waiter) -> bool:
    """At the rate of the last seconds what remains is gone within 30 s, whenever it renews."""
    for name, _ in waiter.cost:
        scope = d.scopes[name]
        burn = ledger.decayed(scope.burn, scope.burn_at, d.now, d.settings.burn_seconds) / d.settings.burn_seconds
        if scope.spec.kind != "concurrent" and burn > 0 and scope.remaining / burn < d.settings.tight_seconds:
            return True
    return False


def _has_quota(d: Draft, waiter: Waiter) -> bool:
    """Its own reservation, then what idle callers donate. Without reservations there is nothing to keep to."""
    for name, units in waiter.cost if d.spec.reservations else ():
        scope = d.scopes[name]
        own = shares.is_entitled(scope, d.spec.reservations, waiter.caller, units, d.now)
        if scope.spec.kind != "concurrent" and not own and _donated(d, name) < units:
            return False
    return True


def _donated(d: Draft, name: str) -> float:
    """Unused reservations of callers who have not asked for a while, without what was taken of them."""
    scope, pool = d.scopes[name], 0.0
    waiting = {waiter.caller for waiter in d.waiters.values()}
    for owner, share in d.spec.reservations:
        seen = scope.shares.get(owner)
        idle = owner not in waiting and owner not in d.in_flight and (seen is None or d.now - seen.demand_at > IDLE_SECONDS)
        if idle:
            pool += max(0.0, share * scope.limit - shares.used(scope, owner, d.now))
    return pool - shares.used(scope, DONATED, d.now)
