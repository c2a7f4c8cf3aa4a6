"""How do the tools that wait for runs, `await` and `run`, keep their clients informed, ask them and end?"""

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Final, Self

import mcp_types as types
from msgspec import Struct

from luftpause.kit.config import RuntimeConfig
from luftpause.kit.errors import LuftpauseError
from luftpause.kit.logs import Log
from luftpause.runtime.mcp_tools import views
from luftpause.runtime.mcp_tools.answers import Answer, Kept, answer
from luftpause.runtime.mcp_tools.arguments import AwaitArguments, SpawnArguments, parse
from luftpause.runtime.mcp_tools.asking import Asking, Mode, Waited, can_be_asked, is_stateless, pending, request, satisfied
from luftpause.runtime.mcp_tools.caller import Context, owner_of, session_of
from luftpause.runtime.mcp_tools.fitting import fitting
from luftpause.runtime.mcp_tools.open_calls import OpenCalls
from luftpause.runtime.mcp_tools.progress import Send, with_progress
from luftpause.runtime.mcp_tools.spawning import Spawning
from luftpause.runtime.ports import Runs, RunState, RunView

PROGRESS_SECONDS_MAX: Final = 10.0  # whatever is configured: clients give up after a minute of silence
NO_LIMIT_SECONDS: Final = 31_536_000.0  # `run` waits for as long as its run takes


class Blocking:
    """`await` and `run`. Neither owns a run: when its request goes away the run goes on."""

    def __init__(self, config: RuntimeConfig, runs: Runs, stopping: asyncio.Event, kept: Kept, spawning: Spawning) -> None:
        self._config = config
        self._runs = runs
        self._stopping = stopping
        self._kept = kept
        self._spawning = spawning
        self._open_calls = OpenCalls()
        self._log = Log("runtime.mcp")

    def cancelled(self, ctx: Context, request_id: object) -> None:
        """The client sent `notifications/cancelled`."""
        session = session_of(ctx)
        if session:
            self._open_calls.cancelled(session, request_id)

    async def wait(self, ctx: Context, params: types.CallToolRequestParams) -> Answer:
        wanted = parse(AwaitArguments, "await", params.arguments)
        mode: Mode = wanted.mode or "all"
        handles = list(dict.fromkeys(wanted.handles))
        seconds = self._seconds(wanted.timeout)
        waited = await self._earlier(ctx, params, handles) or await self._wait(ctx, handles, mode, seconds)
        if not satisfied(waited.runs, mode) and (question := _question(ctx, waited)):
            return question
        runs = fitting(waited.runs)
        return answer(views.awaited_text(runs), views.runs_json(runs))

    async def run(self, ctx: Context, params: types.CallToolRequestParams) -> Answer:
        given = parse(SpawnArguments, "run", params.arguments)
        if params.request_state is not None:
            handle = _State.read(params.request_state).handle
            waited = await self._earlier(ctx, params, [handle])
            return await self._until_ended(ctx, handle) if waited is None else self._ran(waited.runs[0])
        if params.input_responses:
            raise LuftpauseError("run: `inputResponses` came without their `requestState`", code="bad_argument", status=400)
        owner = owner_of(ctx)
        spawning = self._kept.keep(self._spawn(ctx, given))
        key = self._open_calls.opened(session_of(ctx), ctx.request_id, lambda: self._cancel(spawning, owner))
        try:
            run = await asyncio.shield(spawning)
            await ctx.session.report_progress(0, 1, f"{run.handle} started")
            result = await self._until_ended(ctx, run.handle)
        except asyncio.CancelledError:
            self._open_calls.left(key)
            raise
        except BaseException:
            self._open_calls.closed(key)
            raise
        self._open_calls.closed(key)
        return result

    async def _spawn(self, ctx: Context, given: SpawnArguments) -> RunView:
        return await self._runs.spawn(await self._spawning.request(ctx, given))

    async def _until_ended(self, ctx: Context, handle: str) -> Answer:
        """Ends also where the client can't or won't answer a question, and when the runtime stops."""
        while True:
            waited = await self._wait(ctx, [handle], "all", NO_LIMIT_SECONDS, prefix=f"{handle}: ")
            (run,) = waited.runs
            if run.state is RunState.RUNNING and not self._stopping.is_set():
                continue  # its question was answered a moment ago
            question = None if run.state.ended else _question(ctx, waited, handle)
            return question or self._ran(run)

    def _ran(self, run: RunView) -> Answer:
        if run.state is RunState.RUNNING:
            text = f"The runtime stops now. {run.handle} goes on when it starts again; then call await with this handle."
            return answer(text, views.run_json(run))
        (shown,) = fitting([run])
        return answer(views.run_text(shown), views.run_json(shown), failed=run.state is RunState.FAILED)

    async def _earlier(self, ctx: Context, params: types.CallToolRequestParams, handles: Sequence[str]) -> Waited | None:
        """Takes answers to an earlier result of this call; the states so far where one was dismissed."""
        if params.request_state is None or not params.input_responses:
            return None
        asked = _State.read(params.request_state).asked
        if await self._asking(ctx).answered(asked, params.input_responses):
            return None
        return Waited(tuple(self._runs.view(handle, owner_of(ctx)) for handle in handles), left=True)

    async def _wait(self, ctx: Context, handles: Sequence[str], mode: Mode, seconds: float, prefix: str = "") -> Waited:
        owner = owner_of(ctx)

        def now() -> tuple[RunView, ...]:
            return tuple(self._runs.view(handle, owner) for handle in handles)

        send: Send = ctx.session.report_progress
        waiting = self._asking(ctx).wait(handles, mode, seconds)
        waited = await with_progress(waiting, now, send, min(self._config.progress_seconds, PROGRESS_SECONDS_MAX), prefix, self._stopping)
        return waited or Waited(now(), left=True)

    def _asking(self, ctx: Context) -> Asking:
        return Asking(ctx, self._runs, owner_of(ctx), self._kept.keep, answer_seconds_max=self._config.await_seconds_max)

    def _seconds(self, timeout: float | None) -> float:
        most = self._config.await_seconds_max
        if timeout is None:
            return min(self._config.await_seconds, most)
        if timeout > most:
            message = (
                f"await: `timeout` can't be {timeout:g}; allowed: a number of seconds from 0 to {most:g}. Call await again to wait longer"
            )
            raise LuftpauseError(message, code="bad_argument", status=400)
        return timeout

    def _cancel(self, spawning: "asyncio.Task[RunView]", owner: str | None) -> None:
        self._kept.keep(self._cancel_spawned(spawning, owner))

    async def _cancel_spawned(self, spawning: "asyncio.Task[RunView]", owner: str | None) -> None:
        try:
            run = await spawning
            await self._runs.cancel(run.handle, owner)
        except LuftpauseError as error:
            self._log.debug("a cancelled call had no run to cancel", error=error.code)


class _State(Struct, frozen=True):
    """What a client brings back with its answers; sealed on the way."""

    handle: str = ""  # of `run`: the run that was started
    asked: tuple[str, ...] = ()

    @classmethod
    def read(cls, text: str) -> Self:
        found: dict[str, Any] = json.loads(text)
        return cls(str(found["handle"]), tuple(found["asked"]))

    def text(self) -> str:
        return json.dumps({"handle": self.handle, "asked": self.asked})


def _question(ctx: Context, waited: Waited, handle: str = "") -> types.InputRequiredResult | None:
    """Everything that the waiting runs want to know, where the client is asked by a result."""
    approvals = pending(waited.runs)
    if waited.left or not approvals or not is_stateless(ctx) or not can_be_asked(ctx):
        return None
    return types.InputRequiredResult(
        input_requests={approval.key: request(approval) for approval in approvals},
        request_state=_State(handle, tuple(approval.key for approval in approvals)).text(),
    )
