"""Which seed catches which mutant, and by what?"""

import multiprocessing
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, Final

from msgspec import Struct

from luftpause_bench.sim.mutants import MUTANTS, Mutant, alive
from luftpause_bench.sim.runner import SeedFailedError, run
from luftpause_bench.sim.weather import GUARDED_FROM

SEEDS_MAX: Final = 50


class Hunt(Struct, frozen=True):
    """`seed` None: none of so many `seeds` caught it."""

    mutant: str
    what: str
    seeds: int
    seed: int | None = None
    broken: str = ""

    def as_json(self) -> dict[str, Any]:
        """As `luftpause bench sim --mutants --json` prints it."""
        return {"mutant": self.mutant, "what": self.what, "seeds": self.seeds, "seed": self.seed, "broken": self.broken}


def hunt(mutant: Mutant, seeds: Iterable[int] = range(SEEDS_MAX)) -> Hunt:
    """Live through these seeds with the mutant until a promise is broken."""
    lived = 0
    for seed in seeds:
        lived += 1
        try:
            with alive(mutant):
                run(seed, again=False)
        except SeedFailedError as error:
            return Hunt(mutant.name, mutant.what, lived, seed, error.what.partition(": ")[2])
    return Hunt(mutant.name, mutant.what, lived)


def hunt_all(seeds: range, *, jobs: int, found: Callable[[Hunt], None] = lambda _: None) -> list[Hunt]:
    """Every mutant in turn, over `jobs` processes; `found` hears of each as soon as those before it are done."""
    hunts: list[Hunt] = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        for each in pool.map(partial(_hunt_number, seeds), range(len(MUTANTS))):
            found(each)
            hunts.append(each)
    return hunts


def _hunt_number(seeds: range, number: int) -> Hunt:
    mutant = MUTANTS[number]
    return hunt(mutant, [seed + GUARDED_FROM for seed in seeds] if mutant.guarded and seeds.start < GUARDED_FROM else seeds)
