"""How is the fake MCP server reached: over HTTP, both protocol generations on one path, or over stdio?"""

from pathlib import Path

import orjson
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from luftpause import __version__
from luftpause_fakes.http_server import serve_app
from luftpause_fakes.mcp_tools import TOOLS, McpOptions, Tools

__all__ = ["McpOptions", "serve_http", "serve_stdio"]


async def serve_http(options: McpOptions, announce: Path | None = None) -> None:
    """MCP at `/mcp`, counters at GET `/_fake` (DELETE clears them), until SIGTERM."""
    app = http_app(Tools(options), options.host)
    await serve_app(app, host=options.host, port=options.port, option="--port", announced=announce, mcp=True)


async def serve_stdio(options: McpOptions) -> None:
    """MCP on stdin and stdout, until stdin ends."""
    server = mcp_server(Tools(options))
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def mcp_server(tools: Tools) -> Server[dict[str, object]]:
    async def list_tools(_: ServerRequestContext[dict[str, object]], params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        start = int(params.cursor) if params and params.cursor else 0
        end = start + (tools.options.page_size or len(TOOLS))
        return types.ListToolsResult(tools=list(TOOLS[start:end]), next_cursor=str(end) if end < len(TOOLS) else None)

    async def call_tool(context: ServerRequestContext[dict[str, object]], params: types.CallToolRequestParams) -> types.CallToolResult:
        return await tools.call(params.name, params.arguments or {}, str((context.meta or {}).get("traceparent") or ""))

    return Server(
        "luftpause-fake-mcp", version=__version__, title="luftpause fake MCP server", on_list_tools=list_tools, on_call_tool=call_tool
    )


def http_app(tools: Tools, host: str) -> Starlette:
    async def counters(request: Request) -> Response:
        if request.method == "DELETE":
            tools.reset()
        return Response(orjson.dumps(tools.counts()), media_type="application/json")

    async def health(_: Request) -> Response:
        return Response(b'{"status":"ok"}', media_type="application/json")

    routes = [Route("/_fake", counters, methods=["GET", "DELETE"]), Route("/health", health)]
    return mcp_server(tools).streamable_http_app(host=host, custom_starlette_routes=routes)
