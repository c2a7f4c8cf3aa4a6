"""How are the runs of a load read from a file, and written to one?

JSONL: a run in each line. CSV: a round in each row, with the columns of TraceLab, which has recorded sessions of coding agents.
"""

import csv
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from luftpause.cli.load_plan import Plan, Round
from luftpause.cli.load_report import RunRecord
from luftpause.kit.errors import LuftpauseError

ROUNDS_MAX: Final = 1_000_000
TOKENS_MAX: Final = 100_000_000
MILLISECONDS_MAX: Final = 1e9
COLUMNS: Final = ("session_id", "arrival_time", "round_idx", "prefix_len", "input_len", "output_len", "tool_wait_after_ms")
OPTIONAL: Final = "arrival_time"  # without it all runs arrive at the begin


class RoundLine(Struct, frozen=True, omit_defaults=True):
    """A round in a line of JSONL. From `seconds` on: what was measured, which is not read."""

    prefix_len: int
    input_len: int
    output_len: int
    tool_wait_after_ms: float = 0.0
    output_max: int | None = None
    seconds: float | None = None
    first_token_s: float | None = None
    cached_len: int | None = None


class RunLine(Struct, frozen=True, omit_defaults=True):
    """A run in a line of JSONL; `arrival_time` in milliseconds. From `outcome` on: what was measured, which is not read."""

    session_id: str
    rounds: tuple[RoundLine, ...]
    arrival_time: float = 0.0
    turn_class: str | None = field(default=None, name="class")
    caller: str | None = None
    outcome: str | None = None
    seconds: float | None = None
    error: str | None = None


class _Row(Struct, frozen=True):
    session: str
    arrival: float
    index: int
    round: Round


# ---- reading ------------------------------------------------------------------------------------------------------


def read(path: Path) -> tuple[Plan, ...]:
    """By their arrival. `.csv` is CSV, anything else JSONL. Raises LuftpauseError (`bad_trace`) that names file and line."""
    reader: Callable[[Path], tuple[Plan, ...]] = _read_csv if path.suffix.lower() == ".csv" else _read_jsonl
    try:
        plans = reader(path)
    except OSError as error:
        raise LuftpauseError(f"{path} can't be read: {error.strerror or error}", code="bad_trace") from error
    except UnicodeDecodeError as error:
        raise LuftpauseError(f"{path} is no text: {error}", code="bad_trace") from error
    if not plans:
        raise LuftpauseError(f"{path} has no runs", code="bad_trace")
    return tuple(sorted(plans, key=lambda plan: plan.arrival_time))


def _read_jsonl(path: Path) -> tuple[Plan, ...]:
    plans: list[Plan] = []
    rounds = 0
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                read_line = msgspec.json.decode(line, type=RunLine)
            except (msgspec.ValidationError, msgspec.DecodeError) as error:
                raise _bad(path, number, str(error)) from None
            plans.append(_plan_of(path, number, read_line))
            rounds = _within(path, number, rounds + len(read_line.rounds))
    return tuple(plans)


def _plan_of(path: Path, number: int, line: RunLine) -> Plan:
    if not line.rounds:
        raise _bad(path, number, "the run has no rounds")
    if line.turn_class not in {None, "interactive", "batch"}:
        raise _bad(path, number, f"class {line.turn_class!r} is neither interactive nor batch")
    rounds = tuple(
        Round(each.prefix_len, each.input_len, each.output_len, each.tool_wait_after_ms, each.output_max) for each in line.rounds
    )
    for each in rounds:
        if problem := _problem(each):
            raise _bad(path, number, problem)
    if not _is_time(line.arrival_time):
        raise _bad(path, number, f"arrival_time {line.arrival_time} is no number of milliseconds")
    return Plan(line.session_id, rounds, line.arrival_time, line.turn_class, line.caller)


def _read_csv(path: Path) -> tuple[Plan, ...]:
    sessions: dict[str, list[_Row]] = {}
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file, strict=True)
        missing = [name for name in COLUMNS if name not in (rows.fieldnames or ()) and name != OPTIONAL]
        if missing:
            raise _bad(path, 1, f"the columns {', '.join(missing)} are missing; there must be {', '.join(COLUMNS)}")
        count = 0
        try:
            for row in rows:
                count = _within(path, rows.line_num, count + 1)
                read_row = _row(path, rows.line_num, row)
                sessions.setdefault(read_row.session, []).append(read_row)
        except csv.Error as error:
            raise _bad(path, rows.line_num, str(error)) from None
    return tuple(_session(path, name, rows) for name, rows in sessions.items())


def _session(path: Path, name: str, rows: list[_Row]) -> Plan:
    rows.sort(key=lambda row: row.index)
    if len({row.index for row in rows}) < len(rows):
        raise LuftpauseError(f"{path}: session {name} has two rows with the same round_idx", code="bad_trace")
    return Plan(name, tuple(row.round for row in rows), min(row.arrival for row in rows))


def _row(path: Path, line: int, row: dict[str, str | None]) -> _Row:
    values = {name: _number(path, line, name, row.get(name)) for name in COLUMNS[1:]}
    made = Round(int(values["prefix_len"]), int(values["input_len"]), int(values["output_len"]), values["tool_wait_after_ms"])
    if problem := _problem(made):
        raise _bad(path, line, problem)
    return _Row(str(row["session_id"]), values["arrival_time"], int(values["round_idx"]), made)


def _number(path: Path, line: int, name: str, text: str | None) -> float:
    if name == OPTIONAL and not text:
        return 0.0
    try:
        value = float(text or "")
    except ValueError:
        raise _bad(path, line, f"{name} {text!r} is no number") from None
    if not math.isfinite(value) or value < 0:
        raise _bad(path, line, f"{name} {text!r} must not be below 0")
    return value


def _problem(each: Round) -> str | None:
    """What is wrong with a round, in words."""
    if min(each.prefix_len, each.input_len) < 0 or each.prompt_len < 1:
        return "prefix_len and input_len must be at least 0, and together at least 1"
    if each.output_len < 1 or (each.output_max is not None and each.output_max < each.output_len):
        return "output_len must be at least 1, and output_max at least output_len"
    if max(each.prompt_len, each.output_len) > TOKENS_MAX:
        return f"more than {TOKENS_MAX} tokens"
    if not _is_time(each.tool_wait_after_ms):
        return f"tool_wait_after_ms {each.tool_wait_after_ms} is no number of milliseconds"
    return None


def _is_time(milliseconds: float) -> bool:
    return 0 <= milliseconds <= MILLISECONDS_MAX


def _within(path: Path, line: int, rounds: int) -> int:
    if rounds > ROUNDS_MAX:
        raise _bad(path, line, f"more than {ROUNDS_MAX} rounds; split the trace")
    return rounds


def _bad(path: Path, line: int, what: str) -> LuftpauseError:
    return LuftpauseError(f"{path}, line {line}: {what}", code="bad_trace")


# ---- writing ------------------------------------------------------------------------------------------------------


def write(path: Path, runs: Sequence[RunRecord]) -> None:
    """By their begin. Raises LuftpauseError (`bad_trace`)."""
    ordered = sorted(runs, key=lambda run: run.began_s)
    try:
        if path.suffix.lower() == ".csv":
            _write_csv(path, ordered)
        else:
            path.write_bytes(b"".join(msgspec.json.encode(line_of(run)) + b"\n" for run in ordered if run.rounds))
    except OSError as error:
        raise LuftpauseError(f"{path} can't be written: {error.strerror or error}", code="bad_trace") from error


def write_plans(path: Path, plans: Iterable[Plan]) -> None:
    """As JSONL."""
    lines = (
        RunLine(
            plan.session_id,
            tuple(
                RoundLine(each.prefix_len, each.input_len, each.output_len, each.tool_wait_after_ms, each.output_max)
                for each in plan.rounds
            ),
            plan.arrival_time, plan.turn_class, plan.caller,
        )
        for plan in plans
    )  # fmt: skip
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


def line_of(run: RunRecord) -> RunLine:
    """What a run did, as a line that can be read again."""
    return RunLine(
        run.session_id, _rounds_of(run), round(1000 * run.began_s, 1), run.turn_class, run.caller, run.outcome.value,
        round(run.seconds, 4), run.error,
    )  # fmt: skip


def _rounds_of(run: RunRecord) -> tuple[RoundLine, ...]:
    lines: list[RoundLine] = []
    before = run.prefix_len
    for each in run.rounds:
        prefix = min(before, each.prompt_tokens)
        lines.append(
            RoundLine(
                prefix, max(1, each.prompt_tokens - prefix), max(1, each.completion_tokens), round(1000 * each.wait_s, 1),
                seconds=round(each.seconds, 4), first_token_s=_rounded(each.first_token_s), cached_len=each.cached_tokens,
            )
        )  # fmt: skip
        before = each.prompt_tokens + each.completion_tokens
    return tuple(lines)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)


def _write_csv(path: Path, runs: Sequence[RunRecord]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for run in runs:
            for index, each in enumerate(_rounds_of(run)):
                numbers: list[Any] = [each.prefix_len, each.input_len, each.output_len, round(each.tool_wait_after_ms)]
                writer.writerow([run.session_id, round(1000 * run.began_s), index, *numbers])
