"""Does one bad tool, or a server that never ends its line, cost more than itself?"""

import asyncio
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.shared.message import SessionMessage

from luftpause.kit.clock import monotonic
from luftpause.kit.config import RuntimeConfig, UpstreamConfig
from luftpause.runtime.ports import ToolResult
from luftpause.runtime.tools import stdio_process
from luftpause.runtime.tools.listing import usable
from luftpause.runtime.tools.toolbox import Tools
from tests.integration.runtime_mcp.test_toolbox import until

SERVER = """
import json, sys, time
TOOLS = [
    {"name": "good", "description": "d", "inputSchema": {"type": "object"}},
    {"name": "no schema"},
    {"inputSchema": {"type": "object"}},
    "a text",
    {"name": "numbers", "description": 5, "inputSchema": {"type": "object"}},
    {"name": "a list's schema", "inputSchema": {"type": "array"}},
    {"name": "no type", "inputSchema": {"type": 5}},
    {"name": "no members", "inputSchema": {"type": "object", "properties": True}},
    {"name": "promises", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object", "required": ["x"], "properties": {"x": {}}}},
]
lists = 0
def say(id_, **more):
    print(json.dumps({"jsonrpc": "2.0", "id": id_, **more}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    match asked.get("method"):
        case "initialize":
            about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
            say(asked["id"], result={"protocolVersion": asked["params"]["protocolVersion"], **about})
        case "tools/list":
            lists += 1
            if "restless" in sys.argv:
                say(asked["id"], result={"tools": [{"name": f"number{lists}", "inputSchema": {"type": "object"}}], "nextCursor": "again"})
                print('{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}', flush=True)
            else:
                say(asked["id"], result={"tools": TOOLS})
        case "tools/call":
            if asked["params"]["arguments"].get("endless"):
                while True:
                    sys.stdout.write("x" * 65536)
            if asked["params"]["arguments"].get("latin"):
                result = b'{"content": [{"type": "text", "text": "caf\\xe9"}]}'
                sys.stdout.buffer.write(b'{"jsonrpc": "2.0", "id": %d, "result": %b}\\n' % (asked["id"], result))
                sys.stdout.flush()
                continue
            if raw := asked["params"]["arguments"].get("raw"):
                print('{"jsonrpc": "2.0", "id": %d, "result": %s}' % (asked["id"], raw), flush=True)
                continue
            sys.stdout.write(asked["params"]["arguments"].get("before", ""))
            said = str(lists) if "restless" in sys.argv else "done"
            say(asked["id"], result={"content": [{"type": "text", "text": said}], "structuredContent": {"y": 1}})
        case _ if "id" in asked:
            say(asked["id"], error={"code": -32601, "message": "unknown method"})
"""


def config(folder: Path, *args: str) -> RuntimeConfig:
    script = folder / "server.py"
    script.write_text(SERVER)
    return RuntimeConfig(servers={"up": UpstreamConfig(command=sys.executable, args=(str(script), *args))}, tool_seconds_max=100)


async def test_a_malformed_tool_is_left_out_and_said(tmp_path: Path) -> None:
    async with Tools(config(tmp_path)) as tools:
        await until(tools.tools)
        assert list(tools.tools()) == ["good", "promises"]
        (state,) = tools.servers()
        assert state.connected
        assert [note.partition(" can't be used: ")[0] for note in state.notes] == [
            "no schema", "a tool without a name", "numbers", "a list's schema", "no type", "no members",
        ]  # fmt: skip
        assert "inputSchema: Field required" in state.notes[0]
        assert state.notes[3] == "a list's schema can't be used: inputSchema.type: Input should be 'object'"
        assert (await tools.call("good", {})).text == "done"


async def test_a_result_that_is_not_what_the_tool_promised_is_read_all_the_same(tmp_path: Path) -> None:
    async with Tools(config(tmp_path)) as tools:
        await until(tools.tools)
        assert await tools.call("promises", {}) == ToolResult("done")


async def test_a_server_whose_tools_never_stay_the_same_is_asked_once_a_second(tmp_path: Path) -> None:
    """It says so after each list, and gives the same cursor for ever."""
    async with Tools(config(tmp_path, "restless")) as tools:
        changes = 0

        def changed() -> None:
            nonlocal changes
            changes += 1

        tools.on_change(changed)
        began = monotonic()
        await until(lambda: changes >= 3)
        seconds = monotonic() - began
        lists = int((await tools.call(next(iter(tools.tools())), {})).text)
        assert seconds > 0.5, "connected, looked again, and again a second later"
        assert lists <= 2 * (monotonic() - began + 3), "two pages each second, not hundreds"


async def test_a_line_without_an_end_fails_its_call_and_the_server_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stdio_process, "LINE_BYTES_MAX", 300_000)
    async with Tools(config(tmp_path)) as tools:
        await until(tools.tools)
        async with asyncio.timeout(60):
            result = await tools.call("good", {"endless": True})
        assert result.failed
        assert "the connection to the tool server up was lost" in result.text
        assert "an MCP server is started again" in caplog.text
        await until(lambda: tools.servers()[0].connected)
        assert (await tools.call("good", {})).text == "done"


def test_other_messages_pass_as_they_are() -> None:
    told: list[tuple[str, str]] = []
    results: tuple[dict[str, Any], ...] = (
        {},
        {"tools": "none"},
        {"tools": []},
        {"tools": [{"name": "a", "inputSchema": {"type": "object"}}]},
    )
    for result in results:
        message = SessionMessage(types.JSONRPCResponse(jsonrpc="2.0", id=1, result=result))
        assert usable(message, lambda tool, why: told.append((tool, why))) is message
    assert not told


def test_an_empty_list_of_parameters_is_a_tool_without_any() -> None:
    told: list[tuple[str, str]] = []
    now = {"name": "now", "inputSchema": {"type": "object", "properties": []}}
    listed: dict[str, Any] = {"tools": [now, {"name": "bad", "inputSchema": []}, 7]}
    message = SessionMessage(types.JSONRPCResponse(jsonrpc="2.0", id=1, result=listed))
    found: Any = usable(message, lambda tool, why: told.append((tool, why))).message
    assert found.result["tools"] == [{"name": "now", "inputSchema": {"type": "object", "properties": {}}}]
    assert [tool for tool, _ in told] == ["bad", "a tool without a name"]


DEEP = '{"a": ' * 50_000 + "1" + "}" * 50_000
NINES = "9" * 5000
TEXT = '{"type": "text", "text": "done"}'


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (f'{{"content": [{{"type": "video", "data": "x"}}, {TEXT}]}}', "[video, not shown: it can't be read]\ndone"),
        (
            f'{{"content": [{{"type": "text", "text": null}}, 5, {TEXT}]}}',
            "[text, not shown: it can't be read]\n[a part without a kind, not",
        ),
        ('{"content": "done"}', "done"),
        ('{"structuredContent": {"x": 1}}', '{"x": 1}'),
        (f'{{"content": [{TEXT}], "structuredContent": {{"x": NaN}}}}', "done"),
        (f'{{"content": [{TEXT}], "structuredContent": {{"x": {NINES}}}}}', "done"),
        ('{"content": [{"type": "text", "text": "a\tb"}]}', "a\tb"),
        ('{"content": null}', "(the tool returned nothing)"),
        ("{}", "(the tool returned nothing)"),
        ('{"_meta": {}, "isError": false}', "(the tool returned nothing)"),
        ('{"content": null, "structuredContent": {"x": 1}}', '{"x": 1}'),
        ('{"content": [], "structuredContent": [1, 2]}', "[1, 2]"),
        (f'{{"content": [{TEXT}], "structuredContent": "x"}}', "done"),
        (f'{{"content": [{TEXT}], "structuredContent": null, "isError": null, "_meta": null}}', "done"),
        (f'{{"content": {TEXT}, "isError": "false"}}', "done"),
    ],
)
async def test_what_can_be_read_of_an_answer_is_read(raw: str, text: str, tmp_path: Path) -> None:
    async with Tools(config(tmp_path)) as tools:
        await until(tools.tools)
        result = await tools.call("good", {"raw": raw})
        assert not result.failed, result
        assert result.text.startswith(text)


@pytest.mark.parametrize("failed", ["true", '"true"', "1"])
async def test_an_error_that_says_so_in_another_form_is_one(failed: str, tmp_path: Path) -> None:
    async with Tools(config(tmp_path)) as tools:
        await until(tools.tools)
        assert await tools.call("good", {"raw": f'{{"content": [{TEXT}], "isError": {failed}}}'}) == ToolResult("done", failed=True)


async def test_an_answer_in_another_encoding_is_read_but_for_its_own_letters(tmp_path: Path) -> None:
    """A server on Windows that writes as its console does."""
    async with Tools(config(tmp_path)) as tools:
        await until(tools.tools)
        async with asyncio.timeout(10):  # the call's own limit is 20 s
            assert (await tools.call("good", {"latin": True})).text == "caf\ufffd"


async def test_an_answer_behind_a_line_that_was_not_ended_is_read(tmp_path: Path) -> None:
    async with Tools(config(tmp_path)) as tools:
        await until(tools.tools)
        async with asyncio.timeout(10):  # the call's own limit is 20 s
            assert await tools.call("good", {"before": "50 % …\r"}) == ToolResult("done")


async def test_a_server_that_ends_at_its_start_is_told_with_its_last_words_but_no_secret(tmp_path: Path) -> None:
    script = "import os, sys; sys.exit('no such module, key ' + os.environ['KEY'])"
    server = UpstreamConfig(command=sys.executable, args=("-c", script), env={"KEY": "s3cret-value"})
    async with Tools(RuntimeConfig(servers={"up": server})) as tools:
        await until(lambda: tools.servers()[0].error != "not connected yet")
        ended = f"{sys.executable} ended, or closed its output, before it was connected"
        assert tools.servers()[0].error == f"{ended}; it last wrote to its standard error: no such module, key …"


async def test_an_answer_that_nobody_can_read_fails_its_call_at_once(tmp_path: Path) -> None:
    async with Tools(config(tmp_path)) as tools:
        await until(tools.tools)
        async with asyncio.timeout(60):  # the call's own limit is 100 s
            result = await tools.call("good", {"raw": f'{{"content": [], "structuredContent": {DEEP}}}'})
        assert result == ToolResult("Error: the server's answer is no MCP message", failed=True)
