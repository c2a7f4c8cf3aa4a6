"""Do the clients of each format understand the fake engine's answers?"""

import httpx2
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI, NotFoundError

from luftpause_fakes.engine import EngineOptions, app_of
from luftpause_fakes.engine_state import EngineState

LOOKUP = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
TASK = "Which lakes freeze? [calls=1 tool=lookup answer=12]"


def http(**options) -> httpx2.AsyncClient:
    app = app_of(EngineState(EngineOptions(speed=1000, **options)))
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app))


def openai(**options) -> AsyncOpenAI:
    return AsyncOpenAI(base_url="http://engine/v1", api_key="x", http_client=http(**options), max_retries=0)


def anthropic(**options) -> AsyncAnthropic:
    return AsyncAnthropic(base_url="http://engine", api_key="x", http_client=http(**options), max_retries=0)


MESSAGES_TOOLS = [{"name": "lookup", "description": "looks up", "input_schema": LOOKUP}]
RESPONSES_TOOLS = [{"type": "function", "name": "lookup", "description": "looks up", "parameters": LOOKUP}]


@pytest.mark.parametrize("flavour", ["sglang", "vllm", "llamacpp"])
async def test_a_tool_loop_over_messages(flavour: str) -> None:
    client = anthropic(flavour=flavour)
    messages = [{"role": "user", "content": TASK}]
    first = await client.messages.create(model="fake-1b", max_tokens=200, messages=messages, tools=MESSAGES_TOOLS)
    (use,) = first.content
    assert (first.stop_reason, use.type, use.name, set(use.input)) == ("tool_use", "tool_use", "lookup", {"query"})
    results = [{"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": "Lake Inari does."}]}]
    messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
    async with client.messages.stream(model="fake-1b", max_tokens=200, messages=messages, tools=MESSAGES_TOOLS) as stream:
        text = "".join([piece async for piece in stream.text_stream])
        last = await stream.get_final_message()
    assert last.content[0].text == text
    assert len(text) == 12 * 4
    assert (last.stop_reason, last.usage.output_tokens) == ("end_turn", 12)
    assert last.usage.input_tokens + last.usage.cache_read_input_tokens > first.usage.input_tokens


async def test_a_streamed_tool_use_has_its_arguments() -> None:
    client = anthropic()
    messages = [{"role": "user", "content": TASK}]
    async with client.messages.stream(model="fake-1b", max_tokens=200, messages=messages, tools=MESSAGES_TOOLS) as stream:
        streamed = await stream.get_final_message()
    assert streamed.content[0].input["query"].startswith("Which lakes freeze")


async def test_messages_count_as_the_engine_counts_them() -> None:
    client = anthropic()
    messages = [{"role": "user", "content": "[calls=0 answer=5] hello"}]
    count = await client.messages.count_tokens(model="fake-1b", system="be brief", messages=messages)
    answer = await client.messages.create(model="fake-1b", max_tokens=50, system="be brief", messages=messages)
    assert answer.usage.input_tokens == count.input_tokens


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_tool_loop_over_responses_goes_on_from_what_is_stored(streamed: bool) -> None:
    client = openai()
    first = await ask(client, streamed, model="fake-1b", input=TASK, tools=RESPONSES_TOOLS)
    (call,) = first.output
    assert (call.type, call.name) == ("function_call", "lookup")
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "Lake Inari does."}
    second = await ask(client, streamed, model="fake-1b", input=[output], previous_response_id=first.id, tools=RESPONSES_TOOLS)
    assert (second.status, second.usage.output_tokens, len(second.output_text)) == ("completed", 12, 48)
    assert second.usage.input_tokens > first.usage.input_tokens
    assert second.usage.input_tokens_details.cached_tokens > 0
    assert (await client.responses.retrieve(second.id)).output_text == second.output_text
    await client.responses.delete(second.id)
    with pytest.raises(NotFoundError, match="not found"):
        await client.responses.retrieve(second.id)


async def ask(client: AsyncOpenAI, streamed: bool, **request):
    if not streamed:
        return await client.responses.create(**request)
    async with client.responses.stream(**request) as stream:
        return await stream.get_final_response()


async def test_events_of_a_response_are_numbered_without_a_gap() -> None:
    numbers = [event.sequence_number async for event in await openai().responses.create(model="fake-1b", input=TASK, stream=True)]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > 5


async def test_a_cut_response_is_incomplete() -> None:
    found = await openai().responses.create(model="fake-1b", input="[calls=0 answer=40] hi", max_output_tokens=16)
    assert (found.status, found.incomplete_details.reason) == ("incomplete", "max_output_tokens")


async def test_a_tool_of_a_namespace_is_called_by_both_names() -> None:
    tools = [{"type": "namespace", "name": "mcp__notes", "tools": [{"type": "function", "name": "lookup", "parameters": LOOKUP}]}]
    found = (await http().post("http://engine/v1/responses", json={"model": "fake-1b", "input": TASK, "tools": tools})).json()
    assert (found["output"][0]["namespace"], found["output"][0]["name"]) == ("mcp__notes", "lookup")


async def test_completions() -> None:
    client = openai()
    whole = await client.completions.create(model="fake-1b", prompt="[answer=9] Once", max_tokens=100)
    parts = [
        chunk.choices[0].text
        async for chunk in await client.completions.create(model="fake-1b", prompt="[answer=9] Once", max_tokens=100, stream=True)
        if chunk.choices
    ]
    assert "".join(parts) == whole.choices[0].text
    assert (whole.usage.completion_tokens, whole.choices[0].finish_reason) == (9, "stop")


async def test_embeddings_are_the_same_as_numbers_and_packed() -> None:
    client = openai()
    packed = await client.embeddings.create(model="fake-1b", input=["a", "b"])
    plain = await client.embeddings.create(model="fake-1b", input=["a", "b"], encoding_format="float")
    assert packed.data[1].embedding == pytest.approx(plain.data[1].embedding, abs=1e-6)
    assert packed.data[0].embedding != packed.data[1].embedding


async def test_classification_names_the_label_in_the_text() -> None:
    client = http(labels=("yes", "no"))
    found = (await client.post("http://engine/classify", json={"model": "fake-1b", "input": ["say YES", "say no"]})).json()
    assert [row["label"] for row in found["data"]] == ["yes", "no"]
    assert [sum(row["probs"]) for row in found["data"]] == pytest.approx([1, 1], abs=0.001)


async def test_log_probabilities_of_the_first_token_are_those_of_words_of_the_conversation() -> None:
    request = {"model": "fake-1b", "messages": [{"role": "user", "content": "red green blue"}], "max_tokens": 1}
    found = (await http().post("http://engine/v1/chat/completions", json={**request, "logprobs": True, "top_logprobs": 20})).json()
    top = found["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    assert {entry["token"].strip() for entry in top} == {"red", "green", "blue"}
    assert sorted((entry["logprob"] for entry in top), reverse=True) == [entry["logprob"] for entry in top]


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/v1/messages", {"max_tokens": 5}, "'messages' is required"),
        ("/v1/responses", {"input": ""}, "'input' is required"),
        ("/v1/responses", {"input": "x", "background": True}, "background"),
        ("/v1/responses", {"input": "x", "previous_response_id": "resp_x"}, "not found"),
        ("/v1/completions", {"prompt": 3}, "'prompt' is required"),
        ("/v1/embeddings", {"input": []}, "'input' is required"),
        ("/classify", {"input": ""}, "'input' is required"),
        ("/v1/messages", {"messages": [{"role": "user", "content": "x"}], "stream": 3}, "'stream' must be"),
        ("/v1/messages", {"messages": [{"role": "user", "content": "x"}], "tools": [3]}, "'tools' must be"),
    ],
)
async def test_what_cant_be_served_is_refused_by_name(path: str, body: dict, said: str) -> None:
    answer = await http(flavour="vllm").post("http://engine" + path, json={"model": "fake-1b", **body})
    assert answer.status_code in {400, 404}
    assert said in answer.json()["error"]["message"]
