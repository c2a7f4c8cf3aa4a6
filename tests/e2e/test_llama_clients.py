"""Do the official packages get on with a real llama.cpp behind the proxy: is a turn that follows its tool call recognised, over each API?

SmolLM2 calls a tool where the conversation so far shows it how.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from uuid import uuid4

import anthropic
import httpx2
import openai
import pytest
import pytest_asyncio
import yaml

from tests.integration.llama.test_llama_engine import needs_llama
from tests.support.processes import running
from tests.support.proxied import PARAMETERS, Watch

pytestmark = [pytest.mark.llama, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]

MODEL = "smollm2"
SHOWN = {"cats": "Cats sleep a lot.", "dogs": "Dogs like to run."}
SCHEMA = PARAMETERS["lookup"]
STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxy(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[str]:
    """The address of a dataplane in front of llama.cpp, without `/v1`."""
    needs_llama()
    folder: Path = tmp_path_factory.mktemp("llama")
    async with running("llama-engine", "--port", "0", "--slots", "1", "--context", "2048", folder=folder) as engine:
        config = folder / "scheduler.yaml"
        replica = {"name": "llama", "url": engine.at["http"], "load": "llamacpp"}
        config.write_text(yaml.safe_dump({"replicas": [replica], "scheduler": {"grpc_port": 0, "http_port": 0, "start_grace_seconds": 0}}))
        async with running("scheduler", "--config", str(config), folder=folder) as scheduler:
            config = folder / "dataplane.yaml"
            config.write_text(yaml.safe_dump({"dataplane": {"port": 0, "scheduler": scheduler.at["grpc"]}}))
            async with running("dataplane", "--config", str(config), folder=folder) as dataplane:
                await served(dataplane.at["http"])
                yield dataplane.at["http"]


async def served(at: str) -> None:
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http, asyncio.timeout(60):
        while not (await http.get(f"{at}/v1/models")).json()["data"]:
            await asyncio.sleep(0.05)  # replicas are known after their first probe; nothing else tells


@STREAMED
async def test_chat(proxy: str, *, streamed: bool) -> None:
    messages: list[Any] = []
    for query, fact in SHOWN.items():
        call = {"id": f"shown_{uuid4().hex}", "type": "function", "function": {"name": "lookup", "arguments": json.dumps({"query": query})}}
        messages += [
            {"role": "user", "content": f"Look up: {query}"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": fact},
        ]
    tools: Any = [{"type": "function", "function": {"name": "lookup", "description": "Look a fact up.", "parameters": SCHEMA}}]
    watch = Watch()
    async with openai.AsyncOpenAI(base_url=f"{proxy}/v1", api_key="unused", http_client=watch.async_client()) as client:

        async def ask(*more: Any) -> Any:
            asked: Any = {"model": MODEL, "messages": [*messages, *more], "tools": tools, "temperature": 0, "max_tokens": 36}
            if not streamed:
                return (await client.chat.completions.create(**asked)).choices[0]
            whole = openai.lib.streaming.chat.ChatCompletionStreamState()
            async for chunk in await client.chat.completions.create(**asked, stream=True):
                whole.handle_chunk(chunk)
            return whole.get_final_completion().choices[0]

        question = {"role": "user", "content": "Look up: tides"}
        choice = await ask(question)
        assert choice.finish_reason == "tool_calls"
        (call,) = choice.message.tool_calls
        assert (call.function.name, json.loads(call.function.arguments)) == ("lookup", {"query": "tides"})
        said = {"role": "assistant", "content": None, "tool_calls": [call.model_dump(include={"id", "type", "function"})]}
        said["tool_calls"][0]["function"] = {"name": call.function.name, "arguments": call.function.arguments}
        await ask(question, said, {"role": "tool", "tool_call_id": call.id, "content": "Tides follow the moon."})
    watch.one_run(2)


@STREAMED
async def test_responses(proxy: str, *, streamed: bool) -> None:
    """Of the stream only its end is used: its events lack `output_index`, which the package's own helper needs."""
    items: list[Any] = []
    for query, fact in SHOWN.items():
        ids = {"call_id": f"shown_{uuid4().hex}"}
        items += [
            {"role": "user", "content": f"Look up: {query}"},
            {"type": "function_call", "name": "lookup", "arguments": json.dumps({"query": query}), **ids},
            {"type": "function_call_output", "output": fact, **ids},
        ]
    tools: Any = [{"type": "function", "name": "lookup", "description": "Look a fact up.", "parameters": SCHEMA}]
    watch = Watch()
    async with openai.AsyncOpenAI(base_url=f"{proxy}/v1", api_key="unused", http_client=watch.async_client()) as client:

        async def ask(*more: Any) -> Any:
            asked: Any = {"model": MODEL, "input": [*items, *more], "tools": tools, "temperature": 0, "max_output_tokens": 36}
            if not streamed:
                return await client.responses.create(**asked)
            events = [event async for event in await client.responses.create(**asked, stream=True)]
            assert events[-1].type == "response.completed"
            return events[-1].response

        question = {"role": "user", "content": "Look up: tides"}
        (call,) = (await ask(question)).output
        assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "lookup", {"query": "tides"})
        said = {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments}
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "Tides follow the moon."}
        assert (await ask(question, said, output)).status in {"completed", "incomplete"}
    watch.one_run(2)


@STREAMED
async def test_messages(proxy: str, *, streamed: bool) -> None:
    messages: list[Any] = []
    for query, fact in SHOWN.items():
        id_ = f"shown_{uuid4().hex}"
        messages += [
            {"role": "user", "content": f"Look up: {query}"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": id_, "name": "lookup", "input": {"query": query}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id_, "content": fact}]},
        ]
    tools: Any = [{"name": "lookup", "description": "Look a fact up.", "input_schema": SCHEMA}]
    watch = Watch()
    async with anthropic.AsyncAnthropic(base_url=proxy, api_key="unused", http_client=watch.async_client()) as client:

        async def ask(*more: Any) -> Any:
            asked: Any = {
                "model": MODEL,
                "messages": [*messages, *more],
                "tools": tools,
                "max_tokens": 36,
                "extra_body": {"temperature": 0},
            }
            if not streamed:
                return await client.messages.create(**asked)
            async with client.messages.stream(**asked) as stream:
                return await stream.get_final_message()

        question = {"role": "user", "content": "Look up: tides"}
        message = await ask(question)
        assert message.stop_reason == "tool_use"
        (use,) = message.content
        assert (use.name, use.input) == ("lookup", {"query": "tides"})
        said = {"role": "assistant", "content": [{"type": "tool_use", "id": use.id, "name": use.name, "input": use.input}]}
        result = {"type": "tool_result", "tool_use_id": use.id, "content": "Tides follow the moon."}
        await ask(question, said, {"role": "user", "content": [result]})
    watch.one_run(2)
