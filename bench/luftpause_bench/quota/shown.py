"""How are the figures of shared quotas told and drawn?"""

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Final

from luftpause_bench.quota.bounds import Found
from luftpause_bench.quota.play import Figures, OfClass
from luftpause_bench.quota.workload import Scene
from luftpause_bench.report import Column, Draw, Table, Value

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CLASSES: Final = ("P0", "P1", "P2")
WHO: Final = (
    Column("policy"), Column("goodput", "%", 1), Column("P0 wanted", "calls", 0),
    *(
        column
        for name in _CLASSES
        for column in (Column(name, "served", 0), Column("failed", name, 0), Column("p50", f"{name} s"), Column("p99", f"{name} s", 1))
    ),
)  # fmt: skip
HOW: Final = (
    Column("policy"), Column("seeds"), Column("sent", "", 0), Column("refused", "", 0), Column("in flight", "at first", 0),
    Column("probes", "", 0), Column("recovery", "s", 1), Column("p99 ±", "P0 s"), Column("fairness", "in P1", 3),
    Column("held p50", "s", 3), Column("held most", "s", 1),
)  # fmt: skip


def tables(scene: Scene, policies: Iterable[str], found: Found) -> tuple[Table, Table]:
    """Who got how much and how soon; and how it came to that."""
    played = [(policy, found[scene.name, policy]) for policy in policies if found.get((scene.name, policy))]
    title = f"{scene.name}: {scene.about} {scene.seconds / 60:.0f} minutes."
    who = Table(title, WHO, tuple((policy, *_who(seeds)) for policy, seeds in played))
    return who, Table(f"{scene.name}: requests", HOW, tuple((policy, *_how(seeds)) for policy, seeds in played))


def _who(seeds: Sequence[Figures]) -> tuple[Value, ...]:
    of_classes = [_over(seeds, _of(priority, name)) for priority in range(len(_CLASSES)) for name in ("served", "failed", "p50", "p99")]
    wanted = seeds[0].classes[0].wanted
    return (_over(seeds, lambda each: 100 * each.goodput), None if wanted is None else float(wanted), *of_classes)


def _how(seeds: Sequence[Figures]) -> tuple[Value, ...]:
    p0 = [each.classes[0].p99 for each in seeds]
    return (
        len(seeds),
        _over(seeds, lambda each: each.sent),
        _over(seeds, lambda each: each.refused),
        _over(seeds, lambda each: each.in_flight_at_first),
        _over(seeds, lambda each: each.probes),
        _over(seeds, lambda each: each.recovery),
        stdev(p0) if len(p0) > 1 and not any(map(math.isnan, p0)) else None,
        _over(seeds, lambda each: each.fairness),
        _over(seeds, lambda each: each.hold_p50),
        max((each.hold_max for each in seeds if each.hold_max is not None), default=None),
    )


def _over(seeds: Sequence[Figures], of: Callable[[Figures], float | None]) -> float | None:
    """The mean of those that have it."""
    values = [value for each in seeds if (value := of(each)) is not None and not math.isnan(value)]
    return fmean(values) if values else None


def _of(priority: int, name: str) -> Callable[[Figures], float]:
    def of(figures: Figures) -> float:
        found: OfClass = figures.classes[priority]
        return float(getattr(found, name))

    return of


def drawing(scenes: Sequence[Scene], policies: Sequence[str], found: Found) -> Draw:
    """Of each scene how long P0 waited, and which part of its calls was served in five seconds' time or later, or not at all."""

    def draw(figure: "Figure") -> None:
        figure.set_size_inches(4 * len(scenes) + 2, 7)
        for number, scene in enumerate(scenes):
            played = [policy for policy in policies if found.get((scene.name, policy))]
            upper = figure.add_subplot(2, len(scenes), number + 1)
            lower = figure.add_subplot(2, len(scenes), len(scenes) + number + 1)
            _bars(upper, played, [_mean(found, scene, policy, _of(0, "p99")) for policy in played], "p99 of P0, s", log=True)
            _bars(lower, played, [100 * _mean(found, scene, policy, _served) for policy in played], "P0 calls served, %", log=False)
            upper.set_title(scene.name, fontsize=10)

    return draw


def _served(figures: Figures) -> float:
    p0 = figures.classes[0]
    return p0.served / max(1, p0.wanted or p0.served + p0.failed + p0.open)


def _mean(found: Found, scene: Scene, policy: str, of: Callable[[Figures], float]) -> float:
    mean = _over(found[scene.name, policy], of)
    return math.nan if mean is None else mean


def _bars(axes: "Axes", names: Sequence[str], values: Sequence[float], label: str, *, log: bool) -> None:
    colours = ["tab:green" if name.startswith("governor") else "tab:orange" if name == "article" else "tab:gray" for name in names]
    axes.barh(range(len(names)), list(values), color=colours)
    axes.set_yticks(range(len(names)), list(names), fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel(label, fontsize=8)
    if log:
        axes.set_xscale("log")
        axes.set_xlim(0.1, 10_000)
