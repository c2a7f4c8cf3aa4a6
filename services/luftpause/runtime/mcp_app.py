"""How do the runtime's tools become an MCP server of both protocol generations?"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import mcp_types as types
from mcp.server.context import HandlerResult
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.streamable_http import EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ToolsListChanged

from luftpause import __version__
from luftpause.kit.config import RuntimeConfig
from luftpause.runtime.mcp_tools.caller import Context
from luftpause.runtime.mcp_tools.handlers import Handlers
from luftpause.runtime.mcp_tools.listening import Changes
from luftpause.runtime.mcp_tools.quotas import Quotas
from luftpause.runtime.mcp_tools.schemas import INSTRUCTIONS, definitions
from luftpause.runtime.mcp_tools.spawning import Spawning
from luftpause.runtime.ports import Joins, Runs, Toolbox
from luftpause.runtime.tasks import Tasks, TasksExtension
from luftpause.runtime.tasks_of_runs import RunTasks

NAME: Final = "luftpause"
SEAL_SECONDS: Final = 86_400.0  # a question that goes to a client by a result can be answered this long

ListTools = Callable[[], Sequence[types.Tool]]
CallTool = Callable[[Context, types.CallToolRequestParams], Awaitable[types.CallToolResult | types.InputRequiredResult]]


class McpServer(Server[Any]):
    """Says in the older protocol too that its lists change."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        told = notification_options or NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        return super().create_initialization_options(told, experimental_capabilities, extensions)


def assemble(server: McpServer, tools: ListTools, call: CallTool, tasks: Tasks, changes: Changes, key: bytes) -> McpServer:
    """Gives a server tools, tasks, subscriptions and sealed request states; `key`: at least 32 secret bytes."""
    extension = TasksExtension(tasks, changes)

    async def list_tools(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        del ctx, params
        return types.ListToolsResult(tools=list(tools()))

    async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> HandlerResult:
        names = [tool.name for tool in tools()]
        if params.name not in names:
            raise MCPError(code=types.INVALID_PARAMS, message=f"unknown tool {params.name[:100]}; there are {', '.join(names)}")
        return await extension.intercept(ctx, params) or await call(ctx, params)

    async def initialized(ctx: Context, params: types.NotificationParams) -> None:
        del params
        changes.joined(ctx)

    def input_schema(name: str) -> Mapping[str, Any] | None:
        return next((tool.input_schema for tool in tools() if tool.name == name), None)

    server.get_tool_input_schema = input_schema
    server.add_request_handler("tools/list", types.PaginatedRequestParams, list_tools)
    server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)
    server.add_request_handler("subscriptions/listen", types.SubscriptionsListenRequestParams, extension.listen)
    server.add_notification_handler("notifications/initialized", types.NotificationParams, initialized)
    server.middleware.append(RequestStateBoundary(RequestStateSecurity(keys=[key], ttl=SEAL_SECONDS), default_audience=server.name))
    extension.offer(server)
    return server


class Listing:
    """The tools as `tools/list` shows them now."""

    def __init__(self, config: RuntimeConfig, toolbox: Toolbox) -> None:
        self._config = config
        self._toolbox = toolbox
        self._names: tuple[str, ...] = ()
        self._tools = definitions(config)

    def __call__(self) -> Sequence[types.Tool]:
        names = tuple(self._toolbox.tools())
        if names != self._names:
            self._names, self._tools = names, definitions(self._config, names)
        return self._tools


def build_server(
    config: RuntimeConfig,
    runs: Runs,
    toolbox: Toolbox,
    stopping: asyncio.Event,
    key: bytes,
    joins: Joins | None = None,
    quotas: Quotas | None = None,
) -> Server[Any]:
    """The runtime's server; open calls answer at once when `stopping` is set. `key` seals what clients bring back with answers."""
    spawning = Spawning(config, joins)
    handlers = Handlers(config, runs, toolbox, stopping, spawning, quotas)
    changes = Changes(stopping)
    toolbox.on_change(lambda: changes.tell(ToolsListChanged()))

    async def cancelled(ctx: Context, params: types.CancelledNotificationParams) -> None:
        handlers.cancelled(ctx, params.request_id)

    server = McpServer(
        NAME,
        version=__version__,
        title=NAME,
        description="Sub-agents that run side by side and survive restarts.",
        instructions=INSTRUCTIONS,
    )
    server.add_notification_handler("notifications/cancelled", types.CancelledNotificationParams, cancelled)
    return assemble(server, Listing(config, toolbox), handlers.call, RunTasks(config, runs, spawning), changes, key)


def build_sessions(
    config: RuntimeConfig, server: Server[Any], events: EventStore | None = None, retry_ms: int | None = None
) -> StreamableHTTPSessionManager:
    """The HTTP side of the server, for `front.Front`; its `run()` may be entered once. Hosts and origins are the front's business."""
    return StreamableHTTPSessionManager(
        server,
        event_store=events,
        retry_interval=retry_ms,
        max_request_body_size=config.max_body_bytes,
        session_idle_timeout=config.session_idle_seconds,
        max_sessions=config.sessions_max,
    )
