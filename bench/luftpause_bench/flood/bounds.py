"""What must a flood reach, and did it?

Noise of a ratio: two standard errors of both means over the seeds, at least 2 %.
"""

from collections.abc import Iterable, Sequence
from math import exp, fsum, log
from typing import Final

from luftpause_bench.flood.cells import Row
from luftpause_bench.report import Bound, at_least, at_most

NOISE: Final = 0.02
RUNS: Final = "runs_per_minute"
TURNS: Final = "turns_per_minute"
BOTH: Final = ("interactive", "batch")
FIT: Final = "KV x1, 48 batch"  # the scene with the published load on the published testbed


class Rows:
    """What was played; a part of a flood lacks some of it."""

    def __init__(self, found: Iterable[Row]) -> None:
        self._by_name = {(row.scene, row.variant): row for row in found}
        self.scenes = list(dict.fromkeys(scene for scene, _ in self._by_name))

    def get(self, scene: str, variant: str) -> Row | None:
        return self._by_name.get((scene, variant))

    def ratio(self, scene: str, variant: str, crowd: str, base: str, figure: str = RUNS) -> float | None:
        """None where one of them was not played; 1.0 where the other has nothing."""
        ours, other = self.get(scene, variant), self.get(scene, base)
        if ours is None or other is None:
            return None
        return ours.of(crowd, figure) / other.of(crowd, figure) if other.of(crowd, figure) else 1.0

    def noise(self, scene: str, variant: str, crowd: str, base: str, figure: str = RUNS) -> float:
        """Two standard errors of the ratio, as a part of it."""
        rows = [row for row in (self.get(scene, variant), self.get(scene, base)) if row is not None]
        parts = [(row.crowds[crowd][figure], len(row.seeds)) for row in rows]
        return max(NOISE, 2 * fsum((part.spread / part.mean) ** 2 / seeds for part, seeds in parts if part.mean) ** 0.5)


class Judge:
    def __init__(self, found: Iterable[Row]) -> None:
        self.rows = Rows(found)
        self.bounds: list[Bound] = []

    def _add(self, bound: Bound) -> None:
        if all(bound.name != each.name for each in self.bounds):
            self.bounds.append(bound)

    def least(self, scene: str, variant: str, crowd: str, bound: float, base: str = "direct", figure: str = RUNS) -> None:
        got = self.rows.ratio(scene, variant, crowd, base, figure)
        if got is not None:
            self._add(at_least(_name(scene, variant, crowd, base, figure), got, bound))

    def not_below(self, scene: str, variant: str, crowd: str, base: str, figure: str = RUNS) -> None:
        """Beyond noise."""
        self.least(scene, variant, crowd, 1 - self.rows.noise(scene, variant, crowd, base, figure), base, figure)

    def not_slower(self, scene: str, variant: str, crowd: str, base: str) -> None:
        """Run times, beyond noise."""
        figure = "run_seconds_p50"
        got = self.rows.ratio(scene, variant, crowd, base, figure)
        if got is not None:
            noise = self.rows.noise(scene, variant, crowd, base, figure)
            self._add(at_most(_name(scene, variant, crowd, base, figure), got, 1 + noise))


def _name(scene: str, variant: str, crowd: str, base: str, figure: str) -> str:
    what = {RUNS: "runs/min", "turns_per_minute": "turns/min", "run_seconds_p50": "run time p50"}.get(figure, figure)
    return f"{scene}: {variant}, {crowd} {what} against {base}"


def of_flood(found: Sequence[Row]) -> list[Bound]:
    """The published testbed: 48 batch and 4 interactive agents; and where engines queue, that interactive is not below engine priority."""
    judge = Judge(found)
    judge.least(FIT, "original", "interactive", 1.9)
    judge.least(FIT, "original", "batch", 0.85)
    judge.least(FIT, "original_fast", "batch", 0.90)
    for kv in ("0.75", "1"):
        for crowd in BOTH:
            judge.not_below(f"KV x{kv}, 48 batch", "guard", crowd, "engine_priority")
    judge.least("KV x2, 48 batch", "guard", "interactive", 1.9)
    judge.least("KV x2, 48 batch", "guard", "batch", 1.03)
    judge.least("KV x3, 48 batch", "guard_0.9", "interactive", 1.7)
    judge.least("KV x3, 48 batch", "guard_0.9", "batch", 1.25)
    for scene in judge.rows.scenes:
        direct = judge.rows.get(scene, "direct")
        if direct is not None and direct.waiting.mean > 0.5:
            judge.not_below(scene, "guard", "interactive", "engine_priority")
    return judge.bounds


def of_tools(found: Sequence[Row]) -> list[Bound]:
    """Interactive never falls below direct. Batch neither, but where prefixes are not worth their place: there `flood` judges it."""
    judge = Judge(found)
    for scene in judge.rows.scenes:
        judge.not_below(scene, "guard", "interactive", "direct")
        if scene != "tools 2 s, KV x1":
            judge.not_below(scene, "guard", "batch", "direct")
    return judge.bounds


def of_lies(found: Sequence[Row]) -> list[Bound]:
    """A K that is told too high, not at all, or late: within a tenth of the gain with the exact one, beyond noise."""
    judge = Judge(found)
    for scene in judge.rows.scenes:
        for variant in ("guard_k_over", "guard_k_unknown", "guard_late"):
            for crowd in BOTH:
                exact = judge.rows.ratio(scene, "guard", crowd, "direct")
                if exact is not None:
                    least = 1 + 0.9 * (exact - 1) if exact > 1 else exact * 0.9
                    judge.least(scene, variant, crowd, least * (1 - judge.rows.noise(scene, variant, crowd, "guard")))
    return judge.bounds


def of_light(found: Sequence[Row]) -> list[Bound]:
    """Engines that don't queue: all equal."""
    judge = Judge(found)
    for scene in judge.rows.scenes:
        for variant in ("engine_priority", "original", "guard"):
            for crowd in BOTH:
                judge.not_below(scene, variant, crowd, "direct")
    return judge.bounds


def of_ghosts(found: Sequence[Row]) -> list[Bound]:
    """Agents that died in a tool call keep no batch out, once `reserve_seconds_max` is over."""
    rows, bounds = Rows(found), list[Bound]()
    for kv in ("x1", "x3"):
        for variant in ("original", "guard"):
            died, alive = rows.get(f"ghosts, KV {kv}", variant), rows.get(f"none, KV {kv}", variant)
            if died is not None and alive is not None:
                share = died.of("batch") / alive.of("batch")
                bounds.append(at_least(f"KV {kv}: {variant}, batch runs/min after agents died against none that did", share, 0.95))
    return bounds


def of_coding(found: Sequence[Row]) -> list[Bound]:
    """In turns per minute: where a run takes an hour, those that ended within the hours that were watched are the short ones."""
    judge = Judge(found)
    for scene in judge.rows.scenes:
        if scene.startswith("coding"):
            judge.least(scene, "guard", "interactive", 5.0, figure=TURNS)
            judge.least(scene, "guard", "batch", 2.0, figure=TURNS)
            first = judge.rows.ratio(scene, "guard", "interactive", "direct", "first_token_seconds_p50")
            if first is not None:
                judge.bounds.append(at_most(f"{scene}: guard, interactive first token p50 against direct", first, 0.1))
        else:
            for crowd in BOTH:
                judge.not_below(scene, "guard", crowd, "direct", TURNS)
    return judge.bounds


def of_heavy(found: Sequence[Row]) -> list[Bound]:
    """Of light callers beside one with 60 runs: a run takes at most 1.9 times as long as without that, and less than with original."""
    rows, bounds = Rows(found), list[Bound]()
    for kv in ("x1", "x3"):
        original, guard = (_slower(rows, kv, variant) for variant in ("original", "guard"))
        if guard is not None:
            bounds.append(at_most(f"KV {kv}: guard, light callers' run time p50 against alone", guard, 1.9))
        if guard is not None and original is not None:
            bounds.append(at_most(f"KV {kv}: guard, the same against original's", guard / original, 1.0))
    return bounds


def _slower(rows: Rows, kv: str, variant: str) -> float | None:
    beside, alone = rows.get(f"with, KV {kv}", variant), rows.get(f"alone, KV {kv}", variant)
    if beside is None or alone is None:
        return None
    return beside.of("light", "run_seconds_p50") / alone.of("light", "run_seconds_p50")


SETS_LEAST: Final = {"interactive": 2.0, "batch": 1.3}
SETS_BELOW_MAX: Final = 2  # sets of 40 in which it may be more than a twentieth below engine priority


def geometric(values: Iterable[float]) -> float:
    logs = [log(max(value, 1e-3)) for value in values]
    return exp(fsum(logs) / len(logs))


def ratios(rows: Rows, variant: str, crowd: str, base: str) -> dict[str, float]:
    """Of turns per minute, by scene."""
    found = {scene: rows.ratio(scene, variant, crowd, base, TURNS) for scene in rows.scenes}
    return {scene: ratio for scene, ratio in found.items() if ratio is not None}


def below(rows: Rows, variant: str, base: str) -> list[str]:
    """The sets in which it is more than a twentieth below, in either class."""
    by_crowd = [ratios(rows, variant, crowd, base) for crowd in BOTH]
    return [scene for scene in rows.scenes if any(each.get(scene, 1.0) < 0.95 for each in by_crowd)]


def of_sets(found: Sequence[Row]) -> list[Bound]:
    """In turns per minute."""
    rows, bounds = Rows(found), list[Bound]()
    for crowd, least in SETS_LEAST.items():
        gains = ratios(rows, "guard", crowd, "direct").values()
        if gains:
            bounds.append(at_least(f"guard, {crowd} turns/min against direct, geometric mean", geometric(gains), least))
    if ratios(rows, "guard", "batch", "engine_priority"):
        behind = len(below(rows, "guard", "engine_priority")) / len(rows.scenes) * 40
        bounds.append(at_most("sets of 40 in which guard is more than 5 % below engine priority", behind, SETS_BELOW_MAX))
    return bounds


def of_arrivals(found: Sequence[Row]) -> list[Bound]:
    """
    Open loops and bursts: guard's interactive runs take no longer than direct's or engine priority's. Batch runs that come by themselves
    are all done; those of a closed loop pay for interactive ones where prefixes are not worth their place: shown without a bound.
    """
    judge = Judge(found)
    for scene in judge.rows.scenes:
        for base in ("direct", "engine_priority"):
            judge.not_slower(scene, "guard", "interactive", base)
        if "16 interactive" not in scene:
            judge.not_below(scene, "guard", "batch", "direct")
    return judge.bounds


def of_forks(found: Sequence[Row]) -> list[Bound]:
    """
    Interactive no worse than with engine priority. Where everything fits (x3) batch no worse than direct; else at most a tenth below engine
    priority, behind a router that sends all sub-agents after their parent.
    """
    judge = Judge(found)
    for scene in judge.rows.scenes:
        judge.not_below(scene, "guard", "interactive", "engine_priority")
        if "x3" in scene:
            judge.not_below(scene, "guard", "batch", "direct")
        else:
            judge.least(scene, "guard", "batch", 0.9, "engine_priority")
    return judge.bounds


def of_router(found: Sequence[Row]) -> list[Bound]:
    """Behind a router guard gives interactive more than direct, and takes from batch no more than original does there."""
    judge = Judge(found)
    for scene in judge.rows.scenes:
        judge.not_below(scene, "guard_router", "interactive", "direct")
        judge.not_below(scene, "guard_router", "batch", "original_router")
    return judge.bounds
