"""Would a provider with these limits take this call now, and what would it tell of them?

Times are seconds on the provider's clock, which never goes back; what a call costs is units per limit.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from math import ceil, inf
from typing import Literal

from msgspec import Struct

NEAR = 1e-6  # units: so far sums of fractions may be off
PENALTY_STEPS_MAX = 12

Why = Literal["primary", "secondary", "too_large"]


class LimitSpec(Struct, frozen=True):
    """
    `fixed`: `limit` units per window, which begins with its first call. `bucket`: refilled all the time, and full at first.

    `refused_cost`: units that a call costs which the hidden limit refused.
    """

    name: str
    kind: Literal["fixed", "bucket"]
    limit: float
    window_seconds: float = 60.0
    refused_cost: float = 0.0


class HiddenSpec(Struct, frozen=True):
    """
    A limit that no header tells: `calls` in any `window_seconds`. More are refused for `penalty_seconds`.

    Whoever goes on calling is refused for longer: after each `refused_per_step` refusals from then on for `penalty_seconds` x `growth` once
    more, at most `penalty_seconds_max`. `growth` 1: the penalty never grows. It is forgotten `forget_seconds` after it began.
    """

    calls: int
    window_seconds: float = 60.0
    penalty_seconds: float = 60.0
    growth: float = 1.0
    refused_per_step: int = 50
    penalty_seconds_max: float = 900.0
    forget_seconds: float = 3_600.0


class Verdict(Struct, frozen=True):
    """
    `why` None: the call is taken. `limit`: which one refused it; empty: the hidden one.

    `wait_seconds`: until that one would take it if nobody else called.
    """

    why: Why | None = None
    limit: str = ""
    wait_seconds: float = 0.0


class Left(Struct, frozen=True):
    """What there is to tell of a limit. `reset_seconds`: until it is all there again."""

    name: str
    limit: float
    remaining: float
    reset_seconds: float
    window_seconds: float


class _Fixed:
    def __init__(self, spec: LimitSpec) -> None:
        self.spec = spec
        self._used = 0.0
        self._began = -inf

    def wait(self, units: float, now: float) -> float:
        return 0.0 if self._room(now) - units >= -NEAR else self._began + self.spec.window_seconds - now

    def take(self, units: float, now: float) -> None:
        self._room(now)
        if self._began == -inf:
            self._began = now
        self._used += units

    def give_back(self, units: float, now: float) -> None:
        self._room(now)
        self._used = max(0.0, self._used - units)

    def left(self, now: float) -> Left:
        room = self._room(now)
        reset = self.spec.window_seconds if self._began == -inf else self._began + self.spec.window_seconds - now
        return Left(self.spec.name, self.spec.limit, room, reset, self.spec.window_seconds)

    def _room(self, now: float) -> float:
        if now >= self._began + self.spec.window_seconds:
            self._used, self._began = 0.0, -inf
        return self.spec.limit - self._used


class _Bucket:
    def __init__(self, spec: LimitSpec) -> None:
        self.spec = spec
        self._room = spec.limit
        self._at = 0.0

    def wait(self, units: float, now: float) -> float:
        self._refill(now)
        lacks = units - self._room
        return lacks * self.spec.window_seconds / self.spec.limit if lacks > NEAR else 0.0

    def take(self, units: float, now: float) -> None:
        self._refill(now)
        self._room -= units

    def give_back(self, units: float, now: float) -> None:
        self._refill(now)
        self._room = min(self.spec.limit, self._room + units)

    def left(self, now: float) -> Left:
        self._refill(now)
        reset = (self.spec.limit - self._room) * self.spec.window_seconds / self.spec.limit
        return Left(self.spec.name, self.spec.limit, self._room, reset, self.spec.window_seconds)

    def _refill(self, now: float) -> None:
        refilled = self._room + (now - self._at) * self.spec.limit / self.spec.window_seconds
        self._room, self._at = min(self.spec.limit, refilled), now


class _Hidden:
    """The calls of the last window, and the penalty that stands."""

    def __init__(self, spec: HiddenSpec) -> None:
        self.spec = spec
        self._calls: deque[float] = deque()
        self._until = -inf
        self._began = -inf
        self._level = 0
        self._refused = 0

    def wait(self, now: float) -> float:
        """Seconds for which it refuses; this call counts as one that was refused."""
        spec = self.spec
        if now < self._until:
            self._refused += 1
            if spec.growth > 1 and self._refused >= spec.refused_per_step:
                self._refused, self._level = 0, min(self._level + 1, PENALTY_STEPS_MAX)
                self._until = max(self._until, now + self._penalty())
            return self._until - now
        while self._calls and self._calls[0] <= now - spec.window_seconds:
            self._calls.popleft()
        if len(self._calls) < spec.calls:
            return 0.0
        if now - self._began > spec.forget_seconds:
            self._level = 0
        self._refused, self._began, self._until = 0, now, now + self._penalty()
        return self._until - now

    def _penalty(self) -> float:
        spec = self.spec
        return min(spec.penalty_seconds_max, spec.penalty_seconds * spec.growth**self._level)

    def took(self, now: float) -> None:
        self._calls.append(now)


class Account:
    """The books of one account."""

    def __init__(self, limits: tuple[LimitSpec, ...], hidden: HiddenSpec | None = None) -> None:
        self._limits = {spec.name: _Fixed(spec) if spec.kind == "fixed" else _Bucket(spec) for spec in limits}
        self._hidden = None if hidden is None else _Hidden(hidden)

    def ask(self, cost: Mapping[str, float], now: float) -> Verdict:
        """Takes the call and books its cost, or refuses it. Limits that the account lacks cost nothing."""
        if self._hidden is not None and (wait := self._hidden.wait(now)) > 0:
            self._charge_refused(now)
            return Verdict("secondary", wait_seconds=wait)
        known = [(self._limits[name], units) for name, units in cost.items() if name in self._limits]
        verdict = _judged(known, now)
        if verdict.why is None:
            for limit, units in known:
                limit.take(units, now)
            if self._hidden is not None:
                self._hidden.took(now)
        return verdict

    def _charge_refused(self, now: float) -> None:
        for limit in self._limits.values():
            if limit.spec.refused_cost:
                limit.take(min(limit.spec.refused_cost, max(0.0, limit.left(now).remaining)), now)

    def give_back(self, name: str, units: float, now: float) -> None:
        """A call used so many units less than it was booked with."""
        if name in self._limits and units > 0:
            self._limits[name].give_back(units, now)

    def left(self, now: float) -> tuple[Left, ...]:
        return tuple(limit.left(now) for limit in self._limits.values())


def _judged(costs: Sequence[tuple[_Fixed | _Bucket, float]], now: float) -> Verdict:
    for limit, units in costs:
        if units > limit.spec.limit:
            return Verdict("too_large", limit.spec.name)
    waits = [(limit.wait(units, now), limit.spec.name) for limit, units in costs]
    seconds, name = max(waits, default=(0.0, ""))
    return Verdict("primary", name, seconds) if seconds > 0 else Verdict()


def whole_seconds(seconds: float) -> int:
    """As Retry-After tells it: never too early."""
    return max(1, ceil(seconds - NEAR))
