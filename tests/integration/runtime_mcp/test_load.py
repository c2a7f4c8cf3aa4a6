"""What becomes of a load's sub-agents when it is interrupted, or can't go on, while some are being spawned?"""

import asyncio
import contextlib
from collections.abc import Generator

import pytest

from luftpause.cli import loadgen
from luftpause.cli.load_stop import Interrupt
from luftpause.kit.errors import LuftpauseError
from luftpause.runtime.ports import RunView, SpawnRequest
from tests.integration.runtime_mcp.test_server import until
from tests.support.runtime_fakes import FakeRuns, served


class Full(FakeRuns):
    """Takes two runs."""

    async def spawn(self, request: SpawnRequest) -> RunView:
        if len(self.requests) == 2:
            raise LuftpauseError("the disk is full", code="disk_full", status=507)
        return await super().spawn(request)


async def test_runs_whose_spawn_is_under_way_at_an_interrupt_are_cancelled_too(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt = Interrupt()

    @contextlib.contextmanager
    def interruptible() -> Generator[Interrupt]:
        yield interrupt

    monkeypatch.setattr(loadgen, "interruptible", interruptible)
    monkeypatch.setattr(loadgen, "SPAWN_END_SECONDS", 60.0)
    runs, at_once = FakeRuns(), 8
    monkeypatch.setattr(loadgen, "SPAWNS_AT_ONCE", at_once)
    runs.hold.clear()
    async with served(runs=runs) as at:
        load = asyncio.create_task(loadgen.spawned(at.mcp, at_once + 2, caller="me", seconds_max=60, arguments={}))
        await until(lambda: len(runs.requests) == at_once)
        interrupt.by = "SIGINT"
        interrupt.asked.set()
        await asyncio.sleep(0)
        runs.hold.set()
        found = await load
    assert len(runs.requests) == at_once  # no more are begun
    assert sorted(runs.cancelled) == sorted(runs.runs)
    assert (found.interrupted, found.classes["interactive"].unfinished) == ("SIGINT", at_once)


async def test_runs_of_a_load_that_can_not_go_on_are_cancelled() -> None:
    runs = Full()
    async with served(runs=runs) as at:
        with pytest.raises(LuftpauseError, match="the disk is full"):
            await loadgen.spawned(at.mcp, 100, caller="me", seconds_max=60, arguments={})
    assert len(runs.runs) == 2
    assert sorted(runs.cancelled) == sorted(runs.runs)
