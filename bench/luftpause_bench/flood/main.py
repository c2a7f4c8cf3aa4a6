"""`luftpause bench flood…`: which cells of which flood are played?

Engines are simulated by the step model of luftpause_fakes.engine_model, agents by closed or open loops, time is virtual; the scheduler's
core is the real one. Constants of policies were chosen on seeds below 101 and on random sets of seed 7 (--dev); other seeds report.
Cells that were played before by the same code are not played again.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct
from rich.console import Console
from rich.progress import track

from luftpause_bench.flood.benches import FLOODS, Flood
from luftpause_bench.flood.cells import Cell, Played, Scene, play_all, rows
from luftpause_bench.flood.kept import Kept
from luftpause_bench.flood.sets import DEV_SEED
from luftpause_bench.flood.shown import drawing, tables
from luftpause_bench.flood.variants import BY_NAME
from luftpause_bench.report import Report, cores, finish, parser

FIRST_SEED: Final = 101  # constants were chosen on seeds below
SIMULATED: Final = "engines and time; the scheduler's core is real"


def main(name: str, arguments: Sequence[str] | None = None) -> int:
    """Exit status: 1 if a bound is missed, 2 if nothing fits the arguments."""
    flood = FLOODS[name]
    options = _options(name, flood, arguments)
    scenes = _scenes(flood, options)
    variants = [variant for variant in (*flood.variants, *flood.more) if not options.variants or variant in options.variants]
    if not scenes:
        print(f"no scene of {name} has all of {options.cells} in its name; there are: {_names(flood)}", file=sys.stderr)
        return 2
    began = time.monotonic()
    seeds = _seeds(flood, options)
    cells = _cells(flood, scenes, variants, options)
    found = rows(_played(cells, Kept(options.results / "cells" / f"{name}.jsonl", fresh=options.fresh), options.jobs))
    report = Report(
        name, SIMULATED, _parameters(flood, scenes, variants, options), seeds, tables(flood, found), tuple(flood.judge(found)),
        time.monotonic() - began, _is_part(flood, options, seeds),
    )  # fmt: skip
    return finish(report, options, drawing(flood, found))


def _options(name: str, flood: Flood, arguments: Sequence[str] | None) -> argparse.Namespace:
    made = parser(name, f"{flood.what}\n\n{__doc__}", seeds=flood.seeds)
    made.add_argument("--cells", nargs="+", default=[], metavar="WORD", help="only scenes whose names have all of these words, as: x2 48")
    variants = (*flood.variants, *flood.more)
    made.add_argument("--variants", nargs="+", choices=variants, metavar="NAME", help=f"only these of {', '.join(variants)}")
    made.add_argument("--first-seed", type=int, metavar="N", help=f"{FIRST_SEED} by default")
    made.add_argument("--dev", action="store_true", help=f"seeds from 1 and random sets of seed {DEV_SEED}: to choose constants on")
    made.add_argument("--jobs", type=int, default=cores(), metavar="N", help="processes; one per core by default")
    made.add_argument("--fresh", action="store_true", help="play all cells, those too that were played before")
    return made.parse_args(arguments)


def _sets_seed(flood: Flood, options: argparse.Namespace) -> int:
    return DEV_SEED if options.dev or flood.sets_seed is None else flood.sets_seed


def _scenes(flood: Flood, options: argparse.Namespace) -> list[Scene]:
    every = flood.scenes(_sets_seed(flood, options))
    words = {word for text in options.cells for word in _words(text)}
    return [scene for scene in every if words <= set(_words(scene.name))][: flood.quick if options.quick else None]


def _words(name: str) -> list[str]:
    return name.replace(",", " ").split()


def _names(flood: Flood) -> str:
    return "; ".join(scene.name for scene in flood.scenes(DEV_SEED))


def _seeds(flood: Flood, options: argparse.Namespace) -> tuple[int, ...]:
    first = options.first_seed if options.first_seed is not None else 1 if options.dev else FIRST_SEED
    return tuple(range(first, first + (options.seeds or (1 if options.quick else flood.seeds))))


def _cells(flood: Flood, scenes: list[Scene], variants: list[str], options: argparse.Namespace) -> list[Cell]:
    seeds = _seeds(flood, options)
    few = options.seeds or options.quick  # else as many as each scene has in a whole run
    return [
        Cell(scene, variant, seed)
        for scene in scenes
        for variant in flood.plays(scene)
        if variant in variants
        for seed in (seeds if few else flood.seeds_of(scene, seeds[0]))
    ]


def _is_part(flood: Flood, options: argparse.Namespace, seeds: tuple[int, ...]) -> bool:
    return bool(options.quick or options.cells or options.variants or options.dev or len(seeds) < flood.seeds)


def _played(cells: list[Cell], kept: Kept, jobs: int) -> list[Played]:
    """In the order of `cells`."""
    known = {cell: played for cell in cells if (played := kept.get(cell)) is not None}
    missing = [cell for cell in cells if cell not in known]
    console = Console(file=sys.stderr)
    if known:
        console.print(f"{len(known):,} of {len(cells):,} cells were played before by the same code (--fresh: again)", highlight=False)
    playing = play_all(missing, min(jobs, max(1, len(missing))))
    for cell, played in track(playing, "cells", len(missing), console=console, transient=True, disable=not console.is_terminal):
        kept.add(cell, played)
        known[cell] = played
    return [known[cell] for cell in cells]


def _parameters(flood: Flood, scenes: list[Scene], variants: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """What differs from the defaults of flood/workload.py and the engine model."""
    told: dict[str, Any] = {"what": flood.what, "variants": {each: BY_NAME[each].what for each in variants}}
    told["scenes"] = {scene.name: {"probe_seconds": scene.probe_seconds, **_differs(scene.workload)} for scene in scenes}
    if flood.closely[1] and not (options.seeds or options.quick):
        told["closely"] = {"scene": flood.closely[0], "seeds": flood.closely[1]}
    if flood.sets_seed is not None:
        told["sets_seed"] = _sets_seed(flood, options)
    return told


def _differs(value: Struct) -> dict[str, Any]:
    fields = value.__struct_fields__
    usual = dict(zip(fields[len(fields) - len(value.__struct_defaults__) :], value.__struct_defaults__, strict=True))
    return {name: _plain(getattr(value, name)) for name in fields if name not in usual or getattr(value, name) != usual[name]}


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return _differs(value)
    if isinstance(value, tuple):
        return [_plain(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
    return value
