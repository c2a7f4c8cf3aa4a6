"""What stands behind the runtime's MCP server in tests: runs that end when told to, and two tools."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from luftpause.kit import serve
from luftpause.kit.auth import Tokens
from luftpause.kit.config import RuntimeConfig
from luftpause.kit.errors import LuftpauseError
from luftpause.runtime.gate import Gate
from luftpause.runtime.mcp_tools.quotas import Quotas
from luftpause.runtime.mcp_tools.sessions import LiveSessions
from luftpause.runtime.ports import (
    Decided,
    Decision,
    PendingApproval,
    RunState,
    RunView,
    ServerState,
    ServiceClass,
    SpawnRequest,
    ToolResult,
    ToolSpec,
)
from luftpause.runtime.service import serving


class FakeRuns:
    """Runs that stay Running until `finish`, or until cancelled; `task` "echo …" completes at once."""

    def __init__(self) -> None:
        self.requests: list[SpawnRequest] = []
        self.runs: dict[str, RunView] = {}
        self.cancelled: list[str] = []
        self.decisions: dict[str, bool] = {}  # by approval key
        self.waits = 0
        self.spawned = asyncio.Event()
        self.hold = asyncio.Event()  # spawn waits for it: a slow disk
        self.hold.set()
        self._changed = asyncio.Event()
        self._numbers = itertools.count(1)
        self._approvals = itertools.count(1)

    async def spawn(self, request: SpawnRequest) -> RunView:
        self.requests.append(request)
        self.spawned.set()
        await self.hold.wait()
        handle = f"run_{next(self._numbers):026d}"
        run = RunView(handle, RunState.RUNNING, request.task, request.model or "m", request.service_class or ServiceClass.INTERACTIVE,
                      parent=request.parent, doing="held or generating", owner=request.owner, task_id=request.task_id,
                      created_at=1_700_000_000.0)  # fmt: skip
        self.runs[handle] = run
        if request.task.startswith("echo "):
            self.finish(handle, answer=request.task[5:], turns=1)
        return self.runs[handle]

    def finish(self, handle: str, state: RunState = RunState.COMPLETED, **fields: Any) -> None:
        self._set(handle, state=state, doing="", pending_approvals=(), ended_at=1_700_000_100.0, **fields)

    def ask(self, handle: str, tool: str = "remove", **arguments: Any) -> PendingApproval:
        """The run needs a person's consent to a call of `tool`."""
        approval = PendingApproval(handle, f"approval-{next(self._approvals)}", tool, arguments, 1_700_000_050.0)
        waiting = (*self.runs[handle].pending_approvals, approval)
        self._set(handle, state=RunState.AWAITING_APPROVAL, doing="", pending_approvals=waiting)
        return approval

    def _set(self, handle: str, **fields: Any) -> None:
        self.runs[handle] = msgspec.structs.replace(self.runs[handle], **fields)
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(
        self,
        handles: Sequence[str],
        mode: Literal["all", "any"],
        timeout_s: float,
        owner: str | None,
        approvals_known: Collection[str] | None = None,
    ) -> tuple[RunView, ...]:
        self.waits += 1
        done = {"all": all, "any": any}[mode]

        def asks() -> bool:
            pending = [each.key for handle in handles for each in self.view(handle, owner).pending_approvals]
            return approvals_known is not None and not set(pending) <= set(approvals_known)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not (done(self.view(handle, owner).state.ended for handle in handles) or asks()):
                    await self._changed.wait()
        return tuple(self.view(handle, owner) for handle in handles)

    async def approve(self, handle: str, allow: bool, approval_id: str | None, owner: str | None) -> Decided:
        run = self.view(handle, owner)
        key = f"{handle}/{approval_id}"
        if key in self.decisions:
            return Decided(str(approval_id), "remove", self.decisions[key], first=False, run=run)
        found = next((each for each in run.pending_approvals if approval_id in {None, each.id}), None)
        if found is None:
            raise LuftpauseError(f"{handle} waits for no approval", code="bad_argument", status=400)
        self.decisions[found.key] = allow
        left = tuple(each for each in run.pending_approvals if each is not found)
        self._set(handle, state=RunState.AWAITING_APPROVAL if left else RunState.RUNNING, pending_approvals=left)
        return Decided(found.id, found.tool, allow, first=True, run=self.runs[handle])

    async def approval_over(self, handle: str, approval_id: str, owner: str | None) -> bool | None:
        while any(each.id == approval_id for each in self.view(handle, owner).pending_approvals):
            await self._changed.wait()
        return self.decisions.get(f"{handle}/{approval_id}")

    async def decide(self, text: str, labels: Sequence[str] | None, model: str | None, caller: str) -> Decision:
        first, *others = labels or ("positive", "negative")
        return Decision(first, {first: 0.75, **dict.fromkeys(others[:1], 0.25)}, tuple(others[1:]), model or "m")

    def of_task(self, task_id: str, owner: str | None) -> RunView:
        for run in self.runs.values():
            if run.task_id == task_id and run.owner == owner:
                return run
        raise LuftpauseError(f"there is no task {task_id}", code="unknown_handle", status=404)

    def view(self, handle: str, owner: str | None) -> RunView:
        its = self.runs[handle].owner or "" if handle in self.runs else ""
        if handle not in self.runs or (its.startswith("principal:") and its != owner):
            raise LuftpauseError(f"there is no run {handle}", code="unknown_handle", status=404)
        return self.runs[handle]

    def views(self, owner: str | None) -> tuple[RunView, ...]:
        """Sessions see all runs; principals their own."""
        principal = (owner or "").startswith("principal:")
        return tuple(run for run in self.runs.values() if not principal or run.owner == owner)

    def everything(self) -> tuple[RunView, ...]:
        return tuple(self.runs.values())

    async def cancel(self, handle: str, owner: str | None) -> RunView:
        self.cancelled.append(handle)
        if not self.view(handle, owner).state.ended:
            self.finish(handle, RunState.CANCELLED, error="cancelled")
        return self.runs[handle]


class FakeTools:
    def __init__(self) -> None:
        schema: dict[str, Any] = {"type": "object", "properties": {}}
        self.offered = {"lookup": ToolSpec("lookup", "wiki", "lookup", "Looks a word up.", schema, read_only=True)}
        self._told: list[Callable[[], None]] = []

    def tools(self) -> Mapping[str, ToolSpec]:
        return self.offered

    def away(self) -> Mapping[str, ToolSpec]:
        return {}

    def on_change(self, tell: Callable[[], None]) -> None:
        self._told.append(tell)

    def add(self, name: str) -> None:
        """A server offers one tool more."""
        spec = ToolSpec(name, "wiki", name, "", {"type": "object", "properties": {}}, destructive=True)
        self.offered = {**self.offered, name: spec}
        for tell in self._told:
            tell()

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
    tools: FakeTools
    sessions: LiveSessions

    @property
    def mcp(self) -> str:
        return f"{self.url}/mcp"


@contextlib.asynccontextmanager
async def served(
    config: RuntimeConfig | None = None,
    *,
    tokens: Tokens | None = None,
    metrics_open: bool = False,
    runs: FakeRuns | None = None,
    key: bytes | None = None,
    quotas: Quotas | None = None,
    **settings: Any,
) -> AsyncGenerator[Served]:
    """`runs` and `key` of an earlier one: the same runtime, started again."""
    config = config or RuntimeConfig(port=0, **settings)
    gate = Gate(config, tokens, status_origins=config.status_origins or (), metrics_open=metrics_open)
    runs, tools = runs or FakeRuns(), FakeTools()
    sock = serve.listen(config.host, config.port, option="runtime.port")
    sessions = LiveSessions(config.session_idle_seconds)
    async with serving(config, runs, runs.everything, tools, sessions, sock, gate, key, quotas=quotas):
        yield Served(serve.url_of(sock), runs, tools, sessions)
