"""Does the official `openai` client work through the proxy unchanged, and is its run recognised without any header?"""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI

from tests.support.processes import running

pytestmark = pytest.mark.timeout(180)

TOOLS: list[Any] = [{
    "type": "function",
    "function": {
        "name": "lookup", "description": "Look a fact up.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
}]  # fmt: skip
TASK: list[Any] = [{"role": "user", "content": "Look up when tides are highest. [calls=1 tool=lookup]"}]
RUN_ID = "x-luftpause-run-id"


@pytest.fixture
async def client(tmp_path: Path) -> AsyncGenerator[AsyncOpenAI]:
    async with (
        running("up", "--free-ports", "--state", str(tmp_path / "state"), folder=tmp_path) as stack,
        httpx.AsyncClient(trust_env=False, timeout=60) as http,
        AsyncOpenAI(base_url=stack.at["base_url"], api_key="unused", http_client=http) as openai,
    ):
        yield openai


async def test_the_official_client_works_and_its_second_turn_is_the_same_run(client: AsyncOpenAI) -> None:
    (model,) = [model.id async for model in client.models.list()]
    await _without_streaming(client, model)
    await _streaming(client, model)


async def _without_streaming(client: AsyncOpenAI, model: str) -> None:
    first = await client.chat.completions.with_raw_response.create(model=model, messages=TASK, tools=TOOLS)
    message = first.parse().choices[0].message
    assert first.parse().choices[0].finish_reason == "tool_calls"
    assert message.tool_calls
    answer: Any = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "At new moon and full moon."}
    second = await client.chat.completions.with_raw_response.create(
        model=model, messages=[*TASK, message.model_dump(exclude_none=True), answer], tools=TOOLS
    )
    assert second.parse().choices[0].finish_reason == "stop"
    assert "new moon" in (second.parse().choices[0].message.content or "")
    assert first.headers[RUN_ID] == second.headers[RUN_ID]
    other = await client.chat.completions.with_raw_response.create(model=model, messages=TASK, tools=TOOLS)
    assert other.headers[RUN_ID] != first.headers[RUN_ID]


async def _streaming(client: AsyncOpenAI, model: str) -> None:
    run, text, calls = await _stream(client, model, TASK)
    assert text == ""
    (call,) = calls
    history = [
        *TASK,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "At new moon."},
    ]
    again, text, calls = await _stream(client, model, history)
    assert calls == []
    assert "new moon" in text
    assert again == run


async def _stream(client: AsyncOpenAI, model: str, messages: list[Any]) -> tuple[str, str, list[dict[str, Any]]]:
    """Run id, text and tool calls of a streamed turn."""
    raw = await client.chat.completions.with_raw_response.create(
        model=model, messages=messages, tools=TOOLS, stream=True, stream_options={"include_usage": True}
    )
    text, usage = "", None
    calls: dict[int, dict[str, Any]] = {}
    async for chunk in raw.parse():
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for delta in choice.delta.tool_calls or []:
                call = calls.setdefault(delta.index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
                call["id"] += delta.id or ""
                if delta.function:
                    call["function"]["name"] += delta.function.name or ""
                    call["function"]["arguments"] += delta.function.arguments or ""
    assert usage is not None
    assert usage.completion_tokens > 0
    return raw.headers[RUN_ID], text, [calls[index] for index in sorted(calls)]
