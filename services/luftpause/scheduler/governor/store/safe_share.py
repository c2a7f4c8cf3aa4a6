"""What may a node grant by itself while it can't ask the ledger that it shares?

Of what was left when it was last told: its share, less a reserve for what others granted since. P0 has all of that, P1 comes at half its
rate, P2 waits. Pure: time comes in with each question.
"""

from collections.abc import Iterable
from math import floor, inf

from luftpause.scheduler.quota import ledger
from luftpause.scheduler.quota.model import CLASSES, Cost, Scope

P1_PART = 0.5
P1_BURST_SECONDS = 1.0
LOOK_AGAIN_SECONDS = 1.0


class SafeShare:
    """Of one target. `scopes`: as told last; `part`: how much of a share is safe; `nodes`: how many share."""

    def __init__(self, scopes: Iterable[Scope], nodes: int, now: float, *, part: float = 0.8) -> None:
        self._scopes = {scope.spec.name: _line(scope, part / max(1, nodes), now) for scope in scopes}

    def refused(self, cost: Cost, rank: int, now: float) -> tuple[str, float] | None:
        """Scope and seconds to wait; None: it is granted, and booked."""
        if rank >= CLASSES - 1:
            return "", LOOK_AGAIN_SECONDS
        lines = [(name, self._scopes[name], units) for name, units in cost if name in self._scopes]
        for name, line, units in lines:
            line.roll(now)
            if (wait := line.wait(units, rank, now)) > 0:
                return name, wait
        for _, line, units in lines:
            line.take(units, rank)
        return None

    def over(self, cost: Cost, used: Cost) -> None:
        """A call that was granted here has ended: what it used in the end."""
        actual = dict(used)
        for name, units in cost:
            if name in self._scopes:
                self._scopes[name].over(units, actual.get(name, units))


class _Line:
    """Tokens of one scope, and of P1 in it. `until`: when a window ends and they are `full` again."""

    def __init__(self, tokens: float, full: float, rate: float, until: float, window_seconds: float, now: float) -> None:
        self._tokens, self._full, self._rate, self._until, self._window_seconds, self._at = tokens, full, rate, until, window_seconds, now
        self._begin_p1(now)

    def _begin_p1(self, now: float) -> None:
        self._p1_rate = P1_PART * (self._rate or self._tokens / max(self._until - now, 1.0))
        self._p1_most = max(1.0, self._p1_rate * P1_BURST_SECONDS)
        self._p1_tokens = min(self._p1_most, self._tokens)

    def roll(self, now: float) -> None:
        passed, self._at = max(0.0, now - self._at), max(now, self._at)
        self._tokens = min(self._full, self._tokens + passed * self._rate) if self._rate else self._tokens
        self._p1_tokens = min(self._p1_most, self._p1_tokens + passed * self._p1_rate)
        if now >= self._until:
            self._until += (floor((now - self._until) / self._window_seconds) + 1) * self._window_seconds
            self._tokens = self._full
            self._begin_p1(now)

    def wait(self, units: float, rank: int, now: float) -> float:
        """Seconds; 0: now."""
        lacks = (min(units, self._full) if self._rate else units) - self._tokens
        if lacks > ledger.NEAR:
            return max(lacks / self._rate if self._rate else self._until - now, 1e-3)
        p1_lacks = min(units, self._p1_most) - self._p1_tokens
        if rank and p1_lacks > ledger.NEAR:
            return max(p1_lacks / self._p1_rate, 1e-3) if self._p1_rate > 0 else LOOK_AGAIN_SECONDS
        return 0.0

    def take(self, units: float, rank: int) -> None:
        self._tokens -= units
        self._p1_tokens -= units if rank else 0.0

    def over(self, reserved: float, used: float) -> None:
        self._tokens += reserved - used


class _Slots(_Line):
    """Calls at once."""

    def roll(self, now: float) -> None:
        pass

    def wait(self, units: float, rank: int, now: float) -> float:
        return LOOK_AGAIN_SECONDS / 4 if units - self._tokens > ledger.NEAR else 0.0

    def over(self, reserved: float, used: float) -> None:
        self._tokens += reserved


def _line(scope: Scope, part: float, now: float) -> _Line:
    spec, left = scope.spec, max(0.0, ledger.left(scope))
    if spec.kind == "concurrent":
        most = max(1.0, floor(part * scope.limit))
        return _Slots(max(0.0, most - scope.out), most, 0.0, inf, inf, now)
    full = part * ledger.capacity(scope)
    if spec.kind == "bucket":
        return _Line(part * left, full, part * scope.limit / spec.window_seconds, inf, spec.window_seconds, now)
    until = scope.reset_at if scope.reset_at < inf else now + spec.window_seconds
    return _Line(part * left, full, 0.0, until, spec.window_seconds, now)
