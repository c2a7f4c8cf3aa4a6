"""What does each tool do?"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Literal

import mcp_types as types

from luftpause.kit.config import RuntimeConfig
from luftpause.kit.errors import LuftpauseError
from luftpause.kit.logs import Log
from luftpause.runtime.mcp_tools import views
from luftpause.runtime.mcp_tools.arguments import (
    AwaitArguments,
    CancelArguments,
    NoArguments,
    SpawnArguments,
    StatusArguments,
    parse,
)
from luftpause.runtime.mcp_tools.caller import Context, caller_of, owner_of, session_of, traceparent_of
from luftpause.runtime.mcp_tools.open_calls import OpenCalls
from luftpause.runtime.mcp_tools.progress import Send, with_progress
from luftpause.runtime.ports import Json, Runs, RunState, RunView, ServiceClass, SpawnRequest, Toolbox

Handler = Callable[[Context, dict[str, Any] | None], Awaitable[types.CallToolResult]]


class Handlers:
    """The tools over `Runs` and `Toolbox`. A handler never owns a run: when its request goes away the run goes on."""

    def __init__(self, config: RuntimeConfig, runs: Runs, toolbox: Toolbox, stopping: asyncio.Event) -> None:
        self._config = config
        self._runs = runs
        self._toolbox = toolbox
        self._stopping = stopping
        self._open_calls = OpenCalls()
        self._background: set[asyncio.Task[Any]] = set()
        self._log = Log("runtime.mcp")
        self.by_name: dict[str, Handler] = {
            "spawn": self.spawn,
            "await": self.wait,
            "run": self.run,
            "status": self.status,
            "cancel": self.cancel,
            "tools": self.tools,
        }

    async def call(self, ctx: Context, name: str, arguments: dict[str, Any] | None) -> types.CallToolResult:
        """A tool's answer; what a person or model can mend is an error result."""
        try:
            return await self.by_name[name](ctx, arguments)
        except LuftpauseError as error:
            return _answer(error.message, None, failed=True)

    def cancelled(self, ctx: Context, request: object) -> None:
        """The client sent `notifications/cancelled`."""
        session = session_of(ctx)
        if session:
            self._open_calls.cancelled(session, request)

    async def spawn(self, ctx: Context, arguments: dict[str, Any] | None) -> types.CallToolResult:
        request = self._request(ctx, parse(SpawnArguments, "spawn", arguments))
        run = await asyncio.shield(self._keep(self._runs.spawn(request)))
        return _answer(views.spawned_text(run), views.run_json(run))

    async def wait(self, ctx: Context, arguments: dict[str, Any] | None) -> types.CallToolResult:
        wanted = parse(AwaitArguments, "await", arguments)
        most = self._config.await_seconds_max
        timeout = min(self._config.await_seconds, most) if wanted.timeout is None else wanted.timeout
        if timeout > most:
            message = (
                f"await: `timeout` can't be {timeout:g}; allowed: a number of seconds from 0 to {most:g}. Call await again to wait longer"
            )
            raise LuftpauseError(message, code="bad_argument", status=400)
        runs = await self._wait(ctx, list(dict.fromkeys(wanted.handles)), wanted.mode or "all", timeout)
        return _answer(views.awaited_text(runs), views.runs_json(runs))

    async def run(self, ctx: Context, arguments: dict[str, Any] | None) -> types.CallToolResult:
        request = self._request(ctx, parse(SpawnArguments, "run", arguments))
        spawning = self._keep(self._runs.spawn(request))
        session = session_of(ctx)
        key = self._open_calls.opened(session, ctx.request_id, lambda: self._keep(self._cancel_spawned(spawning, request.owner)))
        try:
            run = await asyncio.shield(spawning)
            await ctx.session.report_progress(0, 1, f"{run.handle} started")
            while not run.state.ended and not self._stopping.is_set():
                (run,) = await self._wait(ctx, [run.handle], "all", self._config.await_seconds_max, prefix=f"{run.handle}: ")
        except asyncio.CancelledError:
            self._open_calls.left(key)
            raise
        except BaseException:
            self._open_calls.closed(key)
            raise
        self._open_calls.closed(key)
        if not run.state.ended:
            text = f"The runtime stops now. {run.handle} goes on when it starts again; then call await with this handle."
            return _answer(text, views.run_json(run))
        return _answer(views.run_text(run), views.run_json(run), failed=run.state is RunState.FAILED)

    async def status(self, ctx: Context, arguments: dict[str, Any] | None) -> types.CallToolResult:
        wanted = parse(StatusArguments, "status", arguments)
        owner = owner_of(ctx)
        if wanted.handle is not None:
            run = self._runs.view(wanted.handle, owner)
            return _answer(views.run_text(run), views.runs_json([run]))
        runs = self._runs.views(owner)
        return _answer(views.listed_text(runs), views.listed_json(runs))

    async def cancel(self, ctx: Context, arguments: dict[str, Any] | None) -> types.CallToolResult:
        wanted = parse(CancelArguments, "cancel", arguments)
        run = await asyncio.shield(self._keep(self._runs.cancel(wanted.handle, owner_of(ctx))))
        return _answer(views.run_text(run), views.run_json(run))

    async def tools(self, ctx: Context, arguments: dict[str, Any] | None) -> types.CallToolResult:
        del ctx
        parse(NoArguments, "tools", arguments)
        tools, servers = self._toolbox.tools(), self._toolbox.servers()
        return _answer(views.tools_text(tools, servers), views.tools_json(tools, servers))

    async def _wait(
        self, ctx: Context, handles: list[str], mode: Literal["all", "any"], seconds: float, prefix: str = ""
    ) -> Sequence[RunView]:
        owner = owner_of(ctx)

        def now() -> list[RunView]:
            return [self._runs.view(handle, owner) for handle in handles]

        send: Send = ctx.session.report_progress
        waiting = self._runs.wait(handles, mode, seconds, owner)
        return await with_progress(waiting, now, send, self._config.progress_seconds, prefix, self._stopping) or now()

    async def _cancel_spawned(self, spawning: asyncio.Task[RunView], owner: str | None) -> None:
        try:
            run = await spawning
            await self._runs.cancel(run.handle, owner)
        except LuftpauseError as error:
            self._log.debug("a cancelled call had no run to cancel", error=error.code)

    def _request(self, ctx: Context, given: SpawnArguments) -> SpawnRequest:
        config = self._config
        return SpawnRequest(
            task=given.task,
            model=given.model,
            service_class=ServiceClass(given.service_class) if given.service_class else None,
            system=given.system,
            max_tool_calls=config.max_tool_calls if given.max_tool_calls is None else given.max_tool_calls,
            tools=None if given.tools is None else tuple(given.tools),
            max_tokens=config.max_tokens if given.max_tokens is None else given.max_tokens,
            parallel_tool_calls=bool(given.parallel_tool_calls),
            parent=given.parent,
            caller=caller_of(ctx),
            owner=owner_of(ctx),
            traceparent=traceparent_of(ctx),
        )

    def _keep(self, work: Coroutine[Any, Any, RunView | None]) -> Any:
        """A task of its own, which a cancelled request does not take along."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task


def _answer(text: str, structured: Json | None, *, failed: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=structured, is_error=failed)
