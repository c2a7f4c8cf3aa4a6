"""Which floods does `luftpause bench` play, with which variants, and how are they judged?"""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from luftpause_bench.flood import bounds, scenes
from luftpause_bench.flood.cells import Row, Scene
from luftpause_bench.flood.sets import SETS_SEED, sets
from luftpause_bench.report import Bound

ENDS: Final = ("direct", "engine_priority", "original", "residency", "guard")
MORE: Final = ("least_loaded", "original_plain", "original_fast", "original_moves", "guard_fast", "guard_fifo", "guard_0.9")
LIES: Final = ("direct", "guard", "guard_k_unknown", "guard_k_over", "guard_late")
FOUR: Final = ("direct", "engine_priority", "original", "guard")
THREE: Final = ("direct", "engine_priority", "guard")


class Flood(Struct, frozen=True):
    """
    `scenes` gets the seed of random sets. `quick`: so many scenes are played then, each once. `more`: variants that are played in the
    scenes `more_in` only. `closely`: a scene whose bounds are as near as a percent, and with how many seeds it is played. `figure`: of what
    ratios to `base` are shown. `drawn`: the variants in the plot.
    """

    what: str
    scenes: Callable[[int], list[Scene]]
    variants: tuple[str, ...]
    judge: Callable[[Sequence[Row]], list[Bound]]
    seeds: int = 5
    closely: tuple[str, int] = ("", 0)
    quick: int = 1
    more: tuple[str, ...] = ()
    more_in: str = ""
    crowds: tuple[str, str] = ("interactive", "batch")
    figure: str = "runs_per_minute"
    base: str = "direct"
    drawn: tuple[str, ...] = ("engine_priority", "original", "residency", "guard")
    sets_seed: int | None = None

    def plays(self, scene: Scene) -> tuple[str, ...]:
        return (*self.variants, *(self.more if self.more_in in scene.name else ()))

    def seeds_of(self, scene: Scene, first: int) -> tuple[int, ...]:
        """Of a whole run, from the first."""
        name, seeds = self.closely
        return tuple(range(first, first + (max(self.seeds, seeds) if scene.name == name else self.seeds)))


def _pressures(_: int) -> list[Scene]:
    """48 batch agents first: that is the published load."""
    return [*scenes.matrix(batch=(48,)), *scenes.matrix(batch=(16, 32, 64))]


FLOODS: Final = {
    "flood": Flood(
        "KV memory x0.75 to x3 by 16 to 64 batch agents, 4 interactive agents", _pressures, ENDS, bounds.of_flood, quick=2,
        more=MORE, more_in="48 batch", closely=(bounds.FIT, 15), drawn=("engine_priority", "original", "residency", "guard", "guard_0.9"),
    ),
    "flood_bursts": Flood(
        "runs that come all at once", lambda _: scenes.bursts(), THREE, bounds.of_arrivals, seeds=3, quick=2, figure="run_seconds_p50",
    ),
    "flood_coding": Flood(
        "coding agents, contexts of up to 120,000 tokens", lambda _: scenes.coding(), (*THREE, "residency"), bounds.of_coding, seeds=3,
        figure="turns_per_minute",
    ),
    "flood_forks": Flood(
        "sub-agents that begin with their parent's whole context", lambda _: scenes.forks(), FOUR, bounds.of_forks, seeds=3, quick=2,
    ),
    "flood_ghosts": Flood(
        "half of the interactive agents die in a tool call", lambda _: scenes.ghosts(), ("direct", "original", "guard"), bounds.of_ghosts,
        seeds=3, quick=2, drawn=("original", "guard"),
    ),
    "flood_heavy": Flood(
        "a caller with 60 runs beside three with four each", lambda _: scenes.heavy(), ("direct", "original", "guard"), bounds.of_heavy,
        seeds=3, quick=2, crowds=("light", "heavy"), drawn=("original", "guard"),
    ),
    "flood_lies": Flood(
        "what engines tell of their KV memory is wrong, missing or late", lambda _: scenes.matrix((1.0, 2.0, 3.0), (48,)), LIES,
        bounds.of_lies, seeds=3, more=("guard_blind",), more_in="x3", drawn=LIES[1:],
    ),
    "flood_light": Flood("engines that don't queue", lambda _: scenes.light(), FOUR, bounds.of_light),
    "flood_open": Flood(
        "runs that come at random, whatever became of those before", lambda _: scenes.open_loop(), THREE, bounds.of_arrivals, seeds=3,
        quick=2, figure="run_seconds_p50",
    ),
    "flood_router": Flood(
        "a router before the engines is the only replica", lambda _: scenes.router(),
        ("direct", "engine_priority", "original", "original_router", "guard_router"), bounds.of_router, seeds=3,
        drawn=("engine_priority", "original", "original_router", "guard_router"),
    ),
    "flood_sets": Flood(
        "40 random sets of engines and agents", sets, FOUR, bounds.of_sets, seeds=2, quick=6, figure="turns_per_minute",
        sets_seed=SETS_SEED,
    ),
    "flood_tools": Flood("tools of 0.1, 2 and 25 s", lambda _: scenes.tools(), (*THREE, "residency"), bounds.of_tools, seeds=3, quick=2),
}  # fmt: skip
