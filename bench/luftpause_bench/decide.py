"""What does a classification cost through the dataplane, and does it wait for the turns of busy agents?

`POST /v1/decide` through luftpause, with its scheduler apart and in one process, beside `POST /classify` straight to the engine, in turn:
first alone and then while 20 agents with their own loop keep two generative engines busy through the same dataplane. All of it is real but
the engines, which are fakes in real time; the classifier takes 4 ms for a pass.
"""

import asyncio
import contextlib
import http.client
import json
import socket
import statistics
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from msgspec import Struct, to_builtins

from luftpause.kit.errors import LuftpauseError
from luftpause_bench.live.crowds import percentile
from luftpause_bench.live.programs import Program
from luftpause_bench.live.world import CLASSIFIER, MODEL, World, run
from luftpause_bench.report import Column, Report, Table, at_most, finish, parser

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALONE: Final = "alone"
BUSY: Final = "beside busy agents"
MOST_ADDED_MS: Final = 1.0
MOST_ADDED_P99_MS: Final = 10.0  # a turn of the agents takes hundreds
WARM_UP: Final = 50
BUSY_SECONDS_MAX: Final = 60.0
BUSY_TURNS: Final = 3  # that have ended: by then all agents have one under way
LOOK_SECONDS: Final = 0.1
LOAD_SECONDS_MAX: Final = 600
COLUMNS: Final = (
    Column("luftpause"), Column("load"), Column("engine p50", "ms"), Column("luftpause p50", "ms"), Column("added p50", "ms"),
    Column("engine p99", "ms"), Column("luftpause p99", "ms"), Column("added p99", "ms"), Column("decisions", "", 0),
    Column("turns meanwhile", "", 0),
)  # fmt: skip
APART: Final = "scheduler apart"
TOGETHER: Final = "one process"


class Parameters(Struct, frozen=True):
    """`decisions`: pairs of one through luftpause and one straight, for each load."""

    decisions: int = 2_000
    agents: int = 20
    context_chars: int = 4_000
    tool_seconds: float = 1.0
    text_characters: int = 200


class Sample(Struct, frozen=True):
    """Seconds of each. `turns`: that generative engines finished meanwhile."""

    way: str
    load: str
    straight: list[float]
    through: list[float]
    turns: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1: a bound is missed."""
    made = parser("decide", __doc__)
    made.add_argument("--decisions", type=int, default=None, help="2,000 by default")
    options = made.parse_args(arguments)
    began = time.monotonic()
    parameters = Parameters(decisions=options.decisions or (300 if options.quick else 2_000))
    samples = run(lambda world: measure(world, parameters))
    report = report_of(parameters, samples, time.monotonic() - began, quick=options.quick)
    return finish(report, options, lambda figure: _draw(figure, samples))


async def measure(world: World, parameters: Parameters) -> list[Sample]:
    engines = await world.engines(2)
    classifier = await world.engine("classifier", "--flavour", "vllm", model=CLASSIFIER)
    single = {"name": "classifier", "url": classifier, "kind": "classifier", "load": "none"}
    samples: list[Sample] = []
    for way in (APART, TOGETHER):
        plane = await world.luftpause(engines, more=[single], name=way.replace(" ", "-"), one_process=way == TOGETHER)
        with contextlib.closing(Pair(classifier, plane.http, parameters.text_characters)) as pair:
            samples.append(await _sample(way, ALONE, pair, parameters, engines))
            load = await _agents(world, plane.base_url, parameters, name=f"agents-{len(samples)}")
            await _until_busy(engines, load)
            samples.append(await _sample(way, BUSY, pair, parameters, engines))
            load.check()
            await load.stop()
    return samples


async def _agents(world: World, base_url: str, parameters: Parameters, *, name: str) -> Program:
    """In a process of their own: what they need of it must not be taken for the proxy's."""
    words = (
        sys.executable, "-m", "luftpause", "loadgen", "--agents", str(parameters.agents), "--base-url", base_url, "--model", MODEL,
        "--duration-s", str(LOAD_SECONDS_MAX), "--context-chars", str(parameters.context_chars), "--tool-seconds",
        str(parameters.tool_seconds), "--class", "batch", "--json",
    )  # fmt: skip
    return await world.program(name, words)


async def _until_busy(engines: Sequence[str], load: Program) -> None:
    """Raises LuftpauseError (`program_ended`, `not_ready`)."""
    before = await asyncio.to_thread(_finished, engines)
    try:
        async with asyncio.timeout(BUSY_SECONDS_MAX):
            while await asyncio.to_thread(_finished, engines) < before + BUSY_TURNS:
                load.check()
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        raise LuftpauseError(f"the agents get no answers:\n{load.said()}", code="not_ready") from None


async def _sample(way: str, load: str, pair: "Pair", parameters: Parameters, engines: Sequence[str]) -> Sample:
    before = await asyncio.to_thread(_finished, engines)
    straight, through = await asyncio.to_thread(pair.times, parameters.decisions)
    return Sample(way, load, straight, through, await asyncio.to_thread(_finished, engines) - before)


def _finished(engines: Sequence[str]) -> int:
    return sum(int(json.loads(_get(f"{url}/_fake"))["finished"]) for url in engines)


def _get(url: str) -> bytes:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)
    try:
        connection.request("GET", parts.path)
        return connection.getresponse().read()
    finally:
        connection.close()


class Pair:
    """The same text to the engine and through the proxy, on one connection each."""

    def __init__(self, classifier: str, proxy: str, characters: int) -> None:
        self._body = json.dumps({"model": CLASSIFIER, "input": ("The ferry was late again. " * characters)[:characters]}).encode()
        self._straight = _Connection(classifier, "/classify")
        self._through = _Connection(proxy, "/v1/decide")

    def times(self, count: int) -> tuple[list[float], list[float]]:
        """Seconds of `count` decisions each way, in turn, after some that don't count. Raises LuftpauseError (`refused`)."""
        for each in (self._straight, self._through):
            each.connect()  # a server may have closed one that said nothing for seconds
        took = [(self._straight.post(self._body), self._through.post(self._body)) for _ in range(WARM_UP + count)][WARM_UP:]
        return [one for one, _ in took], [other for _, other in took]

    def close(self) -> None:
        self._straight.close()
        self._through.close()


class _Connection:
    def __init__(self, base: str, path: str) -> None:
        parts = urlsplit(base)
        self._path = path
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)

    def connect(self) -> None:
        self._connection.close()
        self._connection.connect()
        self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self._connection.close()

    def post(self, body: bytes) -> float:
        began = time.perf_counter()
        self._connection.request("POST", self._path, body, {"content-type": "application/json"})
        answer = self._connection.getresponse()
        said = answer.read()
        took = time.perf_counter() - began
        if answer.status != 200:
            raise LuftpauseError(f"{self._path} answered {answer.status}: {said[:300].decode(errors='replace')}", code="refused")
        return took


# ---- what it comes to -------------------------------------------------------------------------------------------


def report_of(parameters: Parameters, samples: Sequence[Sample], seconds: float, *, quick: bool) -> Report:
    bounds = [at_most(f"{each.way}, alone: added at p50, ms", added(each, 0.50), MOST_ADDED_MS) for each in samples if each.load == ALONE]
    bounds += [
        at_most(f"{each.way}, {BUSY}: added at p99, ms", added(each, 0.99), MOST_ADDED_P99_MS) for each in samples if each.load == BUSY
    ]
    title = f"{parameters.agents} busy agents; the original: 20.6 ms alone, 85 and 180 ms (p50, p99) beside them"
    return Report(
        "decide", "engines, in real time", parameters=to_builtins(parameters), seeds=(),
        tables=(Table(title, COLUMNS, tuple(_row(sample) for sample in samples)),), bounds=tuple(bounds), seconds=seconds, quick=quick,
    )  # fmt: skip


def added(sample: Sample, share: float) -> float:
    """Milliseconds between the percentiles of both ways."""
    return 1e3 * (percentile(sample.through, share) - percentile(sample.straight, share))


def _row(sample: Sample) -> tuple[str | float | int, ...]:
    values: list[float] = []
    for share in (0.50, 0.99):
        values += [1e3 * percentile(sample.straight, share), 1e3 * percentile(sample.through, share), added(sample, share)]
    return (sample.way, sample.load, *values, len(sample.through), sample.turns)


def _draw(figure: "Figure", samples: Sequence[Sample]) -> None:
    axes = figure.subplots()
    for sample in samples:
        for name, values in (("engine", sample.straight), ("luftpause", sample.through)):
            ordered = sorted(1e3 * each for each in values)
            axes.plot(
                ordered, [100 * (rank + 1) / len(ordered) for rank in range(len(ordered))], label=f"{name}, {sample.way}, {sample.load}"
            )
    axes.set_xlim(0, 4 * max(statistics.median(1e3 * each for each in sample.through) for sample in samples))
    axes.set_xlabel("milliseconds of a decision")
    axes.set_ylabel("% of the decisions")
    axes.legend()
