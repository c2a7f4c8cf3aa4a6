"""Does the official `openai` package work through the proxy unchanged, each way of calling it, and is each tool loop one run?"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import openai
import pytest

from tests.support.cluster import Cluster
from tests.support.proxied import FACT, MODEL, PARAMETERS, TASK, TURNS, Watch, nothing_left, used

pytestmark = [pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="package")]

Ask = Callable[..., Awaitable[Any]]
TASK_MESSAGE = {"role": "user", "content": TASK}


def of_openai(proxy: Cluster, watch: Watch, **more: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=proxy.url(), api_key="unused", http_client=watch.client(), **({"max_retries": 0} | more))


def of_async_openai(proxy: Cluster, watch: Watch, **more: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=proxy.url(), api_key="unused", http_client=watch.async_client(), **({"max_retries": 0} | more))


# ---- Chat Completions ---------------------------------------------------------------------------------------------------

FUNCTIONS: list[Any] = [
    {"type": "function", "function": {"name": name, "description": f"To {name}.", "parameters": schema, "strict": True}}
    for name, schema in PARAMETERS.items()
]


async def chat_loop(ask: Ask) -> str:
    messages: list[Any] = [TASK_MESSAGE]
    while True:
        message = await ask(model=MODEL, messages=messages, tools=FUNCTIONS)
        if not message.tool_calls:
            return message.content
        calls = [
            {"id": each.id, "type": "function", "function": {"name": each.function.name, "arguments": each.function.arguments}}
            for each in message.tool_calls
        ]
        messages.append({"role": "assistant", "content": message.content, "tool_calls": calls})
        for call in calls:
            content = used(call["function"]["name"], json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})


def chat_asks(client: openai.OpenAI, aclient: openai.AsyncOpenAI) -> dict[str, Ask]:
    def plain(**asked: Any) -> Any:
        return client.chat.completions.create(**asked).choices[0].message

    def streamed(**asked: Any) -> Any:
        with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
            final = stream.get_final_completion()
        assert final.usage
        assert final.usage.completion_tokens > 0
        return final.choices[0].message

    async def awaited(**asked: Any) -> Any:
        return (await aclient.chat.completions.create(**asked)).choices[0].message

    async def streamed_async(**asked: Any) -> Any:
        async with aclient.chat.completions.stream(**asked) as stream:
            return (await stream.get_final_completion()).choices[0].message

    return {"sync": in_thread(plain), "sync streamed": in_thread(streamed), "async": awaited, "async streamed": streamed_async}


def in_thread(function: Callable[..., Any]) -> Ask:
    async def ask(**asked: Any) -> Any:
        return await asyncio.to_thread(function, **asked)

    return ask


WAYS = pytest.mark.parametrize("way", ["sync", "sync streamed", "async", "async streamed"])


@WAYS
async def test_a_chat_with_tools_is_one_run(proxy: Cluster, way: str) -> None:
    watch = Watch()
    with of_openai(proxy, watch) as client:
        async with of_async_openai(proxy, watch) as aclient:
            answer = await chat_loop(chat_asks(client, aclient)[way])
    assert FACT in answer
    assert "The sum is" in answer
    watch.one_run(TURNS)
    await nothing_left(proxy)


# ---- Responses ----------------------------------------------------------------------------------------------------------

RESPONSE_TOOLS: list[Any] = [{"type": "function", **each["function"]} for each in FUNCTIONS]


async def responses_loop(ask: Ask) -> str:
    items: list[Any] = [TASK_MESSAGE]
    while True:
        response = await ask(model=MODEL, input=items, tools=RESPONSE_TOOLS, store=False)
        assert response.status == "completed"
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return response.output_text
        for call in calls:
            said = {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments}
            output = used(call.name, json.loads(call.arguments))
            items += [said, {"type": "function_call_output", "call_id": call.call_id, "output": output}]


def responses_asks(client: openai.OpenAI, aclient: openai.AsyncOpenAI) -> dict[str, Ask]:
    def plain(**asked: Any) -> Any:
        return client.responses.create(**asked)

    def streamed(**asked: Any) -> Any:
        with client.responses.stream(**asked) as stream:
            return stream.get_final_response()

    async def awaited(**asked: Any) -> Any:
        return await aclient.responses.create(**asked)

    async def streamed_async(**asked: Any) -> Any:
        async with aclient.responses.stream(**asked) as stream:
            return await stream.get_final_response()

    return {"sync": in_thread(plain), "sync streamed": in_thread(streamed), "async": awaited, "async streamed": streamed_async}


@WAYS
async def test_responses_with_tools_are_one_run(proxy: Cluster, way: str) -> None:
    watch = Watch()
    with of_openai(proxy, watch) as client:
        async with of_async_openai(proxy, watch) as aclient:
            answer = await responses_loop(responses_asks(client, aclient)[way])
    assert FACT in answer
    watch.one_run(TURNS)
    await nothing_left(proxy)


async def test_stored_responses_are_continued_by_their_id_alone(proxy: Cluster) -> None:
    watch, previous, said = Watch(), None, ""
    with of_openai(proxy, watch) as client:
        items: list[Any] = [TASK_MESSAGE]
        while items:
            response = client.responses.create(model=MODEL, input=items, tools=RESPONSE_TOOLS, previous_response_id=previous)
            previous, said = response.id, response.output_text
            items = [
                {"type": "function_call_output", "call_id": item.call_id, "output": used(item.name, json.loads(item.arguments))}
                for item in response.output if item.type == "function_call"
            ]  # fmt: skip
        assert "The sum is" in said
        again = client.responses.create(model=MODEL, input="And lowest? [calls=0]", previous_response_id=previous)
        assert again.previous_response_id == previous
    watch.one_run(TURNS + 1)
    await nothing_left(proxy)


async def test_embeddings_come_in_order_and_belong_to_no_run(proxy: Cluster) -> None:
    watch = Watch()
    with of_openai(proxy, watch) as client:
        found = client.embeddings.create(model=MODEL, input=["high tide", "low tide"]).data
        (alone,) = client.embeddings.create(model=MODEL, input="low tide").data
    assert [each.index for each in found] == [0, 1]
    assert found[1].embedding == pytest.approx(alone.embedding)
    assert found[0].embedding != pytest.approx(alone.embedding)
    await nothing_left(proxy)
