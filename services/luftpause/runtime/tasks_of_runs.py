"""How is an MCP task a view of a run?"""

import asyncio
import datetime
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types

from luftpause.kit.config import RuntimeConfig
from luftpause.kit.errors import LuftpauseError
from luftpause.runtime.mcp_tools import views
from luftpause.runtime.mcp_tools.answers import Kept, answer
from luftpause.runtime.mcp_tools.arguments import SpawnArguments, parse
from luftpause.runtime.mcp_tools.asking import answer_of, can_be_asked, request
from luftpause.runtime.mcp_tools.caller import Context, owner_of
from luftpause.runtime.mcp_tools.fitting import fitting
from luftpause.runtime.mcp_tools.spawning import Spawning
from luftpause.runtime.ports import PendingApproval, Runs, RunState, RunView
from luftpause.runtime.tasks import TaskStatus, TaskView

DISMISSED_MAX: Final = 10_000
FOLLOW_SECONDS: Final = 600.0  # then a subscription is told the state again

_STATUS: Final = {
    RunState.RUNNING: TaskStatus.WORKING,
    RunState.AWAITING_APPROVAL: TaskStatus.INPUT_REQUIRED,
    RunState.COMPLETED: TaskStatus.COMPLETED,
    RunState.FAILED: TaskStatus.COMPLETED,  # the result says that it failed; a failed task is a call that was wrong
    RunState.CANCELLED: TaskStatus.CANCELLED,
}


class RunTasks:
    """The `Tasks` of `run`. Holds no tasks: the run's journal has the id, and everything else is the run's."""

    def __init__(self, config: RuntimeConfig, runs: Runs, spawning: Spawning) -> None:
        self._config = config
        self._runs = runs
        self._spawning = spawning
        self._kept = Kept()
        self._dismissed: OrderedDict[str, None] = OrderedDict()  # keys of questions that got no answer; they wait for `approve`

    def takes(self, params: types.CallToolRequestParams) -> bool:
        return params.name == "run" and params.request_state is None

    def insists(self, name: str) -> bool:
        del name
        return False

    async def start(self, ctx: Context, params: types.CallToolRequestParams, task_id: str) -> TaskView | types.CallToolResult:
        try:
            given = parse(SpawnArguments, "run", params.arguments)
            request_ = await self._spawning.request(ctx, given, task_id=task_id)
            run = await asyncio.shield(self._kept.keep(self._runs.spawn(request_)))
        except LuftpauseError as error:
            return answer(error.message, None, failed=True)
        return self._view(ctx, task_id, run)

    async def get(self, ctx: Context, task_id: str) -> TaskView | None:
        run = self._run(ctx, task_id)
        return None if run is None else self._view(ctx, task_id, run)

    async def update(self, ctx: Context, task_id: str, answers: Mapping[str, Any]) -> None:
        run = self._run(ctx, task_id)
        for approval in run.pending_approvals if run is not None else ():
            if approval.key in answers and approval.key not in self._dismissed:
                await self._decide(ctx, approval, answers[approval.key])

    async def cancel(self, ctx: Context, task_id: str) -> None:
        run = self._run(ctx, task_id)
        if run is not None:
            await asyncio.shield(self._kept.keep(self._runs.cancel(run.handle, owner_of(ctx))))

    async def changed(self, ctx: Context, seen: TaskView) -> None:
        run = self._run(ctx, seen.id)
        if run is None or self._view(ctx, seen.id, run) != seen:
            return
        owner = owner_of(ctx)
        known = [approval.key for approval in run.pending_approvals]
        ways = [asyncio.ensure_future(self._runs.wait([run.handle], "all", FOLLOW_SECONDS, owner, known))]
        overs = [asyncio.ensure_future(self._runs.approval_over(run.handle, each.id, owner)) for each in run.pending_approvals]
        try:
            await asyncio.wait([*ways, *overs], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (*ways, *overs):
                each.cancel()
            await asyncio.gather(*ways, *overs, return_exceptions=True)

    async def _decide(self, ctx: Context, approval: PendingApproval, given: object) -> None:
        allow = answer_of(given)
        if allow is None:
            self._dismissed[approval.key] = None
            if len(self._dismissed) > DISMISSED_MAX:
                self._dismissed.popitem(last=False)
            return
        try:
            await asyncio.shield(self._kept.keep(self._runs.approve(approval.handle, allow, approval.id, owner_of(ctx))))
        except LuftpauseError as error:
            if error.code != "bad_argument":  # that one was decided or over meanwhile: as any unknown key
                raise

    def _run(self, ctx: Context, task_id: str) -> RunView | None:
        try:
            return self._runs.of_task(task_id, owner_of(ctx))
        except LuftpauseError:
            return None

    def _open(self, run: RunView) -> dict[str, PendingApproval]:
        return {each.key: each for each in run.pending_approvals if each.key not in self._dismissed}

    def _view(self, ctx: Context, task_id: str, run: RunView) -> TaskView:
        status = _STATUS[run.state]
        questions = {key: request(approval) for key, approval in self._open(run).items()} if can_be_asked(ctx) else {}
        if status is TaskStatus.INPUT_REQUIRED and not questions:
            status = TaskStatus.WORKING  # nothing that this client could answer here
        result = None
        if status is TaskStatus.COMPLETED:
            (shown,) = fitting([run])
            result = answer(views.run_text(shown), views.run_json(shown), failed=run.state is RunState.FAILED)
        last = max([run.created_at, run.ended_at or 0.0, *(each.asked_at for each in run.pending_approvals)])
        return TaskView(
            id=task_id,
            status=status,
            created=_iso(run.created_at),
            updated=_iso(last),
            ttl_ms=max(1, round(self._config.retention_seconds * 1000)),
            message=_message(run),
            result=result,
            questions=questions,
        )


def _message(run: RunView) -> str:
    if run.state is RunState.AWAITING_APPROVAL:
        return f"{run.handle} waits for consent to {views.approval_text(run.pending_approvals[0])}"
    return f"{run.handle}: {run.error or run.doing or run.state.value}"


def _iso(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
