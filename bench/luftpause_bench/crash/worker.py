"""What does the process do that is killed: runs whose model is scripted, on the real journal, loop and tool connections?"""

import asyncio
import mmap
import os
import struct
from pathlib import Path
from typing import Final

import orjson
from msgspec import Struct

from luftpause.kit.config import RuntimeConfig, UpstreamConfig
from luftpause.kit.logs import setup
from luftpause.runtime.journal import Journal
from luftpause.runtime.journal_disk import OsFiles
from luftpause.runtime.ports import Decision, ModelAnswer, ModelCall, ModelTurn, SpawnRequest
from luftpause.runtime.runs import RunService
from luftpause.runtime.tools.toolbox import Tools

ROUNDS: Final = 3
TURN_SECONDS: Final = 0.01
SYNCED: Final = struct.Struct("<qq")  # inode and size of the journal when fsync last returned


class Life(Struct, frozen=True):
    """One process. `runs`: as many are kept unfinished; `last`: no new ones, and it ends when all have."""

    number: int
    state: Path
    mcp: str
    shown: Path  # every result that a client could have seen, a line each
    synced: Path
    runs: int
    last: bool


class Watched(OsFiles):
    """Writes down which bytes an fsync has made safe, where a kill can't take it along."""

    def __init__(self, path: Path) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        os.ftruncate(fd, SYNCED.size)
        self._memory = mmap.mmap(fd, SYNCED.size)
        os.close(fd)

    def sync(self, fd: int) -> None:
        super().sync(fd)
        stat = os.fstat(fd)
        self._memory[:] = SYNCED.pack(stat.st_ino, stat.st_size)


class Model:
    """Rounds of one call that must not be made twice and one that may; which round it is stands in the history."""

    async def ask(self, turn: ModelTurn) -> ModelAnswer:
        await asyncio.sleep(TURN_SECONDS)
        task: str = turn.messages[0]["content"]
        done = sum(message["role"] == "assistant" for message in turn.messages)
        if done == ROUNDS:
            said = orjson.dumps([message["content"] for message in turn.messages if message["role"] == "tool"]).decode()
            return ModelAnswer(f"{task} heard {said}", (), "stop", 10, 2)
        name = f"{task} round {done}"
        asked = (ModelCall("", "record", {"text": name}), ModelCall("", "lookup", {"query": name}))
        return ModelAnswer("", asked, "tool_calls", 10, 2)

    async def end_run(self, run: str) -> None:
        del run

    async def models(self) -> tuple[str, ...]:
        return ("m",)

    async def classifiers(self) -> tuple[str, ...]:
        return ()

    async def decide(self, model: str, text: str, labels: object, caller: str) -> Decision:
        raise NotImplementedError


def live(life: Life) -> None:
    """The process. It says nothing; the driver reads what it wrote."""
    setup("error")
    asyncio.run(_live(life))


async def _live(life: Life) -> None:
    config = RuntimeConfig(
        state=life.state,
        servers={"fake": UpstreamConfig(url=life.mcp)},
        journal_compact_bytes=100_000,  # so that kills meet compactions too
        tools_ready_seconds=30,
    )
    shown = os.open(life.shown, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    async with (
        await Journal.open(config, files=Watched(life.synced)) as journal,
        Tools(config) as tools,
        RunService(config, Model(), tools, journal) as runs,
    ):
        number = 0
        told: set[str] = set()
        while True:
            views = runs.everything()
            for view in views:
                if view.state.ended and view.handle not in told:
                    told.add(view.handle)
                    os.write(
                        shown, orjson.dumps([view.handle, view.state.value, view.answer, view.error], option=orjson.OPT_APPEND_NEWLINE)
                    )
            unfinished = [view.handle for view in views if not view.state.ended]
            if not unfinished and life.last:
                return
            for _ in range(0 if life.last else life.runs - len(unfinished)):
                task = f"task {life.number}.{number}"
                number += 1
                view = await runs.spawn(SpawnRequest(task, system="", parallel_tool_calls=number % 2 == 0))
                unfinished.append(view.handle)
                os.write(shown, orjson.dumps([view.handle, "created", None, None], option=orjson.OPT_APPEND_NEWLINE))
            await runs.wait(unfinished, "any", 10, None)
