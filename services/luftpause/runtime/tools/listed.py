"""Which tools does a server have, over all pages of its list?"""

from typing import Final

import mcp_types as types
from mcp import Client
from mcp.shared.exceptions import MCPError

from luftpause.runtime.tools import http

TOOLS_MAX: Final = 2_000
PAGES_MAX: Final = 200


def socket_broke(error: MCPError) -> bool:
    """It says nothing of the server, but of one connection."""
    return error.error.code in {types.CONNECTION_CLOSED, http.BROKEN} or http.CUT in error.error.message


async def list_tools_anew(client: Client) -> tuple[types.Tool, ...]:
    """Once more where the socket broke: one of many may, at a server that lives."""
    try:
        return await list_tools(client)
    except MCPError as error:
        if not socket_broke(error):
            raise
    return await list_tools(client)


async def list_tools(client: Client) -> tuple[types.Tool, ...]:
    """All pages; none of a server that doesn't say that it has tools. Raises MCPError."""
    tools: dict[str, types.Tool] = {}
    cursor: str | None = None
    asked: set[str | None] = set()
    while cursor not in asked and len(asked) < PAGES_MAX:
        asked.add(cursor)
        try:
            page = await client.list_tools(cursor=cursor, cache_mode="bypass")
        except MCPError as error:
            if error.error.code != types.METHOD_NOT_FOUND or client.server_capabilities.tools is not None:
                raise
            break  # it said that it has none
        tools.update({tool.name: tool for tool in page.tools})
        cursor = page.next_cursor
        if not cursor or len(tools) > TOOLS_MAX:
            break
    return tuple(tools.values())[:TOOLS_MAX]
