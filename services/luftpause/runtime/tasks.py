"""How does the MCP extension `io.modelcontextprotocol/tasks` look on the wire?

What a task is stands behind `Tasks`. Served in the stateless protocol only, to clients that declare the extension in each request.
"""

import secrets
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, Protocol, cast

import mcp_types as types
from mcp.server.context import HandlerResult
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import Struct

from luftpause.kit.errors import LuftpauseError
from luftpause.runtime.mcp_tools.caller import Context, header
from luftpause.runtime.mcp_tools.listening import Changes, Notice, send
from luftpause.runtime.ports import Json

EXTENSION: Final = "io.modelcontextprotocol/tasks"
POLL_MS: Final = 500
TASKS_HEARD_MAX: Final = 1000  # of one subscription


class TaskStatus(Enum):
    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self in {TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED}


class TaskView(Struct, frozen=True):
    """What a client sees of a task. Times are ISO 8601."""

    id: str
    status: TaskStatus
    created: str
    updated: str
    ttl_ms: int | None  # since `created`; None: for ever
    message: str = ""
    result: types.CallToolResult | None = None  # when completed, also of a tool that says it failed
    error: types.ErrorData | None = None  # when failed: the call itself was wrong
    questions: Mapping[str, types.ElicitRequest] = {}  # by key, while input is required; a key is never used again


class Tasks(Protocol):
    """Tasks belong to their owner: of another's they know nothing (None)."""

    def takes(self, params: types.CallToolRequestParams) -> bool:
        """Does this call become a task, for a client that knows tasks?"""
        ...

    def insists(self, name: str) -> bool:
        """Can this tool run as a task only?"""
        ...

    async def start(self, ctx: Context, params: types.CallToolRequestParams, task_id: str) -> TaskView | types.CallToolResult:
        """Stored when this returns. A result: the call was wrong, and there is no task."""
        ...

    async def get(self, ctx: Context, task_id: str) -> TaskView | None: ...

    async def update(self, ctx: Context, task_id: str, answers: Mapping[str, Any]) -> None:
        """Answers to `questions`; unknown keys are ignored."""
        ...

    async def cancel(self, ctx: Context, task_id: str) -> None: ...

    async def changed(self, ctx: Context, seen: TaskView) -> None:
        """Returns once the task may look different from `seen`, which has not ended."""
        ...


class TaskParams(types.RequestParams):
    task_id: str


class UpdateParams(TaskParams):
    input_responses: Json  # checked against the question by `Tasks.update`


class TasksExtension:
    """Adds itself to a server: `offer`, `intercept` for calls of tools, `listen` for subscriptions."""

    def __init__(self, tasks: Tasks, changes: Changes) -> None:
        self._tasks = tasks
        self._changes = changes

    def offer(self, server: Server[Any]) -> None:
        server.extensions[EXTENSION] = {}
        server.add_request_handler("tasks/get", TaskParams, self._get)
        server.add_request_handler("tasks/update", UpdateParams, self._update)
        server.add_request_handler("tasks/cancel", TaskParams, self._cancel)

    async def intercept(self, ctx: Context, params: types.CallToolRequestParams) -> HandlerResult:
        """The task that this call becomes; None: it is an ordinary call."""
        if self._tasks.insists(params.name):
            _require(ctx)
        if not _declared(ctx) or not self._tasks.takes(params):
            return None
        started = await self._tasks.start(ctx, params, f"task_{secrets.token_urlsafe(18)}")
        return {"resultType": "task", **_head(started)} if isinstance(started, TaskView) else started

    async def listen(self, ctx: Context, params: types.SubscriptionsListenRequestParams) -> types.SubscriptionsListenResult:
        asked: Json = (ctx.params or {}).get("notifications") or {}
        if not asked.get("taskIds"):
            return await self._changes.listen(ctx, params)
        _require(ctx)
        if not isinstance(asked["taskIds"], list):
            raise MCPError(code=types.INVALID_PARAMS, message="notifications.taskIds is a list of task ids")
        wanted = dict.fromkeys(map(str, cast("list[object]", asked["taskIds"])[:TASKS_HEARD_MAX]))
        ids = [each for each in wanted if await self._tasks.get(ctx, each) is not None]
        return await self._changes.listen(ctx, params, {"taskIds": ids}, [self._follow(ctx, each) for each in ids])

    async def _follow(self, ctx: Context, task_id: str) -> None:
        while (task := await self._tasks.get(ctx, task_id)) is not None:
            meta: Json = {SUBSCRIPTION_ID_META_KEY: ctx.request_id}
            await send(ctx, Notice(method="notifications/tasks", params={**_whole(task), "_meta": meta}))
            if task.status.ended:
                return
            await self._tasks.changed(ctx, task)

    async def _get(self, ctx: Context, params: TaskParams) -> HandlerResult:
        return {"resultType": "complete", **_whole(await self._found(ctx, params.task_id))}

    async def _update(self, ctx: Context, params: UpdateParams) -> HandlerResult:
        await self._found(ctx, params.task_id)
        try:
            await self._tasks.update(ctx, params.task_id, params.input_responses)
        except LuftpauseError as error:
            raise MCPError(code=types.INTERNAL_ERROR, message=error.message) from None
        return {"resultType": "complete"}

    async def _cancel(self, ctx: Context, params: TaskParams) -> HandlerResult:
        task = await self._found(ctx, params.task_id)
        if not task.status.ended:
            await self._tasks.cancel(ctx, params.task_id)
        return {"resultType": "complete"}

    async def _found(self, ctx: Context, task_id: str) -> TaskView:
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            raise MCPError(code=types.METHOD_NOT_FOUND, message="Method not found", data=ctx.method)
        _require(ctx)
        named = header(ctx, "mcp-name")  # the SDK compares it for its own methods only
        if named and named != task_id:
            raise MCPError(code=types.HEADER_MISMATCH, message=f"the header Mcp-Name says {named[:100]}, params.taskId {task_id[:100]}")
        task = await self._tasks.get(ctx, task_id)
        if task is None:
            raise MCPError(code=types.INVALID_PARAMS, message=f"there is no task {task_id[:100]}")
        return task


def _declared(ctx: Context) -> bool:
    capabilities = ctx.session.client_capabilities
    extensions = capabilities.extensions if capabilities is not None else None
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS and bool(extensions) and EXTENSION in (extensions or {})


def _require(ctx: Context) -> None:
    if not _declared(ctx):
        raise MCPError(
            code=types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            message=f"this needs the extension {EXTENSION}, which the request does not declare",
            data={"requiredCapabilities": {"extensions": {EXTENSION: {}}}},
        )


def _head(task: TaskView) -> Json:
    message = {"statusMessage": task.message} if task.message else {}
    return {
        "taskId": task.id,
        "status": task.status.value,
        "createdAt": task.created,
        "lastUpdatedAt": task.updated,
        "ttlMs": task.ttl_ms,
        "pollIntervalMs": POLL_MS,
        **message,
    }


def _whole(task: TaskView) -> Json:
    whole = _head(task)
    match task.status:
        case TaskStatus.COMPLETED if task.result is not None:
            whole["result"] = _plain(task.result)
        case TaskStatus.FAILED if task.error is not None:
            whole["error"] = _plain(task.error)
        case TaskStatus.INPUT_REQUIRED:
            whole["inputRequests"] = {key: _plain(question) for key, question in task.questions.items()}
        case _:
            pass
    return whole


def _plain(model: Any) -> Json:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)
