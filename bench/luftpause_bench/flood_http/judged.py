"""Do the figures over HTTP reach what they must, and do they agree with those in virtual time?"""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Final

from msgspec import Struct

from luftpause_bench.flood_http.cell import Measured
from luftpause_bench.flood_http.fronts import BY_NAME
from luftpause_bench.report import Bound, at_least, at_most

AGREES_WITHIN: Final = {"interactive": 0.20, "batch": 0.10}
NOISE_LEAST: Final = 0.02
GUARD_AT_X3: Final = {"interactive": 1.5, "batch": 1.25}  # with all the memory for batch; a share of 0.9 is judged in virtual time
Virtual = Mapping[tuple[float, str], Sequence[Mapping[str, float]]]


class Both(Struct, frozen=True):
    """A variant at one KV over all seeds, over HTTP and in virtual time; `base`: what it is compared with."""

    kv: float
    variant: str
    cells: tuple[Measured, ...]
    base: tuple[Measured, ...]
    virtual: tuple[Mapping[str, float], ...] = ()
    virtual_base: tuple[Mapping[str, float], ...] = ()

    def rates(self, name: str) -> list[float]:
        """Runs per minute of a class, for each seed."""
        return [cell.classes[name].runs_per_minute for cell in self.cells]

    def ratio(self, name: str) -> float:
        return fmean(self.rates(name)) / fmean(cell.classes[name].runs_per_minute for cell in self.base)

    def virtual_ratio(self, name: str) -> float | None:
        if not self.virtual or not self.virtual_base:
            return None
        return fmean(each[name] for each in self.virtual) / fmean(each[name] for each in self.virtual_base)


def both(measured: Sequence[Measured], virtual: Virtual) -> list[Both]:
    """By KV and variant, in the order of the variants; the first of each KV is the base."""
    found: list[Both] = []
    for kv in sorted({each.kv for each in measured}):
        names = [name for name in BY_NAME if any((each.kv, each.variant) == (kv, name) for each in measured)]
        cells = {name: tuple(each for each in measured if (each.kv, each.variant) == (kv, name)) for name in names}
        rates = {name: tuple(virtual.get((kv, BY_NAME[name].virtual), ())) for name in names}
        found += [Both(kv, name, cells[name], cells[names[0]], rates[name], rates[names[0]]) for name in names]
    return found


def bounds(found: Sequence[Both]) -> tuple[Bound, ...]:
    at = {(each.kv, each.variant): each for each in found}
    made: list[Bound] = []
    if original := at.get((1.0, "original")):
        made.append(
            at_least("KV x1: original's interactive runs per minute, times the direct router's", original.ratio("interactive"), 1.9)
        )
        made.append(at_least("KV x1: original's batch runs per minute, times the direct router's", original.ratio("batch"), 0.85))
    made += _of_guard(at, 1.0, {})
    made += _of_guard(at, 3.0, GUARD_AT_X3)
    made += [bound for each in found for bound in _agrees(each)]
    made += [at_most(f"KV x{each.kv:g}: runs of {each.variant} that failed", _failed(each), 0) for each in found]
    return tuple(made)


def _of_guard(at: Mapping[tuple[float, str], Both], kv: float, least: Mapping[str, float]) -> list[Bound]:
    """Not below engines' own priority, beyond noise."""
    guard, priority = at.get((kv, "guard")), at.get((kv, "vllm-router priority"))
    if guard is None:
        return []
    made = [at_least(f"KV x{kv:g}: guard's {name} runs per minute, times the direct router's", guard.ratio(name), reach)
            for name, reach in least.items()]  # fmt: skip
    if priority is not None:
        for name in ("interactive", "batch"):
            times = fmean(guard.rates(name)) / fmean(priority.rates(name))
            text = f"KV x{kv:g}: guard's {name} runs per minute, times those with engine priority, within noise"
            made.append(at_least(text, times, 1 - _noise(guard.rates(name), priority.rates(name))))
    return made


def _noise(*rates: Sequence[float]) -> float:
    """Two standard errors of a ratio of two means, as a part; with a single seed nobody knows, a tenth."""
    if any(len(each) < 2 for each in rates):
        return 0.1
    return max(NOISE_LEAST, 2 * sum((stdev(each) / fmean(each)) ** 2 / len(each) for each in rates if fmean(each)) ** 0.5)


def _agrees(each: Both) -> list[Bound]:
    """Of the ratios, which is what the simulation is for; the base agrees with itself."""
    if each.cells == each.base:
        return []
    made: list[Bound] = []
    for name, within in AGREES_WITHIN.items():
        virtual = each.virtual_ratio(name)
        if virtual is not None:
            off = abs(each.ratio(name) / virtual - 1)
            text = f"KV x{each.kv:g}: how far {each.variant}'s {name} ratio over HTTP is from that in virtual time"
            made.append(at_most(text, off, within))
    return made


def _failed(each: Both) -> float:
    return float(sum(figures.failed for cell in each.cells for figures in cell.classes.values()))
