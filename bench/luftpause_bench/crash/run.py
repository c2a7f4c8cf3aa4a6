"""How many kills and power cuts does a runtime live through, and which promises hold?"""

import asyncio
import contextlib
import multiprocessing
import random
import tempfile
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

import orjson
from msgspec import Struct

from luftpause_bench.crash.books import Books
from luftpause_bench.crash.worker import SYNCED, Life, live
from luftpause_fakes.mcp import serve_http
from luftpause_fakes.mcp_tools import McpOptions

LIFE_SECONDS_MIN: Final = 0.25  # to start and connect
LIFE_SECONDS: Final = 0.5  # on top, at most
LAST_LIFE_SECONDS: Final = 120.0


class Report(Struct, frozen=True):
    seed: int
    kills: int
    power_cuts: int
    bytes_cut: int
    runs: int
    calls: int
    interrupted: int
    seconds: float
    broken: tuple[str, ...]

    def text(self) -> str:
        head = (
            f"{self.kills} kills, {self.power_cuts} of them with a power cut that took {self.bytes_cut:,} unsynced bytes: "
            f"{self.runs} runs, {self.calls} tool calls, {self.interrupted} of them reported as interrupted; {self.seconds:.1f} s"
        )
        verdict = "every promise was kept" if not self.broken else f"{len(self.broken)} promises were broken (seed {self.seed})"
        return "\n".join([head, *self.broken[:20], verdict])


async def crash(*, kills: int, runs: int, seed: int, told: Callable[[int], None] = lambda _: None) -> Report:
    """Kills the runtime this often while it has `runs` unfinished runs, then lets it end them all."""
    with tempfile.TemporaryDirectory(prefix="luftpause-crash-") as directory:
        place = Path(directory)
        announced, calls = place / "mcp.json", place / "calls"
        calls.touch()
        options = McpOptions(port=0, lookup_seconds=0.02, log=calls)
        processes = multiprocessing.get_context("forkserver")
        processes.set_forkserver_preload(["luftpause_bench.crash.worker", "luftpause_fakes.mcp"])
        serving = processes.Process(target=_tools, args=(options, announced), daemon=True)
        serving.start()
        try:
            async with asyncio.timeout(120):
                while not announced.exists():  # noqa: ASYNC110  (a file has no event)
                    await asyncio.sleep(0.01)
            mcp: str = orjson.loads(announced.read_bytes())["mcp"]
            return await _lives(place, mcp, calls, processes, kills=kills, runs=runs, seed=seed, told=told)
        finally:
            serving.kill()
            serving.join()
            serving.close()


def _tools(options: McpOptions, announced: Path) -> None:
    asyncio.run(serve_http(options, announced))


async def _lives(
    place: Path,
    mcp: str,
    calls: Path,
    processes: ForkServerContext,
    *,
    kills: int,
    runs: int,
    seed: int,
    told: Callable[[int], None],
) -> Report:
    began, chance = time.monotonic(), random.Random(seed)
    state, shown, synced = place / "state", place / "shown", place / "synced"
    shown.touch()
    books = Books(state / "runs.jsonl", calls, shown)
    cuts = cut_bytes = 0
    for number in range(kills):
        books.before_a_life()
        life = Life(number, state, mcp, shown, synced, runs, last=False)
        await _live(processes, life, LIFE_SECONDS_MIN + chance.uniform(0, LIFE_SECONDS), books)
        if chance.random() < 0.5:
            cuts += 1
            cut_bytes += _cut_power(state / "runs.jsonl", synced, chance)
        books.after_a_life()
        told(number + 1)
    books.before_a_life()
    await _live(processes, Life(kills, state, mcp, shown, synced, runs, last=True), None, books)
    books.after_a_life()
    ended = books.at_the_end()
    interrupted = sum(run.text.count("was interrupted by a restart") for run in ended.values())
    seconds = time.monotonic() - began
    return Report(seed, kills, cuts, cut_bytes, len(ended), books.started.total(), interrupted, seconds, tuple(books.broken))


async def _live(processes: ForkServerContext, life: Life, seconds: float | None, books: Books) -> None:
    process = processes.Process(target=live, args=(life,), daemon=True)
    process.start()
    try:
        over = await _ends(process, LAST_LIFE_SECONDS if seconds is None else seconds)
        if seconds is None and not over:
            books.broken.append(f"some runs have not ended {LAST_LIFE_SECONDS:g} s after the last start")
        elif over and (seconds is not None or process.exitcode):
            books.broken.append(f"life {life.number} ended by itself with status {process.exitcode}")
    finally:
        process.kill()
        process.join()
        process.close()


async def _ends(process: BaseProcess, seconds: float) -> bool:
    """Does it end by itself within this time?"""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await _readable(process.sentinel)
            return True
    return False


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def end() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(fd, end)
    try:
        await ready
    finally:
        loop.remove_reader(fd)


def _cut_power(journal: Path, synced: Path, chance: random.Random) -> int:
    """Take away what no fsync had made safe, or all but a part of it; returns how many bytes."""
    if not journal.exists() or not synced.exists():
        return 0
    inode, size = SYNCED.unpack(synced.read_bytes())
    stat = journal.stat()
    safe = size if inode == stat.st_ino else stat.st_size  # a new file is synced before it takes the old one's place
    if stat.st_size <= safe:
        return 0
    keep = chance.randint(safe, stat.st_size - 1) if chance.random() < 0.5 else safe
    with journal.open("r+b") as file:
        file.truncate(keep)
    return stat.st_size - keep
