"""How do luftpause and routers of others fare on saturated engines, as real processes over HTTP?

The engines are fakes: the model of luftpause_fakes.engine_model in real time behind HTTP, two on one GPU. All else is real: sglang-router
and vllm-router, luftpause's scheduler and dataplane, the load generator. The runs are those that `flood` plays in virtual time, whose
figures stand beside. Routers have timers that can't be made faster, so it takes its time: an hour.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Final

from msgspec import to_builtins
from msgspec.structs import replace

from luftpause.kit.errors import LuftpauseError
from luftpause_bench.flood.cells import Cell as VirtualCell
from luftpause_bench.flood.cells import Scene, play_all
from luftpause_bench.flood.workload import Workload, fit_a
from luftpause_bench.flood_http.cell import Cell, Measured
from luftpause_bench.flood_http.fronts import ALL, BY_NAME, Variant, program_of
from luftpause_bench.flood_http.judged import Both, both, bounds
from luftpause_bench.flood_http.played import Kept
from luftpause_bench.flood_http.played import play_all as play_over_http
from luftpause_bench.plots import grouped_bars
from luftpause_bench.report import Column, Report, Table, describe_versions, finish, parser

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME: Final = "flood_http"
SEEDS: Final = 3
FIRST_SEED: Final = 101
KV: Final = (1.0, 3.0)
WARM_UP_SECONDS: Final = 90.0
WINDOW_SECONDS: Final = 180.0
QUICK_SPEED: Final = 5.0
QUICK_VARIANTS: Final = ("direct", "original")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1: a bound is missed. 2: it could not be run."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except LuftpauseError as error:
        print(f"{NAME}: {error.message}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    made = parser(NAME, __doc__, seeds=SEEDS)
    made.add_argument("--kv", type=float, nargs="+", metavar="X", help="memory of the engines as multiples of the testbed's; 1 3")
    made.add_argument("--variants", nargs="+", choices=list(BY_NAME), metavar="NAME", help=f"these only: {', '.join(BY_NAME)}")
    made.add_argument("--speed", type=float, help="time scale of engines, load and probes; routers of others need 1, the default")
    made.add_argument("--window", type=float, default=WINDOW_SECONDS, metavar="SECONDS", help="what counts, after the warm-up")
    made.add_argument("--at-once", type=int, default=4, metavar="N", help="cells that are played at the same time; 4 if not given")
    made.add_argument("--fresh", action="store_true", help="play anew what was played before")
    return made


def _run(options: argparse.Namespace) -> int:
    began = time.monotonic()
    variants, missing = _variants(options)
    for name in missing:
        print(f"without {name}: it is not on the PATH, and no variable names it", file=sys.stderr)
    speed = options.speed or (QUICK_SPEED if options.quick else 1.0)
    warm_up, window = (40.0, 60.0) if options.quick else (WARM_UP_SECONDS, options.window)
    seeds = tuple(range(FIRST_SEED, FIRST_SEED + (options.seeds or (1 if options.quick else SEEDS))))
    kvs = options.kv or (KV[:1] if options.quick else KV)
    cells = [
        Cell(kv, variant.name, seed, _workload(kv, warm_up, window, variant), speed) for seed in seeds for kv in kvs for variant in variants
    ]
    kept = Kept(options.results / "cells" / f"{NAME}.jsonl", fresh=options.fresh)
    measured = play_over_http(cells, kept, options.at_once)
    found = both(measured, _virtual(cells))
    part = options.quick or len(variants) < len(ALL) or len(seeds) < SEEDS or set(kvs) != set(KV) or len(measured) < len(cells)
    return finish(
        _report(found, measured, cells, part=part, seconds=time.monotonic() - began), options, lambda figure: _draw(figure, found)
    )


def _variants(options: argparse.Namespace) -> tuple[list[Variant], list[str]]:
    wanted = options.variants or (QUICK_VARIANTS if options.quick else tuple(BY_NAME))
    chosen = [BY_NAME[name] for name in BY_NAME if name in wanted]
    missing = sorted({variant.program for variant in chosen if variant.program and program_of(variant.program) is None})
    return [variant for variant in chosen if variant.program not in missing or not variant.program], missing


def _workload(kv: float, warm_up: float, window: float, variant: Variant) -> Workload:
    workload = fit_a(kv)
    engine = replace(workload.engine, priority=variant.flavour if variant.priority else "off")
    return replace(workload, engine=engine, warm_up_seconds=warm_up, seconds=warm_up + window)


def _virtual(cells: Sequence[Cell]) -> dict[tuple[float, str], list[dict[str, float]]]:
    """(KV, variant of `flood`) -> runs per minute by class, for each seed, of the same length in virtual time."""
    wanted: dict[tuple[float, str, int], VirtualCell] = {}
    for cell in cells:
        if name := BY_NAME[cell.variant].virtual:
            workload = replace(fit_a(cell.kv), warm_up_seconds=cell.workload.warm_up_seconds, seconds=cell.workload.seconds)
            wanted[cell.kv, name, cell.seed] = VirtualCell(Scene(f"KV x{cell.kv:g}", workload), name, cell.seed)
    kvs = {virtual.scene.name: kv for (kv, _, _), virtual in wanted.items()}
    found: dict[tuple[float, str], list[dict[str, float]]] = {}
    for _, played in play_all(list(wanted.values()), 1):
        rates = {name: crowd.runs_per_minute for name, crowd in played.outcome.crowds.items()}
        found.setdefault((kvs[played.scene], played.variant), []).append(rates)
    return found


# ---- what is shown ------------------------------------------------------------------------------------------------

COLUMNS: Final = (
    Column("KV"), Column("variant"), Column("seeds"),
    Column("interactive", "runs/min", 1), Column("±", "", 1), Column("times first", "", 2), Column("virtual", "times", 2),
    Column("batch", "runs/min", 1), Column("±", "", 1), Column("against first", "%", 1), Column("virtual", "%", 1),
    Column("interactive p50", "s", 1), Column("first token p50", "s", 2), Column("from cache", "%", 0),
    Column("waiting in engines", "", 1), Column("held", "", 1), Column("failed"),
    Column("processor used", "%", 0), Column("engines late", "ms", 1),
)  # fmt: skip


def _report(found: Sequence[Both], measured: Sequence[Measured], cells: Sequence[Cell], *, part: bool, seconds: float) -> Report:
    first = cells[0].workload
    parameters = {
        "engines": to_builtins(first.engine), "kv_tokens": {f"x{cell.kv:g}": cell.workload.engine.kv_tokens for cell in cells},
        "engines_on_one_gpu": first.engines, "crowds": to_builtins(first.crowds), "speed": cells[0].speed,
        "warm_up_seconds": first.warm_up_seconds, "window_seconds": first.seconds - first.warm_up_seconds,
        "variants": {variant.name: variant.what for variant in ALL},
    }  # fmt: skip
    title = "48 batch and 4 interactive agents; 'first': the first variant of that KV; virtual: the same in virtual time"
    return Report(
        NAME,
        "the engines, in real time; all else are real processes",
        parameters=parameters,
        seeds=tuple(sorted({cell.seed for cell in cells})),
        tables=(Table(title, COLUMNS, tuple(_rows(found))),),
        bounds=bounds(found),
        seconds=seconds,
        quick=part,
        data=to_builtins(list(measured)),
        versions=describe_versions("sglang-router", "vllm-router"),
    )


def _rows(found: Sequence[Both]) -> Iterator[tuple[str | int | float | None, ...]]:
    for each in found:
        cells = each.cells
        interactive, batch = (each.rates(name) for name in ("interactive", "batch"))
        yield (
            f"x{each.kv:g}", each.variant, len(cells),
            fmean(interactive), _spread(interactive), each.ratio("interactive"), each.virtual_ratio("interactive"),
            fmean(batch), _spread(batch), _percent(each.ratio("batch")), _percent(each.virtual_ratio("batch")),
            fmean(cell.classes["interactive"].run_seconds_p50 for cell in cells),
            fmean(cell.classes["interactive"].first_token_seconds_p50 for cell in cells),
            100 * fmean(cell.hit for cell in cells), fmean(cell.waiting for cell in cells), fmean(cell.held for cell in cells),
            sum(figures.failed for cell in cells for figures in cell.classes.values()),
            100 * fmean(cell.machine.busy for cell in cells), 1000 * fmean(cell.machine.late_seconds_mean for cell in cells),
        )  # fmt: skip


def _spread(values: Sequence[float]) -> float | None:
    return stdev(values) if len(values) > 1 else None


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None else 100 * (ratio - 1)


def _draw(figure: "Figure", found: Sequence[Both]) -> None:
    kvs = sorted({each.kv for each in found})
    for place, name in enumerate(("interactive", "batch"), 1):
        axes = figure.add_subplot(1, 2, place)
        values = {
            variant: [next((fmean(each.rates(name)) for each in found if (each.kv, each.variant) == (kv, variant)), 0.0) for kv in kvs]
            for variant in dict.fromkeys(each.variant for each in found)
        }
        grouped_bars(axes, [f"KV x{kv:g}" for kv in kvs], values, label=f"{name} runs per minute")


if __name__ == "__main__":
    sys.exit(main())
