"""Does one bad tool, or a server that never ends its line, cost more than itself?"""

import asyncio
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.shared.message import SessionMessage

from luftpause.kit.config import RuntimeConfig, UpstreamConfig
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
]
def say(id_, **more):
    print(json.dumps({"jsonrpc": "2.0", "id": id_, **more}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    match asked.get("method"):
        case "initialize":
            about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
            say(asked["id"], result={"protocolVersion": asked["params"]["protocolVersion"], **about})
        case "tools/list":
            say(asked["id"], result={"tools": TOOLS})
        case "tools/call":
            if asked["params"]["arguments"].get("endless"):
                while True:
                    sys.stdout.write("x" * 65536)
            say(asked["id"], result={"content": [{"type": "text", "text": "done"}]})
        case _ if "id" in asked:
            say(asked["id"], error={"code": -32601, "message": "unknown method"})
"""


def config(folder: Path) -> RuntimeConfig:
    script = folder / "server.py"
    script.write_text(SERVER)
    return RuntimeConfig(servers={"up": UpstreamConfig(command=sys.executable, args=(str(script),))}, tool_seconds_max=20)


async def test_a_malformed_tool_is_left_out_and_said(tmp_path: Path) -> None:
    async with Tools(config(tmp_path)) as tools:
        await until(tools.tools)
        assert list(tools.tools()) == ["good"]
        (state,) = tools.servers()
        assert state.connected
        assert [note.partition(" can't be used: ")[0] for note in state.notes] == ["no schema", "a tool without a name", "numbers"]
        assert "inputSchema: Field required" in state.notes[0]
        assert (await tools.call("good", {})).text == "done"


async def test_a_line_without_an_end_fails_its_call_and_the_server_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stdio_process, "LINE_BYTES_MAX", 300_000)
    async with Tools(config(tmp_path)) as tools:
        await until(tools.tools)
        async with asyncio.timeout(10):
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
