"""What does fanning sub-agents out gain over running them one after the other, and what does luftpause cost beside a bare router?

`spawn` × 16 and one `await` of all, through luftpause and through sglang-router alone, and the same tasks one after the other. Runtime,
MCP, proxy, scheduler and router are real; engines and tools are fakes in real time.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Final

from msgspec import Struct, to_builtins

from luftpause.cli.subagents import SubAgentRun
from luftpause_bench.live import routers
from luftpause_bench.live.crowds import Task, all_at_once, one_after_the_other, text
from luftpause_bench.live.world import World, run
from luftpause_bench.plots import grouped_bars
from luftpause_bench.report import Column, Report, Table, at_least, at_most, describe_versions, finish, parser

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHARACTERS: Final = 11_000  # about 2,750 tokens, and 50 of system prompt and tool
SEQUENCE: Final = "one after the other"
FAN_OUT: Final = "luftpause"
ROUTER: Final = "sglang-router alone"
LEAST_GAIN: Final = 5.0
MOST_AGAINST_ROUTER: Final = 1.10
COLUMNS: Final = (
    Column("way"), Column("all took", "s", 1), Column("spread", "s", 1), Column("run p50", "s", 1), Column("turns", "", 0),
    Column("prompt tokens", "", 0), Column("from cache", "%", 1),
)  # fmt: skip


class Parameters(Struct, frozen=True):
    """`speed`: engines (on one GPU) and tools run so many times faster than they are said to; seconds are as measured."""

    agents: int = 16
    repeats: int = 3
    speed: float = 1.0
    engines: int = 2
    kv_tokens: int = 28_000
    lookup_seconds: float = 2.0
    calls_max: int = 3
    characters: int = CHARACTERS
    answer_tokens: tuple[int, int] = (60, 120)
    policy: str = ""  # of the scheduler; empty: the default


class Sample(Struct, frozen=True):
    way: str
    repeat: int
    seconds: float
    runs: list[SubAgentRun]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1: a bound is missed."""
    made = parser("fanout", __doc__)
    made.add_argument("--repeats", type=int, default=None, help="3 by default")
    made.add_argument("--policy", default="", help="of the scheduler; its default if not given")
    options = made.parse_args(arguments)
    began = time.monotonic()
    parameters = _parameters(options)
    samples = run(lambda world: measure(world, parameters))
    return finish(
        report_of(parameters, samples, time.monotonic() - began, quick=options.quick), options, lambda figure: _draw(figure, samples)
    )


def _parameters(options: argparse.Namespace) -> Parameters:
    if options.quick:
        return Parameters(repeats=options.repeats or 1, speed=5.0, policy=options.policy)
    return Parameters(repeats=options.repeats or 3, policy=options.policy)


async def measure(world: World, parameters: Parameters) -> list[Sample]:
    """Each repeat goes all ways, on tasks that nothing has seen before."""
    engines = await world.engines(parameters.engines, "--speed", str(parameters.speed), "--kv-tokens", str(parameters.kv_tokens))
    tools = await world.tools("--lookup-seconds", str(parameters.lookup_seconds / parameters.speed))
    own = {"probe_seconds": 2.0 / parameters.speed}
    plane = await world.luftpause(engines, scheduler=own | ({"policy": parameters.policy} if parameters.policy else {}))
    ours, _ = await world.runtime(plane.http, tools, name="runtime-luftpause")
    theirs, _ = await world.runtime(await routers.start(world, "cache_aware", engines), tools, name="runtime-router")
    for mcp in (ours, theirs):
        await all_at_once(mcp, tasks(parameters, "warm-up")[:2])
    samples: list[Sample] = []
    for repeat in range(parameters.repeats):
        for way, mcp in ((FAN_OUT, ours), (ROUTER, theirs)) if repeat % 2 == 0 else ((ROUTER, theirs), (FAN_OUT, ours)):
            samples.append(Sample(way, repeat, *await all_at_once(mcp, tasks(parameters, f"{way} {repeat}"))))
        samples.append(Sample(SEQUENCE, repeat, *await one_after_the_other(ours, tasks(parameters, f"{SEQUENCE} {repeat}"))))
    return samples


def tasks(parameters: Parameters, name: str) -> list[Task]:
    """Runs of the same numbers behave alike under every name: so many calls, such an answer. Only the words differ."""
    made: list[Task] = []
    for number in range(parameters.agents):
        shape = Random(number)
        calls, answer = 1 + number % parameters.calls_max, shape.randint(*parameters.answer_tokens)
        words = text(Random(f"{name} {number}"), f"{name} {number}", parameters.characters, calls=calls, answer_tokens=answer)
        made.append(Task(words))
    return made


# ---- what it comes to -------------------------------------------------------------------------------------------


def report_of(parameters: Parameters, samples: Sequence[Sample], seconds: float, *, quick: bool) -> Report:
    took = {way: statistics.mean(each.seconds for each in samples if each.way == way) for way in (SEQUENCE, FAN_OUT, ROUTER)}
    bounds = (
        at_least("one after the other / fanned out through luftpause", took[SEQUENCE] / took[FAN_OUT], LEAST_GAIN),
        at_most("fanned out through luftpause / through the router alone", took[FAN_OUT] / took[ROUTER], MOST_AGAINST_ROUTER),
    )
    table = Table(
        f"{parameters.agents} sub-agents, {parameters.repeats} repeats; the original: 120.5 s, 22.9 s, 21.5 s", COLUMNS,
        tuple(_row(way, [each for each in samples if each.way == way]) for way in (SEQUENCE, FAN_OUT, ROUTER)),
    )  # fmt: skip
    return Report(
        "fanout", "engines and tools, in real time", parameters=to_builtins(parameters), seeds=(), tables=(table,), bounds=bounds,
        seconds=seconds, quick=quick, versions=describe_versions("sglang-router"),
    )  # fmt: skip


def _row(way: str, samples: Sequence[Sample]) -> tuple[str, float, float, float, int, int, float]:
    runs = [each for sample in samples for each in sample.runs]
    took = [sample.seconds for sample in samples]
    prompt = sum(each.prompt_tokens for each in runs)
    return (
        way, statistics.mean(took), max(took) - min(took), statistics.median(each.seconds for each in runs),
        sum(each.turns for each in runs), prompt, 100 * sum(each.cached_tokens for each in runs) / prompt,
    )  # fmt: skip


def _draw(figure: "Figure", samples: Sequence[Sample]) -> None:
    ways = (SEQUENCE, FAN_OUT, ROUTER)
    repeats = sorted({each.repeat for each in samples})
    values = {way: [each.seconds for each in samples if each.way == way] for way in ways}
    grouped_bars(figure.subplots(), [f"repeat {each + 1}" for each in repeats], values, label="seconds until all have ended")
