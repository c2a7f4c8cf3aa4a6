"""How do the runtime's tools become an MCP server of both protocol generations?"""

import asyncio
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError

from luftpause import __version__
from luftpause.kit.config import RuntimeConfig
from luftpause.runtime.mcp_tools.caller import Context
from luftpause.runtime.mcp_tools.handlers import Handlers
from luftpause.runtime.mcp_tools.schemas import INSTRUCTIONS, definitions
from luftpause.runtime.ports import Runs, Toolbox


def build_server(config: RuntimeConfig, runs: Runs, toolbox: Toolbox, stopping: asyncio.Event) -> Server[Any]:
    """The server; open calls answer at once when `stopping` is set."""
    tools = list(definitions(config))
    handlers = Handlers(config, runs, toolbox, stopping)
    inputs = {tool.name: tool.input_schema for tool in tools}

    async def list_tools(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        del ctx, params
        return types.ListToolsResult(tools=tools)

    async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name not in handlers.by_name:
            message = f"unknown tool {params.name}; there are {', '.join(handlers.by_name)}"
            raise MCPError(code=types.INVALID_PARAMS, message=message)
        return await handlers.call(ctx, params.name, params.arguments)

    async def cancelled(ctx: Context, params: types.CancelledNotificationParams) -> None:
        handlers.cancelled(ctx, params.request_id)

    server: Server[Any] = Server(
        "luftpause",
        version=__version__,
        title="luftpause",
        description="Sub-agents that run side by side and survive restarts.",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        get_tool_input_schema=inputs.get,
    )
    server.add_notification_handler("notifications/cancelled", types.CancelledNotificationParams, cancelled)
    return server


def build_sessions(config: RuntimeConfig, server: Server[Any]) -> StreamableHTTPSessionManager:
    """The HTTP side of the server, for `http.Front`; its `run()` may be entered once. Hosts and origins are the front's business."""
    return StreamableHTTPSessionManager(
        server,
        max_request_body_size=config.max_body_bytes,
        session_idle_timeout=config.session_idle_seconds,
        max_sessions=config.sessions_max,
    )
