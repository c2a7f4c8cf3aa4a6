"""Does luftpause find as much of a prompt in the engines' caches as a cache-aware router, and what is that worth?

Eight sub-agents at any time, engines that don't queue: through luftpause, and through sglang-router with `cache_aware` and with
`round_robin`. All of it is real but the engines and the tool, which are fakes in real time.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Final

from msgspec import Struct, to_builtins

from luftpause_bench.live import routers
from luftpause_bench.live.crowds import Crowd, OfCrowd, Task, all_at_once, closed_loop, figures, text
from luftpause_bench.live.world import World, run
from luftpause_bench.plots import grouped_bars
from luftpause_bench.report import Column, Report, Table, at_least, describe_versions, finish, parser

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OURS: Final = "luftpause"
AWARE: Final = "sglang-router cache_aware"
ROUND: Final = "sglang-router round_robin"
WAYS: Final = (OURS, AWARE, ROUND)
LEAST_OF_AWARE: Final = 0.99  # of its cached share: a tie, as the same runs are not under way at the same time
LEAST_RATE: Final = 1.07  # of round_robin's runs per minute
COLUMNS: Final = (
    Column("way"), Column("from cache", "%", 1), Column("spread", "%", 1), Column("runs", "per min", 1), Column("spread", "per min", 1),
    Column("run p50", "s", 2), Column("run p95", "s", 2), Column("runs", "", 0),
)  # fmt: skip


class Parameters(Struct, frozen=True):
    """`speed`: engines (on one GPU), tool and probes are so many times faster; windows are in real seconds."""

    agents: int = 8
    repeats: int = 4
    window_seconds: float = 60.0
    warm_up_seconds: float = 5.0
    speed: float = 1.0
    engines: int = 2
    kv_tokens: int = 48_000
    lookup_seconds: float = 1.0
    calls: tuple[int, int] = (1, 3)
    characters: tuple[int, int] = (6_000, 20_000)
    answer_tokens: tuple[int, int] = (30, 90)
    policy: str = ""  # of the scheduler; empty: the default


class Sample(Struct, frozen=True):
    way: str
    repeat: int
    found: OfCrowd


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1: a bound is missed."""
    made = parser("routing", __doc__)
    made.add_argument("--repeats", type=int, default=None, help="4 by default")
    made.add_argument("--policy", default="", help="of the scheduler; its default if not given")
    options = made.parse_args(arguments)
    began = time.monotonic()
    parameters = _parameters(options)
    samples = run(lambda world: measure(world, parameters))
    report = report_of(parameters, samples, time.monotonic() - began, quick=options.quick)
    return finish(report, options, lambda figure: _draw(figure, samples))


def _parameters(options: argparse.Namespace) -> Parameters:
    if options.quick:
        return Parameters(repeats=options.repeats or 1, window_seconds=12.0, warm_up_seconds=2.0, speed=2.0, policy=options.policy)
    return Parameters(repeats=options.repeats or 4, policy=options.policy)


async def measure(world: World, parameters: Parameters) -> list[Sample]:
    """One after the other, in another order in each repeat. Engines keep what is in their caches; no two runs have the same task."""
    engines = await world.engines(parameters.engines, "--speed", str(parameters.speed), "--kv-tokens", str(parameters.kv_tokens))
    tools = await world.tools("--lookup-seconds", str(parameters.lookup_seconds / parameters.speed))
    own = {"probe_seconds": 2.0 / parameters.speed} | ({"policy": parameters.policy} if parameters.policy else {})
    plane = await world.luftpause(engines, scheduler=own)
    turns_at = {
        OURS: plane.http, AWARE: await routers.start(world, "cache_aware", engines),
        ROUND: await routers.start(world, "round_robin", engines),
    }  # fmt: skip
    mcps = {way: (await world.runtime(url, tools, name=f"runtime-{number}"))[0] for number, (way, url) in enumerate(turns_at.items())}
    for way, mcp in mcps.items():
        await all_at_once(mcp, [task(parameters, way, "warm-up", number, 0) for number in range(2)])
    samples: list[Sample] = []
    for repeat in range(parameters.repeats):
        for way in (*WAYS[repeat % 3 :], *WAYS[: repeat % 3]):
            found = await _window(parameters, mcps[way], way, repeat)
            samples.append(Sample(way, repeat, found))
    return samples


async def _window(parameters: Parameters, mcp: str, way: str, repeat: int) -> OfCrowd:
    crowd = Crowd("agents", parameters.agents, lambda agent, number: task(parameters, way, str(repeat), agent, number))
    until = parameters.warm_up_seconds + parameters.window_seconds
    ended = await closed_loop(mcp, [crowd], until)
    return figures(ended, "agents", parameters.warm_up_seconds, until)


def task(parameters: Parameters, way: str, repeat: str, agent: int, number: int) -> Task:
    """The runs of an agent have the same lengths in the same order whichever way they go; only the words differ."""
    shape = Random(f"{agent} {number}")
    characters, calls = shape.randint(*parameters.characters), shape.randint(*parameters.calls)
    name = f"{way} {repeat} {agent}-{number}"
    return Task(text(Random(name), name, characters, calls=calls, answer_tokens=shape.randint(*parameters.answer_tokens)))


# ---- what it comes to -------------------------------------------------------------------------------------------


def report_of(parameters: Parameters, samples: Sequence[Sample], seconds: float, *, quick: bool) -> Report:
    cached = {way: _mean(samples, way, "cached_share") for way in WAYS}
    rate = {way: _mean(samples, way, "runs_per_minute") for way in WAYS}
    bounds = (
        at_least("part of the prompt tokens from cache / cache_aware's", cached[OURS] / cached[AWARE], LEAST_OF_AWARE),
        at_least("runs per minute / round_robin's", rate[OURS] / rate[ROUND], LEAST_RATE),
    )
    title = f"{parameters.agents} sub-agents, {parameters.repeats} repeats; the original: 44.6, 44.6 and 25.7 % from cache"
    return Report(
        "routing", "engines and the tool, in real time", parameters=to_builtins(parameters), seeds=(),
        tables=(Table(title, COLUMNS, tuple(_row(samples, way) for way in WAYS)),), bounds=bounds, seconds=seconds, quick=quick,
        versions=describe_versions("sglang-router"),
    )  # fmt: skip


def _of(samples: Sequence[Sample], way: str, name: str) -> list[float]:
    return [getattr(each.found, name) for each in samples if each.way == way]


def _mean(samples: Sequence[Sample], way: str, name: str) -> float:
    return statistics.mean(_of(samples, way, name))


def _row(samples: Sequence[Sample], way: str) -> tuple[str, float, float, float, float, float, float, int]:
    cached, rates = _of(samples, way, "cached_share"), _of(samples, way, "runs_per_minute")
    return (
        way, 100 * statistics.mean(cached), 100 * (max(cached) - min(cached)), statistics.mean(rates), max(rates) - min(rates),
        _mean(samples, way, "run_seconds_p50"), _mean(samples, way, "run_seconds_p95"), round(sum(_of(samples, way, "runs"))),
    )  # fmt: skip


def _draw(figure: "Figure", samples: Sequence[Sample]) -> None:
    left, right = figure.subplots(1, 2)
    repeats = [f"repeat {each + 1}" for each in sorted({sample.repeat for sample in samples})]
    shares = {way: [100 * each for each in _of(samples, way, "cached_share")] for way in WAYS}
    grouped_bars(left, repeats, shares, label="% of prompt tokens from cache")
    grouped_bars(right, repeats, {way: _of(samples, way, "runs_per_minute") for way in WAYS}, label="runs per minute")
