"""How fast may calls go where a provider tells no limit, as its refusals have taught?

A bucket of calls. Its rate is cut by refusals, and recovers with time and with calls that are served. Functions of one `Breaker`.
"""

from collections.abc import Iterable
from math import floor, inf, sqrt

from msgspec.structs import replace

from luftpause.scheduler.quota import ledger
from luftpause.scheduler.quota.model import Breaker, Mode, Scope, Settings

SENT_SECONDS = 10.0  # time constant of the measured rate
RATE_MIN = 0.05  # calls per second
RATE_MIN_MAX = 1.0
RATE_MAX = 1_000.0  # above it nothing is limited
RATE_LOW = 1.0  # below it each call that is served counts
SENT_MIN = 0.1
GROWTH_STEPS_MAX = 200
PATIENCE_MAX = 4  # strikes
CUTS_MAX = 3


def measured(b: Breaker, now: float) -> float:
    """Calls per second, of the last seconds."""
    return ledger.decayed(b.sent, b.sent_at, now, SENT_SECONDS) / SENT_SECONDS


def tokens(b: Breaker, now: float) -> float:
    """Calls that the rate allows now."""
    return min(max(1.0, b.rate), b.tokens + (now - b.tokens_at) * b.rate)


def sent(b: Breaker, now: float, calls: float = 1.0) -> Breaker:
    """With so many calls more that went out; -1: with one that did not after all."""
    count = max(0.0, ledger.decayed(b.sent, b.sent_at, now, SENT_SECONDS) + calls)
    left = min(max(1.0, b.rate), max(0.0, tokens(b, now) - calls)) if b.rate < inf else 0.0
    return replace(b, sent=count, sent_at=now, tokens=left, tokens_at=now)


def cut(b: Breaker, now: float, settings: Settings, scopes: Iterable[Scope], *, strikes: int, probe: bool) -> float:
    """
    The rate after a refusal that nothing else explains, the `strikes`th one: more after each, as the next block is twice as long.

    A refused probe says that the block lasts on, not that calls were too fast. While a target starts again, too little is sent to be
    measured.
    """
    if probe:
        return b.rate
    starts = b.mode is Mode.HALF_OPEN or b.window < inf
    known = b.rate if starts and b.rate < inf else min(b.rate, max(measured(b, now), SENT_MIN))
    return max(settings.rate_cut ** min(strikes, CUTS_MAX) * known, slowest(scopes))


def slowest(scopes: Iterable[Scope]) -> float:
    """Calls per second that are always tried: one in the shortest window at least."""
    shortest = min((scope.spec.window_seconds for scope in scopes if scope.spec.kind != "concurrent"), default=inf)
    return max(RATE_MIN, min(1.0 / shortest, RATE_MIN_MAX))


def grown(b: Breaker, now: float, settings: Settings) -> Breaker:
    """A little faster for each clean while, by a part of it if it was used; half as fast for each strike that is not forgotten."""
    step_seconds = settings.rate_step_seconds * patience(b, now, settings)
    steps = floor((now - b.clean_at) / step_seconds) if b.rate < inf else 0
    if steps < 1:
        return b
    factor = (1 + settings.rate_growth) ** min(steps, GROWTH_STEPS_MAX) if measured(b, now) > 0.5 * b.rate else 1.0
    clean_at = b.clean_at + steps * step_seconds
    return replace(_at_rate(b, b.rate * factor + settings.rate_rise * steps, now), clean_at=clean_at)


def served(b: Breaker, now: float, settings: Settings) -> Breaker:
    """A little faster for each call that was served, where they are few."""
    return _at_rate(b, b.rate + settings.rate_rise / patience(b, now, settings), now) if b.rate < RATE_LOW else b


def patience(b: Breaker, now: float, settings: Settings) -> float:
    """How much slower it recovers: each refusal that came soon after another costs twice as long a block."""
    strikes = b.strikes if now - b.limited_at < settings.penalty_forget_seconds else 0
    return 2.0 ** min(max(strikes - 1, 0), PATIENCE_MAX)


def _at_rate(b: Breaker, rate: float, now: float) -> Breaker:
    """What the old rate allowed until now is there."""
    return replace(b, rate=inf if rate > RATE_MAX else rate, tokens=tokens(b, now), tokens_at=now)


def seconds_until(b: Breaker, calls: int, now: float, settings: Settings) -> float:
    """From `now` until so many calls may have gone out, if the rate recovers by time alone."""
    missing = calls - tokens(b, now) if b.rate < inf else 0.0
    if missing <= ledger.NEAR:
        return 0.0
    rise = settings.rate_rise / settings.rate_step_seconds / patience(b, now, settings)
    return 2.0 * missing / (b.rate + sqrt(b.rate * b.rate + 2.0 * rise * missing))
