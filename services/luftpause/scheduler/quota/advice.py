"""When should a client that waits by itself try again?"""

from collections.abc import Iterable
from math import inf

from luftpause.scheduler.quota import ledger
from luftpause.scheduler.quota.model import STANDING, Scope, State, Target

LOOK_SECONDS = 60.0  # a window whose end nobody told


def advice(
    state: State, target: str, priority: int, draw: float, *, now: float | None = None, scopes: Iterable[str] | None = None
) -> float:
    """
    Seconds until the retry window of a class, and a part of the window that `draw`, in [0, 1), says: 0.5 s wide for P0, 3 s, 6 s.

    The windows of all clients stand at the same moment, the end of the block: when the breaker lets calls out, or what is used up of
    `scopes` (all) renews. inf: no wait helps, the target is out of credit. `now`: at least that of the last event.
    KeyError: there is no such target.
    """
    t = state.targets[target]
    now = max(state.now, state.now if now is None else now)
    ends = block_end(t, now, t.scopes if scopes is None else [name for name in scopes if name in t.scopes])
    first, last = state.settings.exclusive_seconds[priority], state.settings.retry_until_seconds[priority]
    if ends + last <= now:  # that window has passed
        ends = now
    first = max(first, now - ends)
    return ends - now + first + draw * (last - first)


def block_end(t: Target, now: float, scopes: Iterable[str]) -> float:
    """The latest end there is, also one that has been; no end at all: now."""
    starts = t.breaker.mode in STANDING or t.breaker.window < inf
    ends = max(t.breaker.open_until, t.breaker.told_until) if starts else -inf
    return max([ends, *(_renews(ledger.roll(t.scopes[name], now), now) for name in scopes)]) if ends < inf else inf


def _renews(scope: Scope, now: float) -> float:
    """When there is more of a scope that is used up; -inf: it is not."""
    ends = scope.blocked_until if scope.blocked_until > now else -inf
    if scope.spec.kind == "concurrent" or ledger.left(scope) > ledger.NEAR:
        return ends
    if scope.spec.kind == "fixed":
        return max(ends, scope.reset_at if scope.reset_at < inf else now + min(scope.spec.window_seconds, LOOK_SECONDS))
    return max(ends, now + (1.0 - ledger.left(scope)) * scope.spec.window_seconds / scope.limit)
