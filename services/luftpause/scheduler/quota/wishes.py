"""Which wishes are taken into the queue, and which are refused at once?"""

from math import inf, isfinite

from immutables import Map
from msgspec.structs import replace

from luftpause.scheduler.quota import ledger, shares
from luftpause.scheduler.quota.decisions import Grant, Refuse, RefuseCode
from luftpause.scheduler.quota.draft import Draft, join, leave
from luftpause.scheduler.quota.events import QuotaWanted, QuotaWithdrawn, Standing
from luftpause.scheduler.quota.model import CLASSES, Cost, Lease, Mode, Tables, Waiter
from luftpause.scheduler.quota.specs import cut

Refusal = tuple[RefuseCode, str]


def known(d: Tables, cost: Cost) -> Cost:
    """What the scopes that are there take of it: by their own name, else by the first name that they count."""
    asked, found = dict(cost), list[tuple[str, float]]()
    for name, scope in d.scopes.items():
        units = asked.get(name)
        if units is None:
            units = next((asked[unit] for unit in scope.spec.counts if unit in asked), None)
        if units is not None:
            found.append((name, units))
    return tuple(sorted(found))


def fit_waiters(d: Draft) -> None:
    """Other scopes are there than were: who waits, waits for what it costs of these."""
    for waiter in sorted(d.waiters.values(), key=lambda one: one.number):
        leave(d, waiter)
        join(d, fitted(d, waiter))


def fitted(d: Draft, waiter: Waiter) -> Waiter:
    """What it costs of the scopes that are there now, and whose share it may take of."""
    cost = known(d, waiter.asked)
    return replace(waiter, cost=cost, scopes=tuple(name for name, _ in cost), owner=_owner(d, waiter.caller))


def _owner(d: Draft, caller: str) -> str:
    return caller if d.spec.reservations and shares.share_of(d.spec.reservations, caller) else ""


def wanted(d: Draft, event: QuotaWanted) -> None:
    lease = d.leases.get(event.want)
    if lease is not None:
        d.decisions.append(grant(d, lease))
    if lease is not None or event.want in d.waiters:
        return
    cost = known(d, event.cost)
    refusal = _mistake(event) or _too_large(d, cost) or _unpayable(d, event)
    if refusal is not None:
        d.decisions.append(Refuse(d.spec.name, event.want, *refusal))
        return
    owner = _owner(d, event.caller)
    standing = event.standing or _arrived(d, event, cost, owner)
    names = tuple(name for name, _ in cost)
    join(
        d,
        Waiter(
            event.want,
            event.caller,
            event.priority,
            cost,
            event.lease_seconds,
            number=standing.number,
            scopes=names,
            since=standing.since,
            retry=event.retry,
            asked=event.cost,
            owner=owner,
            unblocked_at=min(standing.unblocked_at, d.unblocked),
        ),
    )


def _arrived(d: Draft, event: QuotaWanted, cost: Cost, owner: str) -> Standing:
    """It is new, and counts as demand."""
    for name, units in cost:
        scope = ledger.wanted(d.scopes[name], event.priority, units, d.now)
        d.scopes[name] = shares.wanted(scope, owner, event.priority, units, d.now) if owner else scope
    d.number += 1
    return Standing(d.number, d.now, d.unblocked)


def _mistake(event: QuotaWanted) -> Refusal | None:
    if not 0 <= event.priority < CLASSES:
        return RefuseCode.BAD_PRIORITY, f"priority is {event.priority}; give 0 (critical), 1 (standard) or 2 (background)"
    if len({name for name, _ in event.cost}) < len(event.cost):
        return RefuseCode.BAD_COST, "a scope stands twice in the cost; add its units up"
    for name, units in event.cost:
        if not (isfinite(units) and units > 0):
            return RefuseCode.BAD_COST, f"the cost for {name!r} is {units}; give a number above 0, or leave the scope out"
    if not (isfinite(event.lease_seconds) and event.lease_seconds > 0):
        return RefuseCode.BAD_COST, f"lease_seconds is {event.lease_seconds}; give a number above 0"
    return None


def _too_large(d: Draft, cost: Cost) -> Refusal | None:
    for name, units in cost:
        if name in d.scopes and units > d.scopes[name].limit and not ledger.is_limit_doubtful(d.scopes[name], d.now):
            most = d.scopes[name].limit
            return RefuseCode.TOO_LARGE, f"it costs {units:g} of {name!r}, whose whole limit is {most:g}: make the request smaller"
    return None


def _unpayable(d: Draft, event: QuotaWanted) -> Refusal | None:
    if d.breaker.mode is Mode.DISABLED:
        return RefuseCode.OUT_OF_CREDIT, f"{d.spec.name} says that its credit is used up; pay, then POST /v1/quota/{d.spec.name}/enable"
    if len(d.waiters) >= d.settings.waiters_max:
        return RefuseCode.QUEUE_FULL, f"{len(d.waiters)} calls wait for {d.spec.name} already; try again later"
    if event.retry and event.standing is None and not _spend_retry(d, event.caller):
        return (
            RefuseCode.RETRY_BUDGET,
            f"{event.caller} has retried too often at {d.spec.name}; its retries come back with calls that succeed",
        )
    return None


def _budget(d: Draft, caller: str) -> float:
    return d.budgets.get(caller, d.budgets_old.get(caller, d.settings.retry_budget))


def _spend_retry(d: Draft, caller: str) -> bool:
    left = _budget(d, caller) - d.settings.retry_cost
    if left >= 0:
        d.budgets = d.budgets.set(caller, left)
    return left >= 0


def earn_retry(d: Draft, caller: str) -> None:
    if (left := _budget(d, caller)) < d.settings.retry_budget:
        d.budgets = d.budgets.set(caller, left + 1.0)


def withdrawn(d: Draft, event: QuotaWithdrawn) -> None:
    waiter = d.waiters.get(event.want)
    if waiter is not None:
        leave(d, waiter)


def forget_retries(d: Draft) -> None:
    """Budgets of callers that have not retried for a while are whole again: what is kept stays small."""
    if d.now - d.budgets_at >= d.settings.retry_forget_seconds:
        d.budgets_old = d.budgets if d.now - d.budgets_at < 2 * d.settings.retry_forget_seconds else Map()
        d.budgets, d.budgets_at = Map(), d.now


def hopeless(d: Draft, waiter: Waiter) -> Refusal | None:
    """No wait would help any more: the credit is gone, or the limit has been lowered."""
    if d.breaker.mode is Mode.DISABLED and d.breaker.open_until == inf:
        return RefuseCode.OUT_OF_CREDIT, f"{d.spec.name} says that its credit is used up; pay, then POST /v1/quota/{d.spec.name}/enable"
    return _too_large(d, waiter.cost)


def grant(d: Draft, lease: Lease) -> Grant:
    level = d.breaker.level if lease.priority else 0
    rank = 1 if lease.promoted else lease.priority
    return Grant(d.spec.name, lease.want, lease.fence, lease.expires, level, rank, cut(d.spec.ladder, level))
