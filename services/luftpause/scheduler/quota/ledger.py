"""How much of one limit is left, and for whom?

Functions of one `Scope`: the half of the governor that a shared store must do atomically. All take the scope as of `now` (`roll`).
"""

from math import exp, floor, inf

from immutables import Map
from msgspec.structs import replace

from luftpause.scheduler.quota.model import Demand, Light, Origin, Scope, Settings, Share
from luftpause.scheduler.quota.samples import Sample
from luftpause.scheduler.quota.specs import ScopeSpec

NEAR = 1e-6  # units: so far sums of fractions may be off
PACE_PART_MIN = 0.02  # the last moments of a window are no reason to call nothing "full"
FORECAST_SECONDS_MIN = 60.0
CLOCKS_SECONDS = 2.0  # so far a provider's clock, told in whole seconds, may be from ours
TOLD_SECONDS_MAX = 86_400.0  # what a provider tells is believed so long unseen, then it is tried: a day, the longest that many limits last


def fresh(spec: ScopeSpec, now: float) -> Scope:
    return Scope(spec, spec.limit, spec.limit * (spec.burst if spec.kind == "bucket" else 1.0), now)


def fitted(scope: Scope, spec: ScopeSpec, limit: float, now: float) -> Scope:
    """The scope with other figures, its kind the same. What was used of a fixed window stays used: a higher limit is there at once."""
    if spec.kind != "fixed":
        return replace(scope, spec=spec, limit=limit)
    other_window = scope.reset_at < inf and spec.window_seconds != scope.spec.window_seconds
    reset_at = min(scope.reset_at, now + spec.window_seconds) if other_window else scope.reset_at
    return replace(scope, spec=spec, limit=limit, remaining=max(-limit, scope.remaining + limit - scope.limit), reset_at=reset_at)


def roll(scope: Scope, now: float) -> Scope:
    """The scope as of `now`: windows that ended are full again, buckets have been refilled."""
    spec = scope.spec
    if spec.kind == "fixed":
        if now < scope.reset_at:
            return scope
        windows = floor((now - scope.reset_at) / spec.window_seconds) + 1
        began = scope.reset_at + windows * spec.window_seconds
        return replace(scope, remaining=scope.limit, at=now, reset_at=began, shares=_unused(scope))
    if spec.kind == "bucket" and now > scope.at:
        refilled = scope.remaining + (now - scope.at) * scope.limit / spec.window_seconds
        return replace(scope, remaining=min(capacity(scope), refilled), at=now)
    return scope


def _unused(scope: Scope) -> "Map[str, Share]":
    """In a window that begins no owner of a share has used anything."""
    if not scope.shares:
        return scope.shares
    return Map({owner: replace(share, used=0.0, used_elsewhere=0.0) for owner, share in scope.shares.items()})


def capacity(scope: Scope) -> float:
    """Most units that can be left."""
    return scope.limit * (scope.spec.burst if scope.spec.kind == "bucket" else 1.0)


def left(scope: Scope) -> float:
    """Units that nobody has: what remains, without what is out on leases."""
    return (scope.limit if scope.spec.kind == "concurrent" else scope.remaining) - scope.out


def seconds_left(scope: Scope, now: float) -> float:
    """Until a fixed window ends; the whole window where that is not known, and for buckets."""
    return max(scope.reset_at - now, 0.0) if scope.reset_at < inf and scope.spec.kind == "fixed" else scope.spec.window_seconds


def health(scope: Scope, now: float) -> float:
    """0 to 1: what is left against what there should be by now. Quota that is about to expire is not scarce."""
    if scope.spec.kind == "concurrent" or scope.limit <= 0:
        return 1.0
    part = left(scope) / capacity(scope)
    if scope.spec.kind == "fixed":
        part /= max(seconds_left(scope, now) / scope.spec.window_seconds, PACE_PART_MIN)
    return min(max(part, 0.0), 1.0)


def light(scope: Scope, now: float) -> Light:
    fit = health(scope, now)
    return Light.GREEN if fit >= scope.spec.green else Light.AMBER if fit >= scope.spec.red else Light.RED


# ---- forecast ---------------------------------------------------------------------------------------------------


def decayed(value: float, since: float, now: float, seconds: float) -> float:
    return value * exp(-max(0.0, now - since) / seconds)


def forecast_seconds(scope: Scope) -> float:
    return max(FORECAST_SECONDS_MIN, scope.spec.window_seconds / 6.0)


def wanted(scope: Scope, priority: int, units: float, now: float) -> Scope:
    """With this wish in the forecast of its class."""
    return replace(scope, demand=with_wish(scope, (scope.demand, scope.demand_at), priority, units, now), demand_at=now)


def with_wish(scope: Scope, was: tuple[Demand, float], priority: int, units: float, now: float) -> Demand:
    """Decaying sums of what was wanted per class, as of some time, with one wish more."""
    fade = decayed(1.0, was[1], now, forecast_seconds(scope))
    p0, p1, p2 = (wanted * fade + (units if at == priority else 0.0) for at, wanted in enumerate(was[0]))
    return p0, p1, p2


def wanted_here(scope: Scope, now: float) -> Demand:
    """The decaying sums as of now, without what other nodes want."""
    fade = decayed(1.0, scope.demand_at, now, forecast_seconds(scope))
    p0, p1, p2 = scope.demand
    return p0 * fade, p1 * fade, p2 * fade


def demand(scope: Scope, priority: int, now: float) -> float:
    """Units per second that a class is forecast to want, on all nodes."""
    seconds = forecast_seconds(scope)
    here = decayed(scope.demand[priority], scope.demand_at, now, seconds)
    seen = (here + decayed(scope.elsewhere[priority], scope.elsewhere_at, now, seconds)) / seconds
    return max(seen, scope.spec.declared_demand) if priority == 0 else seen


def headroom(scope: Scope, priority: int, now: float, settings: Settings) -> float:
    """Units that a class leaves: its least part, or what P0 is forecast to want until there is more. P1 and P2 are a matter of order."""
    if priority == 0:
        return scope.spec.protect[0] * capacity(scope)
    fixed = scope.spec.kind == "fixed"
    horizon = seconds_left(scope, now) if fixed else settings.forecast_seconds
    most = capacity(scope) * (horizon / scope.spec.window_seconds if fixed else 1.0)
    return max(scope.spec.protect[priority] * most, min(demand(scope, 0, now) * horizon, settings.forecast_part_max * most))


def better_are_forecast(scope: Scope, priority: int, now: float) -> bool:
    """Do better classes want at least one unit before there is more?"""
    return sum(demand(scope, better, now) for better in range(priority)) * max(seconds_left(scope, now), 1.0) >= 1.0


def seconds_to_empty(scope: Scope, now: float, settings: Settings) -> float:
    """As fast as it is used now; inf: it renews first."""
    if scope.spec.kind == "concurrent":
        return inf
    burn = decayed(scope.burn, scope.burn_at, now, settings.burn_seconds) / settings.burn_seconds
    if scope.spec.kind == "bucket":
        burn -= scope.limit / scope.spec.window_seconds
    if burn <= 0:
        return inf
    seconds = max(left(scope), 0.0) / burn
    return inf if scope.spec.kind == "fixed" and seconds >= seconds_left(scope, now) else seconds


def pace(scope: Scope, priority: int, now: float, settings: Settings) -> float:
    """Units per second that a class may use here of a fixed window that is not green: of all nodes' pace the part that it wants here."""
    free = max(left(scope) - headroom(scope, priority, now, settings), 0.0)
    whole = free / max(seconds_left(scope, now), 1.0) * settings.weights[priority] / sum(settings.weights[1:])
    return whole * _part_here(scope, priority, now)


def _part_here(scope: Scope, priority: int, now: float) -> float:
    elsewhere = decayed(scope.elsewhere[priority], scope.elsewhere_at, now, forecast_seconds(scope))
    here = wanted_here(scope, now)[priority]
    return here / (here + elsewhere) if elsewhere > 0 else 1.0


# ---- what leases and answers change -----------------------------------------------------------------------------


def take(scope: Scope, units: float, now: float, settings: Settings) -> Scope:
    """With a lease of so many units. The first of a window that nobody told begins it."""
    burn = decayed(scope.burn, scope.burn_at, now, settings.burn_seconds) + units
    begins = scope.spec.kind == "fixed" and scope.reset_at == inf
    reset_at = now + scope.spec.window_seconds if begins else scope.reset_at
    return replace(scope, out=scope.out + units, burn=burn, burn_at=now, reset_at=reset_at)


def give_back(scope: Scope, units: float) -> Scope:
    """Without a lease of so many units."""
    out = scope.out - units
    return replace(scope, out=out if out > NEAR else 0.0)


def charge(scope: Scope, units: float, now: float) -> Scope:
    """So much was used, and no sample says so. Nothing owes more than a whole limit."""
    return scope if scope.spec.kind == "concurrent" else replace(scope, remaining=max(-scope.limit, scope.remaining - units), at=now)


def burnt(scope: Scope, more: float, now: float, settings: Settings) -> Scope:
    """The burn was booked with the reservation: set it right by so many units."""
    burn = decayed(scope.burn, scope.burn_at, now, settings.burn_seconds) + more
    return replace(scope, burn=max(0.0, burn), burn_at=now)


def believed_reset(scope: Scope, sample: Sample) -> float | None:
    """Seconds: no window has more to go than its whole length, or a day where its length may be wrong."""
    return None if sample.reset_seconds is None else min(sample.reset_seconds, max(scope.spec.window_seconds, TOLD_SECONDS_MAX))


def is_stale(scope: Scope, sample: Sample, now: float) -> bool:
    """Whether it is of a window that has ended: the end that it tells is where the present one began, as exactly as clocks agree."""
    if scope.spec.kind != "fixed" or scope.reset_at == inf or sample.reset_seconds is None:
        return False
    return now + sample.reset_seconds <= scope.reset_at - scope.spec.window_seconds + CLOCKS_SECONDS


def sampled(scope: Scope, sample: Sample, now: float, granted: float) -> Scope:
    """
    With what the provider said. `granted`: when the call's lease was; -inf: it had none.

    Lower always counts. Higher counts only if the window is a new one, or the call went out after the last sample that counted: else it
    may be old. A reset of 0 says nothing: Azure tells it of quota that is used up. Of a window that has ended only the limit counts.
    Nobody is told to owe more than a whole limit. A window that is in use and whose end nobody tells ends after its whole length at the
    latest.
    """
    if sample.limit is not None and sample.limit > 0:
        scope = replace(scope, limit=sample.limit, told_at=now, remaining=max(-sample.limit, scope.remaining))
    if is_stale(scope, sample, now):
        return scope
    fixed, reset = scope.spec.kind == "fixed", believed_reset(scope, sample)
    if sample.remaining is not None and scope.spec.kind != "concurrent":
        shift = max(2.0, 0.02 * scope.spec.window_seconds)
        anew = fixed and reset is not None and (scope.reset_at == inf or now + reset > scope.reset_at + shift)
        if sample.remaining <= scope.remaining or anew or granted > scope.sample_at:
            shares = _unused(scope) if anew else scope.shares
            scope = replace(scope, remaining=max(-scope.limit, min(sample.remaining, capacity(scope))), at=now, shares=shares)
        scope = replace(scope, sample_at=max(scope.sample_at, now))
    if fixed and reset:
        return replace(scope, reset_at=now + reset)
    if fixed and scope.reset_at == inf and sample.remaining is not None and sample.remaining < scope.limit:
        return replace(scope, reset_at=now + scope.spec.window_seconds)
    return scope


# ---- what was told and may be wrong by now ----------------------------------------------------------------------


def is_doubtful(scope: Scope, now: float) -> bool:
    """A provider has told what is left, and since then a day has passed in which nobody could call: one call may find out."""
    return now >= doubtful_at(scope)


def doubtful_at(scope: Scope) -> float:
    """When that is so; inf: something else happens first."""
    told = scope.spec.kind == "fixed" and scope.sample_at > -inf and scope.out <= NEAR
    return scope.at + TOLD_SECONDS_MAX if told else inf


def is_limit_doubtful(scope: Scope, now: float) -> bool:
    """The limit is as a provider told it, a window ago or longer: whoever needs more of it may try."""
    told = scope.origin is not Origin.CONFIGURED or scope.limit != scope.spec.limit
    return told and now - scope.told_at >= min(scope.spec.window_seconds, TOLD_SECONDS_MAX)


def heard_at(scope: Scope) -> float:
    """When somebody told of it last."""
    return max(scope.told_at, scope.sample_at)


def forgotten(scope: Scope, now: float) -> Scope:
    """Without what a provider has told. What was counted here, where it tells nothing, stays."""
    ends_late = now + scope.spec.window_seconds + NEAR < scope.reset_at < inf
    whole = replace(scope, limit=scope.spec.limit, told_at=-inf, blocked_until=-inf)
    if scope.sample_at == -inf and scope.limit == scope.spec.limit and not ends_late:
        return whole
    return replace(whole, remaining=capacity(whole), at=now, reset_at=inf, sample_at=-inf, shares=_unused(scope))
