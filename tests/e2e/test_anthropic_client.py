"""Does the official `anthropic` package work through the proxy unchanged, each way of calling it, and is each tool loop one run?"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from tests.support.cluster import Cluster, cluster
from tests.support.proxied import ENGINES, FACT, MODEL, PARAMETERS, TASK, TURNS, Watch, nothing_left, used

pytestmark = [pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="package")]

Ask = Callable[..., Awaitable[Any]]
ASKED: list[Any] = [{"role": "user", "content": TASK}]
TOOLS: list[Any] = [{"name": name, "description": f"To {name}.", "input_schema": schema} for name, schema in PARAMETERS.items()]


def client_of(proxy: Cluster, watch: Watch, retries: int = 0) -> anthropic.Anthropic:
    at = proxy.url().removesuffix("/v1")
    return anthropic.Anthropic(base_url=at, api_key="unused", http_client=watch.client(), max_retries=retries)


def async_client_of(proxy: Cluster, watch: Watch, retries: int = 0) -> anthropic.AsyncAnthropic:
    at = proxy.url().removesuffix("/v1")
    return anthropic.AsyncAnthropic(base_url=at, api_key="unused", http_client=watch.async_client(), max_retries=retries)


async def messages_loop(ask: Ask) -> str:
    messages = list(ASKED)
    while True:
        message = await ask(model=MODEL, max_tokens=500, system="Be brief.", messages=messages, tools=TOOLS)
        uses = [block for block in message.content if block.type == "tool_use"]
        if not uses:
            assert message.stop_reason == "end_turn"
            return "".join(block.text for block in message.content)
        assert message.stop_reason == "tool_use"
        said = [{"type": "tool_use", "id": use.id, "name": use.name, "input": use.input} for use in uses]
        results = [{"type": "tool_result", "tool_use_id": use.id, "content": used(use.name, use.input)} for use in uses]
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": results}]


def asks(client: anthropic.Anthropic, aclient: anthropic.AsyncAnthropic) -> dict[str, Ask]:
    def streamed(**asked: Any) -> Any:
        with client.messages.stream(**asked) as stream:
            return stream.get_final_message()

    async def sync(**asked: Any) -> Any:
        return await asyncio.to_thread(client.messages.create, **asked)

    async def sync_streamed(**asked: Any) -> Any:
        return await asyncio.to_thread(streamed, **asked)

    async def streamed_async(**asked: Any) -> Any:
        async with aclient.messages.stream(**asked) as stream:
            return await stream.get_final_message()

    return {"sync": sync, "sync streamed": sync_streamed, "async": aclient.messages.create, "async streamed": streamed_async}


@pytest.mark.parametrize("way", ["sync", "sync streamed", "async", "async streamed"])
async def test_messages_with_tools_are_one_run(proxy: Cluster, way: str) -> None:
    watch = Watch()
    with client_of(proxy, watch) as client:
        async with async_client_of(proxy, watch) as aclient:
            answer = await messages_loop(asks(client, aclient)[way])
    assert FACT in answer
    assert "The sum is" in answer
    watch.one_run(TURNS)
    await nothing_left(proxy)


async def test_conversations_about_the_same_thing_at_the_same_time_are_runs_of_their_own(proxy: Cluster) -> None:
    watches = [Watch() for _ in range(12)]

    async def conversation(watch: Watch) -> None:
        async with async_client_of(proxy, watch) as client:
            assert FACT in await messages_loop(client.messages.create)

    await asyncio.gather(*(conversation(watch) for watch in watches))
    assert len({watch.one_run(TURNS) for watch in watches}) == len(watches)
    await nothing_left(proxy)


async def test_tokens_are_counted_and_models_listed_without_a_run(proxy: Cluster) -> None:
    watch = Watch()
    with client_of(proxy, watch) as client:
        assert [model.id for model in client.models.list()] == [MODEL]
        few = client.messages.count_tokens(model=MODEL, messages=[{"role": "user", "content": "Hello."}])
        more = client.messages.count_tokens(model=MODEL, messages=ASKED, tools=TOOLS)
        assert 0 < few.input_tokens < more.input_tokens
        told = client.messages.create(model=MODEL, max_tokens=100, messages=[{"role": "user", "content": "Hello."}]).usage
        assert told.input_tokens + (told.cache_read_input_tokens or 0) == few.input_tokens
    assert [bool(each.run) for each in watch.seen] == [False, False, False, True]
    await nothing_left(proxy)


async def test_errors_have_the_types_and_words_that_the_package_shows(proxy: Cluster) -> None:
    watch = Watch()
    with client_of(proxy, watch) as client:
        with pytest.raises(anthropic.NotFoundError, match=r"no generative replica serves model 'nope'.* fake-1b"):
            client.messages.create(model="nope", max_tokens=5, messages=ASKED)
        with pytest.raises(anthropic.NotFoundError, match="nope"):
            client.messages.count_tokens(model="nope", messages=ASKED)
        with pytest.raises(anthropic.BadRequestError, match="x-luftpause-class must be one of interactive, batch"):
            client.messages.create(model=MODEL, max_tokens=5, messages=ASKED, extra_headers={"x-luftpause-class": "fast"})
        with (
            pytest.raises(anthropic.NotFoundError, match="nope"),
            client.messages.stream(model="nope", max_tokens=5, messages=ASKED) as stream,
        ):
            stream.get_final_message()
    await nothing_left(proxy)


async def test_both_packages_wait_as_they_are_told_and_try_again(tmp_path: Path) -> None:
    """While no engine is healthy each of their requests is answered 503 with `Retry-After`; then one comes back."""
    refusing = {"no_replica": "refuse", "no_replica_seconds": 0, "probe_seconds": 0.2}
    async with cluster(tmp_path, engines=ENGINES[:1], planes=1, scheduler=refusing) as whole:
        whole.engines[0].kill()
        await whole.engines[0].ended()
        await whole.until(lambda seen: whole.health_of(seen) != {"healthy"})
        told, watch = asyncio.Event(), Watch()

        async def note(response: Any) -> None:
            if response.status_code == 503:
                assert int(response.headers["retry-after"]) >= 1
                refused.add(response.url.path)
                if len(refused) == 2:
                    told.set()

        refused: set[str] = set()
        http = [watch.async_client(), watch.async_client()]
        for each in http:
            each.event_hooks["response"].append(note)
        async with (
            anthropic.AsyncAnthropic(base_url=whole.url()[:-3], api_key="unused", http_client=http[0], max_retries=20) as one,
            openai.AsyncOpenAI(base_url=whole.url(), api_key="unused", http_client=http[1], max_retries=20) as other,
        ):
            asking = asyncio.gather(
                one.messages.create(model=MODEL, max_tokens=20, messages=[{"role": "user", "content": "Hello. [answer=5]"}]),
                other.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hello. [answer=5]"}]),
            )
            await told.wait()
            await whole.start_engine(0)
            message, completion = await asking
        assert message.stop_reason == "end_turn"
        assert completion.choices[0].finish_reason == "stop"
        statuses = {path: [each.status for each in watch.seen if each.path == path] for path in refused}
        for path in refused:
            assert statuses[path][-1] == 200
            assert set(statuses[path][:-1]) == {503}
        await nothing_left(whole)
