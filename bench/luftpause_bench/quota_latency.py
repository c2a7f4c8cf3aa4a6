"""How much later is a call to a hosted API that asks the governor first, where nobody has to wait?

The same call, on connections that stay open: straight to a fake provider, through `/proxy/`, and straight again between a question to
`POST /v1/quota/{target}/reserve` and its `report`, in turn; with the scheduler apart and in one process. The limits are far away, so all
that is added is the asking; `reserve` alone is what the call waits for, as the report comes behind its answer.

    luftpause bench quota_latency [--calls 2000] [--quick]
"""

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from msgspec import Struct, to_builtins

from luftpause.kit.errors import LuftpauseError
from luftpause_bench.live.crowds import percentile
from luftpause_bench.live.world import World, run
from luftpause_bench.report import Column, Report, Table, at_most, finish, parser

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TARGET: Final = "github"
QUOTA: Final = 1e8  # calls an hour: never near its end
PATH: Final = "/repos/example/example/issues"
MOST_ADDED_MS: Final = 2.0
WARM_UP: Final = 50
APART: Final = "scheduler apart"
TOGETHER: Final = "one process"
RESERVED: Final = "reserve"
ASKED: Final = "reserve and report"
PROXIED: Final = "/proxy/"
COLUMNS: Final = (
    Column("luftpause"), Column("way"), Column("straight p50", "ms"), Column("added p50", "ms"), Column("added p90", "ms"),
    Column("added p99", "ms"), Column("calls", "", 0),
)  # fmt: skip


class Parameters(Struct, frozen=True):
    """`calls`: of each way."""

    calls: int = 2_000


class Sample(Struct, frozen=True):
    """Seconds of each call straight, and of each through luftpause or with its two questions."""

    plane: str
    way: str
    straight: list[float]
    through: list[float]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1: a bound is missed."""
    made = parser("quota_latency", __doc__)
    made.add_argument("--calls", type=int, default=None, help="2,000 by default")
    options = made.parse_args(arguments)
    began = time.monotonic()
    parameters = Parameters(options.calls or (300 if options.quick else 2_000))
    samples = run(lambda world: measure(world, parameters))
    report = report_of(parameters, samples, time.monotonic() - began, quick=options.quick)
    return finish(report, options, lambda figure: _draw(figure, samples))


async def measure(world: World, parameters: Parameters) -> list[Sample]:
    provider = await world.provider("--family", "github", "--quota", f"{QUOTA:g}", "--per-minute", "0", "--latency-seconds", "0")
    limits = [{"name": "core", "kind": "fixed", "limit": QUOTA, "window_seconds": 3_600, "counts": ["requests"]}]
    section = {"targets": {TARGET: {"profile": "github", "scopes": limits, "proxy": provider}}, "proxy": {"open": True}}
    samples: list[Sample] = []
    for plane in (APART, TOGETHER):
        at = await world.governor(section, name=plane.replace(" ", "-"), one_process=plane == TOGETHER)
        with contextlib.closing(Ways(provider, at.http)) as ways:
            samples += ways.samples(plane, parameters.calls)
    return samples


class Ways:
    """One call to the provider, each way."""

    def __init__(self, provider: str, plane: str) -> None:
        self._straight = _Connection(provider)
        self._plane = _Connection(plane)

    def samples(self, plane: str, calls: int) -> list[Sample]:
        """After some calls that don't count. Raises LuftpauseError (`refused`)."""
        took = [(self.straight(), self.proxied(), self.straight(), self.asked()) for _ in range(WARM_UP + calls)][WARM_UP:]
        first, proxied, second, asked = zip(*took, strict=True)
        answered, reported = (list(each) for each in zip(*asked, strict=True))
        straight = list(second)
        return [
            Sample(plane, PROXIED, list(first), list(proxied)), Sample(plane, RESERVED, straight, answered),
            Sample(plane, ASKED, straight, reported),
        ]  # fmt: skip

    def straight(self) -> float:
        return self._timed(lambda: self._straight.ask("GET", PATH))

    def proxied(self) -> float:
        return self._timed(lambda: self._plane.ask("GET", f"/proxy/{TARGET}{PATH}"))

    def asked(self) -> tuple[float, float]:
        """Until the call has its answer, and until that is reported."""
        began = time.perf_counter()
        _, said = self._plane.ask("POST", f"/v1/quota/{TARGET}/reserve", {"waitMs": 0})
        granted = json.loads(said)
        headers, _ = self._straight.ask("GET", PATH)
        answered = time.perf_counter()
        report = {"lease": granted["lease"], "fence": granted["fence"], "status": 200, "headers": headers}
        self._plane.ask("POST", f"/v1/quota/{TARGET}/report", report)
        return answered - began, time.perf_counter() - began

    def close(self) -> None:
        self._straight.close()
        self._plane.close()

    @staticmethod
    def _timed(work: Callable[[], object]) -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began


class _Connection:
    """Kept open; made anew where the server has closed it."""

    def __init__(self, base: str) -> None:
        parts = urlsplit(base)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        self._connection.connect()
        self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self._connection.close()

    def ask(self, method: str, path: str, body: Any = None) -> tuple[dict[str, str], bytes]:
        """Headers and body of a good answer. Raises LuftpauseError (`refused`)."""
        sent = None if body is None else json.dumps(body).encode()
        self._connection.request(method, path, sent, {} if sent is None else {"content-type": "application/json"})
        answer = self._connection.getresponse()
        said = answer.read()
        if answer.status >= 300:
            raise LuftpauseError(f"{path} answered {answer.status}: {said[:300].decode(errors='replace')}", code="refused")
        return dict(answer.getheaders()), said


# ---- what it comes to -------------------------------------------------------------------------------------------


def report_of(parameters: Parameters, samples: Sequence[Sample], seconds: float, *, quick: bool) -> Report:
    bounds = [at_most(f"{each.plane}, {each.way}: added at p50, ms", added(each, 0.50), MOST_ADDED_MS) for each in samples]
    table = Table("a call to a hosted API, asked for first; nobody waits", COLUMNS, tuple(_row(sample) for sample in samples))
    return Report(
        "quota_latency", "the provider", parameters=to_builtins(parameters), seeds=(), tables=(table,), bounds=tuple(bounds),
        seconds=seconds, quick=quick,
    )  # fmt: skip


def added(sample: Sample, share: float) -> float:
    """Milliseconds between the percentiles of both ways."""
    return 1e3 * (percentile(sample.through, share) - percentile(sample.straight, share))


def _row(sample: Sample) -> tuple[str | float | int, ...]:
    later = (added(sample, share) for share in (0.50, 0.90, 0.99))
    return (sample.plane, sample.way, 1e3 * percentile(sample.straight, 0.50), *later, len(sample.through))


def _draw(figure: "Figure", samples: Sequence[Sample]) -> None:
    axes = figure.subplots()
    for sample in samples:
        ordered = sorted(1e3 * each for each in sample.through)
        axes.plot(ordered, [100 * (rank + 1) / len(ordered) for rank in range(len(ordered))], label=f"{sample.way}, {sample.plane}")
    axes.set_xlim(0, 4 * max(1e3 * percentile(sample.through, 0.50) for sample in samples))
    axes.set_xlabel("milliseconds of a call")
    axes.set_ylabel("% of the calls")
    axes.legend()
