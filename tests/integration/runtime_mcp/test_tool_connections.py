"""What does one broken connection to a tool server cost, of the many that calls have?"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from luftpause.kit.config import RuntimeConfig, UpstreamConfig
from luftpause.runtime.ports import ToolResult
from luftpause.runtime.tools import http
from luftpause.runtime.tools.toolbox import Tools
from tests.integration.runtime_mcp.test_toolbox import Bench, until
from tests.support.cut_wire import Wire, wire

SAID = "Error: the connection to the tool server up was lost during meta; it may have happened all the same"


@contextlib.asynccontextmanager
async def wired(kind: str, folder: Path, **settings: Any) -> AsyncGenerator[tuple[Tools, Bench, Wire]]:
    """A toolbox whose one server is behind a wire."""
    bench = Bench(kind, folder)
    await bench.start()
    try:
        async with wire(bench.port) as cable, behind(cable, **settings) as tools:
            yield tools, bench, cable
    finally:
        await bench.kill()


@contextlib.asynccontextmanager
async def behind(cable: Wire, **settings: Any) -> AsyncGenerator[Tools]:
    server = UpstreamConfig(url=f"http://127.0.0.1:{cable.port}/mcp", headers={"x-key": "s3cret"})
    async with Tools(RuntimeConfig(servers={"up": server}, **settings)) as tools:
        await until(lambda: bool(tools.tools()))
        yield tools


@contextlib.asynccontextmanager
async def under_way(tools: Tools, bench: Bench) -> AsyncGenerator[list[asyncio.Task[ToolResult]]]:
    """Calls that the server has and does not answer."""
    calls = [asyncio.create_task(tools.call("slow", {"seconds": 600})) for _ in range(3)]
    try:
        await until(lambda: bench.recorded().count("start slow") == 3)
        yield calls
    finally:
        for each in calls:
            each.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def test_a_call_whose_connection_breaks_fails_alone_and_what_may_be_sent_twice_is_sent_again(tmp_path: Path) -> None:
    async with wired("http", tmp_path, server_check_seconds=0.1) as (tools, bench, cable), under_way(tools, bench) as others:
        cable.cut_at = b'"meta"'
        assert await tools.call("meta", {}) == ToolResult(SAID, failed=True)
        cable.cut_answer = b"1234567-"
        assert await tools.call("meta", {}, "1234567-") == ToolResult(SAID, failed=True)
        assert bench.recorded().count("start meta") == 1
        cable.cut_at = b'"add"'  # which is read-only
        assert await tools.call("add", {"a": 1, "b": 1}) == ToolResult("2")
        assert bench.recorded().count("start add") == 1
        asked = cable.sent.count(b'"tools/list"')
        cable.cut_at = b'"tools/list"'
        await until(lambda: cable.sent.count(b'"tools/list"') >= asked + 2)
        assert await tools.call("add", {"a": 1, "b": 2}) == ToolResult("3")
        assert not any(each.done() for each in others)
        assert tools.servers()[0].connected


async def test_a_call_that_finds_no_server_did_not_happen_and_the_server_counts_as_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "KEPT_SECONDS", 0.0)
    async with wired("http", tmp_path) as (tools, _, cable):
        cable.refuse()
        found = await tools.call("add", {"a": 1, "b": 1})
        assert found.failed
        assert "the tool server up could not be reached" in found.text
        assert "add did not happen" in found.text
        await until(lambda: not tools.servers()[0].connected)


async def test_connections_are_kept_also_after_event_streams_but_not_for_as_long_as_servers_keep_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert http.KEPT_SECONDS < 5  # what uvicorn and Node wait
    monkeypatch.setattr(http, "END_SECONDS", 30.0)
    async with wired("http legacy", tmp_path) as (_, _, first):
        made: list[int] = []
        for seconds in (0.0, 600.0):
            monkeypatch.setattr(http, "KEPT_SECONDS", seconds)
            async with wire(first.to_port) as cable, behind(cable) as tools:
                await tools.call("add", {"a": 1, "b": 1})
                before = cable.connections
                for number in range(10):
                    assert await tools.call("add", {"a": number, "b": 1}) == ToolResult(str(number + 1))
                made.append(cable.connections - before)
    assert made[0] >= 10
    assert made[1] < 5  # a call that comes while the end of the one before is being read takes another one
