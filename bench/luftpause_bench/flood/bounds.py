"""Did a flood reach what it must?"""

from collections.abc import Iterable, Sequence
from math import exp, fsum, log

from luftpause_bench.flood.cells import Row

NOISE = 0.02
Table = dict[tuple[str, str], Row]


def table(found: Iterable[Row]) -> Table:
    return {(row.scene, row.variant): row for row in found}


def ratio(rows: Table, scene: str, variant: str, crowd: str, base: str = "direct", name: str = "runs_per_minute") -> float:
    """1.0 where the other has nothing either."""
    other = rows[scene, base].of(crowd, name)
    return rows[scene, variant].of(crowd, name) / other if other else 1.0


def spread(rows: Table, scene: str, variant: str, crowd: str, base: str) -> float:
    """Two standard errors of the ratio of two means, as a part."""
    parts = [rows[scene, each].crowds[crowd]["runs_per_minute"] for each in (variant, base)]
    seeds = len(rows[scene, variant].seeds)
    return 2 * fsum((part.spread / part.mean) ** 2 / seeds for part in parts if part.mean) ** 0.5


class Misses:
    """Bounds that were missed, in words."""

    def __init__(self, rows: Table) -> None:
        self.rows = rows
        self.found: list[str] = []

    def least(self, scene: str, variant: str, crowd: str, bound: float, base: str = "direct") -> None:
        """`bound` times what `base` has; a scene or a variant that was not played is not judged."""
        if (scene, variant) not in self.rows or (scene, base) not in self.rows:
            return
        got = ratio(self.rows, scene, variant, crowd, base)
        text = f"{scene}: {variant} has {got:.2f} times {base}'s {crowd} runs per minute; {bound:.2f} is the bound"
        if got < bound and text not in self.found:
            self.found.append(text)

    def not_below(self, scene: str, variant: str, crowd: str, base: str) -> None:
        """Beyond noise: two standard errors, at least 2 %."""
        if (scene, variant) in self.rows and (scene, base) in self.rows:
            self.least(scene, variant, crowd, 1 - max(NOISE, spread(self.rows, scene, variant, crowd, base)), base)


def of_flood(found: Sequence[Row]) -> list[str]:
    """The published testbed: 48 batch and 4 interactive agents; and for every pressure, that interactive is not below engine priority."""
    misses = Misses(table(found))
    fit = "KV x1, 48 batch"
    misses.least(fit, "original", "interactive", 1.9)
    misses.least(fit, "original", "batch", 0.85)
    misses.least(fit, "original_fast", "batch", 0.90)
    for kv in ("0.75", "1"):
        for crowd in ("interactive", "batch"):
            misses.not_below(f"KV x{kv}, 48 batch", "guard", crowd, "engine_priority")
    misses.least("KV x2, 48 batch", "guard", "interactive", 1.9)
    misses.least("KV x2, 48 batch", "guard", "batch", 1.03)
    misses.least("KV x3, 48 batch", "guard_0.9", "interactive", 1.7)
    misses.least("KV x3, 48 batch", "guard_0.9", "batch", 1.25)
    for row in found:
        if row.variant == "guard":
            misses.not_below(row.scene, "guard", "interactive", "engine_priority")
    return misses.found


def of_tools(found: Sequence[Row]) -> list[str]:
    """Fast, usual and slow tools: nothing falls below direct; what is known of K badly costs a tenth of the gain at most."""
    misses = Misses(table(found))
    for row in found:
        if row.variant == "guard":
            misses.not_below(row.scene, "guard", "interactive", "direct")
    for scene in ("tools 25 s, KV x1", "tools 25 s, KV x3"):
        misses.not_below(scene, "guard", "batch", "direct")
    return misses.found


def of_lies(found: Sequence[Row]) -> list[str]:
    """A K that is told too high, not at all, or late: within a tenth of the gain with the exact one."""
    rows = table(found)
    missed: list[str] = []
    for scene in dict.fromkeys(row.scene for row in found):
        for variant in ("guard_k_over", "guard_k_unknown", "guard_late"):
            for crowd in ("interactive", "batch"):
                exact, got = (ratio(rows, scene, each, crowd) for each in ("guard", variant))
                least = min(exact, 1 + 0.9 * (exact - 1)) if exact > 1 else exact * 0.9
                if got < least - spread(rows, scene, variant, crowd, "guard"):
                    missed.append(f"{scene}: {variant} has {got:.2f} times direct's {crowd} runs per minute, guard {exact:.2f}")
    return missed


def of_light(found: Sequence[Row]) -> list[str]:
    """Engines that don't queue: all equal."""
    misses = Misses(table(found))
    for row in found:
        for crowd in ("interactive", "batch"):
            misses.not_below(row.scene, row.variant, crowd, "direct")
    return misses.found


def of_ghosts(found: Sequence[Row]) -> list[str]:
    """Agents that died in a tool call keep no batch out, once `reserve_seconds_max` is over."""
    rows, missed = table(found), list[str]()
    for kv in ("x1", "x3"):
        for variant in ("original", "guard"):
            if (f"none, KV {kv}", variant) not in rows:
                continue
            share = rows[f"ghosts, KV {kv}", variant].of("batch") / rows[f"none, KV {kv}", variant].of("batch")
            if share < 0.95:
                missed.append(f"KV {kv}: with {variant} batch has {share:.2f} of its share after agents died; 0.95 is the bound")
    return missed


def of_coding(found: Sequence[Row]) -> list[str]:
    rows = table(found)
    misses = Misses(rows)
    for scene in dict.fromkeys(row.scene for row in found):
        misses.least(scene, "guard", "interactive", 5.0)
        misses.least(scene, "guard", "batch", 2.0)
        first = ratio(rows, scene, "guard", "interactive", name="first_token_seconds_p50")
        if first > 0.1:
            misses.found.append(f"{scene}: guard's first token takes {first:.2f} times direct's; 0.10 is the bound")
    return misses.found


def of_heavy(found: Sequence[Row]) -> list[str]:
    """Of light callers beside one with 60 runs: a run takes at most 1.9 times as long as without that, and less than with original."""
    rows, missed = table(found), list[str]()
    for kv in ("x1", "x3"):
        original, guard = (_slower(rows, kv, variant) for variant in ("original", "guard"))
        text = f"KV {kv}: light callers' runs take {guard:.2f} times as long as alone"
        if guard > 1.9:
            missed.append(f"{text}; 1.9 is the bound")
        if guard > original * (1 + NOISE):
            missed.append(f"{text}, {original:.2f} with original")
    return missed


def _slower(rows: Table, kv: str, variant: str) -> float:
    of_light, alone = (rows[f"{name}, KV {kv}", variant].of("light", "run_seconds_p50") for name in ("with", "alone"))
    return of_light / alone


SETS_LEAST = {"interactive": 2.0, "batch": 1.3}
SETS_BELOW_MAX = 2  # sets of 40 in which it may be more than a twentieth below engine priority


def geometric(values: Iterable[float]) -> float:
    logs = [log(max(value, 1e-3)) for value in values]
    return exp(fsum(logs) / len(logs))


def of_sets(found: Sequence[Row]) -> list[str]:
    """In turns per minute."""
    rows, missed = table(found), list[str]()
    scenes = list(dict.fromkeys(row.scene for row in found))
    for crowd, least in SETS_LEAST.items():
        mean = geometric(ratio(rows, scene, "guard", crowd, name="turns_per_minute") for scene in scenes)
        if mean < least:
            missed.append(f"guard has {mean:.2f} times direct's {crowd} turns per minute in the geometric mean; {least} is the bound")
    below = [
        scene
        for scene in scenes
        if min(ratio(rows, scene, "guard", crowd, "engine_priority", "turns_per_minute") for crowd in SETS_LEAST) < 0.95
    ]
    if len(below) * 40 > SETS_BELOW_MAX * len(scenes):
        missed.append(f"guard is more than 5 % below engine priority in {len(below)} of {len(scenes)} sets: {', '.join(below)}")
    return missed
