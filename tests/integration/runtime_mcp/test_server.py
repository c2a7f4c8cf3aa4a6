"""Do real MCP clients of both generations get along with the runtime's server?"""

import asyncio
import contextlib
import re
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from luftpause.runtime.ports import RunState
from tests.support.runtime_fakes import Served, served

ERAS = ["legacy", "auto"]  # auto finds 2026-07-28
SECONDS = 60.0


@contextlib.asynccontextmanager
async def client(at: Served, mode: str, headers: dict[str, str] | None = None, on_message: Any = None):
    async with (
        httpx2.AsyncClient(headers=headers or {}, timeout=30, trust_env=False) as http,
        Client(streamable_http_client(at.mcp, http_client=http), mode=mode, message_handler=on_message) as connected,
    ):
        yield connected


def text(result: Any) -> str:
    return "\n".join(part.text for part in result.content)


@pytest.mark.parametrize("mode", ERAS)
async def test_tools_are_listed_with_strict_schemas_titles_and_truthful_annotations(mode: str):
    async with served() as at, client(at, mode) as c:
        tools = {tool.name: tool for tool in (await c.list_tools()).tools}
        assert list(tools) == [
            "spawn", "await", "run", "status", "cancel", "approve", "tools", "decide", "quota_reserve", "quota_report",
        ]  # fmt: skip
        assert all(tool.title and tool.description and tool.output_schema for tool in tools.values())
        assert all(tool.input_schema["additionalProperties"] is False for tool in tools.values())
        read_only = {name for name, tool in tools.items() if tool.annotations and tool.annotations.read_only_hint}
        assert read_only == {"await", "status", "tools", "decide"}
        assert {name for name, tool in tools.items() if tool.annotations and tool.annotations.destructive_hint} == {"cancel", "approve"}
        assert tools["spawn"].input_schema["required"] == ["task"]
        assert tools["spawn"].input_schema["properties"]["maxToolCalls"]["default"] == 8
        assert tools["await"].input_schema["properties"]["timeout"] == {
            "type": "number", "minimum": 0, "maximum": 600, "default": 60,
            "description": tools["await"].input_schema["properties"]["timeout"]["description"],
        }  # fmt: skip
        assert tools["spawn"].input_schema["properties"]["tools"]["description"].endswith("There are now: lookup.")
        assert "spawn" in (c.instructions or "")


@pytest.mark.parametrize("mode", ERAS)
async def test_spawn_then_await_gives_the_answer_as_json_and_as_text(mode: str):
    async with served() as at, client(at, mode) as c:
        spawned = await c.call_tool("spawn", {"task": "echo forty-two", "serviceClass": "batch"})
        handle = spawned.structured_content["handle"]
        assert handle in text(spawned)
        result = await c.call_tool("await", {"handles": [handle]})
        run = result.structured_content["runs"][0]
        assert (run["state"], run["answer"], run["serviceClass"], run["turns"]) == ("Completed", "forty-two", "batch", 1)
        assert result.structured_content["done"] == result.structured_content["total"] == 1
        assert "forty-two" in text(result)


@pytest.mark.parametrize("mode", ERAS)
async def test_answers_too_long_for_the_sdks_client_reach_it_cut(mode: str):
    async with served() as at, client(at, mode) as c:
        handles = [(await c.call_tool("spawn", {"task": "wait"})).structured_content["handle"] for _ in range(4)]
        for handle in handles:
            at.runs.finish(handle, answer="x" * 400_000)
        result = await c.call_tool("await", {"handles": handles})
        assert [run["answer"][:100_000] for run in result.structured_content["runs"]] == ["x" * 100_000] * 4
        assert "of 400,000 characters shown; await this handle alone for more]" in text(result)
        alone = await c.call_tool("await", {"handles": handles[:1]})
        assert alone.structured_content["runs"][0]["answer"] == "x" * 400_000


@pytest.mark.parametrize("mode", ERAS)
async def test_run_blocks_until_the_answer_and_names_its_handle_in_the_first_progress(mode: str):
    async with served(progress_seconds=0.05) as at, client(at, mode) as c:
        seen: list[tuple[float, float | None, str | None]] = []
        enough = asyncio.Event()

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            seen.append((progress, total, message))
            if len(seen) >= 4:
                enough.set()

        call = asyncio.create_task(c.call_tool("run", {"task": "long"}, progress_callback=on_progress))
        await asyncio.wait_for(enough.wait(), SECONDS)
        (handle,) = at.runs.runs
        at.runs.finish(handle, answer="done")
        result = await asyncio.wait_for(call, SECONDS)
        assert result.structured_content["answer"] == "done"
        count = len(seen)
        assert handle in (seen[0][2] or "")
        assert seen[1][2] == f"{handle}: 0 of 1 done: held or generating"
        values = [value for value, _, _ in seen]
        assert values == sorted(set(values))
        assert max(values) < 1
        await c.call_tool("status", {})  # a round trip later
        assert len(seen) == count


@pytest.mark.parametrize("mode", ERAS)
async def test_a_failed_run_is_an_error_result_with_its_reason(mode: str):
    async with served() as at, client(at, mode) as c:
        call = asyncio.create_task(c.call_tool("run", {"task": "long"}))
        await asyncio.wait_for(at.runs.spawned.wait(), SECONDS)
        await until(lambda: bool(at.runs.runs))
        at.runs.finish(next(iter(at.runs.runs)), RunState.FAILED, error="the engine is gone")
        result = await asyncio.wait_for(call, SECONDS)
        assert result.is_error
        assert "the engine is gone" in text(result)


@pytest.mark.parametrize("mode", ERAS)
async def test_await_returns_the_states_so_far_when_its_time_is_over(mode: str):
    async with served() as at, client(at, mode) as c:
        handles = [(await c.call_tool("spawn", {"task": task})).structured_content["handle"] for task in ("echo a", "long")]
        result = await c.call_tool("await", {"handles": handles, "timeout": 0.05})
        assert [run["state"] for run in result.structured_content["runs"]] == ["Completed", "Running"]
        assert result.structured_content["done"] == 1
        assert f"call await again with: {handles[1]}" in text(result)
        some = await c.call_tool("await", {"handles": handles, "mode": "any"})
        assert some.structured_content["done"] == 1


@pytest.mark.parametrize("mode", ERAS)
async def test_bad_arguments_are_tool_errors_that_name_the_argument_and_what_is_allowed(mode: str):
    async with served() as at, client(at, mode) as c:
        for tool, arguments, *words in [
            ("spawn", {"task": "t", "maxtoolcalls": 3}, "unknown argument `maxtoolcalls`", "mean `maxToolCalls`", "`parent`"),
            ("spawn", {}, "`task` is missing"),
            ("spawn", {"task": "t", "serviceClass": "fast"}, "`serviceClass` can't be \"fast\"", "`interactive` or `batch`"),
            ("await", {"handles": ["run_x"], "timeout": 601}, "`timeout` can't be 601", "0 to 600"),
            ("await", {"handles": []}, "`handles`", "a list of 1 to"),
            ("status", {"handle": "run_x"}, "there is no run run_x"),
            ("tools", {"all": True}, "unknown argument `all`", "allowed: none"),
        ]:  # fmt: skip
            result = await c.call_tool(tool, arguments)
            assert result.is_error, (tool, arguments)
            assert all(word in text(result) for word in words), text(result)
        assert at.runs.requests == []


@pytest.mark.parametrize("mode", ERAS)
async def test_an_unknown_tool_is_a_protocol_error_that_lists_the_tools(mode: str):
    async with served() as at, client(at, mode) as c:
        with pytest.raises(MCPError, match="unknown tool spwan; there are spawn, await"):
            await c.call_tool("spwan", {})


@pytest.mark.parametrize("mode", ERAS)
async def test_status_cancel_and_tools_answer(mode: str):
    async with served() as at, client(at, mode) as c:
        handle = (await c.call_tool("spawn", {"task": "long"})).structured_content["handle"]
        status = await c.call_tool("status", {})
        assert [run["handle"] for run in status.structured_content["runs"]] == [handle]
        cancelled = await c.call_tool("cancel", {"handle": handle})
        assert cancelled.structured_content["state"] == "Cancelled"
        tools = await c.call_tool("tools", {})
        assert tools.structured_content["tools"][0]["name"] == "lookup"
        assert tools.structured_content["servers"][1] == {
            "name": "mail",
            "connected": False,
            "tools": 0,
            "error": "it answered with status 401",
        }
        assert "mail is not connected" in text(tools)


async def test_the_caller_is_what_the_client_says_else_its_session_else_its_name():
    async with served() as at:
        async with client(at, "legacy") as c:
            await c.call_tool("spawn", {"task": "echo"})
        async with client(at, "2026-07-28") as c:
            await c.call_tool("spawn", {"task": "echo"})
            await c.call_tool("spawn", {"task": "echo"}, meta={"threadId": "thread-7"})
        async with client(at, "2026-07-28", {"x-luftpause-caller": "window-1", "mcp-session-id": "stolen"}) as c:
            await c.call_tool("spawn", {"task": "echo"}, meta={"threadId": "thread-7"})
        legacy, named, thread, said = at.runs.requests
        assert legacy.owner == legacy.caller
        assert re.fullmatch(r"session:[0-9a-f]{24}", legacy.caller)
        assert (named.caller, named.owner) == ("mcp:mcp", None)
        assert thread.caller == "thread-7"
        assert (said.caller, said.owner) == ("window-1", None)


async def test_the_id_of_a_session_stays_between_client_and_server():
    async with served() as at, raw_session(at) as session:
        await session.call("spawn", {"task": "echo"}, 1)
        assert session.headers["mcp-session-id"] not in str(at.runs.requests)


@pytest.mark.parametrize(("said", "taken"), [("00-" + "a" * 32 + "-" + "b" * 16 + "-01", True), ("00-zz", False), (7, False)])
async def test_a_traceparent_goes_on_unless_it_is_malformed(said: Any, taken: bool):
    async with served() as at, client(at, "auto") as c:
        await c.call_tool("spawn", {"task": "echo"}, meta={"traceparent": said})
        assert at.runs.requests[0].traceparent == (said if taken else "")


async def test_a_cancelled_run_request_cancels_its_run_and_the_session_lives_without_an_answer():
    async with served() as at, raw_session(at) as session:
        async with session.open_call("run", {"task": "long"}, 7) as stream:
            await until(lambda: bool(at.runs.runs))
            await session.notify("notifications/cancelled", {"requestId": 7})
            rest = await asyncio.wait_for(anext_all(stream), SECONDS)
        (handle,) = at.runs.runs
        await until(lambda: at.runs.cancelled == [handle])
        assert '"id":7' not in rest
        assert (await session.call("status", {}, 8))["result"]["structuredContent"]["runs"][0]["state"] == "Cancelled"


async def test_a_run_request_cancelled_while_its_run_is_being_written_cancels_the_run():
    async with served() as at, raw_session(at) as session:
        at.runs.hold.clear()
        async with session.open_call("run", {"task": "long"}, 7):
            await asyncio.wait_for(at.runs.spawned.wait(), SECONDS)
            await session.notify("notifications/cancelled", {"requestId": 7})
            await session.call("tools", {}, 8)  # the notice was handled
            at.runs.hold.set()
            await until(lambda: bool(at.runs.cancelled))
        assert at.runs.cancelled == list(at.runs.runs)


async def test_a_cancelled_await_touches_no_run():
    async with served() as at, raw_session(at) as session:
        handle = (await session.call("spawn", {"task": "long"}, 1))["result"]["structuredContent"]["handle"]
        async with session.open_call("await", {"handles": [handle]}, 2) as stream:
            await until(lambda: at.runs.waits == 1)
            await session.notify("notifications/cancelled", {"requestId": 2})
            await asyncio.wait_for(anext_all(stream), SECONDS)
        assert (await session.call("status", {}, 3))["result"]["structuredContent"]["runs"][0]["state"] == "Running"
        assert at.runs.cancelled == []


async def test_a_dropped_connection_cancels_no_run_in_the_older_protocol():
    async with served() as at, raw_session(at) as session:
        async with session.open_call("run", {"task": "long"}, 7):
            await until(lambda: bool(at.runs.runs))
        (handle,) = at.runs.runs
        await session.call("status", {}, 8)
        assert at.runs.cancelled == []
        at.runs.finish(handle, answer="late")
        answer = await session.call("await", {"handles": [handle]}, 9)
        assert answer["result"]["structuredContent"]["runs"][0]["answer"] == "late"


async def test_a_dropped_connection_cancels_no_run_in_the_newer_protocol():
    async with served() as at, client(at, "2026-07-28") as c:
        call = asyncio.create_task(c.call_tool("run", {"task": "long"}))
        await until(lambda: bool(at.runs.runs) and at.runs.waits == 1)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        (handle,) = at.runs.runs
        at.runs.finish(handle, answer="late")
        assert at.runs.cancelled == []
        answer = await c.call_tool("await", {"handles": [handle]})
        assert answer.structured_content["runs"][0]["answer"] == "late"


async def test_in_the_newer_protocol_nobody_cancels_by_request_id_for_ids_of_different_clients_are_the_same():
    async with served() as at, client(at, "auto") as c, httpx.AsyncClient(trust_env=False, timeout=60) as http:
        call = asyncio.create_task(c.call_tool("run", {"task": "long"}))
        await until(lambda: at.runs.waits == 1)
        headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2026-07-28"}
        for number in range(10):
            notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}
            assert (await http.post(at.mcp, json=notice, headers=headers)).status_code == 202
        at.runs.finish(next(iter(at.runs.runs)), answer="done")
        assert (await asyncio.wait_for(call, SECONDS)).structured_content["answer"] == "done"
        assert at.runs.cancelled == []


async def test_twenty_calls_at_once_each_get_their_own_answer():
    async with served() as at, client(at, "legacy") as c:
        results = await asyncio.gather(*(c.call_tool("run", {"task": f"echo {number}"}) for number in range(20)))
        assert [result.structured_content["answer"] for result in results] == [str(number) for number in range(20)]


# ---- raw HTTP ----------------------------------------------------------------------------------------------------


class Raw:
    """A session of the older protocol, by hand."""

    def __init__(self, http: httpx.AsyncClient, url: str, session: str) -> None:
        self.http, self.url = http, url
        self.headers = {"mcp-session-id": session, "mcp-protocol-version": "2025-06-18", "accept": "application/json, text/event-stream"}

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        answer = await self.http.post(self.url, json={"jsonrpc": "2.0", "method": method, "params": params}, headers=self.headers)
        assert answer.status_code == 202

    async def call(self, tool: str, arguments: dict[str, Any], number: int) -> dict[str, Any]:
        answer = await self.http.post(self.url, json=_call(tool, arguments, number), headers={**self.headers, "accept": "application/json"})
        assert answer.headers["content-type"] == "application/json"
        return answer.json()

    @contextlib.asynccontextmanager
    async def open_call(self, tool: str, arguments: dict[str, Any], number: int):
        async with self.http.stream("POST", self.url, json=_call(tool, arguments, number), headers=self.headers) as answer:
            assert answer.status_code == 200
            yield answer.aiter_text()


def _call(tool: str, arguments: dict[str, Any], number: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


INITIALIZE = {
    "jsonrpc": "2.0", "id": 0, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "0"}},
}  # fmt: skip


@contextlib.asynccontextmanager
async def raw_session(at: Served, more: dict[str, str] | None = None, capabilities: dict[str, Any] | None = None):
    hello = {**INITIALIZE, "params": {**INITIALIZE["params"], "capabilities": capabilities or {}}}
    async with httpx.AsyncClient(timeout=30, trust_env=False, headers=more) as http:
        answer = await http.post(at.mcp, json=hello, headers={"accept": "application/json, text/event-stream"})
        raw = Raw(http, at.mcp, answer.headers["mcp-session-id"])
        await raw.notify("notifications/initialized", {})
        yield raw


async def anext_all(stream: Any) -> str:
    return "".join([part async for part in stream])


async def until(condition: Any) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.005)  # polling: the condition spans two sides of a socket
