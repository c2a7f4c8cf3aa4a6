"""Where is kept what each way came to with each seed of the spawn flood, so that it can be measured in parts?"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct, convert, to_builtins

from luftpause.kit.errors import LuftpauseError
from luftpause_bench.live.crowds import OfCrowd

Json = dict[str, Any]


class Cell(Struct, frozen=True):
    """
    What one way came to with one seed, by crowd. `seconds`: the whole cell took so long; `busy`: share of the machine's processors that
    all its programs used meanwhile. Both 0 where they were not noted.
    """

    way: str
    seed: int
    found: dict[str, OfCrowd]
    seconds: float = 0.0
    busy: float = 0.0
    commit: str = ""


class Kept:
    """One line of JSON per cell that was measured, whatever its parameters; a line that was torn counts as not there."""

    def __init__(self, path: Path, parameters: Struct, *, fresh: bool = False) -> None:
        self.path = path
        self._stated = json.loads(json.dumps(to_builtins(parameters)))
        self._known: dict[tuple[str, int], Cell] = {}
        if not fresh and path.exists():
            self._take(_lines(path.read_text()))

    def merge(self, path: Path) -> None:
        """Cells of these parameters, of a report or of another file of cells. Raises LuftpauseError (`bad_argument`)."""
        try:
            said = path.read_text()
        except OSError as error:
            raise LuftpauseError(f"--merge {path}: {error.strerror}; name a report or a file of cells", code="bad_argument") from error
        found = _of_report(said) or list(_lines(said))
        if not any(each.get("parameters") == self._stated for each in found):
            raise LuftpauseError(
                f"--merge {path}: none of the {len(found)} cells in it has these parameters; compare --speed", code="bad_argument"
            )
        for cell in self._take(found):
            self._write(cell)

    def get(self, way: str, seed: int) -> Cell | None:
        return self._known.get((way, seed))

    def add(self, cell: Cell) -> None:
        self._known[cell.way, cell.seed] = cell
        self._write(cell)

    def _take(self, found: Iterable[Json]) -> list[Cell]:
        """Those that were not there."""
        new: list[Cell] = []
        for each in found:
            if each.get("parameters") != self._stated:
                continue
            cell = convert(each, Cell)
            if (cell.way, cell.seed) not in self._known:
                new.append(cell)
            self._known.setdefault((cell.way, cell.seed), cell)
        return new

    def _write(self, cell: Cell) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps({**to_builtins(cell), "parameters": self._stated}) + "\n")


def _of_report(said: str) -> list[Json]:
    """Its cells, with the report's parameters; none if it is no report."""
    try:
        report = json.loads(said)
        cells: list[Json] = report["data"]["cells"]
    except (ValueError, KeyError, TypeError):
        return []
    commit = report.get("versions", {}).get("commit", "")
    return [{"commit": commit, **cell, "parameters": report["parameters"]} for cell in cells]


def _lines(said: str) -> Iterator[Json]:
    for line in said.splitlines():
        try:
            cell = json.loads(line)
        except ValueError:
            continue
        if isinstance(cell, dict) and "way" in cell:
            yield cell  # pyright: ignore[reportUnknownVariableType]
