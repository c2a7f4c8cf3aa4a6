"""What does `luftpause replay` show of a recorded log?"""

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from luftpause import __version__
from luftpause.kit.errors import LuftpauseError
from luftpause.scheduler.record_log import Header, NoLogError
from luftpause.scheduler.replay import DIFFERENCES_MAX, Difference, Replayed, replay

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
    if path.is_dir():
        logs = sorted(each.name for each in path.glob("*.jsonl"))
        raise LuftpauseError(f"{path} is a directory; name one log in it: {', '.join(logs) or 'there is none'}", code="no_recorded_log")
    try:
        if policy is None and not settings:
            raise typer.Exit(_check(path, as_json=as_json))
        from luftpause.cli.replay_what_if import what_if

        report = what_if(path, policy, settings or [], engine or [])
    except NoLogError as error:
        raise LuftpauseError(f"{path}: {error.message}", code=error.code) from error
    except OSError as error:
        raise LuftpauseError(f"can't read {path}: {error.strerror or error}", code="no_recorded_log") from error
    print(report.json() if as_json else report.text(runs))


def _check(path: Path, *, as_json: bool) -> int:
    began = time.perf_counter()
    with path.open("rb") as lines:
        found = replay(lines)
    seconds = time.perf_counter() - began
    if as_json:
        print(json.dumps(_document(path, found, seconds), indent=2))
    else:
        print(_text(path, found, seconds))
    if found.different and not as_json:
        print("\n" + _differences(found), file=sys.stderr)
    return 1 if found.different else 0


def older(header: Header) -> str:
    """Why decisions may differ, if the log is not of this version; else empty."""
    return "" if header.luftpause == __version__ else f"it was recorded by luftpause {header.luftpause}, this is {__version__}"


def _document(path: Path, found: Replayed, seconds: float) -> dict[str, Any]:
    header = found.header
    return {
        "ok": not found.different, "log": str(path), "luftpause": header.luftpause, "policy": header.policy, "seed": header.seed,
        "recorded_at": header.recorded_at, "begins": header.begins, "ends": found.end.end if found.end else None, "torn": found.torn,
        "lost_before": header.lost, "hashed": header.hashed, "events": found.events, "decisions": found.decisions,
        "seconds": round(seconds, 3), "different": found.different,
        "differences": [
            {
                "event": each.number, "line": json.loads(each.line), "recorded": each.recorded, "replayed": each.replayed,
                "before": [json.loads(line) for line in each.before],
            }
            for each in found.differences
        ],
    }  # fmt: skip


def _text(path: Path, found: Replayed, seconds: float) -> str:
    header = found.header
    begins = {"start": "the scheduler's start", "rotation": "the end of the log before it", "gap": f"a gap ({header.lost:,} events lost)"}
    ends = {"stop": "the scheduler stopped", "rotation": "it was full", "gap": "the disk failed or was too slow"}
    end = (
        "its last line is torn"
        if found.torn
        else ends[found.end.end]
        if found.end
        else "it just stops: the scheduler still runs, or was killed"
    )
    verdict = f"{found.different:,} events lead to other decisions than recorded" if found.different else "every decision is as recorded"
    names = "hashed" if header.hashed else "clear"
    return "\n".join([
        f"{path}: {verdict}",
        f"  recorded   {header.recorded_at} by luftpause {header.luftpause}, policy {header.policy}, names {names}",
        f"  begins     with {begins[header.begins]}; ends: {end}",
        f"  replayed   {found.events:,} events, {found.decisions:,} decisions in {seconds:.2f} s",
    ])


def _differences(found: Replayed) -> str:
    """The first one with what came before it; of an older log all, as they are to be reviewed."""
    reason = older(found.header)
    shown = found.differences if reason else found.differences[:1]
    lines = [f"{reason}; to be reviewed:" if reason else "the first difference:"]
    for number, each in enumerate(shown):
        lines += ["", *difference_text(each, before=number == 0)]
    if reason and found.different > len(shown):
        lines += ["", f"and {found.different - len(shown):,} more (at most {DIFFERENCES_MAX} are shown)"]
    return "\n".join(lines)


def difference_text(each: Difference, *, before: bool = True) -> list[str]:
    """Lines: the events before, the event, then what is as recorded (two blanks), was only recorded (-), is only decided now (+)."""
    lines = [f"    {each.number - len(each.before) + at}  {_cut(line)}" for at, line in enumerate(each.before)] if before else []
    lines.append(f"  > {each.number}  {_cut(each.line)}")
    recorded, replayed = ([msgspec.json.encode(one).decode() for one in decided] for decided in (each.recorded, each.replayed))
    lines += [f"      {one}" for one in recorded if one in replayed]
    lines += [f"    - {one}" for one in recorded if one not in replayed]
    lines += [f"    + {one}" for one in replayed if one not in recorded]
    if sorted(recorded) == sorted(replayed):
        lines.append("    the same, in another order: " + " ".join(replayed))
    return lines


def _cut(line: bytes, chars: int = 400) -> str:
    text = line.decode(errors="replace").rstrip("\n")
    return text if len(text) <= chars else f"{text[:chars]}…"
