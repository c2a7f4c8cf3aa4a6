"""What does every benchmark say at its end, where does it write it, and how does it exit?

    report = Report("fanout", "engines are fakes in real time", parameters={…}, seeds=(), tables=(…), bounds=(…), seconds=61.0, quick=False)
    return finish(report, options, draw)

`options` come from `parser(…)`. A whole run writes `<results>/<bench>.json` and `.png`; one with `--quick`, or of a part, writes only
what `--json` names. Figures are rounded and keys sorted, so that two runs differ only where what was found differs.
"""

import argparse
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field, to_builtins
from rich import box
from rich.console import Console
from rich.table import Table as RichTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SOURCES: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = (SOURCES if (SOURCES / "pyproject.toml").is_file() else Path()) / "bench" / "results"
WIDTH_PLAIN: Final = 240  # columns, where the output is no terminal
LINE_MAX: Final = 140  # characters of a line of JSON
DIGITS: Final = 6  # significant ones of a figure in JSON

Value = str | int | float | None
Draw = Callable[["Figure"], None]


class Column(Struct, frozen=True):
    """`digits` after the point; texts and whole numbers are shown as they are."""

    name: str
    unit: str = ""
    digits: int = 2


class Table(Struct, frozen=True):
    """Each row has a value for each column; None where there is nothing to say."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{self.title}: a row has {len(row)} values for {len(self.columns)} columns: {row}")


class Bound(Struct, frozen=True):
    """What must be reached, as `>= 1.9`, and whether it was."""

    name: str
    reach: str
    value: float
    held: bool

    def __str__(self) -> str:
        return f"{'held' if self.held else 'MISSED'}: {self.name}: {self.value:.4g}, must be {self.reach}"


def at_least(name: str, value: float, bound: float) -> Bound:
    """Not held by a value that is no number."""
    return Bound(name, f">= {bound:.4g}", value, value >= bound)


def at_most(name: str, value: float, bound: float) -> Bound:
    return Bound(name, f"<= {bound:.4g}", value, value <= bound)


def describe_machine() -> dict[str, Value]:
    return {"cores": cores(), "cpu": _cpu(), "memory_gib": _memory_gib(), "system": f"{platform.system()} {platform.machine()}"}


def describe_versions(*packages: str) -> dict[str, str]:
    """Of Python, luftpause, its commit and `packages`, as far as they are there."""
    found = {"python": platform.python_version()}
    for package in ("luftpause", *packages):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    commit = _commit()
    return found | ({"commit": commit} if commit else {})


class Report(Struct, frozen=True):
    """
    `simulated` says what is (engines, time, …), or "nothing". `parameters`: whatever decides the figures, as JSON. `quick`: less than the
    whole benchmark. `data`: figures for those who read the JSON, beyond the tables.
    """

    bench: str
    simulated: str
    parameters: Mapping[str, Any]
    seeds: tuple[int, ...]
    tables: tuple[Table, ...]
    bounds: tuple[Bound, ...]
    seconds: float
    quick: bool
    data: Any = None
    machine: dict[str, Value] = field(default_factory=describe_machine)
    versions: dict[str, str] = field(default_factory=describe_versions)


def parser(bench: str, about: str | None, *, seeds: int | None = None) -> argparse.ArgumentParser:
    """The options that all benchmarks have; `seeds`: how many without `--seeds`, None where there are none."""
    made = argparse.ArgumentParser(prog=f"luftpause bench {bench}", description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--quick", action="store_true", help="less of it: under a minute; writes nothing to the results")
    if seeds is not None:
        made.add_argument("--seeds", type=_count, default=None, metavar="N", help=f"so many instead of {seeds}")
    made.add_argument("--json", type=Path, metavar="FILE", help="write what was found there as well")
    made.add_argument("--no-plot", dest="plot", action="store_false", help="draw nothing")
    made.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER", help="where a whole run writes its JSON and its plot")
    return made


def finish(report: Report, options: argparse.Namespace, draw: Draw | None = None) -> int:
    """Show it, write it. Exit status: 1 if a bound is missed."""
    show(report, Console(width=None if sys.stdout.isatty() else WIDTH_PLAIN, soft_wrap=not sys.stdout.isatty()))
    written: list[Path] = [options.json] if options.json else []
    if not report.quick:
        written.append(options.results / f"{report.bench}.json")
    for path in written:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(as_json(report))
    if draw is not None and options.plot and not report.quick:
        _plot(report, draw, options.results / f"{report.bench}.png")
    return 0 if all(bound.held for bound in report.bounds) else 1


# ---- what is shown ----------------------------------------------------------------------------------------------


def show(report: Report, console: Console) -> None:
    seeds = f"seeds {report.seeds[0]} to {report.seeds[-1]}" if report.seeds else "no seeds"
    console.print(f"{report.bench} · simulated: {report.simulated} · {seeds} · {report.seconds:.0f} s", markup=False, highlight=False)
    for table in report.tables:
        console.print(_rich(table))
    for bound in report.bounds:
        console.print(str(bound), style=None if bound.held else "red", markup=False, highlight=False)
    if report.bounds and all(bound.held for bound in report.bounds):
        console.print("every bound is held")


def text_of(value: Value, column: Column) -> str:
    """As tables show it, here and in a README."""
    if value is None:
        return "–"
    return f"{value:,.{column.digits}f}" if isinstance(value, float) else str(value)


def _rich(table: Table) -> RichTable:
    made = RichTable(title=table.title, box=box.SIMPLE, title_justify="left", pad_edge=False)
    for number, column in enumerate(table.columns):
        head = f"{column.name}\n{column.unit}" if column.unit else column.name
        texts = any(isinstance(row[number], str) for row in table.rows)
        made.add_column(head, justify="left" if texts else "right", overflow="fold")
    for row in table.rows:
        made.add_row(*(text_of(value, column) for value, column in zip(row, table.columns, strict=True)))
    return made


# ---- what is written --------------------------------------------------------------------------------------------


def as_json(report: Report) -> str:
    document = to_builtins(report)
    document["seconds"] = round(report.seconds)
    if report.data is None:
        del document["data"]
    return "\n".join(_lines(_rounded(document), "")) + "\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _rounded(each) for key, each in sorted(value.items(), key=lambda item: str(item[0]))}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType, reportUnknownLambdaType]
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def _lines(value: Any, indent: str) -> list[str]:
    """A list or an object that fits stands on one line: a row of a table is a line of a diff."""
    whole = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(whole) <= LINE_MAX or not isinstance(value, list | dict) or not value:
        return [whole]
    deeper = indent + " "
    named: list[tuple[str, Any]] = (
        [(f"{json.dumps(key, ensure_ascii=False)}: ", each) for key, each in value.items()]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        if isinstance(value, dict)
        else [("", each) for each in value]  # pyright: ignore[reportUnknownVariableType]
    )
    first, last = ("{", "}") if isinstance(value, dict) else ("[", "]")
    made = [first]
    for number, (name, each) in enumerate(named):
        inner = _lines(each, deeper + " " * len(name))
        if len(inner) > 1:
            inner = _lines(each, deeper)
        inner[0] = f"{deeper}{name}{inner[0]}"
        inner[-1] += "," if number < len(named) - 1 else ""
        made += inner
    return [*made, indent + last]


def _plot(report: Report, draw: Draw, path: Path) -> None:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        print(f"no {path.name}: plots need matplotlib; pip install 'luftpause[bench]', or say --no-plot", file=sys.stderr)
        return
    figure = Figure(figsize=(11, 6), layout="constrained")
    FigureCanvasAgg(figure)
    draw(figure)
    figure.suptitle(f"{report.bench} · simulated: {report.simulated}", fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})


# ---- machine ----------------------------------------------------------------------------------------------------


def cores() -> int:
    """That this process may use."""
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable is not None else os.cpu_count() or 1


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _memory_gib() -> int | None:
    names: Mapping[str, int] = getattr(os, "sysconf_names", {})
    if "SC_PHYS_PAGES" not in names:
        return None
    return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30)


def _commit() -> str | None:
    """Of the checkout that this is run from; `+` says that files differ from it."""
    command = ("git", "describe", "--always", "--dirty=+", "--abbrev=10", "--exclude=*")
    try:
        described = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return described.stdout.strip() or None


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text} is no number of seeds; 1 is the least")
    return count
