"""How is a recorded log asked for, by `luftpause replay`?"""

from pathlib import Path
from typing import Annotated

import typer

from luftpause.kit.errors import LuftpauseError

FIGURES = "prefill_tokens_per_second decode_step_seconds decode_sequence_seconds kv_tokens running_max chunk_tokens"


def register(app: typer.Typer) -> None:
    app.command("replay")(command)


def command(
    path: Annotated[Path, typer.Argument(metavar="LOG", help="A log that `luftpause scheduler --record DIR` wrote.")],
    *,
    policy: Annotated[str | None, typer.Option(help="Simulate the log's turns with this policy instead.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Simulate with this setting of the scheduler, too; may be repeated."),
    ] = None,
    engine: Annotated[
        list[str] | None,
        typer.Option("--engine", metavar="KEY=VALUE", help=f"Of the simulated engines, instead of what the log tells: {FIGURES}."),
    ] = None,
    runs: Annotated[int, typer.Option(min=0, max=10_000, help="Show so many of the runs that change most.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, and nothing else there.")] = False,
) -> None:
    """Run a recorded log through the scheduler's core again, or its turns through a simulation with other rules.

    Without --policy and --set: every decision must come out as recorded. Exit status 1: some don't. With them: what would have changed,
    beside what was recorded and what the same simulation gives with the recorded rules.
    """
    from luftpause.scheduler.record_log import NoLogError

    if path.is_dir():
        logs = sorted(each.name for each in path.glob("*.jsonl"))
        raise LuftpauseError(f"{path} is a directory; name one log in it: {', '.join(logs) or 'there is none'}", code="no_recorded_log")
    try:
        if policy is None and not settings:
            from luftpause.cli.replay_check import check

            raise typer.Exit(check(path, as_json=as_json))
        from luftpause.cli.replay_what_if import what_if

        report = what_if(path, policy, settings or [], engine or [])
    except NoLogError as error:
        raise LuftpauseError(f"{path}: {error.message}", code=error.code) from error
    except OSError as error:
        raise LuftpauseError(f"can't read {path}: {error.strerror or error}", code="no_recorded_log") from error
    print(report.json() if as_json else report.text(runs))
