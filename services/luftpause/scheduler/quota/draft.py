"""What does a step work on, and how do the tables of one target change together?"""

from operator import attrgetter

from immutables import Map
from msgspec.structs import replace

from luftpause.scheduler.core.sorted_set import SortedSet
from luftpause.scheduler.quota import ledger, shares
from luftpause.scheduler.quota.decisions import Decision
from luftpause.scheduler.quota.model import Lease, Line, LineKey, Mode, Scope, Settings, State, Tables, Target, Waiter
from luftpause.scheduler.quota.specs import TargetSpec

NO_LINE = Line()
NOBODY_WAITS: SortedSet[tuple[int, str]] = SortedSet()
FIELDS = attrgetter(*Target.__struct_fields__)
PROMOTES = 2  # the class whose waiters can rank one better


class Draft(Tables, gc=False, kw_only=True):
    """A target being worked on, and what was decided so far."""

    now: float
    settings: Settings
    fence: int
    depths: "Map[str, int]"
    downstream: "Map[str, tuple[str, ...]]"
    decisions: list[Decision]
    steps_left: int
    wake: float = float("inf")  # when something may change by itself


def thaw(state: State, target: Target | TargetSpec) -> Draft:
    """A draft of the target as it was; of a spec: a new target."""
    tables = Target(spec=target, at=state.now, scopes={}) if isinstance(target, TargetSpec) else target
    d = Draft(
        *FIELDS(tables),
        now=state.now,
        settings=state.settings,
        fence=state.fence,
        depths=state.depths,
        downstream=state.downstream,
        decisions=[],
        steps_left=state.settings.steps_max,
    )
    d.scopes, d.lines = dict(tables.scopes), dict(tables.lines)
    return d


def freeze(d: Draft) -> Target:
    return Target(*FIELDS(d))


def is_sequential(d: Draft) -> bool:
    return d.cascade.until > d.now


def flying(d: Draft) -> int:
    return len(d.leases)


# ---- waiters ----------------------------------------------------------------------------------------------------


def join(d: Draft, waiter: Waiter) -> None:
    d.waiters = d.waiters.set(waiter.want, waiter)
    key = (waiter.priority, waiter.scopes, waiter.owner)
    line = d.lines.get(key, NO_LINE)
    flow = line.flows.get(waiter.caller, NOBODY_WAITS).add((waiter.number, waiter.want))
    _rank(d, key, replace(line, flows=line.flows.set(waiter.caller, flow)), waiter.caller)
    if waiter.priority == PROMOTES:
        d.eldest = d.eldest.add((waiter.number, waiter.want))


def leave(d: Draft, waiter: Waiter) -> None:
    d.waiters = d.waiters.delete(waiter.want)
    key = (waiter.priority, waiter.scopes, waiter.owner)
    line = d.lines[key]
    flow = line.flows[waiter.caller].remove((waiter.number, waiter.want))
    flows = line.flows.set(waiter.caller, flow) if flow else line.flows.delete(waiter.caller)
    _rank(d, key, replace(line, flows=flows), waiter.caller)
    if waiter.priority == PROMOTES:
        d.eldest = d.eldest.remove((waiter.number, waiter.want))


def _rank(d: Draft, key: LineKey, line: Line, caller: str) -> None:
    """Put a caller where it belongs in a line now."""
    old, flow = line.keys.get(caller), line.flows.get(caller)
    heads, keys = line.heads if old is None else line.heads.remove(old), line.keys
    if flow:
        new = (d.depths.get(caller, 0) if is_sequential(d) else 0, d.in_flight.get(caller, 0), flow.first()[0], caller)
        heads, keys = heads.add(new), keys.set(caller, new)
    elif old is not None:
        keys = keys.delete(caller)
    if heads:
        d.lines[key] = Line(heads, keys, line.flows)
    else:
        d.lines.pop(key, None)


def rank_caller(d: Draft, caller: str) -> None:
    """Its leases in flight have changed."""
    for key in [key for key, line in d.lines.items() if caller in line.flows]:
        _rank(d, key, d.lines[key], caller)


def rank_all(d: Draft) -> None:
    """Sequential mode begins or ends: depths count, or don't."""
    for key in list(d.lines):
        for caller in sorted(d.lines[key].flows):
            _rank(d, key, d.lines[key], caller)


def head(d: Draft, line: Line) -> Waiter:
    return d.waiters[line.flows[line.heads.first()[3]].first()[1]]


# ---- leases -----------------------------------------------------------------------------------------------------


def lend(d: Draft, waiter: Waiter, *, promoted: bool) -> Lease:
    """The waiter becomes a lease; its cost is out from now on."""
    leave(d, waiter)
    d.fence += 1
    probe = d.breaker.mode is Mode.HALF_OPEN
    expires = d.now + waiter.lease_seconds
    lease = Lease(
        waiter.want,
        d.fence,
        waiter.caller,
        waiter.priority,
        waiter.cost,
        granted=d.now,
        expires=expires,
        seconds=waiter.lease_seconds,
        episode=d.breaker.episode,
        probe=probe,
        promoted=promoted,
        owner=waiter.owner,
        waiter=waiter,
    )
    d.leases = d.leases.set(lease.want, lease)
    d.expiries = d.expiries.add((lease.expires, lease.want))
    d.probes += probe
    d.promoted += promoted
    for name, units in lease.cost:
        scope = ledger.take(d.scopes[name], units, d.now, d.settings)
        d.scopes[name] = shares.took(scope, waiter.owner, units, d.now) if waiter.owner else scope
    _count(d, lease.caller, 1)
    return lease


def end_lease(d: Draft, lease: Lease) -> None:
    """Its cost is no longer out. Whether it counts as used is the caller's to say."""
    d.leases = d.leases.delete(lease.want)
    d.expiries = d.expiries.remove((lease.expires, lease.want))
    d.probes -= lease.probe and lease.episode == d.breaker.episode
    d.promoted -= lease.promoted
    for name, units in lease.cost:
        if name in d.scopes:
            d.scopes[name] = ledger.give_back(d.scopes[name], units)
    _count(d, lease.caller, -1)


def spent(d: Draft, lease: Lease, name: str, more: float) -> Scope:
    """The scope when so many units more were spent than had been booked with the lease."""
    scope = ledger.burnt(d.scopes[name], more, d.now, d.settings)
    return shares.took(scope, lease.owner, more, d.now) if lease.owner else scope


def renew(d: Draft, lease: Lease) -> None:
    d.expiries = d.expiries.remove((lease.expires, lease.want))
    renewed = replace(lease, expires=d.now + lease.seconds)
    d.leases = d.leases.set(lease.want, renewed)
    d.expiries = d.expiries.add((renewed.expires, renewed.want))


def _count(d: Draft, caller: str, by: int) -> None:
    count = d.in_flight.get(caller, 0) + by
    d.in_flight = d.in_flight.set(caller, count) if count else d.in_flight.delete(caller)
    rank_caller(d, caller)
