"""Does the runtime's process stop in time, cleanly, whatever is open?"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from mcp import Client

from tests.support.ports import a_quiet_port
from tests.support.processes import Process, running

SECONDS = 60.0


def config(folder: Path, **settings: object) -> Path:
    path = folder / "luftpause.yaml"
    lines = [f"  {key}: {value}" for key, value in {"port": 0, "state": folder / "state", **settings}.items()]
    path.write_text("\n".join(["runtime:", *lines]) + "\n")
    return path


async def open_stream(http: httpx.AsyncClient, runtime: Process) -> asyncio.Task[None]:
    """A session with its GET stream open; the task ends with the stream."""
    accept = {"accept": "application/json, text/event-stream"}
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
    first = await http.post(runtime.at["mcp"], json={"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}, headers=accept)
    headers = {"accept": "text/event-stream", "mcp-session-id": first.headers["mcp-session-id"]}
    opened = asyncio.Event()

    async def read() -> None:
        async with http.stream("GET", runtime.at["mcp"], headers=headers) as stream:
            opened.set()
            async for _ in stream.aiter_bytes():
                pass

    task = asyncio.create_task(read())
    await asyncio.wait_for(opened.wait(), SECONDS)
    return task


async def test_sigterm_ends_it_in_time_with_code_0_while_a_stream_is_open(tmp_path: Path):
    path = config(tmp_path, stop_grace_seconds=100, port=a_quiet_port())
    async with httpx.AsyncClient(timeout=30, trust_env=False) as http, running("runtime", "--config", str(path)) as runtime:
        stream = await open_stream(http, runtime)
        runtime.terminate()
        assert await runtime.ended(SECONDS) == 0, "long before its grace is over"
        await asyncio.wait([stream], timeout=SECONDS)
        stream.exception()
        assert "Traceback" not in runtime.logged()
        port = runtime.at["http"].rpartition(":")[2]
        again = config(tmp_path, port=port)
        async with running("runtime", "--config", str(again)) as next_one:
            assert (await http.get(next_one.at["http"] + "/health")).status_code == 200


def with_a_deaf_server(folder: Path, **settings: object) -> Path:
    """A tool server that takes no hint keeps the orderly stop busy for seconds."""
    deaf = folder / "deaf.py"
    deaf.write_text(
        "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nparent = os.getppid()\n"
        "while os.getppid() == parent: time.sleep(0.2)\n"
    )
    path = config(folder, **settings)
    path.write_text(path.read_text() + f"  servers:\n    deaf:\n      command: python3\n      args: [{deaf}]\n")
    return path


async def test_the_stop_has_a_limit_even_if_a_tool_server_does_not_go(tmp_path: Path):
    async with running("runtime", "--config", str(with_a_deaf_server(tmp_path, stop_grace_seconds=1))) as runtime:
        runtime.terminate()
        assert await runtime.ended(SECONDS) == 0
        assert "Traceback" not in runtime.logged()


async def test_a_second_signal_ends_it_at_once(tmp_path: Path):
    path = with_a_deaf_server(tmp_path, stop_grace_seconds=100)
    async with running("runtime", "--config", str(path)) as runtime:
        runtime.terminate()
        async with asyncio.timeout(SECONDS):
            while '"stopping"' not in runtime.logged():  # the second signal must be a second one
                await asyncio.sleep(0.02)
        runtime.terminate()
        assert await runtime.ended(SECONDS) == 0
        assert "Traceback" not in runtime.logged()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Process]:
    """A runtime for tests that leave it as it is."""
    async with running("runtime", "--config", str(config(tmp_path_factory.mktemp("runtime")))) as runtime:
        yield runtime


@pytest.mark.asyncio(loop_scope="module")
async def test_a_port_in_use_is_an_error_that_names_the_setting(shared: Process, tmp_path: Path):
    port = shared.at["http"].rpartition(":")[2]
    with pytest.raises(AssertionError, match=f"port {port} on 127.0.0.1 is in use; choose another with runtime.port"):
        async with running("runtime", "--config", str(config(tmp_path, port=port))):
            pass


@pytest.mark.asyncio(loop_scope="module")
async def test_a_real_client_talks_with_the_process(shared: Process):
    async with Client(shared.at["mcp"]) as client:
        tools = await client.call_tool("tools", {})
        assert tools.structured_content == {"tools": [], "servers": []}
        unknown = await client.call_tool("await", {"handles": ["run_x"]})
        assert unknown.is_error
        assert "unknown handle" in unknown.content[0].text


async def test_a_sessions_runs_are_its_own_until_it_is_over_and_a_restart_ends_every_session(tmp_path: Path):
    path = config(tmp_path)
    async with (
        running("runtime", "--config", str(path)) as runtime,
        Client(runtime.at["mcp"], mode="legacy") as owner,
        Client(runtime.at["mcp"], mode="legacy") as other,
    ):
        spawned = await owner.call_tool("spawn", {"task": "t", "model": "m"})
        handle = spawned.structured_content["handle"]
        assert not (await owner.call_tool("status", {"handle": handle})).is_error
        assert (await other.call_tool("cancel", {"handle": handle})).is_error
        assert (await other.call_tool("status", {})).structured_content["total"] == 0
        runtime.kill()
        await runtime.ended(SECONDS)
    async with running("runtime", "--config", str(path)) as runtime, Client(runtime.at["mcp"], mode="legacy") as later:
        found = await later.call_tool("status", {"handle": handle})
        assert found.structured_content["runs"][0]["handle"] == handle
        cancelled = await later.call_tool("cancel", {"handle": handle})
        assert cancelled.structured_content["state"] in {"Cancelled", "Failed"}


@pytest.mark.asyncio(loop_scope="module")
async def test_runs_of_a_session_that_said_goodbye_go_to_whoever_has_the_handle(shared: Process):
    async with Client(shared.at["mcp"], mode="legacy") as owner:
        handle = (await owner.call_tool("spawn", {"task": "t", "model": "m"})).structured_content["handle"]
    async with Client(shared.at["mcp"]) as later:
        assert not (await later.call_tool("status", {"handle": handle})).is_error
