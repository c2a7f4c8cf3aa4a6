"""Do tools of real MCP servers, over stdio and HTTP, reach sub-agents, and survive what servers do?"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from luftpause.kit.config import RuntimeConfig, UpstreamConfig
from luftpause.runtime.ports import ToolResult
from luftpause.runtime.tools.toolbox import Tools
from tests.support.ports import a_quiet_port, a_refusing_port
from tests.support.raw_http import answering, head

SECONDS = 60.0
ROOT = Path(__file__).parents[3]
KINDS = ["stdio", "http"]
ALL_KINDS = ["stdio", "http", "stdio legacy", "http legacy"]


class Bench:
    """A toolbox with one server, which is a process of its own."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, _, era = kind.partition(" ")
        self.record = folder / "record.txt"
        self.port = a_quiet_port()
        self.command = ["-m", "tests.support.mcp_upstream", "--record", str(self.record), *([f"--{era}"] if era else [])]
        self.process: asyncio.subprocess.Process | None = None

    @property
    def config(self) -> UpstreamConfig:
        if self.kind == "http":
            return UpstreamConfig(url=f"http://127.0.0.1:{self.port}/mcp", headers={"x-key": "s3cret"})
        return UpstreamConfig(command=sys.executable, args=tuple(self.command), env={"LP_EXTRA": "1"}, cwd=ROOT)

    async def start(self) -> None:
        if self.kind == "http":
            self.process = await asyncio.create_subprocess_exec(sys.executable, *self.command, "--http", str(self.port), cwd=ROOT)

    async def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    def recorded(self) -> list[str]:
        return self.record.read_text().splitlines() if self.record.exists() else []


@contextlib.asynccontextmanager
async def toolbox(kind: str, folder: Path, calls_max: int = 256, **settings: Any) -> AsyncGenerator[tuple[Tools, Bench]]:
    bench = Bench(kind, folder)
    await bench.start()
    try:
        server = bench.config.model_copy(update={"calls_max": calls_max})
        async with Tools(RuntimeConfig(servers={"up": server}, **settings)) as tools:
            await until(lambda: bool(tools.tools()))
            yield tools, bench
    finally:
        await bench.kill()


async def until(condition: Any) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.02)  # polling: another process does it


async def accepting(port: int) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return await writer.wait_closed()
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("kind", KINDS)
async def test_all_pages_are_read_and_calls_reach_their_tool(kind: str, tmp_path: Path):
    async with toolbox(kind, tmp_path) as (tools, _):
        assert set(tools.tools()) >= {"add", "meta", "fail_silently"}
        assert len(tools.tools()) == 14
        add, die = tools.tools()["add"], tools.tools()["die"]
        assert (add.read_only, add.idempotent, add.destructive) == (True, True, False)
        assert die.destructive
        assert add.input_schema == {"type": "object", "properties": {}}
        assert await tools.call("add", {"a": 2, "b": 3}) == ToolResult("5")
        assert await tools.call("meta", {}, "00-" + "1" * 32 + "-" + "2" * 16 + "-01") == ToolResult(
            "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
        )
        assert (tools.servers()[0].connected, tools.servers()[0].tools) == (True, 14)


async def test_a_server_gets_only_so_many_calls_at_once_and_the_others_keep_their_time(tmp_path: Path):
    async with toolbox("http", tmp_path, tool_seconds_max=2, calls_max=2) as (tools, bench):
        found = await asyncio.gather(*(tools.call("slow", {"seconds": 0.5}) for _ in range(10)))
        assert found == [ToolResult("slept")] * 10
        running = most = 0
        for line in bench.recorded():
            running += 1 if line == "start slow" else -1
            most = max(most, running)
        assert most == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_every_result_is_text_that_is_never_empty(kind: str, tmp_path: Path):
    async with toolbox(kind, tmp_path, tool_result_chars_max=100) as (tools, _):
        assert await tools.call("fail", {}) == ToolResult("no such page", failed=True)
        assert await tools.call("fail_silently", {}) == ToolResult("Error: the tool failed and gave no reason", failed=True)
        assert await tools.call("empty", {}) == ToolResult("(the tool returned nothing)")
        assert await tools.call("image", {}) == ToolResult("[image, image/png, 3000 kB, not shown]")
        assert await tools.call("structured", {}) == ToolResult('{"answer": 42}')
        assert await tools.call("resource", {}) == ToolResult("[resource file:///a.txt]\ninside\n[link to resource file:///b.bin: b]")
        big = await tools.call("big", {"chars": 5000})
        assert big.text == "x" * 100 + "\n[cut: the first 100 of 5000 characters]"
        assert (await tools.call("nothing", {})).failed


@pytest.mark.parametrize("kind", KINDS)
async def test_twenty_calls_at_once_all_answer(kind: str, tmp_path: Path):
    async with toolbox(kind, tmp_path) as (tools, _):
        results = await asyncio.gather(*(tools.call("add", {"a": number, "b": 1}) for number in range(20)))
        assert [result.text for result in results] == [str(number + 1) for number in range(20)]


@pytest.mark.parametrize("kind", ALL_KINDS)
async def test_a_call_that_takes_too_long_fails_and_is_cancelled_at_the_server(kind: str, tmp_path: Path):
    async with toolbox(kind, tmp_path, tool_seconds_max=0.5) as (tools, bench):
        result = await tools.call("slow", {"seconds": 60})
        assert result.failed
        assert "gave no answer within 0.5 s" in result.text
        await until(lambda: "cancelled slow" in bench.recorded())
        async with asyncio.timeout(SECONDS):
            while (await tools.call("add", {"a": 1, "b": 1})).text != "2":  # half a second is short on a busy machine
                pass


@pytest.mark.parametrize("kind", ALL_KINDS)
async def test_cancelling_a_call_reaches_the_server(kind: str, tmp_path: Path):
    async with toolbox(kind, tmp_path) as (tools, bench):
        call = asyncio.create_task(tools.call("slow", {"seconds": 60}))
        await until(lambda: "start slow" in bench.recorded())
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: "cancelled slow" in bench.recorded())


@pytest.mark.parametrize("kind", ALL_KINDS)
async def test_a_changed_list_of_tools_is_fetched_anew(kind: str, tmp_path: Path):
    async with toolbox(kind, tmp_path) as (tools, _):
        await tools.call("grow", {})
        await until(lambda: "grown" in tools.tools())


async def test_a_server_that_dies_in_a_call_fails_it_at_once_and_is_started_again(tmp_path: Path):
    async with toolbox("stdio", tmp_path) as (tools, bench):
        slow = asyncio.create_task(tools.call("slow", {"seconds": 60}))
        await until(lambda: "start slow" in bench.recorded())
        result = await asyncio.wait_for(tools.call("die", {}), 60)
        assert result.failed
        assert "it may have happened all the same" in result.text
        assert (await asyncio.wait_for(slow, 60)).failed
        assert tools.tools() == {}
        await until(lambda: tools.servers()[0].connected)
        assert (await tools.call("add", {"a": 1, "b": 1})).text == "2"
        assert bench.recorded().count("start die") == 1


async def test_a_killed_http_server_is_seen_and_comes_back_under_the_same_names(tmp_path: Path):
    async with toolbox("http", tmp_path, server_check_seconds=0.3) as (tools, bench):
        names = list(tools.tools())
        await bench.kill()
        await until(lambda: not tools.servers()[0].connected)
        assert tools.tools() == {}
        assert list(tools.away()) == names
        result = await tools.call("add", {"a": 1, "b": 1})
        assert result.failed
        assert "up is not connected" in result.text
        await bench.start()
        await until(lambda: list(tools.tools()) == names)
        assert tools.away() == {}
        assert (await tools.call("add", {"a": 1, "b": 1})).text == "2"


async def test_a_killed_http_server_fails_the_call_in_flight_without_a_second_try(tmp_path: Path):
    async with toolbox("http", tmp_path) as (tools, bench):
        slow = asyncio.create_task(tools.call("slow", {"seconds": 60}))
        await until(lambda: "start slow" in bench.recorded())
        await bench.kill()
        result = await asyncio.wait_for(slow, 60)
        assert result.failed
        await bench.start()
        await until(lambda: tools.servers()[0].connected)
        assert bench.recorded().count("start slow") == 1


async def test_a_server_that_forgot_the_session_gets_a_new_one_and_the_call_once(tmp_path: Path):
    async with toolbox("http legacy", tmp_path) as (tools, bench):
        await bench.kill()
        await bench.start()
        await accepting(bench.port)
        assert (await tools.call("add", {"a": 1, "b": 1})).text == "2"
        assert bench.recorded() == ["start add", "end add"]


async def test_prose_on_standard_output_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    async with toolbox("stdio", tmp_path) as (tools, _):
        with caplog.at_level("DEBUG", logger="luftpause"):
            assert await tools.call("prose", {}) == ToolResult("talked")
            assert (await tools.call("add", {"a": 1, "b": 1})).text == "2"
            await until(lambda: "standard error" in caplog.text)
        assert "not MCP" in caplog.text
        assert "Traceback" not in caplog.text


async def test_a_stdio_server_sees_a_small_environment_and_what_is_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LP_SECRET", "s3cret")
    async with toolbox("stdio", tmp_path) as (tools, _):
        seen = (await tools.call("env", {})).text.split(",")
        assert "LP_EXTRA" in seen
        assert "PATH" in seen
        assert "LP_SECRET" not in seen


async def test_a_server_that_is_not_there_delays_nothing_and_its_state_says_why(tmp_path: Path):
    servers = {
        "closed": UpstreamConfig(url=f"http://127.0.0.1:{a_refusing_port()}/mcp"),
        "absent": UpstreamConfig(command=str(tmp_path / "no-such-program")),
    }
    async with Tools(RuntimeConfig(servers=servers)) as tools:
        assert tools.tools() == {}
        await until(lambda: all(state.error != "not connected yet" for state in tools.servers()))
        closed, absent = tools.servers()
        assert not closed.connected
        assert absent.error == f"{tmp_path / 'no-such-program'} can't be started: No such file or directory; are its command and cwd right?"


async def test_an_old_server_that_dies_of_a_question_of_the_new_protocol_is_asked_in_the_old_one(tmp_path: Path):
    async with toolbox("stdio fragile", tmp_path) as (tools, _):
        assert (await tools.call("add", {"a": 1, "b": 1})).text == "2"


async def test_a_server_that_refuses_our_key_is_said_to_without_the_key(caplog: pytest.LogCaptureFixture):
    body = b'{"error":"invalid_token"}'
    refused = head("401 Unauthorized", content_type="application/json", content_length=str(len(body)), connection="close") + body
    async with answering(refused) as raw:
        server = UpstreamConfig(url=f"{raw.url}/mcp", headers={"authorization": "Bearer s3cret"})
        async with Tools(RuntimeConfig(servers={"locked": server})) as tools:
            with caplog.at_level("DEBUG"):
                await until(lambda: "401" in tools.servers()[0].error)
            assert "see its headers in the configuration" in tools.servers()[0].error
        assert "authorization: Bearer s3cret" in raw.heads[0]
        assert "s3cret" not in caplog.text


async def test_proxies_of_the_environment_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "socks5h://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with toolbox("http", tmp_path) as (tools, _):
        assert (await tools.call("add", {"a": 1, "b": 1})).text == "2"


async def test_two_servers_with_the_same_tool_get_distinct_names_that_reach_their_own_server(tmp_path: Path):
    def server(name: str) -> UpstreamConfig:
        record = str(tmp_path / f"{name}.txt")
        args = ("-m", "tests.support.mcp_upstream", "--record", record, "--only", "find", "a.b")
        return UpstreamConfig(command=sys.executable, args=args, cwd=ROOT)

    async with Tools(RuntimeConfig(servers={"one": server("one"), "two": server("two")})) as tools:
        await until(lambda: len(tools.tools()) == 4)
        assert list(tools.tools()) == ["one__a_b", "one__find", "two__a_b", "two__find"]
        assert (await tools.call("two__a_b", {})).text == "a.b was called"
        assert (tmp_path / "two.txt").read_text().splitlines() == ["start a.b", "end a.b"]
        assert not (tmp_path / "one.txt").exists()
