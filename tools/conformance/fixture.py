"""How do the conformance suite's fixtures become a server by the runtime's own factory, front and session manager?"""

import asyncio
import contextlib
import secrets
import socket
from collections.abc import AsyncGenerator
from typing import Final

import contents
import jobs
import mcp_types as types
import others
import questions
from contents import Answer, Call, Tool, obj, text
from mcp.server.streamable_http import EventCallback, EventId, EventMessage, EventStore, StreamId
from mcp.shared.subscriptions import PromptsListChanged, ServerEvent, ToolsListChanged
from starlette.responses import PlainTextResponse

from luftpause.kit.config import RuntimeConfig
from luftpause.runtime.mcp_app import assemble, build_sessions
from luftpause.runtime.mcp_tools.caller import Context
from luftpause.runtime.mcp_tools.listening import Changes
from luftpause.runtime.mcp_tools.sessions import LiveSessions
from luftpause.runtime.service import serving_mcp

RETRY_MS: Final = 100


@contextlib.asynccontextmanager
async def serving() -> AsyncGenerator[str]:
    """URL of the fixture's MCP server."""
    config = RuntimeConfig(port=0)
    stopping = asyncio.Event()
    changes = Changes(stopping)
    tools = {**contents.TOOLS, **questions.TOOLS, **jobs.TOOLS, **_triggers(changes)}
    listed = [types.Tool(name=name, description=tool.description, input_schema=tool.schema) for name, tool in tools.items()]

    async def call(ctx: Context, params: types.CallToolRequestParams) -> Answer:
        return await tools[params.name].handler(Call(ctx, params))

    server = assemble(others.server("luftpause-conformance"), lambda: listed, call, jobs.Jobs(), changes, secrets.token_bytes(32))
    manager = build_sessions(config, server, Memory(), RETRY_MS)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        async with serving_mcp(config, manager, PlainTextResponse("there is only /mcp", 404), LiveSessions(60), sock, stopping):
            yield f"http://127.0.0.1:{sock.getsockname()[1]}/mcp"


def _triggers(changes: Changes) -> dict[str, Tool]:
    def tool(event: ServerEvent) -> Tool:
        async def handler(_: Call) -> Answer:
            changes.tell(event)
            return text("changed")

        return Tool(handler, obj())

    return {"test_trigger_tool_change": tool(ToolsListChanged()), "test_trigger_prompt_change": tool(PromptsListChanged())}


class Memory(EventStore):
    """Events of streams that a client may take up again; the runtime itself keeps none."""

    def __init__(self) -> None:
        self._events: list[tuple[StreamId, types.JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: StreamId, message: types.JSONRPCMessage | None) -> EventId:
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: EventId, send_callback: EventCallback) -> StreamId | None:
        last = int(last_event_id)
        if not 1 <= last <= len(self._events):
            return None
        stream = self._events[last - 1][0]
        for number, (each, message) in enumerate(self._events[last:], last + 1):
            if each == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream
