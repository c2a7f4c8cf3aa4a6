"""`luftpause bench crash`: how often is the runtime killed, and what is said of it?"""

import asyncio
import json
import secrets
from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from luftpause_bench.crash.run import crash as lives
from luftpause_bench.typed import exit_status

app = typer.Typer(add_completion=False)


def main(arguments: Sequence[str]) -> int:
    return exit_status(app, "crash", arguments)


@app.command()
def command(
    kills: Annotated[int, typer.Option(min=1, max=100_000, help="Kill the runtime this often.")] = 100,
    runs: Annotated[int, typer.Option(min=1, max=1_000, help="Unfinished runs at the time of each kill.")] = 50,
    quick: Annotated[bool, typer.Option("--quick", help="12 kills, 20 runs.")] = False,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the moments; the scheduling of processes still differs.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, and nothing else there.")] = False,
) -> None:
    """Kill the runtime with kill -9 at random moments of its runs, half of the times as a power cut, and start it again each time.

    Checked: every run ends; no tool call whose result was in the journal is made again, and none twice that may not be; what was shown of
    a run never changes; the journal tells the same afterwards. Exit status 0: all of that was so; 1 otherwise.
    """
    kills, runs = (12, 20) if quick else (kills, runs)
    report = asyncio.run(lives(kills=kills, runs=runs, seed=secrets.randbelow(2**32) if seed is None else seed))
    print(json.dumps(msgspec.to_builtins(report), indent=2) if as_json else report.text())
    raise typer.Exit(1 if report.broken else 0)
