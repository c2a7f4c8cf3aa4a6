"""What do refusals and answers say about a target as a whole: when may it be called again, how fast, how many at once?"""

from math import inf

from msgspec.structs import replace

from luftpause.scheduler.quota import cascade, ledger, rates
from luftpause.scheduler.quota.decisions import Blocked, Closed, Disabled, HalfOpened, Levelled
from luftpause.scheduler.quota.draft import Draft, flying
from luftpause.scheduler.quota.events import AnswerReported
from luftpause.scheduler.quota.headers import LimitKind
from luftpause.scheduler.quota.model import Breaker, Lease, Mode, Settings
from luftpause.scheduler.quota.specs import TargetSpec

TOLD_SECONDS_MAX = 31 * 86_400.0  # whatever a provider says


# ---- refusals ---------------------------------------------------------------------------------------------------


def limited(d: Draft, lease: Lease, event: AnswerReported) -> None:
    """The lease has ended already."""
    match event.kind:
        case LimitKind.CREDIT:
            _disable(d, event.wait_seconds)
        case LimitKind.CONCURRENCY:
            _shrink(d, event)
        case LimitKind.TOO_LARGE:
            pass  # the caller's mistake
        case LimitKind.CAPACITY:
            _open(d, d.settings.capacity_seconds if event.wait_seconds is None else event.wait_seconds)
        case LimitKind.PRIMARY | LimitKind.SECONDARY | None:
            _blocked(d, lease, event)


def _disable(d: Draft, wait_seconds: float | None) -> None:
    until = inf if wait_seconds is None else d.now + believed(wait_seconds) + d.settings.guard_seconds
    begin_episode(d, Mode.DISABLED, max(until, d.breaker.open_until))
    _note_told(d, wait_seconds)
    d.decisions.append(Disabled(d.spec.name, d.breaker.open_until))


def _shrink(d: Draft, event: AnswerReported) -> None:
    """
    Too many at once: one less than were in flight, or what the provider states. Nothing to wait for but their ends.

    If there was none beside it others use the account, and whoever goes at once goes again and again.
    """
    stated = [sample.limit for sample in event.samples if sample.limit and "concurrent" in sample.scope.lower()]
    known = min(stated, default=d.breaker.in_flight_stated)
    most = max(1.0, min(d.breaker.in_flight_max, flying(d), known))  # those in flight now are one less than when it was refused
    d.breaker = replace(d.breaker, in_flight_max=most, in_flight_stated=known, risen_at=d.now)
    if not flying(d):
        _open(d, max(event.wait_seconds or 0.0, d.settings.capacity_seconds))


def _blocked(d: Draft, lease: Lease, event: AnswerReported) -> None:
    b, s = d.breaker, d.settings
    empty = [
        sample.scope for sample in event.samples if sample.remaining is not None and sample.remaining <= 0 and sample.scope in d.scopes
    ]
    fresh = lease.granted >= b.episode_at
    telling = fresh and not empty  # of a limit that nobody announces
    strikes = (b.strikes if d.now - b.limited_at < s.penalty_forget_seconds else 0) + telling
    wait = event.wait_seconds
    if wait is None and empty and all(ledger.is_stale(d.scopes[s.scope], s, d.now) for s in event.samples if s.scope in empty):
        wait = d.settings.capacity_seconds  # by its own clock the window has not ended yet
    elif wait is None or (telling and strikes > 1):
        wait = max(wait or 0.0, _penalty(d, strikes, event.kind))
    rate = rates.cut(b, d.now, s, d.scopes.values(), strikes=strikes, probe=lease.probe) if telling else b.rate
    d.breaker = replace(b, strikes=strikes, limited_at=d.now, rate=rate, tokens=0.0, tokens_at=d.now, clean_at=d.now)
    _open(d, wait)
    for name in empty:
        scope = d.scopes[name]
        d.scopes[name] = replace(scope, blocked_until=max(scope.blocked_until, d.breaker.open_until))
    if telling:
        cascade.vote(d, lease.caller)


def _penalty(d: Draft, strikes: int, kind: LimitKind | None) -> float:
    """Seconds of a block that nobody gave a length to, or that came again at once."""
    none, first, most = penalties(d.spec, d.settings, kind)
    return min(first * 2.0 ** min(strikes - 1, 32), most) if strikes else none


def penalties(spec: TargetSpec, settings: Settings, kind: LimitKind | None) -> tuple[float, float, float]:
    """Seconds of such a block without a strike, of the first one, from which on it doubles, and at most."""
    if spec.penalty_seconds > 0 or kind is LimitKind.SECONDARY:
        least = spec.penalty_seconds or settings.hintless_seconds_max
        return min(least, settings.penalty_seconds_max), least, settings.penalty_seconds_max
    return min(1.0, settings.hintless_seconds_max), 2.0, settings.hintless_seconds_max


def _open(d: Draft, wait_seconds: float) -> None:
    """Blocked for so long; an earlier, longer block stays."""
    if d.breaker.mode is Mode.DISABLED:
        return
    until = d.now + believed(wait_seconds) + d.settings.guard_seconds
    begin_episode(d, Mode.OPEN, max(until, d.breaker.open_until))
    _note_told(d, wait_seconds)
    d.decisions.append(Blocked(d.spec.name, d.breaker.open_until))


def _note_told(d: Draft, wait_seconds: float | None) -> None:
    """For those who ask how long it lasts."""
    until = d.now + min(wait_seconds or 0.0, TOLD_SECONDS_MAX) + d.settings.guard_seconds
    d.breaker = replace(d.breaker, told_until=max(until, d.breaker.told_until))


def believed(wait_seconds: float) -> float:
    """A provider that tells of years is asked again after a day: a refused call a day costs nothing."""
    return min(wait_seconds, ledger.TOLD_SECONDS_MAX)


def begin_episode(d: Draft, mode: Mode, until: float) -> None:
    """What was granted before is no longer evidence, nor a probe."""
    d.probes = 0
    d.breaker = replace(
        d.breaker, mode=mode, open_until=until, episode=d.breaker.episode + 1, episode_at=until, successes=0, window=1.0
    )  # fmt: skip


def told(d: Draft, until: float, *, disabled: bool, news_seconds: float) -> None:
    """A call of another node was refused."""
    if disabled and d.breaker.mode is not Mode.DISABLED:
        begin_episode(d, Mode.DISABLED, until)
        d.decisions.append(Disabled(d.spec.name, until))
    elif not disabled and d.breaker.mode is not Mode.DISABLED and until > d.breaker.open_until + news_seconds:
        begin_episode(d, Mode.OPEN, until)
        d.decisions.append(Blocked(d.spec.name, until))


def refused(d: Draft, wait_seconds: float | None) -> float:
    """
    Count a refusal, and remember the latest end of all; seconds until the end of this one.

    For a policy without an open breaker: nobody is stopped.
    """
    b, s = d.breaker, d.settings
    strikes = (b.strikes if d.now - b.limited_at < s.penalty_forget_seconds else 0) + 1
    wait = min(s.hintless_seconds_max, 2.0 ** min(strikes, 60)) if wait_seconds is None else believed(wait_seconds)
    d.breaker = replace(b, strikes=strikes, limited_at=d.now, open_until=max(b.open_until, d.now + wait))
    d.decisions.append(Blocked(d.spec.name, d.breaker.open_until))
    return wait


# ---- answers ----------------------------------------------------------------------------------------------------


def answered(d: Draft, lease: Lease) -> None:
    """Good news counts from calls that were granted after the block."""
    if lease.granted < d.breaker.episode_at:
        return
    d.breaker = b = rates.served(d.breaker, d.now, d.settings)
    if b.mode is Mode.HALF_OPEN:
        successes = b.successes + 1
        d.breaker = replace(b, successes=successes)
        if successes >= d.settings.close_after:
            d.breaker = replace(d.breaker, mode=_closed(b), told_until=-inf)
            d.decisions.append(Closed(d.spec.name))
    elif b.window < inf and b.mode in {Mode.CLOSED, Mode.PRE_EMPTIVE_OPEN}:
        window = b.window + 1
        d.breaker = replace(b, window=inf if window >= d.settings.window_max else window)


def failed(d: Draft, lease: Lease) -> None:
    """A probe that had no answer says nothing about the limit: the next one comes a little later."""
    if lease.probe and lease.episode == d.breaker.episode and d.breaker.mode is Mode.HALF_OPEN:
        _open(d, d.settings.capacity_seconds)


def _closed(b: Breaker) -> Mode:
    return Mode.PRE_EMPTIVE_OPEN if b.level else Mode.CLOSED


# ---- time -------------------------------------------------------------------------------------------------------


def elapse(d: Draft) -> None:
    """What a clock alone changes."""
    b = d.breaker
    if b.mode in {Mode.OPEN, Mode.DISABLED} and d.now >= b.open_until:
        d.breaker = b = replace(b, mode=Mode.HALF_OPEN, successes=0)
        d.decisions.append(HalfOpened(d.spec.name))
    d.breaker = b = rates.grown(b, d.now, d.settings)
    if flying(d) >= b.in_flight_max:
        d.breaker = b = _more_in_flight(d)
    if b.mode in {Mode.CLOSED, Mode.PRE_EMPTIVE_OPEN}:
        _level(d)


def _more_in_flight(d: Draft) -> Breaker:
    """One more, as so many as may are in flight and it has been well for a while; what the provider stated holds for a day."""
    b = d.breaker
    if d.now < rises_at(b, d.settings):
        return b
    stated = b.in_flight_stated if b.in_flight_max < b.in_flight_stated else inf
    return replace(b, in_flight_max=min(b.in_flight_max + 1, stated), in_flight_stated=stated, risen_at=d.now)


def rises_at(b: Breaker, settings: Settings) -> float:
    """When one more may be in flight than now."""
    return b.risen_at + (settings.concurrency_step_seconds if b.in_flight_max < b.in_flight_stated else ledger.TOLD_SECONDS_MAX)


def _level(d: Draft) -> None:
    """One level up or down once the forecast has stood for a while."""
    b, s = d.breaker, d.settings
    ends = min((ledger.seconds_to_empty(scope, d.now, s) for scope in d.scopes.values()), default=inf)
    trend = 1 if ends < s.tight_seconds else -1 if ends > s.easy_seconds else 0
    if trend != b.trend:
        b = replace(b, trend=trend, trend_at=d.now)
    level = min(max(b.level + trend, 0), s.levels)
    if level != b.level and d.now >= max(b.trend_at, b.level_at) + s.dwell_seconds:
        b = replace(b, level=level, level_at=d.now)
        b = replace(b, mode=_closed(b))
        d.decisions.append(Levelled(d.spec.name, level))
    d.breaker = b


def level_due(d: Draft) -> float:
    """When the level may change next."""
    b, s = d.breaker, d.settings
    if b.mode not in {Mode.CLOSED, Mode.PRE_EMPTIVE_OPEN} or (not b.level and b.trend <= 0) or (b.trend > 0 and b.level == s.levels):
        return inf if not b.level else d.now + s.dwell_seconds
    return max(max(b.trend_at, b.level_at) + s.dwell_seconds, d.now) if b.trend else d.now + s.dwell_seconds
