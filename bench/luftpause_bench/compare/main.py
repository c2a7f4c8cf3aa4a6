"""`luftpause bench compare REV… -- NAME [options]`: how does a benchmark differ between revisions?

    luftpause bench compare v0.1 HEAD -- routing --quick

Every revision has a worktree and an environment of its own; they take turns, repeat by repeat. Changes of what is not committed are seen
by no revision. A change within the range of the repeats is noise, and said to be.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from luftpause.kit.errors import LuftpauseError
from luftpause_bench.compare.checkouts import Checkout, Checkouts
from luftpause_bench.compare.figures import Compared, Figures, compare, figures
from luftpause_bench.report import Column, Report, Table, finish, parser

SEPARATOR: Final = "--"
RAN: Final = (0, 1)  # exit status 1: a bound was missed, which is a finding too
WRONG_ARGUMENTS: Final = 2
TAIL_CHARACTERS: Final = 2_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0, whatever differs: there is no bound."""
    given = list(sys.argv[2:] if arguments is None else arguments)
    own, bench = _split(given)
    options = _options(own)
    if not bench:
        raise LuftpauseError(
            f"which benchmark? Say it after {SEPARATOR}: luftpause bench compare REV… -- NAME [options]", code="bad_argument"
        )
    began = time.monotonic()
    checkouts = Checkouts()
    made = [checkouts.checkout(revision) for revision in options.revisions]
    found = play(made, bench, options.repeats, quiet=False)
    report = report_of(made, bench, options.repeats, compare(found), time.monotonic() - began)
    return finish(report, options)


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    if SEPARATOR not in arguments:
        return arguments, []
    at = arguments.index(SEPARATOR)
    return arguments[:at], arguments[at + 1 :]


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    made = parser("compare", __doc__)
    made.add_argument("revisions", nargs="+", metavar="REV", help="a commit, tag or branch; the last is compared with the first")
    made.add_argument("--repeats", type=int, default=1, help="so often each, in turn")
    options = made.parse_args(arguments)
    if options.repeats < 1:
        raise LuftpauseError("--repeats is at least 1", code="bad_argument")
    return options


def play(made: Sequence[Checkout], bench: Sequence[str], repeats: int, *, quiet: bool) -> list[list[Figures]]:
    """For each revision the figures of each repeat. Raises LuftpauseError (`bench_failed`) if one does not play."""
    found: list[list[Figures]] = [[] for _ in made]
    for repeat in range(repeats):
        for number, checkout in enumerate(made):
            if not quiet:
                print(f"repeat {repeat + 1} of {repeats}: {checkout.name} ({checkout.commit[:10]} {checkout.subject})", file=sys.stderr)
            found[number].append(figures(_document(checkout, bench)))
    return found


def _document(checkout: Checkout, bench: Sequence[str]) -> Any:
    """What one run of it wrote, or printed: `--json` names a file in the common form, and is a flag in others."""
    with tempfile.TemporaryDirectory(prefix="luftpause-compare-") as folder:
        file = Path(folder) / "found.json"
        done = _ran(checkout, (*bench, "--json", str(file)), folder)
        if done.returncode == WRONG_ARGUMENTS:
            done = _ran(checkout, (*bench, "--json"), folder)
        text = file.read_text() if file.exists() else done.stdout
        if done.returncode in RAN and (document := _json(text)) is not None:
            return document
        said = (done.stderr or done.stdout)[-TAIL_CHARACTERS:].strip()
        raise LuftpauseError(f"{checkout.name}: bench {' '.join(bench)} ended with {done.returncode}:\n{said}", code="bench_failed")


def _ran(checkout: Checkout, arguments: Sequence[str], folder: str) -> subprocess.CompletedProcess[str]:
    words = (str(checkout.python), "-m", "luftpause", "bench", *arguments)
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, check=False)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


# ---- what it comes to -------------------------------------------------------------------------------------------


def report_of(made: Sequence[Checkout], bench: Sequence[str], repeats: int, compared: Sequence[Compared], seconds: float) -> Report:
    columns = [Column("figure")]
    for checkout in made:
        columns += [Column(checkout.name, checkout.commit[:10], 3), Column("±", "", 3)]
    columns += [Column("change", "%", 1), Column("")]
    stated = {"bench": list(bench), "repeats": repeats, "revisions": {each.name: f"{each.commit} {each.subject}" for each in made}}
    table = Table(f"{' '.join(bench)}, {repeats} repeats", tuple(columns), tuple(_row(each, repeats) for each in compared))
    return Report(
        "compare", f"as {bench[0]} is", parameters=stated, seeds=(), tables=(table,), bounds=(), seconds=seconds, quick=True,
    )  # fmt: skip


def _row(each: Compared, repeats: int) -> tuple[str | float | None, ...]:
    values: list[float | None] = []
    for mean, spread in zip(each.means, each.spreads, strict=True):
        values += [mean, spread]
    noise = "noise unknown" if repeats == 1 else "within noise" if each.noise else ""
    return (each.name, *values, None if each.change is None else 100 * each.change, noise if each.change else "")
