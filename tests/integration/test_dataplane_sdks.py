"""Do the official clients of OpenAI and Anthropic work through the proxy unchanged, and are their runs recognised without any header?"""

from collections.abc import AsyncGenerator
from typing import Any

import anthropic
import httpx
import openai
import pytest
import pytest_asyncio

from tests.support.processes import running

pytestmark = [pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]

TASK = "Look up when tides are highest. [calls=1 tool=lookup]"
SCHEMA: Any = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
RUN, REPLICA = "x-luftpause-run-id", "x-luftpause-replica"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def base(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[str]:
    """The address of a proxy with two fake engines, without `/v1`; one for all tests, as starting it takes the longest."""
    folder = tmp_path_factory.mktemp("up")
    async with running("up", "--free-ports", "--state", str(folder / "state"), folder=folder) as stack:
        yield stack.at["http"]


# ---- Anthropic ----------------------------------------------------------------------------------------------------------

USE_TOOLS: Any = [{"name": "lookup", "description": "Look a fact up.", "input_schema": SCHEMA}]
ASKED: Any = [{"role": "user", "content": TASK}]


def answered(message: Any) -> Any:
    """The conversation with a tool's result behind the answer that asked for it."""
    (use,) = [block for block in message.content if block.type == "tool_use"]
    said = [block.model_dump(include={"type", "text", "id", "name", "input"}, exclude_none=True) for block in message.content]
    result = {"type": "tool_result", "tool_use_id": use.id, "content": "At new moon and full moon."}
    return [*ASKED, {"role": "assistant", "content": said}, {"role": "user", "content": [result]}]


async def test_the_anthropic_client_finishes_its_tool_loop_in_one_run(base: str) -> None:
    async with anthropic.AsyncAnthropic(base_url=base, api_key="unused", max_retries=0) as client:
        (model,) = [each.id async for each in client.models.list()]
        assert (await client.messages.count_tokens(model=model, messages=ASKED)).input_tokens > 0
        more: Any = {"model": model, "max_tokens": 200, "tools": USE_TOOLS, "system": "Be good."}

        first = await client.messages.with_raw_response.create(messages=ASKED, **more)
        message = await first.parse()
        assert message.stop_reason == "tool_use"
        second = await client.messages.with_raw_response.create(messages=answered(message), **more)
        assert (await second.parse()).stop_reason == "end_turn"
        assert [second.headers[name] for name in (RUN, REPLICA)] == [first.headers[name] for name in (RUN, REPLICA)]

        async with client.messages.stream(messages=ASKED, **more) as stream:
            assert [event.type async for event in stream][-1] == "message_stop"
            message, run = await stream.get_final_message(), stream.response.headers[RUN]
        assert run != first.headers[RUN], "the same task anew is another run"
        async with client.messages.stream(messages=answered(message), **more) as stream:
            assert (await stream.get_final_message()).stop_reason == "end_turn"
            assert stream.response.headers[RUN] == run

        with pytest.raises(anthropic.NotFoundError) as refused:
            await client.messages.create(**more | {"model": "nope"}, messages=ASKED)
        assert refused.value.type == "not_found_error"
        assert "no generative replica serves model 'nope'" in str(refused.value)


# ---- OpenAI -------------------------------------------------------------------------------------------------------------

FUNCTIONS: Any = [{"type": "function", "name": "lookup", "description": "Look a fact up.", "parameters": SCHEMA, "strict": False}]


def with_output(response: Any) -> Any:
    (call,) = [item for item in response.output if item.type == "function_call"]
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "At new moon and full moon."}
    return [{"role": "user", "content": TASK}, call.model_dump(exclude_none=True), output]


async def test_the_openai_client_finishes_its_tool_loop_over_responses_in_one_run(base: str) -> None:
    async with (
        httpx.AsyncClient(trust_env=False, timeout=60) as http,
        openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="unused", max_retries=0, http_client=http) as client,
    ):
        (model,) = [each.id async for each in client.models.list()]
        raw = client.responses.with_raw_response
        first = await raw.create(model=model, input=TASK, tools=FUNCTIONS)
        by_call = await raw.create(model=model, input=with_output(first.parse()), tools=FUNCTIONS)
        assert by_call.parse().status == "completed"
        by_previous = await raw.create(model=model, input="And lowest?", previous_response_id=by_call.parse().id)
        for later in (by_call, by_previous):
            assert [later.headers[name] for name in (RUN, REPLICA)] == [first.headers[name] for name in (RUN, REPLICA)]

        events = [event async for event in await client.responses.create(model=model, input=TASK, tools=FUNCTIONS, stream=True)]
        assert (events[0].type, events[-1].type) == ("response.created", "response.completed")

        stored = await raw.retrieve(by_call.parse().id)
        assert (stored.parse().id, stored.headers[REPLICA]) == (by_call.parse().id, first.headers[REPLICA])
        await client.responses.delete(by_call.parse().id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(by_call.parse().id)

        with pytest.raises(openai.BadRequestError) as refused:
            await client.responses.create(model=model, input="x", background=True)
        assert refused.value.code == "background"


async def test_the_openai_client_completes_embeds_and_decides(base: str) -> None:
    async with (
        httpx.AsyncClient(trust_env=False, timeout=60) as http,
        openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="unused", max_retries=0, http_client=http) as client,
    ):
        (model,) = [each.id async for each in client.models.list()]
        completion = await client.completions.create(model=model, prompt="hello", max_tokens=5)
        assert completion.choices[0].finish_reason == "length"
        assert len((await client.embeddings.create(model=model, input=["a", "b"])).data) == 2

        question = {"model": model, "input": "Is the moon full?", "labels": ["yes", "no"]}
        decision = (await http.post(f"{base}/v1/decide", json=question)).json()
        assert decision["label"] in {"yes", "no"}
        assert sum(decision["probabilities"].values()) == pytest.approx(1)
        refused = await http.post(f"{base}/v1/decide", json={"model": model, "input": "x"})
        assert refused.status_code == 404
        assert f"no classifier replica serves model '{model}'" in refused.json()["error"]["message"]
