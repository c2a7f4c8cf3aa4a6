"""How do the seven patterns of the rate governor stand now, each under its name?

Plain values that become JSON as they are: times are seconds from now, what is not there is None.
"""

from collections import Counter
from collections.abc import Iterable
from math import inf, isfinite

from msgspec import Struct

from luftpause.scheduler.quota import ledger, shares
from luftpause.scheduler.quota.advice import block_end
from luftpause.scheduler.quota.cascade import behind
from luftpause.scheduler.quota.model import CLASSES, STANDING, Light, Mode, Scope, Settings, State, Target

CALLERS_SHOWN_MAX = 50
LIGHTS = (Light.GREEN, Light.AMBER, Light.RED)


class ScopeView(Struct, frozen=True):
    """
    `limit`: units of a window; `capacity`: most that can be left at once. `remaining`: what the provider has; `free`: without what is
    out on leases. `health`: 0 to 1, judged by the time left.

    `renews_seconds`: until a fixed window ends, None: not known. `empty_seconds`: as fast as it is used now, None: it renews first.
    `kept`: units that each class leaves to better ones. `origin`: configured, guessed or learned.
    """

    name: str
    kind: str
    limit: float
    capacity: float
    remaining: float
    free: float
    health: float
    light: str
    window_seconds: float
    renews_seconds: float | None
    empty_seconds: float | None
    blocked_seconds: float
    kept: tuple[float, float, float]
    origin: str


class TrafficLightView(Struct, frozen=True):
    """`light`: the worst of the scopes'."""

    light: str
    scopes: tuple[ScopeView, ...]


class ShareView(Struct, frozen=True):
    """A reservation. `used`: units by scope, of the window; `share`: part of each limit."""

    caller: str
    share: float
    used: dict[str, float]


class SharedPoolView(Struct, frozen=True):
    """
    `waiting`: wishes by class, P0 first. `forecast`: units per second that each class is forecast to want, by scope.

    `promoted`: calls in flight that are P2's and went as P1. `retries_short`: callers whose retries are partly spent.
    """

    waiting: tuple[int, int, int]
    forecast: dict[str, tuple[float, float, float]]
    reservations: tuple[ShareView, ...]
    promoted: int
    retries_short: int


class BreakerView(Struct, frozen=True):
    """
    `open_seconds`: until it lets a probe out; None: until somebody pays, 0: it is not open. `level`: 0 to 3 of the degrade ladder.

    `calls_per_second`, `in_flight_max`, `slow_start_max`: learned or for now; None: no such limit.
    """

    mode: str
    open_seconds: float | None
    strikes: int
    level: int
    calls_per_second: float | None
    in_flight_max: float | None
    slow_start_max: float | None


class CascadeView(Struct, frozen=True):
    """
    `sequential`: one call at a time, for at most `seconds_max` more.

    `limited`: callers that met a limit lately; `downstream`: who waits for their work.
    """

    sequential: bool
    seconds_max: float
    limited: tuple[str, ...]
    downstream: tuple[str, ...]


class LeasesView(Struct, frozen=True):
    """Calls in flight. `callers`: those with most of them, at most 50. `next_expiry_seconds` None: there is no lease."""

    out: int
    by_class: tuple[int, int, int]
    callers: dict[str, int]
    next_expiry_seconds: float | None


class RetryWindowsView(Struct, frozen=True):
    """
    `anchor_seconds`: the end of the block from now, negative: it has been; None: there is none, or only a payment ends it.

    `windows`: from and to in seconds after it, P0 first.
    """

    anchor_seconds: float | None
    windows: tuple[tuple[float, float], ...]


class NodesView(Struct, frozen=True):
    """`declined`: by scope (empty: the target), seconds in which the shared store is not asked again, P0 first."""

    declined: dict[str, tuple[float, float, float]]


class TargetView(Struct, frozen=True):
    name: str
    profile: str
    traffic_light: TrafficLightView
    shared_pool: SharedPoolView
    breaker: BreakerView
    cascade: CascadeView
    leases: LeasesView
    retry_windows: RetryWindowsView
    nodes: NodesView


def view(state: State, now: float | None = None) -> tuple[TargetView, ...]:
    """All targets by name, as of `now` (at least the last event's)."""
    now = max(state.now, state.now if now is None else now)
    return tuple(target_view(state, name, now) for name in sorted(state.targets))


def target_view(state: State, name: str, now: float) -> TargetView:
    """KeyError: no target is called so."""
    t, settings = state.targets[name], state.settings
    scopes = [ledger.roll(t.scopes[scope], now) for scope in sorted(t.scopes)]
    return TargetView(
        name,
        t.spec.profile,
        _traffic_light(scopes, now, settings),
        _pool(t, scopes, now),
        _breaker(t, now),
        _cascade(state, t, now),
        _leases(t, now),
        _retry_windows(t, now, settings),
        NodesView({scope: _three(max(0.0, until - now) for until in times) for scope, times in t.declined.items()}),
    )


def _traffic_light(scopes: list[Scope], now: float, settings: Settings) -> TrafficLightView:
    views = tuple(_scope(scope, now, settings) for scope in scopes)
    lights = [ledger.light(scope, now) for scope in scopes]
    return TrafficLightView(max(lights, key=LIGHTS.index, default=Light.GREEN).value, views)


def _scope(scope: Scope, now: float, settings: Settings) -> ScopeView:
    spec = scope.spec
    renews = ledger.seconds_left(scope, now) if spec.kind == "fixed" and scope.reset_at < inf else None
    counted = spec.kind != "concurrent"
    return ScopeView(
        spec.name,
        spec.kind,
        scope.limit,
        ledger.capacity(scope),
        scope.remaining if counted else scope.limit,
        ledger.left(scope),
        ledger.health(scope, now),
        ledger.light(scope, now).value,
        spec.window_seconds,
        renews,
        _finite(ledger.seconds_to_empty(scope, now, settings)),
        max(0.0, scope.blocked_until - now),
        _three(ledger.headroom(scope, rank, now, settings) if counted else 0.0 for rank in range(CLASSES)),
        scope.origin.value,
    )


def _pool(t: Target, scopes: list[Scope], now: float) -> SharedPoolView:
    waiting = [0] * CLASSES
    for (rank, _, _), line in t.lines.items():
        waiting[rank] += sum(len(flow) for flow in line.flows.values())
    owners = tuple(
        ShareView(caller, share, {scope.spec.name: shares.used(scope, caller, now) for scope in scopes if caller in scope.shares})
        for caller, share in t.spec.reservations
    )
    forecast = {scope.spec.name: _three(ledger.demand(scope, rank, now) for rank in range(CLASSES)) for scope in scopes}
    return SharedPoolView((waiting[0], waiting[1], waiting[2]), forecast, owners, t.promoted, len({*t.budgets, *t.budgets_old}))


def _breaker(t: Target, now: float) -> BreakerView:
    b = t.breaker
    shut = b.mode in {Mode.OPEN, Mode.DISABLED}
    return BreakerView(
        b.mode.value,
        _finite(max(0.0, b.open_until - now)) if shut else 0.0,
        b.strikes,
        b.level,
        _finite(b.rate),
        _finite(b.in_flight_max),
        _finite(b.window),
    )


def _cascade(state: State, t: Target, now: float) -> CascadeView:
    limited = tuple(sorted({caller for at, caller in t.cascade.hits if now - at < state.settings.cascade_seconds}))
    left = max(0.0, t.cascade.until - now)
    return CascadeView(left > 0, left, limited, behind(state.downstream, limited))


def _leases(t: Target, now: float) -> LeasesView:
    by_class = Counter(lease.priority for lease in t.leases.values())
    busiest = sorted(t.in_flight.items(), key=lambda one: (-one[1], one[0]))[:CALLERS_SHOWN_MAX]
    due = max(0.0, t.expiries.first()[0] - now) if t.expiries else None
    return LeasesView(len(t.leases), (by_class[0], by_class[1], by_class[2]), dict(busiest), due)


def _retry_windows(t: Target, now: float, settings: Settings) -> RetryWindowsView:
    windows = tuple(zip(settings.exclusive_seconds, settings.retry_until_seconds, strict=True))
    ends = block_end(t, now, t.scopes)
    live = isfinite(ends) and (t.breaker.mode in STANDING or ends + windows[-1][1] > now)
    return RetryWindowsView(ends - now if live else None, windows)


def _three(values: Iterable[float]) -> tuple[float, float, float]:
    p0, p1, p2 = values
    return p0, p1, p2


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
