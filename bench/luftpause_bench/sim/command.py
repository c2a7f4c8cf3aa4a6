"""`luftpause bench sim`: how many worlds are lived through, and what is said of them?"""

import json
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from luftpause_bench.report import cores
from luftpause_bench.sim.hunting import Hunt, hunt_all
from luftpause_bench.sim.many import Summary, live_through
from luftpause_bench.sim.runner import SeedFailedError, run
from luftpause_bench.typed import exit_status

app = typer.Typer(add_completion=False)

SEEDS_USUAL = 50


def main(arguments: Sequence[str]) -> int:
    return exit_status(app, "sim", arguments)


@app.command()
def sim(
    seeds: Annotated[int, typer.Option(min=1, max=10_000_000, help="Live through this many worlds.")] = SEEDS_USUAL,
    first_seed: Annotated[int, typer.Option(min=0, help="The first of them.")] = 0,
    seed: Annotated[int | None, typer.Option(min=0, help="Live through this one alone, with every check after every event.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, max=512, help="Worker processes; one per usable core by default.")] = None,
    mutants: Annotated[bool, typer.Option("--mutants", help="Break the scheduler in many places instead; each must be caught.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, and nothing else there.")] = False,
) -> None:
    """Live through simulated worlds in which everything fails, and check what is promised after every event.

    A seed decides everything in its world, on any machine; those from 1000000 on have the policy `guard`. One that fails is named, with
    what was broken and the command that shows it.
    Exit status 0: every promise was kept (with --mutants: every mutant was caught); 1 otherwise.
    """
    if seed is not None:
        raise typer.Exit(_one(seed, as_json=as_json))
    workers = jobs or cores()
    if mutants:
        raise typer.Exit(_mutants(range(first_seed, first_seed + seeds), workers, as_json=as_json))
    raise typer.Exit(_many(first_seed, seeds, workers, as_json=as_json))


def _one(seed: int, *, as_json: bool) -> int:
    try:
        report = run(seed, thorough=True)
    except SeedFailedError as error:
        if as_json:
            print(json.dumps({"seed": seed, "kept": False, "broken": error.what, "trace": error.trace.splitlines()}, indent=2))
        else:
            print(error)
        return 1
    if as_json:
        seen = dict(sorted(report.counts.items()))
        print(json.dumps({"seed": seed, "kept": True, "events": report.events, "placed": report.placed, "seen": seen}, indent=2))
    else:
        print(report.trace)
        print(f"\nseed {seed}: every promise was kept over {report.events:,} events and {report.placed:,} placements")
    return 0


def _many(first: int, seeds: int, jobs: int, *, as_json: bool) -> int:
    console = Console(file=sys.stderr)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("worlds", total=seeds)

        def lived(done: int, failed: int) -> None:
            bar.update(task, completed=done, description=f"worlds, {failed} failed" if failed else "worlds")

        summary = live_through(range(first, first + seeds), jobs=jobs, lived=lived)
    print(json.dumps(summary.as_json(), indent=2) if as_json else _text(summary))
    return 1 if summary.failures else 0


def _text(summary: Summary) -> str:
    lines = [f"{failure.what}\n  again: {failure.again}" for failure in summary.failures]
    lines.append(
        f"{summary.lived:,} seeds from {summary.first}: {len(summary.failures)} failed; {summary.events:,} events and "
        f"{summary.placed:,} placements in {summary.seconds:,.1f} s on {summary.jobs} processes ({summary.seeds_per_second:.1f} seeds/s)"
    )
    if summary.lived < summary.wanted:
        lines.append(f"stopped after {summary.lived:,} of {summary.wanted:,} seeds")
    return "\n".join(lines)


def _mutants(seeds: range, jobs: int, *, as_json: bool) -> int:
    def found(hunted: Hunt) -> None:
        if not as_json:
            caught = (
                f"seed {hunted.seed}: {hunted.broken.splitlines()[0]}" if hunted.seed is not None else f"NOT CAUGHT by {hunted.seeds} seeds"
            )
            print(f"{hunted.mutant:27}{caught}", flush=True)

    hunts = hunt_all(seeds, jobs=jobs, found=found)
    if as_json:
        print(json.dumps([hunted.as_json() for hunted in hunts], indent=2))
    return 0 if all(hunted.seed is not None for hunted in hunts) else 1
