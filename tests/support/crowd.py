"""A real scheduler in this process, whose runs are events that a test makes up: thousands of them, without a dataplane or an engine."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from luftpause.kit.config import Config, ReplicaConfig, SchedulerConfig
from luftpause.scheduler import app
from luftpause.scheduler.core.events import (
    Event,
    FirstToken,
    Load,
    ProbeOutcome,
    ReplicaProbed,
    Resync,
    TurnClass,
    TurnFailed,
    TurnFinished,
    TurnRequested,
    Usage,
)

PLANE = "dataplane-1"
MODEL = "llama-70b"
PLACES = 24  # turns that an engine may have in flight
CALLERS = ("ann", "bo", "cy", "dee", "nightly")
TOOLS = ("search", "read_file", "run_tests")


class Crowd:
    """Everything happens as it is called for."""

    def __init__(self, running: app.Running, engines: dict[str, asyncio.Server]) -> None:
        self.running = running
        self.url = running.http
        self.names = tuple(engines)
        self.turns = 0
        self._engines = engines

    @property
    def now(self) -> float:
        return time.monotonic()

    def post(self, *events: Event) -> None:
        for event in events:
            self.running.host.post(event)

    def settle(self) -> None:
        while self.running.host.waiting:
            self.running.host.advance()

    def start(self) -> None:
        self.post(*[ReplicaProbed(self.now, name, ProbeOutcome.OK, Load(2, 0), (MODEL,)) for name in self.names])
        self.post(Resync(self.now, PLANE, "session", "boot"))  # the only one expected: placing begins with it, whatever the clock says
        self.settle()
        assert self.running.host.state.open

    def asks(self, run: str, *, parent: str = "", batch: bool = False, caller: str = "ann") -> str:
        """The turn that it asks for."""
        self.turns += 1
        turn = f"turn-{self.turns}"
        turn_class = TurnClass.BATCH if batch else TurnClass.INTERACTIVE
        self.post(TurnRequested(self.now, PLANE, turn, 1, run, MODEL, turn_class, caller, run=run, parent=parent, arrived=self.now))
        self.settle()
        return turn

    def streams(self, turn: str) -> None:
        self.post(FirstToken(self.now, PLANE, turn))
        self.settle()

    def ends(self, turn: str, *, tools: Sequence[str] = ()) -> None:
        ids = tuple(f"{turn}-{tool}" for tool in tools)
        usage = Usage(2400, 180, 1900)
        self.post(TurnFinished(self.now, PLANE, turn, 1, "tool_calls" if ids else "stop", usage, bool(ids), ids, tuple(tools)))
        self.settle()

    def fails(self, turn: str) -> None:
        self.post(TurnFailed(self.now, PLANE, turn, 1, "engine_died"))
        self.settle()

    def breaks(self, name: str) -> None:
        """Nobody listens there any more."""
        self._engines[name].close()
        self.post(ReplicaProbed(self.now, name, ProbeOutcome.REFUSED))
        self.settle()

    def fill(self, runs: int) -> None:
        """So many runs: most in flight or held, some in tools, some over."""
        for number in range(runs):
            run = f"run-{number:04}"
            parent = f"run-{number // 8:04}" if number % 8 else ""
            turn = self.asks(run, parent=parent, batch=number % 3 == 0, caller=CALLERS[number % len(CALLERS)])
            if number % 2:
                self.streams(turn)
            if number % 5 == 1:
                self.ends(turn, tools=(TOOLS[number % 3],))
            elif number % 5 == 2:
                self.ends(turn)


@contextlib.asynccontextmanager
async def crowd(
    names: Sequence[str] = ("engine-a", "engine-b", "engine-c"),
    *,
    port: int = 0,
    places: int = PLACES,
    governor: Mapping[str, Any] | None = None,
) -> AsyncGenerator[Crowd]:
    """Its replicas can be reached and do nothing, and placing has begun."""
    async with contextlib.AsyncExitStack() as stack:
        engines = {name: await stack.enter_async_context(await asyncio.start_server(_mute, "127.0.0.1", 0)) for name in names}
        replicas = tuple(
            ReplicaConfig(name=name, url=url_of(engine), load="none", models=(MODEL,), max_in_flight=places, health=None)
            for name, engine in engines.items()
        )
        scheduler = SchedulerConfig(policy="original", grpc_port=0, http_port=port, dataplanes_expected=(PLANE,))
        config = Config.model_validate({"replicas": replicas, "scheduler": scheduler, "governor": governor or {}})
        whole = Crowd(await stack.enter_async_context(app.running(config)), engines)
        whole.start()
        yield whole


def url_of(server: asyncio.Server) -> str:
    return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def _mute(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()
