"""How are many floods over HTTP played, some at once, so that a run that was interrupted can go on?"""

import asyncio
import hashlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from luftpause.cli.children import supervise
from luftpause.kit import serve
from luftpause.kit.errors import LuftpauseError
from luftpause_bench.flood_http.cell import Cell, Measured, play
from luftpause_bench.live.world import world
from luftpause_bench.proxy_cost.processes import free_ports

TRIES: Final = 2


class Line(Struct, frozen=True):
    """`key` covers what decides the figures, but for the code."""

    key: str
    measured: Measured


class Kept:
    """One line of JSON per cell that was played; a line that was torn when the run was killed counts as not played."""

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        self._path = path
        if fresh:
            path.unlink(missing_ok=True)
        self._known = {line.key: line.measured for line in self._read()}

    def get(self, cell: Cell) -> Measured | None:
        return self._known.get(key(cell))

    def add(self, cell: Cell, measured: Measured) -> None:
        self._known[key(cell)] = measured
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(Line(key(cell), measured)) + b"\n")

    def _read(self) -> Iterator[Line]:
        if not self._path.exists():
            return
        for line in self._path.read_bytes().split(b"\n"):
            try:
                yield msgspec.json.decode(line, type=Line)
            except msgspec.DecodeError:
                continue


def key(cell: Cell) -> str:
    return hashlib.sha256(msgspec.json.encode(cell)).hexdigest()[:24]


def play_all(cells: Sequence[Cell], kept: Kept, at_once: int) -> list[Measured]:
    """
    Those that can be had, in the order of `cells`. Cells that follow each other are played at once, so that they find the same machine.

    Raises LuftpauseError (`interrupted`, `missing_program`).
    """
    left = [cell for cell in cells if kept.get(cell) is None]
    asyncio.run(_play_all(left, kept, at_once))
    return [measured for cell in cells if (measured := kept.get(cell)) is not None]


async def _play_all(cells: Sequence[Cell], kept: Kept, at_once: int) -> None:
    async with serve.stop_signals() as stop:
        for start in range(0, len(cells), at_once):
            group = cells[start : start + at_once]
            ports = free_ports(len(group))
            print(f"{start + len(group)} of {len(cells)}: {'; '.join(cell.name for cell in group)}", file=sys.stderr, flush=True)
            done = await asyncio.gather(*(_tried(cell, port, stop) for cell, port in zip(group, ports, strict=True)))
            for cell, measured in zip(group, done, strict=True):
                if measured is not None:
                    kept.add(cell, measured)


async def _tried(cell: Cell, port: int, stop: serve.Stop) -> Measured | None:
    """None: it failed again and again."""
    for _ in range(TRIES):
        try:
            return await _played(cell, port, stop)
        except LuftpauseError as error:
            if error.code in {"interrupted", "missing_program"}:
                raise
            print(f"{cell.name}: {error.message}", file=sys.stderr, flush=True)
    return None


async def _played(cell: Cell, port: int, stop: serve.Stop) -> Measured:
    async with world(stop) as (made, children):
        measured = await supervise(children, stop, play(made, cell, port))
    if measured is None:
        raise LuftpauseError("interrupted; what was played is kept, and the same command goes on", code="interrupted")
    return measured
