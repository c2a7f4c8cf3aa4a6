"""How are the figures of a load shown?"""

import signal
from typing import Final

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from luftpause.cli.load_report import ClassReport, DecideReport, Report, Spread

SIGNALLED: Final = 128  # as shells tell of a program that a signal ended


def show(result: Report, *, as_json: bool) -> int:
    """Print it on stdout; returns the exit status: 0 when runs completed and none failed, above 128 when a signal ended it."""
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(result), indent=2).decode())
    else:
        _table(result, Console())
    if result.interrupted:
        return SIGNALLED + signal.Signals[result.interrupted]
    return 0 if result.completed and not result.failed else 1


def _table(result: Report, console: Console) -> None:
    warm_up = f", without the first {result.warm_up_s:g} s" if result.warm_up_s else ""
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column(f"in {result.seconds:.1f} s{warm_up}{', interrupted' if result.interrupted else ''}")
    for name in result.classes:
        table.add_column(name, justify="right")
    columns = [_rows(each) for each in result.classes.values()]
    for row, title in enumerate(ROW_TITLES):
        table.add_row(title, *(column[row] for column in columns))
    if result.classes:
        console.print(table)
    if result.decide is not None:
        console.print(_questions(result.decide))
    errors = {name: each.errors for name, each in result.classes.items()} | ({"decide": result.decide.errors} if result.decide else {})
    for name, counted in errors.items():
        for error, count in counted.items():
            console.print(f"{name}: {count} × {error}", style="red", markup=False, highlight=False)
    if result.seed is not None:
        console.print(f"again with the same tasks: --seed {result.seed}", style="dim", highlight=False)


def _questions(asked: DecideReport) -> str:
    return f"decide: {asked.answered} answered, {asked.failed} failed, {asked.per_min:.1f}/min, p50 / p95 / p99 {_times(asked.seconds, 4)}"


ROW_TITLES: Final = (
    "runs completed", "runs failed", "runs unfinished", "runs/min", "run time p50 / p95 / p99", "first token p50 / p95 / p99",
    "turns", "turns/min", "tool calls", "prompt tokens", "of these from cache", "completion tokens",
)  # fmt: skip


def _rows(each: ClassReport) -> tuple[str, ...]:
    share = "–" if each.cached_share is None else f"{100 * each.cached_share:.1f} %"
    return (
        str(each.completed), str(each.failed), str(each.unfinished), f"{each.runs_per_min:.1f}",
        _times(each.run_s), _times(each.first_token_s),
        str(each.turns), f"{each.turns_per_min:.1f}", str(each.tool_calls), str(each.prompt_tokens), share, str(each.completion_tokens),
    )  # fmt: skip


def _times(spread: Spread | None, digits: int = 2) -> str:
    return "–" if spread is None else f"{spread.p50:.{digits}f} / {spread.p95:.{digits}f} / {spread.p99:.{digits}f} s"
