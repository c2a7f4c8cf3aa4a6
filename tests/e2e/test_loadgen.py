"""Does the load generator load a running stack, and are its figures plausible?"""

import asyncio
import json
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.runtime_mcp.test_server import until
from tests.support.raw_engine import Talk, json_answer, raw_engine
from tests.support.runtime_fakes import served
from tests.support.stack import stack

pytestmark = pytest.mark.timeout(300)


async def loadgen(*options: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "luftpause", "loadgen", *options, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 90)
    return process.returncode or 0, out.decode(), err.decode()


async def interrupted(how: signal.Signals, when: Callable[[], Awaitable[object]], *options: str) -> tuple[int, Any]:
    """The exit status and the JSON of a load that a signal ends."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "luftpause", "loadgen", "--json", *options, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        await asyncio.wait_for(when(), 90)
        process.send_signal(how)
        out, err = await asyncio.wait_for(process.communicate(), 90)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert "Traceback" not in err.decode()
    return process.returncode or 0, json.loads(out)


async def test_a_load_that_is_interrupted_tells_what_it_measured_so_far(tmp_path: Path) -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "done"}, "finish_reason": "stop"}]}
    third = asyncio.Event()

    async def behave(talk: Talk) -> None:
        if not talk.head.startswith(b"POST"):
            await talk.send(json_answer(b'{"data": [{"id": "m"}]}'))
            return
        if sum(each.head.startswith(b"POST") for each in engine.talks) > 2:
            third.set()
        await talk.stream(b"data: %b\n\ndata: [DONE]\n\n" % json.dumps(chunk).encode())

    trace = tmp_path / "trace.jsonl"
    async with raw_engine(behave) as engine:
        options = ("--agents", "1", "--duration-s", "3600", "--trace-out", str(trace), "--base-url", engine.url + "/v1")
        status, found = await interrupted(signal.SIGINT, third.wait, *options)
    assert status == 128 + signal.SIGINT
    assert found["interrupted"] == "SIGINT"
    assert found["seconds"] < 3600
    assert found["classes"]["interactive"]["completed"] >= 2
    assert found["classes"]["interactive"]["failed"] == 0
    assert len(trace.read_text().splitlines()) >= 2


async def test_sub_agents_of_a_load_that_is_interrupted_are_cancelled() -> None:
    async with served() as at:

        async def both() -> None:
            await until(lambda: at.runs.waits)  # the load knows both by then
            assert len(at.runs.runs) == 2

        status, found = await interrupted(signal.SIGTERM, both, "--spawn", "2", "--mcp", at.mcp)
        assert status == 128 + signal.SIGTERM
        assert found["interrupted"] == "SIGTERM"
        assert found["classes"]["interactive"]["unfinished"] == 2
        assert sorted(at.runs.cancelled) == sorted(at.runs.runs)


async def test_it_loads_the_runtime_over_mcp_and_the_proxy_directly(tmp_path: Path) -> None:
    async with stack(tmp_path, engine=["--speed", "4"], tools=["--lookup-seconds", "0.1"]) as whole:
        status, out, err = await loadgen("--spawn", "12", "--mcp", whole.mcp, "--class", "batch", "--json")
        assert status == 0, err
        batch: dict[str, Any] = json.loads(out)["classes"]["batch"]
        assert batch["completed"] == 12
        assert batch["tool_calls"] >= 12
        assert batch["turns"] == batch["tool_calls"] + 12
        assert batch["run_s"]["p50"] <= batch["run_s"]["p99"]

        options = ("--agents", "6", "--tool-seconds", "0.1", "--base-url", whole.base_url)
        for seconds in ("2", "8", "32"):  # a busy machine needs longer for as many runs
            status, out, err = await loadgen(*options, "--duration-s", seconds, "--json")
            assert status == 0, err
            direct: dict[str, Any] = json.loads(out)["classes"]["interactive"]
            if direct["completed"] >= 6:
                break
        assert direct["completed"] >= 6
        assert direct["failed"] == 0
        assert 0 < direct["first_token_s"]["p50"] < 10
        assert direct["cached_tokens"] > 0

        status, out, err = await loadgen(*options, "--duration-s", "2")
        assert status == 0, err
        assert "runs/min" in out


async def test_without_a_stack_it_says_what_to_do() -> None:
    status, out, err = await loadgen("--agents", "1", "--base-url", "http://127.0.0.1:9/v1")
    assert status == 2
    assert out == ""
    assert "luftpause up" in err
    assert "Traceback" not in err
    status, _, err = await loadgen("--spawn", "1", "--mcp", "http://127.0.0.1:9/mcp")
    assert status == 2
    assert "no MCP server answers at http://127.0.0.1:9/mcp" in err
    assert "is `luftpause up` running?" in err
    _, _, err = await loadgen("--spawn", "1", "--mcp", "http://127.0.0.1:9")
    assert "the runtime's address ends in /mcp" in err
    assert "Traceback" not in err


async def test_either_spawn_or_agents_must_be_given() -> None:
    status, _, err = await loadgen()
    assert status == 2
    assert "--spawn N or --agents N" in err
