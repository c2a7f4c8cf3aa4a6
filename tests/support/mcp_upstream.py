"""A small MCP server for tests, over HTTP or stdio, that can do what upstream servers do wrong.

`python -m tests.support.mcp_upstream --record FILE [--http PORT] [--only NAME …]`: each call is a line in FILE when it starts, ends or is
cancelled.
"""

import argparse
import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

STDOUT = os.dup(1)  # the SDK's stdio server sends what is printed elsewhere
PAGE = 4
NAMES = ["add", "slow", "fail", "fail.silently", "empty", "image", "big", "structured", "resource", "env", "grow", "die", "prose", "meta"]
HINTS = {
    "add": types.ToolAnnotations(read_only_hint=True, idempotent_hint=True),
    "die": types.ToolAnnotations(destructive_hint=True),
}


class Upstream:
    def __init__(self, names: list[str], record: Path) -> None:
        self.names = names
        self.record = record
        self.bus = InMemorySubscriptionBus()

    def note(self, line: str) -> None:
        with self.record.open("a") as file:
            file.write(line + "\n")

    def server(self, *, legacy: bool, fragile: bool) -> Server[Any]:
        server: Server[Any] = Server(
            "upstream", version="1", on_list_tools=self.list_tools, on_call_tool=self.call, on_subscriptions_listen=ListenHandler(self.bus)
        )
        if legacy:
            server.middleware.append(without_discover)
        if fragile:
            server.middleware.append(dies_of_discover)
        return server

    async def list_tools(self, ctx: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        start = int(params.cursor) if params and params.cursor else 0
        tools = [
            types.Tool(name=name, description=f"the tool {name}", input_schema={"type": "object"}, annotations=HINTS.get(name))
            for name in self.names[start : start + PAGE]
        ]
        more = start + PAGE < len(self.names)
        return types.ListToolsResult(tools=tools, next_cursor=str(start + PAGE) if more else None)

    async def call(self, ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = params.arguments or {}
        self.note(f"start {params.name}")
        try:
            result = await self.answer(ctx, params.name, arguments)
        except asyncio.CancelledError:
            self.note(f"cancelled {params.name}")
            raise
        self.note(f"end {params.name}")
        return result

    async def answer(self, ctx: Any, name: str, arguments: dict[str, Any]) -> types.CallToolResult:  # noqa: C901, PLR0911, PLR0912
        match name:
            case "add":
                return said(str(arguments["a"] + arguments["b"]))
            case "slow":
                await asyncio.sleep(arguments["seconds"])
                return said("slept")
            case "fail":
                return said("no such page", failed=True)
            case "fail.silently":
                return types.CallToolResult(content=[], is_error=True)
            case "empty":
                return types.CallToolResult(content=[])
            case "image":
                return types.CallToolResult(content=[types.ImageContent(data="QUJD" * 1_000_000, mime_type="image/png")])
            case "big":
                return said("x" * arguments["chars"])
            case "structured":
                return types.CallToolResult(content=[], structured_content={"answer": 42})
            case "resource":
                text = types.TextResourceContents(uri="file:///a.txt", text="inside")
                link = types.ResourceLink(uri="file:///b.bin", name="b")
                return types.CallToolResult(content=[types.EmbeddedResource(resource=text), link])
            case "env":
                return said(",".join(sorted(os.environ)))
            case "grow":
                self.names.append("grown")
                await self.bus.publish(ToolsListChanged())
                if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
                    await ctx.session.send_tool_list_changed()
                return said("grew")
            case "die":
                os._exit(3)
            case "prose":
                os.write(STDOUT, "Server ready! 🎉\n".encode())
                os.write(STDOUT, b'{"json": "but not MCP"}\n\xff\xfe\n')
                print("a complaint", file=sys.stderr, flush=True)
                return said("talked")
            case "meta":
                return said(str((ctx.meta or {}).get("traceparent")))
            case _:
                return said(f"{name} was called")


async def without_discover(ctx: Any, call_next: Any) -> Any:
    if ctx.method == "server/discover":
        raise MCPError(code=types.METHOD_NOT_FOUND, message="Method not found")
    return await call_next(ctx)


async def dies_of_discover(ctx: Any, call_next: Any) -> Any:
    if ctx.method == "server/discover":
        os._exit(4)
    return await call_next(ctx)


def said(text: str, *, failed: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=failed)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--http", type=int)
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--legacy", action="store_true")
    parser.add_argument("--fragile", action="store_true")
    options = parser.parse_args()
    server = Upstream(options.only or NAMES, options.record).server(legacy=options.legacy, fragile=options.fragile)
    if options.http is None:
        os.write(STDOUT, b"Starting up ...\n")
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())
        return
    with contextlib.suppress(KeyboardInterrupt):
        config = uvicorn.Config(server.streamable_http_app(), port=options.http, log_level="warning", timeout_graceful_shutdown=1)
        await uvicorn.Server(config).serve()


if __name__ == "__main__":
    asyncio.run(main())
