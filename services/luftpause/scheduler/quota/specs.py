"""What can be said of a limited API beforehand: its limits, what else may be learned, who has a share, what is cut when it gets tight?"""

from math import inf, isfinite
from typing import Literal

from msgspec import Struct

from luftpause.scheduler.quota.samples import PART_MIN, UNITS_MAX, UNITS_MIN, WINDOW_SECONDS_MAX, WINDOW_SECONDS_MIN

BURST_MAX = 60.0
COMPACTS = 2  # the level from which on
FALLS_BACK = 3


class ScopeSpec(Struct, frozen=True, gc=False):
    """
    One limit. `fixed`: `limit` units per window, then all at once anew; `bucket`: refilled all the time; `concurrent`: at once.

    `charge`: whether the provider debits what was used or what was asked for. `burst`: capacity of a bucket, in limits. `counts`: names in
    a cost that it is charged by, the first that is there; its own name goes before them.
    `green`, `red`: health at which the light changes. `protect`: least part that a class leaves to better ones. `floor`: the part that P2
    gets in any case. `declared_demand`: units per second that P0 is known to want. ValueError: a figure makes no sense.
    """

    name: str
    kind: Literal["fixed", "bucket", "concurrent"]
    limit: float
    window_seconds: float = 60.0
    charge: Literal["actual", "reserved"] = "actual"
    burst: float = 1.0
    green: float = 0.40
    red: float = 0.15
    protect: tuple[float, float, float] = (0.0, 0.05, 0.25)
    floor: float = 0.05
    declared_demand: float = 0.0
    counts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (UNITS_MIN <= self.limit <= UNITS_MAX and PART_MIN <= self.burst <= BURST_MAX):
            raise ValueError(
                f"scope {self.name!r}: limit is {self.limit:g} and burst {self.burst:g}; give a limit from {UNITS_MIN:g} to "
                f"{UNITS_MAX:g}, and a burst from {PART_MIN:g} to {BURST_MAX:g}"
            )
        if not WINDOW_SECONDS_MIN <= self.window_seconds <= WINDOW_SECONDS_MAX:
            raise ValueError(
                f"scope {self.name!r}: window_seconds is {self.window_seconds:g}; give {WINDOW_SECONDS_MIN:g} to {WINDOW_SECONDS_MAX:g}"
            )
        if not (0 <= self.red <= self.green <= 1 and 0 <= self.declared_demand < inf):
            raise ValueError(f"scope {self.name!r}: 0 <= red <= green <= 1, declared_demand not below 0")
        if not (self.floor == 0 or PART_MIN <= self.floor <= 1):
            raise ValueError(f"scope {self.name!r}: floor is {self.floor:g}; give 0, or {PART_MIN:g} to 1")
        if any(not 0 <= part <= 1 for part in self.protect):
            raise ValueError(f"scope {self.name!r}: protect has a part from 0 to 1 for each class")


class Learns(Struct, frozen=True, gc=False):
    """
    Scopes that appear when an answer tells of them. `shapes`: how those of these names are; their `limit` is as told.

    `pattern`: the lights, parts and charge of all others; their kind, window and what they count are concluded from what is told. Its
    `declared_demand` is in calls.
    `by_name_only`: they are charged only by a cost that names them. `unnamed`: whose figures those are that come without a name, unless the
    call was charged to one of the others by its name; empty: of a limit of their own.
    """

    shapes: tuple[ScopeSpec, ...] = ()
    pattern: ScopeSpec = ScopeSpec("*", "fixed", 1.0)
    by_name_only: bool = False
    unnamed: str = ""


class Ladder(Struct, frozen=True, gc=False):
    """
    What a level of the breaker means for a turn.

    Level 1: `max_tokens` times the factor, not below the least; 2: also a hint to compact; 3: also the next model of the replica's chain,
    for the rest of the run. ValueError: a figure makes no sense.
    """

    max_tokens_factor: float = 0.5
    max_tokens_min: int = 256

    def __post_init__(self) -> None:
        if not (0 < self.max_tokens_factor <= 1 and self.max_tokens_min >= 1):
            raise ValueError("the ladder's max_tokens_factor must be above 0 and at most 1, max_tokens_min at least 1")


class Cut(Struct, frozen=True, gc=False):
    """Load to shed from a turn: what it may answer at most, a hint to compact its prompt, the next model of the replica's chain."""

    max_tokens_factor: float
    max_tokens_min: int
    compact: bool
    fall_back: bool


def cut(ladder: Ladder, level: int) -> Cut | None:
    """What this level sheds; None: nothing."""
    return Cut(ladder.max_tokens_factor, ladder.max_tokens_min, level >= COMPACTS, level >= FALLS_BACK) if level > 0 else None


class TargetSpec(Struct, frozen=True, gc=False):
    """
    What shares one allowance. `penalty_seconds`: what its unannounced limits cost at least (GitHub: 60); 0: not known.

    `learns`: scopes may appear from answers; None: only those of `scopes` count. `reservations`: parts of each limit that these callers
    find free when they come. `profile`: what it was made from, to be shown. ValueError: the reservations are above the whole.
    """

    name: str
    scopes: tuple[ScopeSpec, ...]
    penalty_seconds: float = 0.0
    profile: str = ""
    learns: Learns | None = None
    reservations: tuple[tuple[str, float], ...] = ()
    ladder: Ladder = Ladder()

    def __post_init__(self) -> None:
        names = [scope.name for scope in self.scopes]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"target {self.name!r}: {', '.join(twice)} is configured twice; give each scope once")
        callers = [caller for caller, _ in self.reservations]
        if len(set(callers)) < len(callers):
            raise ValueError(f"target {self.name!r}: a caller has two reservations; add them up")
        shares = [share for _, share in self.reservations]
        if any(not (isfinite(share) and 0 < share <= 1) for share in shares) or sum(shares) > 1 + 1e-9:
            raise ValueError(f"target {self.name!r}: each reservation must be above 0 and at most 1, and all together at most 1")
