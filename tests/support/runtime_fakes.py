"""What stands behind the runtime's MCP server in tests: runs that end when told to, and two tools."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from luftpause.kit import serve
from luftpause.kit.auth import Tokens
from luftpause.kit.config import RuntimeConfig
from luftpause.kit.errors import LuftpauseError
from luftpause.runtime.gate import Gate
from luftpause.runtime.mcp_tools.sessions import LiveSessions
from luftpause.runtime.ports import RunState, RunView, ServerState, ServiceClass, SpawnRequest, ToolResult, ToolSpec
from luftpause.runtime.service import serving


class FakeRuns:
    """Runs that stay Running until `finish`, or until cancelled; `task` "echo …" completes at once."""

    def __init__(self) -> None:
        self.requests: list[SpawnRequest] = []
        self.runs: dict[str, RunView] = {}
        self.owners: dict[str, str | None] = {}
        self.cancelled: list[str] = []
        self.waits = 0
        self.spawned = asyncio.Event()
        self.hold = asyncio.Event()  # spawn waits for it: a slow disk
        self.hold.set()
        self._changed = asyncio.Event()
        self._numbers = itertools.count(1)

    async def spawn(self, request: SpawnRequest) -> RunView:
        self.requests.append(request)
        self.spawned.set()
        await self.hold.wait()
        handle = f"run_{next(self._numbers):026d}"
        run = RunView(handle, RunState.RUNNING, request.task, request.model or "m", request.service_class or ServiceClass.INTERACTIVE,
                      parent=request.parent, doing="held or generating")  # fmt: skip
        self.runs[handle], self.owners[handle] = run, request.owner
        if request.task.startswith("echo "):
            self.finish(handle, answer=request.task[5:], turns=1)
        return self.runs[handle]

    def finish(self, handle: str, state: RunState = RunState.COMPLETED, **fields: Any) -> None:
        self.runs[handle] = msgspec.structs.replace(self.runs[handle], state=state, doing="", **fields)
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self, handles: Sequence[str], mode: Literal["all", "any"], timeout_s: float, owner: str | None) -> tuple[RunView, ...]:
        self.waits += 1
        done = {"all": all, "any": any}[mode]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not done(self.view(handle, owner).state.ended for handle in handles):
                    await self._changed.wait()
        return tuple(self.view(handle, owner) for handle in handles)

    def view(self, handle: str, owner: str | None) -> RunView:
        principal = (self.owners.get(handle) or "").startswith("principal:")
        if handle not in self.runs or (principal and self.owners[handle] != owner):
            raise LuftpauseError(f"there is no run {handle}", code="unknown_handle", status=404)
        return self.runs[handle]

    def views(self, owner: str | None) -> tuple[RunView, ...]:
        """Sessions see all runs; principals their own."""
        principal = (owner or "").startswith("principal:")
        return tuple(run for handle, run in self.runs.items() if not principal or self.owners[handle] == owner)

    def everything(self) -> tuple[RunView, ...]:
        return tuple(self.runs.values())

    async def cancel(self, handle: str, owner: str | None) -> RunView:
        self.cancelled.append(handle)
        if not self.view(handle, owner).state.ended:
            self.finish(handle, RunState.CANCELLED, error="cancelled")
        return self.runs[handle]


class FakeTools:
    def tools(self) -> Mapping[str, ToolSpec]:
        return {"lookup": ToolSpec("lookup", "wiki", "lookup", "Looks a word up.", {"type": "object", "properties": {}}, read_only=True)}

    def servers(self) -> tuple[ServerState, ...]:
        return (ServerState("wiki", connected=True, tools=1), ServerState("mail", connected=False, error="it answered with status 401"))

    async def ready(self, seconds_max: float) -> None:
        pass

    async def call(self, name: str, arguments: dict[str, Any], traceparent: str = "") -> ToolResult:
        return ToolResult(f"{name} was called")


@dataclass
class Served:
    """A runtime's MCP server on a free port, in this process."""

    url: str
    runs: FakeRuns

    @property
    def mcp(self) -> str:
        return f"{self.url}/mcp"


@contextlib.asynccontextmanager
async def served(
    config: RuntimeConfig | None = None, *, tokens: Tokens | None = None, metrics_open: bool = False, **settings: Any
) -> AsyncGenerator[Served]:
    config = config or RuntimeConfig(port=0, **settings)
    gate = Gate(config, tokens, status_origins=config.status_origins or (), metrics_open=metrics_open)
    runs = FakeRuns()
    sock = serve.listen(config.host, config.port, option="runtime.port")
    async with serving(config, runs, runs.everything, FakeTools(), LiveSessions(config.session_idle_seconds), sock, gate):
        yield Served(serve.url_of(sock), runs)
