"""What happens to runs when a real filesystem is full? (Needs the right to mount one.)"""

import asyncio
import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from luftpause.kit.config import RuntimeConfig
from luftpause.kit.errors import LuftpauseError
from luftpause.runtime.journal import Journal
from luftpause.runtime.ports import Json, RunState, SpawnRequest, ToolResult
from luftpause.runtime.runs import RunService
from tests.support.agents import CountingTools, ScriptedModel, calls, spec, text

DISK_BYTES = 512 * 1024


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    made = mount and subprocess.run([mount, "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", place], capture_output=True, check=False)
    if not made or made.returncode:
        pytest.skip("no right to mount a tmpfs here")
    yield place
    subprocess.run(["umount", place], check=True)


def fill(ballast: Path) -> None:
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1024))


async def test_spawns_are_refused_running_runs_end_and_nothing_is_lost(tmpfs: Path) -> None:
    gate = asyncio.Event()

    async def work(name: str, arguments: Json) -> ToolResult:
        del name, arguments
        await gate.wait()
        return ToolResult("r" * 2000)

    config = RuntimeConfig(state=tmpfs / "state", journal_reserve_bytes=128 * 1024, journal_compact_bytes=10**9)
    model, tools = ScriptedModel(calls(("lookup", '{"q": "x"}')), text("42")), CountingTools(spec("lookup"), work=work)
    async with await Journal.open(config) as journal, RunService(config, model, tools, journal) as runs:
        handles = [(await runs.spawn(SpawnRequest(f"task {number}"))).handle for number in range(20)]
        async with asyncio.timeout(60):
            while len(tools.made) < 20:
                await asyncio.sleep(0.005)  # the writer's thread has no event for a test
        ballast = tmpfs / "ballast"
        fill(ballast)
        async with asyncio.timeout(60):
            while True:  # what is left of the last page still takes a spawn or two
                try:
                    handles.append((await runs.spawn(SpawnRequest("one more " + "x" * 1000))).handle)
                except LuftpauseError as error:
                    refused = error
                    break
        assert (refused.code, refused.status) == ("disk_full", 507)
        assert "runs that are under way go on, new ones are refused; make room, then spawn again" in refused.message
        gate.set()
        views = await runs.wait(handles, "all", 20, None)
        assert {(view.state, view.answer) for view in views} == {(RunState.COMPLETED, "42")}
        ballast.unlink()
        async with asyncio.timeout(60):
            while journal.short:
                await asyncio.sleep(0.01)
        handles.append((await runs.spawn(SpawnRequest("room again"))).handle)
        await runs.wait(handles, "all", 10, None)
    async with await Journal.open(config) as journal, RunService(config, model, tools, journal) as runs:
        assert {view.handle for view in runs.everything()} == set(handles)
        assert {view.answer for view in runs.everything()} == {"42"}
