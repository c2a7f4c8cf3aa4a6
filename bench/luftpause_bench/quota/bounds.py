"""What must clients that share a quota reach, and did they? The worst seed counts."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from luftpause_bench.quota.play import GOVERNOR, Figures
from luftpause_bench.report import Bound, at_least, at_most

P0_SECONDS_MAX: Final = 5.0
GOODPUT_MIN: Final = 0.97
HOLD_SECONDS_MAX: Final = 0.002
STORM_SECONDS: Final = 1_800.0
STORM_FAILED: Final = 0.5
INCIDENTS: Final = ("github", "github-kind")

Found = Mapping[tuple[str, str], Sequence[Figures]]  # scene, policy -> one per seed


def judge(found: Found, baselines: Iterable[str]) -> tuple[Bound, ...]:
    """Of what was played."""
    bounds = list(_incident(found, list(baselines)))
    of = {scene: seeds for (scene, policy), seeds in found.items() if policy == GOVERNOR}
    bounds += [_refusals(scene, of[scene]) for scene in (*INCIDENTS, "copilot80", "llm-tpm") if scene in of]
    # of copilot80's quota, refusals by a limit that nobody tells take a part
    bounds += [_goodput(scene, of[scene]) for scene in (*INCIDENTS, "llm-tpm") if scene in of]
    if seeds := of.get("github-light"):
        bounds.append(
            at_most("github-light: longest wait in the governor, s", max(each.hold_max or 0.0 for each in seeds), HOLD_SECONDS_MAX)
        )
        bounds.append(at_most("github-light: refused", max(each.refused for each in seeds), 0))
    return tuple(bounds)


def _incident(found: Found, baselines: Sequence[str]) -> Iterator[Bound]:
    for scene in INCIDENTS:
        if seeds := found.get((scene, GOVERNOR)):
            yield at_most(f"{scene}: p99 of P0, s", _worst(each.classes[0].p99 for each in seeds), P0_SECONDS_MAX)
            yield at_least(f"{scene}: P0 calls served, of those wanted", min(map(p0_served, seeds)), 1.0)
    played = [name for name in baselines if (INCIDENTS[0], name) in found]
    if played:
        least = min(_storm(each) for name in played for each in found[INCIDENTS[0], name])
        yield at_least(f"{INCIDENTS[0]}: each baseline's p99 of P0 / {STORM_SECONDS:.0f} s, or failed P0 calls / half of them", least, 1.0)


def p0_served(figures: Figures) -> float:
    p0 = figures.classes[0]
    return p0.served / (p0.wanted or p0.served + p0.failed + p0.open)


def _storm(figures: Figures) -> float:
    p0 = figures.classes[0]
    failed = p0.failed / max(1, p0.served + p0.failed + p0.open)
    return max((0.0 if math.isnan(p0.p99) else p0.p99) / STORM_SECONDS, failed / STORM_FAILED)


def _refusals(scene: str, seeds: Sequence[Figures]) -> Bound:
    """Against those in flight with the first one and the probes of the same seed."""
    worst = max(seeds, key=lambda each: each.refused - each.in_flight_at_first - each.probes)
    most = worst.in_flight_at_first + worst.probes
    return at_most(f"{scene}: refused, of those in flight at the first refusal and probes", worst.refused, most)


def _goodput(scene: str, seeds: Sequence[Figures]) -> Bound:
    return at_least(f"{scene}: goodput", min(each.goodput for each in seeds), GOODPUT_MIN)


def _worst(values: Iterable[float]) -> float:
    return max(values, key=lambda value: math.inf if math.isnan(value) else value)
