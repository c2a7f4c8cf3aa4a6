"""Does the load generator load a running stack, and are its figures plausible?"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.stack import stack

pytestmark = pytest.mark.timeout(300)


async def loadgen(*options: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "luftpause", "loadgen", *options, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 90)
    return process.returncode or 0, out.decode(), err.decode()


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
