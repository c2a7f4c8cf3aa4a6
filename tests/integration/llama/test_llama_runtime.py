"""What does the runtime make of a real small model: decisions among labels, and a tool call that is written as text?"""

import contextlib
import json
import statistics
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from luftpause.kit.config import RuntimeConfig
from luftpause.runtime.journal import Journal
from luftpause.runtime.model_client import DataplaneClient
from luftpause.runtime.ports import Decision, ModelAnswer, ModelTurn, RunState, SpawnRequest
from luftpause.runtime.runs import RunService
from tests.integration.llama.test_llama_engine import needs_llama
from tests.support.agents import CountingTools, ScriptedModel, spec, text
from tests.support.fake_scheduler import FakeScheduler, replica
from tests.support.plane import running_plane
from tests.support.processes import Process, running

pytestmark = [pytest.mark.llama, pytest.mark.asyncio(loop_scope="module")]

ANIMALS = (
    "cat", "dog", "bird", "fish", "horse", "lion", "tiger", "mouse", "sheep", "wolf", "bear", "frog", "snake", "whale", "eagle", "goat",
    "pig", "owl", "zebra", "ant",
)  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncGenerator[Process]:
    needs_llama()
    async with running("llama-engine", "--port", "0", "--slots", "2", "--context", "2048") as process:
        yield process


@contextlib.asynccontextmanager
async def client(engine: Process) -> AsyncGenerator[DataplaneClient]:
    scheduler = FakeScheduler(replica("llama", engine.at["http"], "smollm2"))
    async with running_plane(scheduler) as plane, DataplaneClient(RuntimeConfig(dataplane=plane.url)) as model:
        yield model


@pytest.mark.parametrize("count", [2, 5, 20])
async def test_labels_are_scored_by_the_models_own_probabilities(count: int, engine: Process) -> None:
    labels = list(ANIMALS[:count])
    took: list[float] = []
    decisions: list[Decision] = []
    async with client(engine) as model:
        for _ in range(4):
            began = time.perf_counter()
            decisions.append(await model.decide("smollm2", "It meows, purrs and chases mice.", labels, ""))
            took.append(time.perf_counter() - began)
    decision = decisions[-1]
    assert sum(decision.probabilities.values()) == pytest.approx(1)
    assert decision.label == max(decision.probabilities, key=decision.probabilities.__getitem__)
    assert {*decision.probabilities, *decision.unscored} == set(labels)
    assert decision.probabilities
    print(f"{count} labels: first {took[0] * 1e3:.0f} ms, then {statistics.median(took[1:]) * 1e3:.0f} ms; {decision}")


async def test_a_call_written_as_text_is_recovered_and_made(engine: Process, tmp_path: Path) -> None:
    """`response_format` makes the model write the call into its answer, as small models do by themselves."""
    schema = {
        "type": "object",
        "properties": {
            "name": {"const": "lookup"},
            "arguments": {"type": "object", "properties": {"query": {"type": "string", "maxLength": 20}}, "required": ["query"]},
        },
        "required": ["name", "arguments"],
    }

    async def ask(turn: ModelTurn) -> ModelAnswer:
        if len(turn.messages) > 2:
            return text("42")
        asked: dict[str, Any] = {
            "model": "smollm2",
            "messages": list(turn.messages),
            "max_tokens": 60,
            "temperature": 0,
            "response_format": {"type": "json_schema", "json_schema": {"name": "call", "schema": schema}},
        }
        async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
            answer = (await http.post(engine.at["http"] + "/v1/chat/completions", json=asked)).json()
        content: str = answer["choices"][0]["message"]["content"]
        json.loads(content)
        return ModelAnswer(content, (), answer["choices"][0]["finish_reason"])

    query = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    config, tools = RuntimeConfig(state=tmp_path / "state", journal_reserve_bytes=0), CountingTools(spec("lookup", query))
    async with await Journal.open(config) as journal, RunService(config, ScriptedModel(ask), tools, journal) as runs:
        spawned = await runs.spawn(SpawnRequest("Look up what a heron eats."))
        (view,) = await runs.wait([spawned.handle], "all", 60, None)
    assert (view.state, view.tool_calls, view.failed_tool_calls) == (RunState.COMPLETED, 1, 0)
    ((name, arguments),) = tools.made
    assert name == "lookup"
    assert isinstance(arguments["query"], str)
