"""How does the MCP server listen, and how does it stop while streams are open?"""

import asyncio
import contextlib
import logging
import secrets
import socket
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from typing import Final

import uvicorn
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Receive, Scope, Send

from luftpause.kit.clock import monotonic
from luftpause.kit.config import RuntimeConfig
from luftpause.runtime.front import Front
from luftpause.runtime.gate import Gate, owner_name
from luftpause.runtime.mcp_app import build_server, build_sessions
from luftpause.runtime.mcp_tools.quotas import Quotas
from luftpause.runtime.mcp_tools.sessions import LiveSessions
from luftpause.runtime.pages import Pages
from luftpause.runtime.ports import Joins, Runs, RunView, Toolbox

IDLE_CONNECTION_SECONDS: Final = 75
LAST_WORDS_SECONDS: Final = 0.5


@contextlib.asynccontextmanager
async def serving(
    config: RuntimeConfig,
    runs: Runs,
    all_runs: Callable[[], Sequence[RunView]],
    toolbox: Toolbox,
    sessions: LiveSessions,
    sock: socket.socket,
    gate: Gate | None = None,
    key: bytes | None = None,
    joins: Joins | None = None,
    quotas: Quotas | None = None,
    *,
    collectors: Sequence[Collector] = (),
) -> AsyncGenerator[asyncio.Task[None]]:
    """Serves on `sock` within the block; yields the task, which ends only if serving broke. Without a gate everybody may call.

    `key` seals what clients bring back with answers; without one a new one does, and a restart loses their questions. `collectors` are what
    `/metrics` shows.

    Leaving the block: no new requests, open calls answer at once, streams end; all within half of `stop_grace_seconds`.
    """
    stopping = asyncio.Event()
    server = build_server(config, runs, toolbox, stopping, key or secrets.token_bytes(32), joins, quotas)
    pages = Pages(lambda principal: runs.views(owner_name(principal)) if principal else all_runs(), toolbox, collectors)
    async with serving_mcp(config, build_sessions(config, server), pages, sessions, sock, stopping, gate) as task:
        yield task


@contextlib.asynccontextmanager
async def serving_mcp(
    config: RuntimeConfig,
    manager: StreamableHTTPSessionManager,
    pages: ASGIApp,
    sessions: LiveSessions,
    sock: socket.socket,
    stopping: asyncio.Event,
    gate: Gate | None = None,
) -> AsyncGenerator[asyncio.Task[None]]:
    """Any MCP server behind the runtime's front; `stopping` is set when the block is left."""
    calls = _OpenRequests(manager.handle_request)
    front = Front(config, calls, pages, sessions, stopping.is_set, gate, replays=manager.event_store is not None)
    server = _Server(config, front)
    task: asyncio.Task[None] | None = None
    try:
        async with manager.run():
            task = asyncio.create_task(server.serve(sockets=[sock]), name="runtime http")
            try:
                await _first(task, server.listening)
                yield task
            finally:
                stopping.set()
                deadline = monotonic() + config.stop_grace_seconds / 2
                server.quiet_stop()
                await calls.answered(config.stop_grace_seconds / 4)
        # The sessions are over, and with them their streams.
        await asyncio.wait({task}, timeout=max(0.0, deadline - monotonic() - LAST_WORDS_SECONDS))
    finally:
        if task is not None:
            await server.end(task)


class _OpenRequests:
    """Counts the calls in progress; streams that only listen are none."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._open = 0
        self._none = asyncio.Event()
        self._none.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        self._open += 1
        self._none.clear()
        try:
            await self._app(scope, receive, send)
        finally:
            self._open -= 1
            if not self._open:
                self._none.set()

    async def answered(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._none.wait(), seconds)


class _Server(uvicorn.Server):
    """uvicorn that leaves signals to us and stops without noise."""

    def __init__(self, config: RuntimeConfig, app: ASGIApp) -> None:
        settings = uvicorn.Config(
            app,
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=IDLE_CONNECTION_SECONDS,
            timeout_graceful_shutdown=max(1, round(config.stop_grace_seconds)),
        )
        super().__init__(settings)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    def quiet_stop(self) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # requests that are cut off now are no faults
        self.should_exit = True

    async def end(self, task: asyncio.Task[None]) -> None:
        """Cuts off what is still open."""
        self.force_exit = True
        for request in self.server_state.tasks:
            request.cancel()
        await asyncio.wait({task}, timeout=LAST_WORDS_SECONDS)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _first(task: asyncio.Task[None], event: asyncio.Event) -> None:
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
