"""Which quota has a node taken from the shared ledger in advance, so that it grants without asking? Pure: time comes in.

A chunk is a lease of its own, of so many calls at once. Calls that go out of it are told to the store as parts of it.
"""

from collections.abc import Iterator
from math import inf
from typing import Final

from luftpause.scheduler.quota import ledger
from luftpause.scheduler.quota.model import Cost, Mode, Target

CHUNK_SECONDS: Final = 10.0  # it is over so long after it was last renewed
IDLE_SECONDS: Final = 2.0  # what nobody has taken anything of for so long goes back
REFILL_PART: Final = 0.3
LIMIT_PART: Final = 0.05  # of what a limit allows for the rest of its window, over all nodes

Key = tuple[str, ...]  # the scopes that a call costs


class Chunk:
    """`units` are not spent yet; calls of `flying` have not ended. `until`: on this node's clock, counted from before it was asked for."""

    def __init__(self, want: str, fence: int, cost: Cost, *, granted: float, until: float) -> None:
        self.want, self.fence, self.granted, self.until = want, fence, granted, until
        self.units, self.size = dict(cost), dict(cost)
        self.flying: dict[str, float] = {}
        self.parts = 0
        self.used_at = granted
        self.gone = False

    def take(self, cost: Cost, now: float) -> bool:
        if self.gone or now >= self.until or any(self.units.get(name, 0.0) < units - ledger.NEAR for name, units in cost):
            return False
        for name, units in cost:
            self.units[name] -= units
            self.flying[name] = self.flying.get(name, 0.0) + units
        self.used_at = now
        return True

    def end(self, cost: Cost) -> int:
        """A call has ended: the number of the part."""
        for name, units in cost:
            self.flying[name] -= units
        self.parts += 1
        return self.parts

    def put_back(self, cost: Cost) -> None:
        """A call was never sent."""
        for name, units in cost:
            self.flying[name] -= units
            self.units[name] = self.units.get(name, 0.0) + units

    def spare(self) -> tuple[Cost, int]:
        """Give back what is not spent: units, and the number of the part."""
        cost = tuple((name, units) for name, units in self.units.items() if units > ledger.NEAR)
        self.units = {}
        self.parts += 1
        return cost, self.parts

    def lent(self) -> Cost:
        """What the store has out for it."""
        names = dict.fromkeys((*self.units, *self.flying))
        return tuple((name, self.units.get(name, 0.0) + self.flying.get(name, 0.0)) for name in names)

    @property
    def is_flying(self) -> bool:
        return any(units > ledger.NEAR for units in self.flying.values())

    @property
    def is_spent(self) -> bool:
        return all(units <= ledger.NEAR for units in self.units.values())


class Chunks:
    """Of one target."""

    def __init__(self) -> None:
        self._chunks: list[Chunk] = []

    def __iter__(self) -> Iterator[Chunk]:
        return iter(tuple(self._chunks))

    def __len__(self) -> int:
        return len(self._chunks)

    def add(self, chunk: Chunk) -> None:
        self._chunks.append(chunk)

    def take(self, cost: Cost, now: float) -> Chunk | None:
        return next((chunk for chunk in self._chunks if chunk.take(cost, now)), None)

    def is_low(self, cost: Cost) -> bool:
        """So little is left that the next chunk should be asked for."""
        key = key_of(cost)
        ours = [chunk for chunk in self._chunks if key_of(tuple(chunk.size.items())) == key and not chunk.gone]
        return all(chunk.units.get(name, 0.0) <= REFILL_PART * chunk.size[name] for chunk in ours for name in key)

    def unspent(self, now: float) -> dict[str, float]:
        """By scope: what this node may still grant by itself."""
        found: dict[str, float] = {}
        for chunk in self._chunks:
            for name, units in chunk.units.items() if not chunk.gone and now < chunk.until else ():
                found[name] = found.get(name, 0.0) + units
        return found

    def drop(self, now: float) -> None:
        """Those that are over, or have nothing in them."""
        self._chunks = [one for one in self._chunks if (not one.gone and now < one.until and not one.is_spent) or one.is_flying]


def key_of(cost: Cost) -> Key:
    return tuple(sorted(name for name, _ in cost))


def starts_again(target: Target) -> bool:
    """After a block: each call asks for itself, as there are few at a time over all nodes."""
    return target.breaker.mode not in {Mode.CLOSED, Mode.PRE_EMPTIVE_OPEN} or target.breaker.window < inf


def chunk_of(target: Target, cost: Cost, calls_max: int, nodes: int, now: float) -> Cost | None:
    """What to ask for at once; None: each call asks for itself, as the quota is small."""
    calls = float(calls_max)
    for name, units in cost:
        scope = target.scopes.get(name)
        if scope is None or scope.spec.kind == "concurrent":
            return None
        part = ledger.seconds_left(scope, now) / scope.spec.window_seconds if scope.spec.kind == "fixed" else scope.spec.burst
        calls = min(calls, scope.limit * LIMIT_PART * part / max(1, nodes) / units)
    return tuple((name, units * int(calls)) for name, units in cost) if calls >= 2 and cost else None
