"""How are many cells played, and which were played before with the same code?"""

import hashlib
import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Final

import msgspec

import luftpause.scheduler.governor
import luftpause.scheduler.quota
import luftpause_bench.quota
import luftpause_fakes
from luftpause_bench.quota.play import GOVERNED, Cell, Figures, play

NICE: Final = 10
JUDGES: Final = {"cells.py", "main.py", "shown.py", "bounds.py", "over_http.py"}  # change nothing in a cell


class Line(msgspec.Struct, frozen=True):
    """`key` covers the scene and the code that plays it."""

    key: str
    scene: str
    policy: str
    seed: int
    figures: Figures


class Kept:
    """One line of JSON per cell; a line that was torn when the run was killed counts as not played."""

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        self.path = path
        if fresh:
            path.unlink(missing_ok=True)
        self._known = {line.key: line.figures for line in self._read()}

    def get(self, cell: Cell) -> Figures | None:
        return self._known.get(key(cell))

    def add(self, cell: Cell, figures: Figures) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(Line(key(cell), cell.scene.name, cell.policy, cell.seed, figures)) + b"\n")

    def _read(self) -> Iterator[Line]:
        if not self.path.exists():
            return
        for line in self.path.read_bytes().split(b"\n"):
            try:
                yield msgspec.json.decode(line, type=Line)
            except msgspec.DecodeError:
                continue


def key(cell: Cell) -> str:
    told = msgspec.json.encode((msgspec.structs.replace(cell.scene, about=""), cell.policy, cell.seed))
    return hashlib.sha256(told + _code(governed=cell.policy in GOVERNED).encode()).hexdigest()[:24]


@cache
def _code(*, governed: bool) -> str:
    files = [path for path in _sources(luftpause_bench.quota) if path.name not in JUDGES]
    files += [path for path in _sources(luftpause_fakes) if path.name.startswith("provider")]
    if governed:
        files += [*_sources(luftpause.scheduler.quota), *_sources(luftpause.scheduler.governor)]
    else:
        files = [path for path in files if path.name != "governed.py"]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()


def _sources(package: ModuleType) -> list[Path]:
    return sorted(Path(str(package.__file__)).parent.glob("*.py"))


def play_all(cells: Sequence[Cell], jobs: int) -> Iterator[tuple[Cell, Figures]]:
    """In the order in which they are done; over `jobs` processes, which give way to other work."""
    if jobs == 1:
        yield from ((cell, play(cell)) for cell in cells)
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_give_way) as pool:
        asked = {pool.submit(play, cell): cell for cell in cells}
        try:
            for done in as_completed(asked):
                yield asked[done], done.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _give_way() -> None:
    """To other work; and end with the parent, even if that was killed."""
    os.nice(max(0, NICE - os.nice(0)))
    threading.Thread(target=_end_with, args=(multiprocessing.parent_process(),), daemon=True).start()


def _end_with(parent: BaseProcess | None) -> None:
    if parent is not None:
        parent.join()
        os._exit(1)
