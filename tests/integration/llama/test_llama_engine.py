"""Does the real llama.cpp server run as `luftpause llama-engine` and serve SmolLM2?"""

import asyncio
import importlib.util
import json
import os
import re
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import openai
import pytest
import pytest_asyncio

from luftpause.cli import weights
from tests.conftest import REQUIRED, missing
from tests.support.processes import Process, running

pytestmark = [pytest.mark.llama, pytest.mark.asyncio(loop_scope="module")]

TOOL = {
    "type": "function",
    "function": {
        "name": "lookup",
        "description": "Look a question up.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
    },
}


def needs_llama() -> None:
    if importlib.util.find_spec("xllamacpp") is None:
        missing("llama.cpp", "pip install 'luftpause[local]'")
    if weights.smollm2(fetch=REQUIRED == "all") is None:
        missing("SmolLM2", weights.INSTALL)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncGenerator[Process]:
    needs_llama()
    async with running("llama-engine", "--port", "0", "--slots", "2", "--context", "2048") as process:
        yield process


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http(engine: Process) -> AsyncGenerator[httpx.AsyncClient]:
    # llama.cpp closes a connection after a stream although it has promised to keep it: no connection is used twice.
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=engine.at["http"], timeout=60, trust_env=False, limits=limits) as client:
        yield client


async def test_it_serves_smollm2_and_answers_in_words(engine: Process) -> None:
    async with openai.AsyncOpenAI(
        base_url=engine.at["http"] + "/v1", api_key="none", http_client=openai.DefaultAsyncHttpxClient(trust_env=False)
    ) as client:
        assert [model.id async for model in client.models.list()] == ["smollm2"]
        answer = await client.chat.completions.create(
            model="smollm2", messages=[{"role": "user", "content": "What is the capital of France?"}], temperature=0, max_tokens=24
        )
    # Which words depends on the machine: a model this small changes its mind with the rounding of its sums.
    assert len(re.findall(r"[^\W\d]{3,}", answer.choices[0].message.content)) >= 3
    assert answer.usage.prompt_tokens > 10
    assert 0 < answer.usage.completion_tokens <= 24


async def test_it_streams_and_reuses_the_prefix(http: httpx.AsyncClient) -> None:
    asked = {
        "model": "smollm2",
        "messages": [{"role": "user", "content": "Name a bird that lives at a lake."}],
        "max_tokens": 6,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    for _ in range(2):
        page = (await http.post("/v1/chat/completions", json=asked)).text
    events = [json.loads(line.removeprefix("data: ")) for line in page.splitlines() if line.startswith("data: {")]
    assert page.rstrip().endswith("data: [DONE]")
    assert "".join(event["choices"][0]["delta"].get("content") or "" for event in events if event["choices"])
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


async def test_its_template_tells_the_model_of_tools_calls_and_results(http: httpx.AsyncClient) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "lookup", "arguments": '{"query": "x"}'}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "How tall?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "Two feet."},
    ]
    prompt = (await http.post("/apply-template", json={"messages": messages, "tools": [TOOL]})).json()["prompt"]
    head, user, assistant, tool, open_end = prompt.split("<|im_start|>")[1:]
    assert head.startswith("system\nBe brief.\n\n")
    assert '\n{"type": "function", "function": {"name": "lookup"' in head
    assert "<tool_call>" in head
    assert user == "user\nHow tall?<|im_end|>\n"
    assert assistant == 'assistant\n\n<tool_call>\n{"name": "lookup", "arguments": {"query": "x"}}\n</tool_call><|im_end|>\n'
    assert tool == "user\n<tool_response>\nTwo feet.\n</tool_response><|im_end|>\n"
    assert open_end == "assistant\n"


async def test_its_metrics_page_and_slots_show_the_load(http: httpx.AsyncClient) -> None:
    page = (await http.get("/metrics")).text
    values = dict(line.split(" ") for line in page.splitlines() if line and not line.startswith("#"))
    assert values["llamacpp:requests_processing"] == "0"
    assert values["llamacpp:requests_deferred"] == "0"
    assert len((await http.get("/slots")).json()) == 2
    assert (await http.get("/props")).json()["total_slots"] == 2
    assert (await http.get("/health")).json() == {"status": "ok"}


async def test_it_ends_with_status_0_in_the_middle_of_an_answer() -> None:
    needs_llama()
    asked = {"messages": [{"role": "user", "content": "Write a very long story."}], "stream": True, "max_tokens": 1900, "ignore_eos": True}
    async with (
        running("llama-engine", "--port", "0", "--slots", "1", "--context", "2048") as process,
        httpx.AsyncClient(base_url=process.at["http"], timeout=60, trust_env=False) as http,
        http.stream("POST", "/v1/chat/completions", json=asked) as answer,
    ):
        assert (await anext(answer.aiter_lines())).startswith("data: {")
        process.terminate()
        assert await process.ended() == 0


@pytest.mark.parametrize(
    ("options", "complaint"),
    [(("--model-file", "nowhere.gguf"), "nowhere.gguf does not exist"), (("--model-file", os.devnull), "does not exist")],
)
async def test_a_wrong_file_is_told_without_a_traceback(options: tuple[str, ...], complaint: str) -> None:
    if importlib.util.find_spec("xllamacpp") is None:
        missing("llama.cpp", "pip install 'luftpause[local]'")
    with pytest.raises(AssertionError, match=complaint) as failed:
        async with running("llama-engine", "--port", "0", *options):
            pass
    assert "Traceback" not in str(failed.value)


async def test_a_file_that_is_no_model_is_told_without_a_traceback(tmp_path: Path) -> None:
    if importlib.util.find_spec("xllamacpp") is None:
        missing("llama.cpp", "pip install 'luftpause[local]'")
    wrong = tmp_path / "wrong.gguf"
    wrong.write_bytes(b"no model")
    with pytest.raises(AssertionError, match="does not start with") as failed:
        async with asyncio.timeout(60), running("llama-engine", "--port", "0", "--model-file", str(wrong)):
            pass
    assert "Traceback" not in str(failed.value)
