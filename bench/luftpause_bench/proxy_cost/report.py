"""What do the samples say: a table, and whether the budgets hold?"""

import statistics
from collections.abc import Iterable

from msgspec import Struct
from rich.console import Console
from rich.table import Table

from luftpause_bench.proxy_cost.measure import Sample

OURS = "luftpause"
ROUTERS = ("sglang-router", "vllm-router")


class Budget(Struct, frozen=True):
    """`figure` of our variant may be at most `times` that of `against`."""

    scene: str
    figure: str
    against: str
    times: float


BUDGETS = (
    Budget("turn 2k", "cpu", "nginx", 3.0),
    Budget("turn 32k", "cpu", "nginx", 3.5),
    Budget("paced 256", "cpu", "nginx", 1.3),
    Budget("idle", "first_token_p50", "nginx", 1.5),
    Budget("paced 256", "first_token_p50", "nginx", 3.5),
    Budget("paced 256", "first_token_p99", "nginx", 2.0),
    *(Budget(scene, "cpu", router, 1.0) for scene in ("turn 2k", "turn 32k", "burst 32") for router in ROUTERS),
    *(Budget("paced 256", "cpu", router, 1.1) for router in ROUTERS),
    Budget("paced 256", "first_token_p99", "vllm-router", 1.2),
)
STREAM_BYTES_MAX = 8_000
APART_US_MAX = 80.0  # CPU per turn that a scheduler in a process of its own adds


class Verdict(Struct, frozen=True):
    budget: str
    ours: float
    most: float

    @property
    def holds(self) -> bool:
        return self.ours <= self.most


class Figures:
    """Medians over the repeats; of p99s the best repeat, as one hiccup of the machine is in all of them."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples: dict[tuple[str, str], list[Sample]] = {}
        for sample in samples:
            self._samples.setdefault((sample.variant, sample.scene), []).append(sample)

    def of(self, variant: str, scene: str, figure: str) -> float | None:
        samples = self._samples.get((variant, scene))
        if not samples:
            return None
        if figure == "cpu":
            return statistics.median(sample.cpu for sample in samples)
        values = [float(getattr(sample.heard, figure)) for sample in samples]
        return min(values) if figure.endswith("p99") else statistics.median(values)

    def spread(self, variant: str, scene: str) -> float:
        """Of the CPU figures: (largest - smallest) / median."""
        values = [sample.cpu for sample in self._samples.get((variant, scene), [])]
        return (max(values) - min(values)) / statistics.median(values) if len(values) > 1 and statistics.median(values) else 0.0

    @property
    def scenes(self) -> list[str]:
        return list(dict.fromkeys(scene for _, scene in self._samples))

    @property
    def variants(self) -> list[str]:
        return list(dict.fromkeys(variant for variant, _ in self._samples))

    def lost(self, variant: str) -> int:
        return sum(sample.lost for (name, _), samples in self._samples.items() if name == variant for sample in samples)

    def changed(self, variant: str) -> bool:
        return any(sample.changed for (name, _), samples in self._samples.items() if name == variant for sample in samples)


def verdicts(figures: Figures, stream_bytes: dict[str, float]) -> list[Verdict]:
    """Each budget whose two sides were measured."""
    found: list[Verdict] = []
    for budget in BUDGETS:
        ours, theirs = (figures.of(name, budget.scene, budget.figure) for name in (OURS, budget.against))
        if ours is not None and theirs:
            found.append(Verdict(f"{budget.scene} {budget.figure} ≤ {budget.times:g} × {budget.against}", ours, budget.times * theirs))
    if OURS in stream_bytes:
        found.append(Verdict("bytes per open stream", stream_bytes[OURS], STREAM_BYTES_MAX))
    apart, within = (figures.of(name, "turn 2k", "cpu") for name in (f"{OURS} apart", OURS))
    if apart is not None and within is not None:
        found.append(Verdict("CPU per turn that a scheduler apart adds, µs", apart - within, APART_US_MAX))
    found.append(Verdict("answers of luftpause that were lost or changed", figures.lost(OURS) + figures.changed(OURS), 0))
    return found


def show(figures: Figures, stream_bytes: dict[str, float], console: Console) -> None:
    table = Table(title="CPU in µs per turn or chunk (spread) · first token p50 / best p99 in ms")
    table.add_column("")
    for scene in figures.scenes:
        table.add_column(scene, justify="right")
    table.add_column("kB/stream", justify="right")
    table.add_column("lost", justify="right")
    for variant in figures.variants:
        cells = [_cell(figures, variant, scene) for scene in figures.scenes]
        memory = f"{stream_bytes[variant] / 1000:.1f}" if variant in stream_bytes else "–"
        table.add_row(variant, *cells, memory, f"{figures.lost(variant)}{' changed' if figures.changed(variant) else ''}")
    console.print(table)


def _cell(figures: Figures, variant: str, scene: str) -> str:
    cpu = figures.of(variant, scene, "cpu")
    if cpu is None:
        return "–"
    spread = f"±{figures.spread(variant, scene) * 50:.0f}%"
    if scene.startswith("turn"):
        return f"{cpu:.0f} {spread}"
    p50, p99 = figures.of(variant, scene, "first_token_p50") or 0, figures.of(variant, scene, "first_token_p99") or 0
    return f"{cpu:.1f} {spread}\n{p50 / 1000:.2f} / {p99 / 1000:.1f}"
