"""Which tasks does the fixture run, as the conformance suite wants them?"""

import asyncio
import datetime
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import mcp_types as types
from contents import Call, Tool, form, obj, optional, text
from mcp.shared.exceptions import MCPError
from msgspec.structs import replace
from questions import asks

from luftpause.runtime.mcp_tools.caller import Context
from luftpause.runtime.tasks import TaskStatus, TaskView

Json = dict[str, Any]
TTL_MS: Final = 3_600_000


class Job:
    """One task. `ask` is answered by `update`."""

    def __init__(self, task_id: str) -> None:
        now = _now()
        self.view = TaskView(task_id, TaskStatus.WORKING, now, now, TTL_MS)
        self.work: asyncio.Task[None] | None = None
        self._answers: dict[str, asyncio.Future[object]] = {}
        self._changed = asyncio.Event()

    def set(self, **fields: Any) -> None:
        self.view = replace(self.view, updated=_now(), **fields)
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self, seen: TaskView) -> None:
        if self.view == seen:
            await self._changed.wait()

    async def ask(self, key: str, question: types.ElicitRequest) -> object:
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._answers[key] = answer
        self.set(status=TaskStatus.INPUT_REQUIRED, questions={**self.view.questions, key: question})
        return await answer

    def answer(self, key: str, said: object) -> None:
        answer = self._answers.pop(key, None)
        if answer is not None:
            left = {each: question for each, question in self.view.questions.items() if each != key}
            self.set(status=TaskStatus.INPUT_REQUIRED if left else TaskStatus.WORKING, questions=left)
            answer.set_result(said)


async def _slow(job: Job, call: Call) -> types.CallToolResult:
    del job
    await asyncio.sleep(float(call.arguments.get("seconds", 0)))
    return text("computed")


async def _failing(job: Job, call: Call) -> types.CallToolResult:
    del job, call
    await asyncio.sleep(0.3)
    return text("it failed", failed=True)


async def _protocol_error(job: Job, call: Call) -> types.CallToolResult:
    del job, call
    raise MCPError(code=types.INTERNAL_ERROR, message="the job broke")


async def _confirm(job: Job, call: Call) -> types.CallToolResult:
    return text(f"{call.arguments.get('filename')}: {await job.ask('confirm', form('Delete it?', confirm='boolean'))}")


async def _multi(job: Job, call: Call) -> types.CallToolResult:
    del call
    return text(str(await asyncio.gather(job.ask("name", form("Name?", name="string")), job.ask("sure", form("Sure?", confirm="boolean")))))


async def _after_question(job: Job, call: Call) -> types.CallToolResult:
    del job
    return text(f"Hello, {call.field('user_name', 'name')}!")


WORK: Final[dict[str, Callable[[Job, Call], Awaitable[types.CallToolResult]]]] = {
    "slow_compute": _slow,
    "failing_job": _failing,
    "protocol_error_job": _protocol_error,
    "confirm_delete": _confirm,
    "multi_input": _multi,
    "test_tool_with_task": _after_question,
}
ASKS_FIRST: Final = "test_tool_with_task"


async def _at_once(call: Call) -> types.CallToolResult | types.InputRequiredResult:
    """The same tools for clients that know no tasks."""
    if call.params.name == ASKS_FIRST:
        return asks(user_name=form("Name?", name="string"))
    if call.params.name in {"confirm_delete", "multi_input"}:
        return text("this needs the tasks extension", failed=True)
    return await WORK[call.params.name](Job(""), call)


TOOLS: Final[dict[str, Tool]] = {
    "slow_compute": Tool(_at_once, optional(seconds="number", label="string")),
    "failing_job": Tool(_at_once, obj()),
    "protocol_error_job": Tool(_at_once, obj()),
    "confirm_delete": Tool(_at_once, obj(filename="string")),
    "multi_input": Tool(_at_once, obj()),
    ASKS_FIRST: Tool(_at_once, obj()),
}


class Jobs:
    """`Tasks` in memory; everybody's."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}

    def takes(self, params: types.CallToolRequestParams) -> bool:
        return params.name in WORK and (params.name != ASKS_FIRST or bool(params.input_responses))

    def insists(self, name: str) -> bool:
        return name == "failing_job"

    async def start(self, ctx: Context, params: types.CallToolRequestParams, task_id: str) -> TaskView | types.CallToolResult:
        job = self._jobs[task_id] = Job(task_id)
        job.work = asyncio.create_task(self._work(job, Call(ctx, params)))
        return job.view

    async def get(self, ctx: Context, task_id: str) -> TaskView | None:
        del ctx
        job = self._jobs.get(task_id)
        return job.view if job is not None else None

    async def update(self, ctx: Context, task_id: str, answers: Mapping[str, Any]) -> None:
        del ctx
        for key, said in answers.items():
            self._jobs[task_id].answer(key, said)

    async def cancel(self, ctx: Context, task_id: str) -> None:
        del ctx
        job = self._jobs[task_id]
        if job.work is not None:
            job.work.cancel()
            await asyncio.gather(job.work, return_exceptions=True)
        job.set(status=TaskStatus.CANCELLED, questions={})

    async def changed(self, ctx: Context, seen: TaskView) -> None:
        del ctx
        await self._jobs[seen.id].changed(seen)

    async def _work(self, job: Job, call: Call) -> None:
        try:
            result = await WORK[call.params.name](job, call)
        except MCPError as error:
            job.set(status=TaskStatus.FAILED, error=error.error, message=error.error.message)
        else:
            job.set(status=TaskStatus.COMPLETED, result=result)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
