"""Does every decision of a recorded log come out again, and what is shown of those that don't?"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from luftpause import __version__
from luftpause.scheduler.record_log import Header
from luftpause.scheduler.replay import DIFFERENCES_MAX, Difference, Replayed, replay


def check(path: Path, *, as_json: bool) -> int:
    """Print what came of it; the exit status. Raises NoLogError and OSError."""
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
