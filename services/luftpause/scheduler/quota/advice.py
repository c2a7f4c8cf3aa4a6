"""When should a client that waits by itself try again?"""

from collections.abc import Iterable
from math import inf

from luftpause.scheduler.quota import ledger, rates
from luftpause.scheduler.quota.model import STANDING, Scope, State, Target

LOOK_SECONDS = 60.0  # a window whose end nobody told


def advice(
    state: State,
    target: str,
    priority: int,
    draw: float,
    *,
    now: float | None = None,
    scopes: Iterable[str] | None = None,
    number: float = inf,
) -> float:
    """
    Seconds until the retry window of a class, and a part of the window that `draw`, in [0, 1), says: 0.5 s wide for P0, 3 s, 6 s.

    The windows of all clients stand at the same moment, the end of the block: when the breaker lets calls out, or what is used up of
    `scopes` (all) renews. Behind a line that a learned rate keeps up they stand at its end (`earliest`).
    inf: no wait helps, the target is out of credit. `now`: at least that of the last event. KeyError: there is no such target.
    """
    t = state.targets[target]
    now = max(state.now, state.now if now is None else now)
    ends = _ends(t, now, scopes)
    if (line_seconds := _line_seconds(state, t, priority, max(ends, now), number)) > 0:
        ends = max(ends, now) + line_seconds
    first, last = state.settings.exclusive_seconds[priority], state.settings.retry_until_seconds[priority]
    if ends + last <= now:  # that window has passed
        ends = now
    first = max(first, now - ends)
    return ends - now + first + draw * (last - first)


def earliest(
    state: State, target: str, priority: int, *, now: float | None = None, scopes: Iterable[str] | None = None, number: float = inf
) -> float:  # fmt: skip
    """
    Seconds in which a call of this class is not let out: until the end of the block, then for as long as those need who stand before it.

    Those are all of better classes, and those of its own that came before `number` (a waiter's). How long they need is known only of a
    rate that refusals have taught. inf, `now`, `scopes`, KeyError: as of `advice`.
    """
    t = state.targets[target]
    now = max(state.now, state.now if now is None else now)
    start = max(_ends(t, now, scopes), now)
    return start - now + _line_seconds(state, t, priority, start, number)


def _ends(t: Target, now: float, scopes: Iterable[str] | None) -> float:
    return block_end(t, now, t.scopes if scopes is None else [name for name in scopes if name in t.scopes])


def _line_seconds(state: State, t: Target, priority: int, start: float, number: float) -> float:
    """From `start` until the learned rate has let all go who stand before, and one more; probes are not held by it."""
    if inf in {t.breaker.rate, start}:
        return 0.0
    if number < inf:
        before = sum((one.priority, one.number) < (priority, number) for one in t.waiters.values())
    else:
        before = sum(len(flow) for key, line in t.lines.items() if key[0] <= priority for flow in line.flows.values())
    probes = state.settings.close_after - t.breaker.successes if t.breaker.mode in STANDING else 0
    return rates.seconds_until(t.breaker, before + 1 - probes, start, state.settings)


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
