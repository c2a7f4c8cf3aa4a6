"""Does one runtime carry a thousand sub-agents at once, and what does their journal cost?"""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

from msgspec import Struct

from luftpause.kit.errors import LuftpauseError
from luftpause_bench.live.crowds import Task, all_at_once, text
from luftpause_bench.live.world import World
from luftpause_bench.proc import memory_bytes

START_SECONDS_MAX: Final = 60.0
POLL_SECONDS: Final = 0.05
TOLD_SECONDS: Final = 0.6  # two periods of watched_runtime
CHARACTERS: Final = 1_000
TOOL_SECONDS_MAX: Final = 600.0  # a thousand calls at once keep the fake tool server busy for long: it is not what is measured


class AtOnce(Struct, frozen=True):
    """`seconds`: from the first spawn to the last end. CPU seconds are those of the runtime; `journal_share` of them is the journal's."""

    agents: int
    seconds: float
    run_seconds_sum: float
    tool_calls: int
    cpu_seconds: float
    journal_share: float
    memory_mb: float
    failed_tool_calls: int


async def measure(world: World, agents: int) -> AtOnce:
    """Raises LuftpauseError (`run_failed`) if one sub-agent fails."""
    fast = ("--kv-tokens", "8000000", "--prefill-speed", "1000000", "--decode-seconds", "0.02")
    engines = await world.engines(2, *fast)
    tools = await world.tools("--lookup-seconds", "1")
    plane = await world.luftpause(engines, replica={"load": "none"})
    file = world.runtime_file(plane.http, tools, name="watched", tool_seconds_max=TOOL_SECONDS_MAX)
    announced, told = world.folder / "watched.json", world.folder / "watched-figures.json"
    words = (sys.executable, "-m", "luftpause_bench.scale.watched_runtime", str(file), str(announced), str(told))
    runtime = await world.program("watched-runtime", words)
    mcp = await _announced(announced, runtime.check)
    await all_at_once(mcp, [Task("Warm up. [calls=1 tool=lookup answer=5]")])
    before = await _figures(told)
    seconds, runs = await all_at_once(mcp, [_task(number) for number in range(agents)])
    after = await _figures(told)
    runtime.check()
    spent = {name: after[name] - before[name] for name in after}
    return AtOnce(
        agents, seconds, sum(each.seconds for each in runs), sum(each.tool_calls for each in runs), spent["process_seconds"],
        (spent["append_seconds"] + spent["writer_seconds"]) / spent["process_seconds"], memory_bytes(runtime.pid) / 1e6,
        sum(each.failed_tool_calls for each in runs),
    )  # fmt: skip


def _task(number: int) -> Task:
    return Task(text(Random(number), f"scale {number}", CHARACTERS, calls=1 + number % 3, answer_tokens=40))


async def _announced(path: Path, check: Callable[[], None]) -> str:
    async with asyncio.timeout(START_SECONDS_MAX):
        while (at := _read(path)) is None:
            check()
            await asyncio.sleep(POLL_SECONDS)
    return str(at["mcp"])


async def _figures(path: Path) -> dict[str, float]:
    await asyncio.sleep(TOLD_SECONDS)
    found = _read(path)
    if found is None:
        raise LuftpauseError("the watched runtime told no figures", code="no_figures")
    return found


def _read(path: Path) -> dict[str, Any] | None:
    """None: the file isn't there yet; it appears whole."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
