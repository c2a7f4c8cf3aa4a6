"""How do sub-agents over MCP fare on saturated engines: through a router, and through luftpause?

48 batch and 4 interactive sub-agents at any time, each an MCP client of its own, on two engines as in `flood` at fit A. All of it is
real but the engines and the tool, which are fakes in real time. Every cell has new processes.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from math import inf
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from msgspec import Struct, to_builtins

from luftpause.kit.errors import LuftpauseError
from luftpause_bench.live import routers
from luftpause_bench.live.crowds import Crowd, OfCrowd, Task, closed_loop, figures, text
from luftpause_bench.live.world import World, run
from luftpause_bench.plots import grouped_bars
from luftpause_bench.proc import processor_seconds
from luftpause_bench.report import Bound, Column, Report, Table, at_least, describe_versions, finish, parser
from luftpause_bench.spawn_flood_cells import Cell, Kept

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIRST_SEED: Final = 301
ROUTER: Final = "sglang-router"
WAYS: Final = (ROUTER, "original", "guard")
CROWDS: Final = ("interactive", "batch")
LEAST_INTERACTIVE: Final = 1.9  # times the router's, as `flood` must reach at fit A
LEAST_BATCH: Final = 0.85  # of the router's, at probes each 2 s
COLUMNS: Final = (
    Column("way"), Column("interactive", "per min", 1), Column("spread", "per min", 1), Column("against router", "", 2),
    Column("p50", "s", 1), Column("batch", "per min", 1), Column("spread", "per min", 1), Column("against router", "%", 1),
    Column("from cache", "%", 1), Column("machine busy", "%", 0), Column("the original", "interactive per min"),
)  # fmt: skip
ORIGINAL: Final = {ROUTER: "3.0, p50 58 s", "original": "8.0, p50 27 s"}


class Parameters(Struct, frozen=True):
    """
    `speed`: engines, tool and probes are so many times faster than on the testbed; all figures are in the testbed's time. The engines share
    a GPU and serve higher priorities first; a router's turns have none. Characters are four a token; 250 tokens are common to all runs.
    """

    batch: int = 48
    interactive: int = 4
    speed: float = 2.0
    engines: int = 2
    kv_tokens: int = 14_000
    probe_seconds: float = 2.0
    lookup_seconds: float = 2.0
    calls: int = 3
    characters: tuple[int, int] = (3_200, 8_000)
    answer_tokens: tuple[int, int] = (120, 250)
    query_characters: tuple[int, int] = (60, 130)
    warm_up_seconds: float = 60.0
    window_seconds: float = 240.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1: a bound is missed. Raises LuftpauseError (`unfinished`)."""
    options = _parser().parse_args(arguments)
    parameters, seeds = _parameters(options)
    kept = Kept(options.cells or options.results / "cells" / "spawn_flood.jsonl", parameters, fresh=options.fresh)
    for path in options.merge:
        kept.merge(path)
    cells = _play(parameters, seeds, kept, minutes=options.minutes)
    report = report_of(parameters, seeds, cells, sum(cell.seconds for cell in cells), quick=options.quick)
    return finish(report, options, lambda figure: _draw(figure, cells))


def _parser() -> argparse.ArgumentParser:
    made = parser("spawn_flood", __doc__, seeds=3)
    made.add_argument("--speed", type=float, default=None, help="so many times faster than the testbed; 2 by default, --quick 6")
    made.add_argument("--cells", type=Path, metavar="FILE", help="where cells are kept that were measured, instead of results/cells")
    made.add_argument("--fresh", action="store_true", help="measure anew what was measured before")
    made.add_argument(
        "--merge", type=Path, action="append", default=[], metavar="FILE", help="take over cells of this report or these cells"
    )
    made.add_argument(
        "--minutes", type=float, default=inf, metavar="N", help="begin no cell that would not end by then; the next call goes on"
    )
    return made


def _parameters(options: argparse.Namespace) -> tuple[Parameters, tuple[int, ...]]:
    seeds = tuple(range(FIRST_SEED, FIRST_SEED + (options.seeds or (1 if options.quick else 3))))
    if options.quick:
        return Parameters(speed=options.speed or 6.0, warm_up_seconds=24.0, window_seconds=36.0), seeds
    return Parameters(speed=options.speed or Parameters().speed), seeds


def _play(parameters: Parameters, seeds: Sequence[int], kept: Kept, *, minutes: float = inf) -> list[Cell]:
    """Ways take turns with each seed. What is kept is not measured again. Raises LuftpauseError (`unfinished`)."""
    order = [(way, seed) for turn, seed in enumerate(seeds) for way in (*WAYS[turn % 3 :], *WAYS[: turn % 3])]
    until, longest = time.monotonic() + 60 * minutes, (parameters.warm_up_seconds + parameters.window_seconds) / parameters.speed
    for way, seed in order:
        if kept.get(way, seed) is not None:
            continue
        if time.monotonic() + longest > until:
            done = sum(kept.get(*each) is not None for each in order)
            raise LuftpauseError(
                f"{done} of {len(order)} cells are measured and kept in {kept.path}; the same command goes on", code="unfinished"
            )
        cell = _played(parameters, way, seed)
        longest = max(longest, cell.seconds)
        kept.add(cell)
        print(f"{way}, seed {seed}: {cell.seconds:.0f} s, {cell.busy:.0%} of the processors used", file=sys.stderr, flush=True)
    return [cell for each in order if (cell := kept.get(*each)) is not None]


def _played(parameters: Parameters, way: str, seed: int) -> Cell:
    began, before = time.monotonic(), processor_seconds()
    found = run(lambda world: measure(world, parameters, way, seed))
    used, whole = (after - each for after, each in zip(processor_seconds(), before, strict=True))
    versions = describe_versions()
    return Cell(way, seed, found, time.monotonic() - began, used / whole if whole else 0.0, versions.get("commit", ""))


async def measure(world: World, parameters: Parameters, way: str, seed: int) -> dict[str, OfCrowd]:
    """In the testbed's seconds."""
    speed = parameters.speed
    options = ("--speed", str(speed), "--kv-tokens", str(parameters.kv_tokens), "--priority", "sglang", "--health-seconds", str(1 / speed))
    engines = await world.engines(parameters.engines, *options)
    tools = await world.tools("--lookup-seconds", str(parameters.lookup_seconds / speed))
    if way == ROUTER:
        turns_at = await routers.start(world, "cache_aware", engines)
    else:
        own = {"policy": way, "probe_seconds": parameters.probe_seconds / speed}
        turns_at = (await world.luftpause(engines, replica={"priority": "sglang"}, scheduler=own, dataplane={"usage": "ask"})).http
    mcp, _ = await world.runtime(turns_at, tools)
    crowds = [
        Crowd(name, getattr(parameters, name), lambda agent, number, name=name: task(parameters, seed, name, agent, number))
        for name in CROWDS
    ]
    begin, end = parameters.warm_up_seconds / speed, (parameters.warm_up_seconds + parameters.window_seconds) / speed
    ended = await closed_loop(mcp, crowds, end)
    return {name: _in_testbed_time(figures(ended, name, begin, end), speed) for name in CROWDS}


def _in_testbed_time(found: OfCrowd, speed: float) -> OfCrowd:
    return OfCrowd(
        found.runs, found.runs_per_minute / speed, found.run_seconds_p50 * speed, found.run_seconds_p95 * speed, found.cached_share
    )


def task(parameters: Parameters, seed: int, crowd: str, agent: int, number: int) -> Task:
    """The same for every way."""
    chance = Random(f"{seed} {crowd} {agent} {number}")
    words = text(
        chance, f"{crowd} {agent}-{number}", chance.randint(*parameters.characters), calls=parameters.calls,
        answer_tokens=chance.randint(*parameters.answer_tokens), query_characters=chance.randint(*parameters.query_characters),
    )  # fmt: skip
    return Task(words, service_class=crowd)


# ---- what it comes to -------------------------------------------------------------------------------------------


def report_of(parameters: Parameters, seeds: tuple[int, ...], cells: Sequence[Cell], seconds: float, *, quick: bool) -> Report:
    bounds: list[Bound] = []
    for way in ("original", "guard"):
        bounds.append(at_least(f"{way}: interactive runs / the router's", _against(cells, way, "interactive"), LEAST_INTERACTIVE))
        bounds.append(at_least(f"{way}: batch runs / the router's", _against(cells, way, "batch"), LEAST_BATCH))
    title = f"{parameters.batch} batch and {parameters.interactive} interactive sub-agents, KV {parameters.kv_tokens:,} tokens per engine"
    return Report(
        "spawn_flood", "engines and the tool, in real time", parameters=to_builtins(parameters), seeds=seeds,
        tables=(Table(title, COLUMNS, tuple(_row(cells, way) for way in WAYS)),), bounds=tuple(bounds), seconds=seconds, quick=quick,
        data={"cells": to_builtins(cells)}, versions=describe_versions("sglang-router"),
    )  # fmt: skip


def _of(cells: Sequence[Cell], way: str, crowd: str, name: str) -> list[float]:
    return [getattr(cell.found[crowd], name) for cell in cells if cell.way == way]


def _rate(cells: Sequence[Cell], way: str, crowd: str) -> float:
    return statistics.mean(_of(cells, way, crowd, "runs_per_minute"))


def _against(cells: Sequence[Cell], way: str, crowd: str) -> float:
    base = _rate(cells, ROUTER, crowd)
    return _rate(cells, way, crowd) / base if base else float("nan")


def _spread(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _row(cells: Sequence[Cell], way: str) -> tuple[str | float | None, ...]:
    cached = [statistics.mean(cell.found[crowd].cached_share for crowd in CROWDS) for cell in cells if cell.way == way]
    spreads = {crowd: _spread(_of(cells, way, crowd, "runs_per_minute")) for crowd in CROWDS}
    return (
        way, _rate(cells, way, "interactive"), spreads["interactive"], _against(cells, way, "interactive"),
        statistics.mean(_of(cells, way, "interactive", "run_seconds_p50")), _rate(cells, way, "batch"),
        spreads["batch"], 100 * (_against(cells, way, "batch") - 1), 100 * statistics.mean(cached),
        _busy([cell.busy for cell in cells if cell.way == way and cell.busy]), ORIGINAL.get(way),
    )  # fmt: skip


def _busy(shares: Sequence[float]) -> float | None:
    return 100 * statistics.mean(shares) if shares else None


def _draw(figure: "Figure", cells: Sequence[Cell]) -> None:
    for axes, crowd in zip(figure.subplots(1, 2), CROWDS, strict=True):
        rates = {way: _of(cells, way, crowd, "runs_per_minute") for way in WAYS}
        means = {way: [statistics.mean(values)] for way, values in rates.items()}
        grouped_bars(
            axes, [crowd], means, label="runs per minute", spreads={way: [_spread(values)] for way, values in rates.items()}
        )  # fmt: skip
