"""Do the examples run as they are, each as one run with its caller and class?"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import Cluster
from tests.support.proxied import nothing_left

pytestmark = [pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="package")]

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


async def test_there_are_examples_and_each_is_short() -> None:
    assert {example.stem for example in EXAMPLES} == {"anthropic_loop", "langgraph_agent", "openai_agents_sdk", "openai_loop"}
    assert all(len(example.read_text().splitlines()) < 60 for example in EXAMPLES)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
async def test_an_example_runs_as_it_is(proxy: Cluster, example: Path) -> None:
    before = await proxy.status()
    environment = os.environ | {"LUFTPAUSE_URL": proxy.url().removesuffix("/v1")}
    environment.pop("LUFTPAUSE_TOKEN", None)
    task = "Look two things up. [calls=2 tool=lookup answer=5]"
    agent = await asyncio.create_subprocess_exec(
        sys.executable, str(example), task, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    said, complained = await agent.communicate()
    assert agent.returncode == 0, complained.decode()
    assert said.strip()
    after = await proxy.until(lambda seen: _finished(seen) - _finished(before) >= 3)  # the end of a turn is told after its last byte
    assert _finished(after) - _finished(before) == 3
    assert _runs(after) - _runs(before) == 1
    await nothing_left(proxy)


def _finished(status: Any) -> int:
    return status["events"].get("TurnFinished", 0)


def _runs(status: Any) -> int:
    """Interactive runs that are known, whatever they do."""
    return sum(by_class.get("interactive", 0) for by_class in status["state"]["runs"].values())
