"""Does what the services take stay the same while work goes through them for minutes?"""

import asyncio
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from msgspec import Struct

from luftpause_bench.live.crowds import Crowd, Task, closed_loop, text
from luftpause_bench.live.world import MODEL, World
from luftpause_bench.proc import cpu_seconds, memory_bytes

PERIOD_SECONDS: Final = 2.0
SPEED: Final = 8.0  # of engines and tools: more turns, more that could be left behind


class Sample(Struct, frozen=True):
    at: float
    memory_mb: dict[str, float]


class Steady(Struct, frozen=True):
    """`growth`: mean memory of the last quarter of the time as a multiple of that of the second quarter, by service."""

    seconds: float
    kept_seconds: float
    runs: int
    growth: dict[str, float]
    memory_mb: dict[str, float]
    cpu_share: dict[str, float]  # of a core
    samples: list[Sample]


async def measure(world: World, seconds: float, kept_seconds: float) -> Steady:
    """
    Agents with their own loop, and sub-agents, in a closed loop. What is kept of ended runs is kept for `kept_seconds` instead of half an
    hour (results of sub-agents: a week), so that it no longer grows after a quarter of the time. Raises LuftpauseError (`run_failed`).
    """
    options = ("--speed", str(SPEED), "--kv-tokens", "200000")
    engines = await world.engines(2, *options)
    tools = await world.tools("--lookup-seconds", str(1 / SPEED))
    kept = {"run_idle_seconds": kept_seconds, "tool_call_memory_seconds": kept_seconds, "tool_call_sweep_seconds": kept_seconds / 4}
    plane = await world.luftpause(engines, scheduler=kept, dataplane={"memory_seconds": kept_seconds})
    mcp, runtime = await world.runtime(plane.http, tools, retention_seconds=kept_seconds)
    words = (
        sys.executable, "-m", "luftpause", "loadgen", "--agents", "16", "--base-url", plane.base_url, "--model", MODEL, "--duration-s",
        str(seconds + 60), "--tool-seconds", str(1 / SPEED), "--class", "batch", "--json",
    )  # fmt: skip
    load = await world.program("agents", words)
    pids = {**plane.pids, "runtime": runtime}
    samples: list[Sample] = []
    watching = asyncio.create_task(_watch(pids, samples))
    before, began = {name: cpu_seconds(pid) for name, pid in pids.items()}, time.monotonic()
    try:
        ended = await closed_loop(mcp, [Crowd("agents", 8, _task)], seconds)
    finally:
        watching.cancel()
    took = time.monotonic() - began
    load.check()
    share = {name: (cpu_seconds(pid) - before[name]) / took for name, pid in pids.items()}
    return Steady(took, kept_seconds, len(ended), growth(samples, took), samples[-1].memory_mb, share, samples)


def _task(agent: int, number: int) -> Task:
    name = f"steady {agent}-{number}"
    return Task(text(Random(name), name, 2_000, calls=1 + (agent + number) % 3, answer_tokens=40))


async def _watch(pids: Mapping[str, int], samples: list[Sample]) -> None:
    began = time.monotonic()
    while True:
        samples.append(Sample(time.monotonic() - began, {name: memory_bytes(pid) / 1e6 for name, pid in pids.items()}))
        await asyncio.sleep(PERIOD_SECONDS)


def growth(samples: Sequence[Sample], seconds: float) -> dict[str, float]:
    """Of each service, from the second quarter of the time to the last."""

    def mean(name: str, begin: float, end: float) -> float:
        return statistics.mean(sample.memory_mb[name] for sample in samples if begin * seconds <= sample.at <= end * seconds)

    return {name: mean(name, 0.75, 1.0) / mean(name, 0.25, 0.5) for name in samples[0].memory_mb}
