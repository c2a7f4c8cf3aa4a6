"""How are floods shown and drawn?"""

from typing import TYPE_CHECKING, Final

from luftpause_bench.flood import bounds
from luftpause_bench.flood.benches import Flood
from luftpause_bench.flood.bounds import Rows
from luftpause_bench.flood.cells import Row
from luftpause_bench.plots import grouped_bars
from luftpause_bench.report import Column, Draw, Table, Value

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GROUPS_MAX: Final = 8  # more don't fit beside each other
UNITS: Final = {"runs_per_minute": "runs/min", "turns_per_minute": "turns/min", "run_seconds_p50": "run p50 s"}


def tables(flood: Flood, found: list[Row]) -> tuple[Table, ...]:
    """One per scene; mean and standard deviation over seeds, and ratios to `flood.base`."""
    rows = Rows(found)
    made = [
        Table(scene, _columns(flood), tuple(_row(flood, rows, row) for row in found if row.scene == scene and row.scene in rows.scenes))
        for scene in rows.scenes
    ]
    return (*([_summary(flood, rows)] if flood.sets_seed is not None else []), *made)


def _columns(flood: Flood) -> tuple[Column, ...]:
    columns = [Column("variant")]
    for crowd in flood.crowds:
        columns += [Column(UNITS[flood.figure], crowd), Column("±", crowd), Column(f"× {flood.base}", crowd, 3)]
    for crowd in flood.crowds:
        columns += [Column(name, crowd, digits) for name, digits in _others(flood).values()]
    return (*columns, Column("hit"), Column("queue", "", 1), Column("held", "", 1))


def _others(flood: Flood) -> dict[str, tuple[str, int]]:
    """Figures that are shown beside the one that is judged: their columns' names and digits."""
    named = {"runs_per_minute": ("runs/min", 2), "run_seconds_p50": ("run p50 s", 1), "first_token_seconds_p50": ("first token p50 s", 2)}
    return {name: column for name, column in named.items() if name != flood.figure}


def _row(flood: Flood, rows: Rows, row: Row) -> tuple[Value, ...]:
    cells: list[Value] = [row.variant]
    for crowd in flood.crowds:
        figure = row.crowds[crowd][flood.figure] if crowd in row.crowds else None
        gain = rows.ratio(row.scene, row.variant, crowd, flood.base, flood.figure) if figure else None
        cells += [figure.mean, figure.spread, gain] if figure else [None, None, None]
    for crowd in flood.crowds:
        cells += [row.of(crowd, name) if crowd in row.crowds else None for name in _others(flood)]
    return (*cells, row.hit.mean, row.waiting.mean, row.held.mean)


def _summary(flood: Flood, rows: Rows) -> Table:
    """Over all sets: geometric means and the worst ratio of each class to `flood.base`, and how many sets fall behind engine priority."""
    columns = [Column("variant")]
    for crowd in flood.crowds:
        columns += [Column(f"{crowd} ×", "geometric mean"), Column(f"{crowd} worst", "×")]
    lines: list[tuple[Value, ...]] = []
    for variant in flood.variants:
        cells: list[Value] = [variant]
        for crowd in flood.crowds:
            gains = list(bounds.ratios(rows, variant, crowd, flood.base).values())
            cells += [bounds.geometric(gains), min(gains)] if gains else [None, None]
        lines.append((*cells, len(bounds.below(rows, variant, "engine_priority"))))
    title = f"{len(rows.scenes)} sets, {UNITS[flood.figure]} against {flood.base}"
    return Table(title, (*columns, Column("behind", "sets > 5 % below engine priority")), tuple(lines))


def drawing(flood: Flood, found: list[Row]) -> Draw:
    """Ratios to `flood.base` of both crowds: bars by scene, or all sets in order of their ratio."""
    rows = Rows(found)

    def draw(figure: "Figure") -> None:
        for crowd, axes in zip(flood.crowds, figure.subplots(2, 1), strict=True):
            (_sorted_lines if len(rows.scenes) > GROUPS_MAX and flood.sets_seed is not None else _bars)(axes, flood, rows, crowd)

    return draw


def _label(flood: Flood, crowd: str) -> str:
    return f"{crowd} {UNITS[flood.figure]}, × {flood.base}"


def _bars(axes: "Axes", flood: Flood, rows: Rows, crowd: str) -> None:
    scenes = [scene for scene in rows.scenes if flood.more_in in scene and _has(rows, scene, flood.base, crowd)][:GROUPS_MAX]
    values: dict[str, list[float]] = {}
    spreads: dict[str, list[float]] = {}
    for variant in flood.drawn:
        gains = [rows.ratio(scene, variant, crowd, flood.base, flood.figure) for scene in scenes]
        if not any(gain is None for gain in gains):
            values[variant] = [gain or 0.0 for gain in gains]
            noises = [rows.noise(scene, variant, crowd, flood.base, flood.figure) for scene in scenes]
            spreads[variant] = [gain * noise for gain, noise in zip(values[variant], noises, strict=True)]
    grouped_bars(axes, [scene.replace(", ", "\n") for scene in scenes], values, label=_label(flood, crowd), spreads=spreads, even=1.0)


def _has(rows: Rows, scene: str, variant: str, crowd: str) -> bool:
    row = rows.get(scene, variant)
    return row is not None and crowd in row.crowds


def _sorted_lines(axes: "Axes", flood: Flood, rows: Rows, crowd: str) -> None:
    for variant in flood.variants:
        if variant != flood.base:
            axes.plot(sorted(bounds.ratios(rows, variant, crowd, flood.base).values()), marker=".", label=variant)
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_yscale("log")
    axes.set_ylabel(_label(flood, crowd))
    axes.set_xlabel("sets, each variant's in order of its ratio")
    axes.legend(fontsize=8)
