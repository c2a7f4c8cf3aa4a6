"""`luftpause bench flood…`: which floods are played, shown and judged?

Everything is simulated: engines by the step model of luftpause_fakes.engine_model, in virtual time; the scheduler's core is the real one.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, to_builtins

from luftpause import __version__
from luftpause_bench.flood import bounds, scenes
from luftpause_bench.flood.cells import Cell, Row, Scene, play_all, rows
from luftpause_bench.flood.variants import BY_NAME

GUARDS: Final = ("guard", "guard_fast", "guard_fifo", "guard_0.9")
LIES: Final = ("guard_k_unknown", "guard_k_over", "guard_late", "guard_blind")
ENDS: Final = ("direct", "engine_priority", "original", "residency", "guard")
MATRIX: Final = (
    "direct", "least_loaded", "engine_priority", "original_plain", "original_moves", "original", "original_fast", "residency", *GUARDS,
)  # fmt: skip
FIRST_SEED: Final = 101  # constants were chosen on seeds below


class Bench(Struct, frozen=True):
    """`quick` plays the first so many scenes, each once."""

    what: str
    scenes: Callable[[], list[Scene]]
    variants: tuple[str, ...]
    judge: Callable[[Sequence[Row]], list[str]]
    seeds: int = 5
    quick: int = 1
    crowds: tuple[str, str] = ("interactive", "batch")
    base: str = "direct"


def _pressures() -> list[Scene]:
    """48 batch agents first: that is the published load."""
    return [*scenes.matrix(batch=(48,)), *scenes.matrix(batch=(16, 32, 64))]


BENCHES: Final = {
    "flood": Bench("KV memory by batch agents, 4 interactive agents", _pressures, MATRIX, bounds.of_flood, quick=3),
    "flood_lies": Bench(
        "what engines tell of their KV memory is wrong, missing or late", lambda: scenes.matrix((1.0, 2.0, 3.0), (48,)),
        ("direct", "guard", *LIES), bounds.of_lies,
    ),
    "flood_tools": Bench("tools of 0.1, 2 and 25 s", scenes.tools, ENDS, bounds.of_tools, quick=2),
    "flood_light": Bench("engines that don't queue", scenes.light, ("direct", "engine_priority", "original", "guard"), bounds.of_light),
    "flood_ghosts": Bench(
        "half of the interactive agents die in a tool call", scenes.ghosts, ("direct", "engine_priority", "original", "guard"),
        bounds.of_ghosts, quick=2,
    ),
    "flood_coding": Bench("coding agents, 20,000 to 100,000 tokens", scenes.coding, ENDS, bounds.of_coding, seeds=3),
    "flood_heavy": Bench(
        "a caller with 60 runs beside three with four each", scenes.heavy, ("direct", "original", "guard"), bounds.of_heavy,
        quick=4, crowds=("light", "heavy"),
    ),
    "flood_sets": Bench(
        "40 random sets of engines and agents", lambda: [scenes.random_set(number).scene for number in range(40)],
        ("direct", "engine_priority", "original", "guard"), bounds.of_sets, seeds=3, quick=4,
    ),
}  # fmt: skip


def flood(arguments: Sequence[str] | None = None) -> int:
    return main("flood", arguments)


def main(name: str, arguments: Sequence[str] | None = None) -> int:
    """Exit status: 1 if a bound is missed."""
    bench = BENCHES[name]
    options = _options(name, bench, arguments)
    began = time.monotonic()
    played = [scene for scene in bench.scenes() if options.scenes in scene.name][: bench.quick if options.quick else None]
    seeds = tuple(range(FIRST_SEED, FIRST_SEED + (1 if options.quick else options.seeds or bench.seeds)))
    cells = [Cell(scene, variant, seed) for scene in played for variant in bench.variants for seed in seeds]
    found = rows(play_all(cells, options.jobs))
    missed = bench.judge(found)
    document = _document(name, bench, played, seeds, found, missed, time.monotonic() - began)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    print(shown(name, bench, found, document))
    return 1 if missed else 0


def _options(name: str, bench: Bench, arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"luftpause bench {name}", description=f"{bench.what}. {__doc__}")
    parser.add_argument("--quick", action="store_true", help="a few scenes, one seed: under a minute")
    parser.add_argument("--seeds", type=int, help=f"{bench.seeds} by default")
    parser.add_argument("--scenes", default="", metavar="TEXT", help="only those whose name has it")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    return parser.parse_args(arguments)


def _document(
    name: str, bench: Bench, played: list[Scene], seeds: tuple[int, ...], found: list[Row], missed: list[str], seconds: float
) -> dict[str, Any]:
    return {
        "bench": name, "what": bench.what, "simulated": True, "luftpause": __version__, "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores", "took_seconds": round(seconds), "seeds": seeds,
        "variants": {each: BY_NAME[each].what for each in bench.variants}, "scenes": to_builtins(played), "rows": to_builtins(found),
        "missed": missed,
    }  # fmt: skip


def shown(name: str, bench: Bench, found: list[Row], document: dict[str, Any]) -> str:
    """Runs per minute with their standard deviation over seeds, and the ratio to `bench.base`."""
    first, second = bench.crowds
    lines = [
        f"{name}: {bench.what} (simulated; seeds {document['seeds'][0]} to {document['seeds'][-1]}; {document['took_seconds']} s)",
        f"{'':20} {first + '/min':>16} {'':>7} {second + '/min':>16} {'':>8} {'p50 s':>7} {'first token s':>14}   hit  queue   held",
    ]
    table, scene = bounds.table(found), ""
    for row in found:
        if row.scene != scene:
            scene = row.scene
            lines.append(scene)
        lines.append(_line(bench, table, row))
    lines += [f"missed: {each}" for each in document["missed"]] or ["every bound is reached"]
    return "\n".join(lines)


def _line(bench: Bench, table: bounds.Table, row: Row) -> str:
    cells: list[str] = []
    for number, crowd in enumerate(bench.crowds):
        if crowd not in row.crowds:
            cells.append(" " * (24 if number == 0 else 25))
            continue
        rate = row.crowds[crowd]["runs_per_minute"]
        gain = bounds.ratio(table, row.scene, row.variant, crowd, bench.base)
        cells.append(f"{rate.mean:8.2f} ±{rate.spread:6.2f} " + (f"{gain:6.2f}x" if number == 0 else f"{100 * (gain - 1):+6.1f} %"))
    first = row.crowds[bench.crowds[0]]
    firsts = " /".join(f"{figures['first_token_seconds_p50'].mean:6.2f}" for figures in row.crowds.values())
    queues = f"{row.hit.mean:5.2f} {row.waiting.mean:6.1f} {row.held.mean:6.1f}"
    return f"  {row.variant:18} {cells[0]} {cells[1]} {first['run_seconds_p50'].mean:7.1f} {firsts:>14} {queues}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
