"""Does the fake engine behave over HTTP as engines do?"""

import asyncio
import json
from typing import Any

import httpx
import pytest

from tests.integration.fakes.asking import FAST, TOOLS, body, client_of, events, until
from tests.support.processes import Process, running


async def test_the_openai_client_runs_a_whole_run_with_tools(engine: Process) -> None:
    messages: list[Any] = [{"role": "user", "content": "How tall are herons? [calls=2]"}]
    async with client_of(engine) as client:
        cached: list[int] = []
        for number in range(2):
            answer = await client.chat.completions.create(model="fake-1b", messages=messages, tools=TOOLS)
            choice = answer.choices[0]
            assert choice.finish_reason == "tool_calls"
            call = choice.message.tool_calls[0]
            assert json.loads(call.function.arguments)["query"].startswith("How tall are herons")
            messages += [choice.message, {"role": "tool", "tool_call_id": call.id, "content": f"Source {number} says {number} feet."}]
            cached.append(answer.usage.prompt_tokens_details.cached_tokens)
        final = await client.chat.completions.create(model="fake-1b", messages=messages, tools=TOOLS)
    assert final.choices[0].finish_reason == "stop"
    assert "Source 0 says 0 feet." in final.choices[0].message.content
    cached.append(final.usage.prompt_tokens_details.cached_tokens)
    assert cached[0] == 0
    assert 0 < cached[1] < cached[2] < final.usage.prompt_tokens


async def test_a_stream_carries_the_same_answer_and_its_usage_after_the_finish(engine: Process) -> None:
    async with client_of(engine) as client:
        whole = await client.chat.completions.create(model="fake-1b", messages=body("Herons? [answer=30]")["messages"])
        stream = await client.chat.completions.create(
            model="fake-1b", messages=body("Herons? [answer=30]")["messages"], stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens == 30


async def test_a_streamed_tool_call_is_put_together_by_the_openai_client(engine: Process) -> None:
    asked = body("Herons? [calls=1]")
    async with client_of(engine) as client, client.chat.completions.stream(**asked, tools=TOOLS) as stream:
        answer = await stream.get_final_completion()
    call = answer.choices[0].message.tool_calls[0]
    assert (answer.choices[0].finish_reason, call.function.name) == ("tool_calls", "lookup")
    assert json.loads(call.function.arguments)["query"]


@pytest.mark.parametrize(("flavour", "content"), [("sglang", ""), ("vllm", ""), ("llamacpp", None)])
async def test_the_first_chunk_has_the_role_and_the_flavours_content_and_done_ends(flavour: str, content: str | None) -> None:
    async with (
        running("fake-engine", *FAST, "--flavour", flavour) as process,
        httpx.AsyncClient(base_url=process.at["http"], trust_env=False, timeout=60) as http,
    ):
        found = await events(await http.post("/v1/chat/completions", json=body("Hello", stream=True)))
        assert found[0]["choices"][0]["delta"] == {"role": "assistant", "content": content}
        assert found[-1] == "[DONE]"
        assert not any("usage" in each for each in found[:-1])


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_the_engine_whether_running_or_waiting(stream: bool) -> None:
    async with (
        running("fake-engine", "--port", "0", "--max-running", "1", "--decode-seconds", "0.05") as process,
        httpx.AsyncClient(base_url=process.at["http"], trust_env=False, timeout=60) as http,
    ):

        async def ask() -> None:
            await http.post("/v1/chat/completions", json=body("Long [answer=5000]", stream=stream), timeout=60)

        first, second = asyncio.create_task(ask()), asyncio.create_task(ask())
        await until(http, lambda shown: (shown["running"], shown["waiting"]) == (1, 1))
        for task in (first, second):
            task.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        shown = await until(http, lambda shown: (shown["running"], shown["waiting"], shown["aborted"]) == (0, 0, 2))
        assert shown["kv_used"] == 0
        assert shown["finished"] == 0


async def test_the_metrics_page_shows_running_and_waiting_turns() -> None:
    async with (
        running("fake-engine", "--port", "0", "--max-running", "1", "--decode-seconds", "0.05") as process,
        httpx.AsyncClient(base_url=process.at["http"], trust_env=False, timeout=60) as http,
    ):
        asking = [asyncio.create_task(http.post("/v1/chat/completions", json=body("[answer=5000]", stream=True))) for _ in range(3)]
        await until(http, lambda shown: (shown["running"], shown["waiting"]) == (1, 2))
        page = (await http.get("/metrics")).text
        loads = (await http.get("/v1/loads")).json()["loads"][0]
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
    lines = [line for line in page.splitlines() if line.startswith(("sglang:num_running_reqs{", "sglang:num_queue_reqs{"))]
    assert [line.rsplit(" ", 1)[1] for line in lines] == ["1.0", "2.0"]
    assert (loads["num_running_reqs"], loads["num_waiting_reqs"]) == (1, 2)


@pytest.mark.parametrize(
    ("flavour", "stream", "status"), [("sglang", True, 200), ("sglang", False, 503), ("vllm", True, 503), ("vllm", False, 503)]
)
async def test_a_full_queue_is_told_in_the_flavours_form(flavour: str, stream: bool, status: int) -> None:
    options = ("--port", "0", "--max-running", "1", "--max-waiting", "0", "--decode-seconds", "0.05", "--flavour", flavour)
    async with (
        running("fake-engine", *options) as process,
        httpx.AsyncClient(base_url=process.at["http"], trust_env=False, timeout=60) as http,
    ):
        busy = asyncio.create_task(http.post("/v1/chat/completions", json=body("[answer=5000]", stream=True)))
        await until(http, lambda shown: shown["running"] == 1)
        answer = await http.post("/v1/chat/completions", json=body("Hello", stream=stream))
        assert answer.status_code == status
        if status == 200:
            found = await events(answer)
            assert found[0]["error"]["code"] == 503
            assert found[-1] == "[DONE]"
        else:
            assert "queue is full" in answer.text or "currently busy" in answer.text
        busy.cancel()
        await asyncio.gather(busy, return_exceptions=True)


@pytest.mark.parametrize(
    ("flavour", "unknown_model", "message"),
    [("sglang", 404, ("message",)), ("vllm", 404, ("error", "message")), ("llamacpp", 200, ("error", "message"))],
)
async def test_errors_have_the_flavours_status_and_shape(flavour: str, unknown_model: int, message: tuple[str, ...]) -> None:
    wrong = (
        {"model": "fake-1b"},
        body("x") | {"stream": "yes"},
        body("[calls=x]"),
        body("x" * 300_000),
        body("x", stream_options={"include_usage": True}),
    )
    async with (
        running("fake-engine", *FAST, "--flavour", flavour) as process,
        httpx.AsyncClient(base_url=process.at["http"], trust_env=False, timeout=60) as http,
    ):
        assert (await http.post("/v1/chat/completions", json=body("x") | {"model": "nope"})).status_code == unknown_model
        for asked in wrong:
            answer = await http.post("/v1/chat/completions", json=asked)
            assert answer.status_code == 400
            found = answer.json()
            for key in message:
                found = found[key]
            assert found


async def test_what_is_no_json_is_a_400(http: httpx.AsyncClient) -> None:
    for content in (b"{", b"[1,2]", b"\xff"):
        assert (await http.post("/v1/chat/completions", content=content)).status_code == 400
    assert (await http.get("/_fake")).json()["bad"] == 3


async def test_it_counts_the_headers_that_reach_it(http: httpx.AsyncClient) -> None:
    for _ in range(2):
        await http.post("/v1/chat/completions", json=body("Hello"), headers={"x-luftpause-run-id": "run_a", "x-api-key": "canary"})
    shown = (await http.get("/_fake")).json()
    assert shown["run_ids"] == {"run_a": 2}
    assert shown["headers"]["x-api-key"] == 2
    assert (shown["turns"], shown["finished"], shown["running"]) == (2, 2, 0)


async def test_with_priority_the_better_turn_goes_first() -> None:
    options = ("--port", "0", "--max-running", "1", "--decode-seconds", "0.02", "--priority", "vllm", "--flavour", "vllm")
    order: list[int] = []
    async with (
        running("fake-engine", *options) as process,
        httpx.AsyncClient(base_url=process.at["http"], trust_env=False, timeout=30) as http,
    ):

        async def ask(priority: int) -> None:
            tokens = 5 if priority else 5000  # the first one runs until the others wait
            await http.post("/v1/chat/completions", json=body(f"[answer={tokens}]", priority=priority))
            order.append(priority)

        tasks = []
        for number, priority in enumerate((0, 10, -5)):
            tasks.append(asyncio.create_task(ask(priority)))
            await until(http, lambda shown, number=number: shown["turns"] == number + 1)
        await until(http, lambda shown: shown["waiting"] == 2)
        tasks.pop(0).cancel()
        await asyncio.gather(*tasks)
    assert order == [-5, 10]


async def test_a_waiting_stream_that_is_outranked_ends_with_the_reason() -> None:
    options = ("--port", "0", "--max-running", "1", "--max-waiting", "1", "--decode-seconds", "0.05", "--priority", "sglang")
    async with (
        running("fake-engine", *options) as process,
        httpx.AsyncClient(base_url=process.at["http"], trust_env=False, timeout=30) as http,
    ):

        def ask(priority: int) -> asyncio.Task[httpx.Response]:
            asked = body("[answer=5000]", stream=True, priority=priority)
            return asyncio.create_task(http.post("/v1/chat/completions", json=asked))

        busy = ask(0)
        await until(http, lambda shown: shown["running"] == 1)
        low = ask(0)
        await until(http, lambda shown: shown["waiting"] == 1)
        high = ask(5)
        found = await events(await low)
        assert "higher priority" in found[0]["error"]["message"]
        assert (await until(http, lambda shown: shown["refused"] == 1))["waiting"] == 1
        for task in (busy, high):
            task.cancel()
        await asyncio.gather(busy, high, return_exceptions=True)


async def test_it_ends_within_a_second_with_status_0_though_a_stream_is_open() -> None:
    async with (
        running("fake-engine", "--port", "0", "--decode-seconds", "0.05") as process,
        httpx.AsyncClient(base_url=process.at["http"], trust_env=False, timeout=60) as http,
    ):
        busy = asyncio.create_task(http.post("/v1/chat/completions", json=body("[answer=5000]", stream=True)))
        await until(http, lambda shown: shown["running"] == 1)
        process.terminate()
        assert await process.ended() == 0
        with pytest.raises(httpx.HTTPError):
            await busy
    assert process.logged() == ""


async def test_a_taken_port_and_a_wrong_fault_are_told_without_a_traceback(engine: Process) -> None:
    port = engine.at["http"].rsplit(":", 1)[1]
    for options, complaint in ((("--port", port), "choose another with --port"), (("--port", "0", "--faults", '{"dye":1}'), "--faults:")):
        with pytest.raises(AssertionError, match=complaint) as failed:
            async with running("fake-engine", *options):
                pass
        assert "Traceback" not in str(failed.value)


async def test_several_engines_have_a_port_each_and_own_queues_on_one_gpu() -> None:
    async with running("fake-engine", "--port", "0", "--engines", "2", "--decode-seconds", "0.05", "--max-running", "1") as process:
        assert len({process.at["http"], process.at["http-1"]}) == 2
        async with (
            httpx.AsyncClient(base_url=process.at["http"], trust_env=False, timeout=60) as first,
            httpx.AsyncClient(base_url=process.at["http-1"], trust_env=False, timeout=60) as second,
        ):
            asking = [asyncio.create_task(first.post("/v1/chat/completions", json=body("[answer=5000]", stream=True))) for _ in range(2)]
            shown = await until(first, lambda shown: (shown["running"], shown["waiting"]) == (1, 1) and shown["late"]["timers"] > 0)
            other = (await second.get("/_fake")).json()
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
    assert (other["running"], other["waiting"], other["turns"]) == (0, 0, 0)
    assert 0 <= shown["late"]["seconds_max"] <= shown["late"]["seconds"]


async def test_chunks_of_several_tokens_can_come_together_without_any_being_lost() -> None:
    async def chunks(*options: str) -> list[bytes]:
        async with (
            running("fake-engine", "--port", "0", "--decode-seconds", "0.02", *options) as process,
            httpx.AsyncClient(base_url=process.at["http"], trust_env=False, timeout=60) as http,
            http.stream("POST", "/v1/chat/completions", json=body("Herons? [answer=40]", stream=True)) as answer,
        ):
            return [part async for part in answer.aiter_raw()]

    def said(parts: list[bytes]) -> str:
        lines = [line for line in b"".join(parts).decode().splitlines() if "{" in line]
        return "".join(json.loads(line.removeprefix("data: "))["choices"][0]["delta"].get("content") or "" for line in lines)

    single, together = await asyncio.gather(chunks(), chunks("--stream-interval", "16"))
    assert said(single) == said(together)
    assert len(said(together)) == 160
    assert len(together) <= 6
