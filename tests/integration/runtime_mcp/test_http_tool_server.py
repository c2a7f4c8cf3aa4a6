"""What becomes of a tool server over HTTP, and of a call to it, when its answers are not as they should be?"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from luftpause.kit.config import RuntimeConfig, UpstreamConfig
from luftpause.runtime.ports import ServerState, ToolResult
from luftpause.runtime.tools.toolbox import Tools
from tests.integration.runtime_mcp.test_toolbox import until
from tests.support.raw_engine import Talk, json_answer, raw_engine

Result = dict[str, Any]
TOOL = {"name": "look", "inputSchema": {"type": "object"}}


def answer(call: Result, **more: Any) -> bytes:
    return json_answer(json.dumps({"jsonrpc": "2.0", "id": call["id"], **more}).encode(), more=b"mcp-session-id: s\r\n")


@contextlib.asynccontextmanager
async def served(
    to_call: Callable[[Result], bytes], *, tools: Any = (TOOL,), says: Result | None = None, lists: bool = True
) -> AsyncGenerator[Tools]:
    """A toolbox with one server of the older protocol. `tools`: the list that it gives; `says`: its capabilities."""

    async def behave(talk: Talk) -> None:
        asked: Result = json.loads(talk.body) if talk.body else {}
        match asked.get("method"):
            case "initialize":
                about: Result = {"capabilities": {"tools": {}} if says is None else says, "serverInfo": {"name": "s", "version": "1"}}
                await talk.send(answer(asked, result={"protocolVersion": "2025-06-18", **about}))
            case "tools/list" if lists:
                await talk.send(answer(asked, result={"tools": tools}))
            case "tools/call":
                await talk.send(to_call(asked))
            case str() if "id" in asked:
                await talk.send(answer(asked, error={"code": -32601, "message": "Method not found"}))
            case _:
                await talk.send(json_answer(b"", "202 Accepted" if asked else "405 Method Not Allowed"))

    async with raw_engine(behave) as server:
        config = RuntimeConfig(servers={"up": UpstreamConfig(url=f"{server.url}/mcp")}, tool_seconds_max=20)
        async with Tools(config) as toolbox:
            await until(lambda: toolbox.servers()[0].error != "not connected yet")
            yield toolbox


async def called(to_call: Callable[[Result], bytes]) -> ToolResult:
    async with served(to_call) as tools, asyncio.timeout(10):  # the call's own limit is 20 s
        return await tools.call("look", {})


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        ("429 Too Many Requests", b"slow down", "status 429: slow down"),
        ("500 Internal Server Error", b"<html><p>it  broke</p></html>", "status 500: it broke"),
        ("503 Service Unavailable", b"", "status 503: empty body"),
        ("502 Bad Gateway", b'{"error": "no upstream"}', 'status 502: {"error": "no upstream"}'),
        ("429 Too Many Requests", b'{"error": {"code": "slow"}}', 'status 429: {"error": {"code": "slow"}}'),
        (
            "400 Bad Request",
            b'{"error": {"code": "x1", "message": "no such city"}}',
            'status 400: {"error": {"code": "x1", "message": "no such city"}}',
        ),
    ],
)
async def test_a_call_that_is_refused_says_with_which_status_and_words(status: str, body: bytes, text: str) -> None:
    assert await called(lambda _: json_answer(body, status)) == ToolResult(
        f"Error: the tool server up answered look with {text}", failed=True
    )


@pytest.mark.parametrize("known", [True, False])
async def test_an_mcp_error_beside_such_a_status_is_told_as_it_is(known: bool) -> None:
    def refuse(call: Result) -> bytes:
        body = {"jsonrpc": "2.0", "error": {"code": -32602, "message": "no such city"}} | ({"id": call["id"]} if known else {})
        return json_answer(json.dumps(body).encode(), "400 Bad Request")

    assert await called(refuse) == ToolResult("Error: no such city", failed=True)


async def test_an_answer_in_another_encoding_is_read_but_for_its_own_letters() -> None:
    text = b'{"jsonrpc": "2.0", "id": %d, "result": {"content": [{"type": "text", "text": "caf\xe9"}]}}'
    assert await called(lambda call: json_answer(text % call["id"])) == ToolResult("caf\ufffd")


@pytest.mark.parametrize("body", [b"[]", b'{"id": %d, "error": "it broke"}', b'{"jsonrpc": "2.0", "id": %d, "error": {"message": "x"}}'])
async def test_an_answer_that_is_no_mcp_message_fails_its_call_in_plain_words(body: bytes) -> None:
    found = await called(lambda call: json_answer(body % call["id"] if b"%d" in body else body))
    assert found == ToolResult("Error: the answer of look is no MCP message; it may have happened all the same", failed=True)


@pytest.mark.parametrize("settings", [{"tools": None}, {"tools": []}, {"lists": False, "says": {}}])
async def test_a_server_without_tools_is_connected_all_the_same(settings: dict[str, Any]) -> None:
    async with served(answer, **settings) as tools:
        assert tools.servers() == (ServerState("up", connected=True, error="", tools=0, notes=()),)


async def test_a_server_that_says_it_has_tools_and_lists_none_is_not_connected() -> None:
    async with served(answer, lists=False) as tools:
        assert tools.servers()[0].error == "Method not found"


async def test_the_address_of_the_older_transport_is_explained() -> None:
    async def behave(talk: Talk) -> None:
        await talk.send(json_answer(b"", "405 Method Not Allowed"))

    async with raw_engine(behave) as server:
        config = RuntimeConfig(servers={"up": UpstreamConfig(url=f"{server.url}/sse")})
        async with Tools(config) as tools:
            await until(lambda: "405" in tools.servers()[0].error)
            assert "is its url that of a streamable HTTP server" in tools.servers()[0].error


async def test_engines_are_told_a_schema_that_they_take() -> None:
    given = {"type": "object", "properties": {"tags": {"type": "array"}}, "required": None}
    async with served(answer, tools=[{"name": "look", "inputSchema": given}]) as tools:
        look = tools.tools()["look"]
        assert look.input_schema == {"type": "object", "properties": {"tags": {"type": "array"}}}
        assert look.parameters == {"type": "object", "properties": {"tags": {"type": "array", "items": {}}}}
