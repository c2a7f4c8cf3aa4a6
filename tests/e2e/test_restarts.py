"""What do agents notice when a service is killed and started again?"""

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

from luftpause.cli import subagents
from luftpause.cli.load_agents import Crowd, Load, Standing, run_load
from luftpause.cli.load_run import Shape
from tests.support.stack import Stack, stack

pytestmark = pytest.mark.timeout(240)
AGENTS = 8


async def finished(whole: Stack, tool: str, number: int) -> None:
    """Waits until so many calls of the tool have finished."""
    async with asyncio.timeout(60):
        while (await whole.tool_counts())["finished"].get(tool, 0) < number:
            await asyncio.sleep(0.02)  # the counter is in another process


async def test_killed_in_the_middle_the_runtime_finishes_all_runs_and_repeats_no_finished_call(tmp_path: Path) -> None:
    async with stack(tmp_path, tools=["--lookup-seconds", "0.5"]) as whole:
        async with subagents.connect(whole.mcp, caller="test") as client:
            handles = [await client.spawn(f"Write down fact {i}. [calls=8 tool=lookup,record]", maxToolCalls=10) for i in range(AGENTS)]
            await finished(whole, "record", AGENTS)
            await whole.kill("runtime")
        before = await whole.tool_counts()
        assert before["finished"]["record"] < 4 * AGENTS, "killed too late: nothing was left to do"
        await whole.start("runtime")
        async with subagents.connect(whole.mcp, caller="test") as client:
            runs = await client.wait(handles, seconds_max=90, progress=lambda *_: None)
        assert [run.state for run in runs] == ["Completed"] * AGENTS
        assert all(run.answer for run in runs)
        after = await whole.tool_counts()
        twice = Counter(call["tool"] for call in after["twice"])
        # `record` adds a line each time, so it is never made again. A `lookup` that was under way may be: it is read-only, and one at
        # a time in each run.
        assert twice["record"] == 0, after["twice"]
        assert len(after["recorded"]) == len(set(after["recorded"]))
        assert twice["lookup"] <= AGENTS
        assert all(call["finished"] == 2 for call in after["twice"])


async def test_killed_under_load_the_scheduler_fails_no_turn_and_places_again_when_it_is_back(tmp_path: Path) -> None:
    async with stack(tmp_path, engine=["--speed", "4"]) as whole:
        load = Load(
            base_url=whole.base_url, model=await whole.ready(), crowds=(Crowd("interactive", AGENTS),), seconds=100, caller="test",
            shape=Shape((400, 400), tool_seconds=0.2, max_tokens=64),
        )  # fmt: skip
        seen = Standing()

        def watch(standing: Standing) -> None:
            nonlocal seen
            seen = replace(standing)

        async def ends(further: int) -> None:
            """So many further runs have ended."""
            before = seen.ended
            async with asyncio.timeout(60):
                while seen.ended < before + further:
                    await asyncio.sleep(0.02)

        loading = asyncio.create_task(run_load(load, watch))
        try:
            await ends(2 * AGENTS)  # the load is in full swing
            await whole.kill("scheduler")
            await whole.start("scheduler")
            await ends(2 * AGENTS)  # no more than one each can have ended on places of the old one
        finally:
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
    assert seen.failed == 0
