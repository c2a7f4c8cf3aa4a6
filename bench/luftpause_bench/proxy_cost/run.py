"""What does the proxy cost per turn and chunk, beside nginx and others that are installed?

One interleaved run: every repeat puts every load on every proxy in turn. Engine and load share one core, the proxy has the other one.
"""

import argparse
import platform
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

import msgspec
from rich.console import Console

from luftpause_bench.proxy_cost.bodies import write_bodies
from luftpause_bench.proxy_cost.measure import Bench, Sample
from luftpause_bench.proxy_cost.processes import BenchError, Process, Running, compiled, cores, free_ports
from luftpause_bench.proxy_cost.proxies import Command, Variant, variants
from luftpause_bench.proxy_cost.report import Figures, show, verdicts
from luftpause_bench.proxy_cost.scenes import IDLE, MEMORY, QUICK, SCENES, Scene

ENGINE_LINE_SECONDS = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1: a budget is missed. 2: it could not be run."""
    parser = argparse.ArgumentParser(
        prog="luftpause bench proxy_cost", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer loads, one repeat: under a minute")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these proxies only")
    parser.add_argument("--scenes", nargs="+", metavar="NAME", help="these loads only, as 'turn 2k'")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples to this file")
    options = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 250)
    try:
        return _run(options, console)
    except BenchError as error:
        console.print(str(error), style="red", markup=False)
        return 2


def _run(options: argparse.Namespace, console: Console) -> int:
    found, missing = variants()
    wanted = [variant for variant in found if not options.only or variant.name in options.only]
    scenes = [scene for scene in (QUICK if options.quick else SCENES) if not options.scenes or scene.name in options.scenes]
    for name in missing:
        console.print(f"without {name}", style="yellow", markup=False)
    with tempfile.TemporaryDirectory(prefix="luftpause-bench-") as name, ExitStack() as stack:
        bench, running = _started(wanted, Path(name), stack)
        # First of all: what earlier loads have left in a process would hide what open streams take.
        stream_bytes = {} if options.quick else _memory(bench, running)
        samples = _samples(bench, running, scenes, 1 if options.quick else options.repeats, console)
    figures = Figures(samples)
    show(figures, stream_bytes, console)
    judged = verdicts(figures, stream_bytes)
    for verdict in judged:
        mark = "[green]holds[/]" if verdict.holds else "[red]MISSED[/]"
        console.print(f"{mark}  {verdict.budget}: {verdict.ours:,.1f} of {verdict.most:,.1f}")
    if options.json:
        options.json.write_bytes(msgspec.json.encode(_document(samples, stream_bytes, judged)))
    return 0 if all(verdict.holds for verdict in judged) else 1


def _started(wanted: list[Variant], folder: Path, stack: ExitStack) -> tuple[Bench, list[Running]]:
    near, far = cores()
    engine_program, load_program = compiled(folder)
    *ports, engine_port = free_ports(len(wanted) + 1)
    engine = Process(Command((str(engine_program), str(engine_port))), near, folder / "engine.log")
    stack.callback(engine.stop)
    running: list[Running] = []
    for variant, port in zip(wanted, ports, strict=True):
        each = Running(variant, folder, port, engine_port, far)
        stack.callback(each.stop)
        running.append(each)
    return Bench(load_program, near, engine_port, write_bodies(folder)), running


def _samples(bench: Bench, running: list[Running], scenes: list[Scene], repeats: int, console: Console) -> list[Sample]:
    for each in running:
        bench.sample(each, msgspec.structs.replace(IDLE, streams=8), -1)  # everybody has served before the clock runs
    samples: list[Sample] = []
    with console.status("…") as status:
        for repeat in range(repeats):
            for scene in scenes:
                for each in running:
                    if scene.streams <= each.variant.streams_max:
                        status.update(f"repeat {repeat + 1} of {repeats}: {scene.name}, {each.variant.name}")
                        samples.append(bench.sample(each, scene, repeat))
    return samples


def _memory(bench: Bench, running: list[Running]) -> dict[str, float]:
    """Bytes per open stream."""
    found: dict[str, float] = {}
    for each in running:
        if MEMORY.streams <= each.variant.streams_max:
            before, during = bench.open_streams(each, MEMORY)
            found[each.variant.name] = (during - before) / MEMORY.streams
    return found


def _document(samples: list[Sample], stream_bytes: dict[str, float], judged: object) -> dict[str, object]:
    machine = {"python": platform.python_version(), "system": platform.platform(), "luftpause": version("luftpause")}
    return {"machine": machine, "samples": samples, "stream_bytes": stream_bytes, "budgets": judged}


if __name__ == "__main__":
    sys.exit(main())
