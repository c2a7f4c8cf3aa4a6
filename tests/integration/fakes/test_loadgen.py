"""Does the load generator measure a fake engine, and does a replayed trace have the lengths that it says?"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from luftpause.cli.app import app
from luftpause.cli.load_plan import Plan, Round
from luftpause.cli.load_trace import read, write_plans
from tests.support.processes import running

SYNTHETIC = """session_id,arrival_time,round_idx,prefix_len,input_len,output_len,tool_wait_after_ms
0,0,0,0,2318,200,300
0,0,1,2518,348,131,154
0,0,2,2997,812,104,0
1,150,0,0,861,107,273
1,150,1,968,77,64,0
"""


def loadgen(*options: str) -> dict[str, Any]:
    found = CliRunner().invoke(app, ["loadgen", *options, "--json"])
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


@pytest.fixture
async def urls() -> Any:
    async with running("fake-engine", "--port", "0", "--engines", "2", "--speed", "10", "--priority", "sglang") as process:
        yield process.at["http"], process.at["http-1"]


async def test_agents_traces_and_questions_against_an_engine(urls: tuple[str, str], tmp_path: Path) -> None:
    first, second = urls
    await asyncio.to_thread(mixed, first)
    await asyncio.to_thread(replayed, first, tmp_path)
    await asyncio.to_thread(shared, second, tmp_path)
    await asyncio.to_thread(asked, first)


def mixed(engine: str) -> None:
    options = ("--warm-up-s", "0.5", "--tool-seconds", "0.1", "--engine-priority", "sglang", "--seed", "5")
    for seconds in ("3", "12", "40"):  # a busy machine needs longer for one run of each
        found = loadgen(
            "--base-url", f"{engine}/v1", "--mix", "batch=3,interactive=2", "--rate", "batch=3", "--duration-s", seconds, *options
        )
        if all(figures["completed"] and figures["cached_tokens"] for figures in found["classes"].values()):
            break
    for figures in found["classes"].values():
        assert figures["completed"] > 0
        assert figures["failed"] == 0
        assert figures["turns"] >= figures["completed"]
        assert figures["prompt_tokens"] > figures["cached_tokens"] > 0
    assert found["seed"] == 5


def replayed(engine: str, folder: Path) -> None:
    trace, out = folder / "trace.csv", folder / "out.csv"
    trace.write_text(SYNTHETIC)
    loadgen("--base-url", f"{engine}/v1", "--trace", str(trace), "--speed", "5", "--trace-out", str(out))
    for plan, run in zip(read(trace), read(out), strict=True):
        for wanted, got in zip(plan.rounds, run.rounds, strict=True):
            assert got.output_len == wanted.output_len
            assert abs(got.prompt_len - wanted.prompt_len) <= 4


def shared(engine: str, folder: Path) -> None:
    """What all runs begin with is found cached, on an engine that has seen none of them before."""
    path = folder / "plans.jsonl"
    write_plans(path, [Plan(str(number), (Round(512, 300, 20, 10.0, 256), Round(832, 60, 40)), 300.0 * number) for number in range(4)])
    found = loadgen("--base-url", f"{engine}/v1", "--trace", str(path))["classes"]["interactive"]
    assert (found["completed"], found["turns"], found["completion_tokens"]) == (4, 8, 4 * 60)
    assert found["cached_tokens"] > 3 * 448 + 4 * 800


def asked(engine: str) -> None:
    for seconds in ("1", "10", "30"):  # the same
        found = loadgen("--base-url", f"{engine}/v1", "--decide", "2", "--decide-url", f"{engine}/classify", "--duration-s", seconds)
        if found["decide"]["answered"] > 10:
            break
    assert found["decide"]["answered"] > 10
    assert found["decide"]["failed"] == 0
    assert found["classes"] == {}
