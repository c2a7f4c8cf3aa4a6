"""Does the fake MCP server work over HTTP and stdio with both protocol generations?"""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from mcp import Client, StdioServerParameters

from tests.support.processes import Process, running

QUICK = ("--lookup-seconds", "0.02", "--deep-search-seconds", "60")
ERAS = ("legacy", "2026-07-28")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncGenerator[Process]:
    async with running("fake-mcp", "--port", "0", *QUICK) as process:
        yield process


@pytest.fixture
async def server(shared: Process) -> Process:
    """It has counted nothing."""
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        (await http.delete(shared.at["http"] + "/_fake")).raise_for_status()
    return shared


def over_stdio(*options: str) -> StdioServerParameters:
    return StdioServerParameters(command=sys.executable, args=["-m", "luftpause", "fake-mcp", "--stdio", *QUICK, *options])


def text(result: object) -> str:
    return "\n".join(part.text for part in result.content if part.type == "text")


async def counts(server: Process) -> dict:
    async with httpx.AsyncClient(base_url=server.at["http"], trust_env=False, timeout=60) as http:
        return (await http.get("/_fake")).json()


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("way", ["http", "stdio"])
async def test_both_generations_list_and_call_the_tools(server: Process, era: str, way: str) -> None:
    target = server.at["mcp"] if way == "http" else over_stdio()
    async with Client(target, mode=era) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"lookup", "deep_search", "delete_note", "flaky", "big_result", "picture", "record", "add"} == set(tools)
        assert tools["lookup"].annotations.read_only_hint
        assert tools["lookup"].annotations.idempotent_hint
        assert tools["delete_note"].annotations.destructive_hint
        assert not tools["record"].annotations.idempotent_hint
        first, second, other = [text(await client.call_tool("lookup", {"query": query})) for query in ("owls", "owls", "herons")]
        assert first == second != other
        assert "owls" in first
        assert text(await client.call_tool("add", {"a": 2, "b": 40})) == "42"


async def test_finished_calls_are_counted_by_tool_and_arguments(server: Process) -> None:
    async with Client(server.at["mcp"]) as client:
        await asyncio.gather(*(client.call_tool("lookup", {"query": query}) for query in ("a", "b", "a")))
        await client.call_tool("record", {"text": "once"})
    found = await counts(server)
    assert found["finished"] == {"lookup": 3, "record": 1}
    assert found["twice"] == [{"tool": "lookup", "arguments": {"query": "a"}, "finished": 2}]
    assert found["recorded"] == ["once"]
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        assert (await http.delete(server.at["http"] + "/_fake")).json()["finished"] == {}


async def test_bad_arguments_and_unknown_tools_are_error_results_that_name_the_mistake(server: Process) -> None:
    async with Client(server.at["mcp"]) as client:
        for name, arguments, complaint in (
            ("lookup", {"qury": "x"}, "qury"),
            ("add", {"a": "2", "b": 1}, "'2' is not of type 'integer'"),
            ("get_wether", {}, "unknown tool"),
        ):
            result = await client.call_tool(name, arguments)
            assert result.is_error
            assert complaint in text(result)
    assert (await counts(server))["started"] == {}


async def test_flaky_fails_once_and_then_works_per_query(server: Process) -> None:
    async with Client(server.at["mcp"]) as client:
        results = [await client.call_tool("flaky", {"query": query}) for query in ("a", "a", "b")]
    assert [result.is_error for result in results] == [True, False, True]


async def test_a_big_result_and_a_picture_arrive_whole(server: Process) -> None:
    async with Client(server.at["mcp"]) as client:
        assert len(text(await client.call_tool("big_result", {"bytes": 300_000}))) == 300_000
        picture = await client.call_tool("picture", {})
    assert [part.type for part in picture.content] == ["text", "image"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_cancelled_call_is_counted_as_cancelled(server: Process, era: str) -> None:
    async with Client(server.at["mcp"], mode=era) as client:
        call = asyncio.create_task(client.call_tool("deep_search", {"query": "x"}))
        async with asyncio.timeout(60):
            while (await counts(server))["running"] != {"deep_search": 1}:
                await asyncio.sleep(0.01)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            while (await counts(server))["cancelled"] != {"deep_search": 1}:
                await asyncio.sleep(0.01)
    assert (await counts(server))["finished"] == {}


async def test_tools_come_in_pages_where_asked() -> None:
    async with running("fake-mcp", "--port", "0", "--page-size", "3") as process, Client(process.at["mcp"]) as client:
        names: list[str] = []
        cursor: str | None = None
        pages = 0
        while pages == 0 or cursor:
            page = await client.list_tools(cursor=cursor)
            names += [tool.name for tool in page.tools]
            cursor, pages = page.next_cursor, pages + 1
    assert (pages, len(set(names))) == (3, 8)


async def test_over_stdio_calls_are_found_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "calls.jsonl"
    async with Client(over_stdio("--log", str(log))) as client:
        await client.call_tool("record", {"text": "once"})
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["event"], line["tool"], line["arguments"]) for line in lines] == [
        ("started", "record", {"text": "once"}),
        ("finished", "record", {"text": "once"}),
    ]


async def test_it_ends_within_a_second_with_status_0_though_a_session_and_a_call_are_open() -> None:
    async with (
        running("fake-mcp", "--port", "0", *QUICK) as process,
        httpx.AsyncClient(base_url=process.at["http"], trust_env=False, timeout=20) as http,
    ):
        headers = {"accept": "application/json, text/event-stream"}
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}}
        answer = await http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}, headers=headers)
        headers["mcp-session-id"] = answer.headers["mcp-session-id"]
        await http.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=headers)
        call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "deep_search", "arguments": {"query": "x"}}}
        open_call = asyncio.create_task(http.post("/mcp", json=call, headers=headers))
        async with asyncio.timeout(60):
            while (await counts(process))["running"] != {"deep_search": 1}:
                await asyncio.sleep(0.01)
        process.terminate()
        assert await process.ended() == 0
        await asyncio.gather(open_call, return_exceptions=True)
    assert "Traceback" not in process.logged()
