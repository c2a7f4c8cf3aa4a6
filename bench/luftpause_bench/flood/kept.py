"""Which cells of a flood were played before, with the same code, so that an interrupted run can go on?"""

import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import msgspec

import luftpause.scheduler.core
import luftpause_bench.flood
import luftpause_fakes
from luftpause_bench.flood.books import Outcome
from luftpause_bench.flood.cells import Cell, Played
from luftpause_bench.flood.variants import BY_NAME

JUDGES = {"benches.py", "bounds.py", "main.py", "shown.py", "scenes.py", "sets.py", "kept.py"}  # change nothing in a cell


class Line(msgspec.Struct, frozen=True):
    """`key` covers the cell's workload and the code that plays it."""

    key: str
    scene: str
    variant: str
    seed: int
    outcome: Outcome


class Kept:
    """One line of JSON per cell; a line that was torn when the run was killed counts as not played."""

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        self.path = path
        if fresh:
            path.unlink(missing_ok=True)
        self._known = {line.key: line.outcome for line in self._read()}

    def get(self, cell: Cell) -> Played | None:
        outcome = self._known.get(key(cell))
        return None if outcome is None else Played(cell.scene.name, cell.variant, cell.seed, outcome)

    def add(self, cell: Cell, played: Played) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = msgspec.json.encode(Line(key(cell), cell.scene.name, cell.variant, cell.seed, played.outcome))
        with self.path.open("ab") as file:
            file.write(line + b"\n")

    def _read(self) -> Iterator[Line]:
        if not self.path.exists():
            return
        for line in self.path.read_bytes().split(b"\n"):
            try:
                yield msgspec.json.decode(line, type=Line)
            except msgspec.DecodeError:
                continue


def key(cell: Cell) -> str:
    scene = msgspec.structs.replace(cell.scene, name="")
    told = msgspec.json.encode((scene, cell.variant, cell.seed))
    return hashlib.sha256(told + _code(cell.variant).encode()).hexdigest()[:24]


@cache
def _code(variant: str) -> str:
    """Of the world and the engines; for what uses the scheduler, of its core as well."""
    files = [path for path in _sources(luftpause_bench.flood) if path.name not in JUDGES]
    files += [path for path in _sources(luftpause_fakes) if path.name.startswith("engine_model")]
    if BY_NAME[variant].scheduled:
        files += _sources(luftpause.scheduler.core)
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()


def _sources(package: ModuleType) -> list[Path]:
    return sorted(Path(str(package.__file__)).parent.glob("*.py"))
