"""Do turns of every API reach their engine and come back unchanged, and does the scheduler hear what happened in each?"""

import asyncio
import json
from typing import Any

import pytest

from luftpause.dataplane.turns import Ask, Kind, Usage
from tests.support.fake_scheduler import FakeScheduler, replica
from tests.support.plane import client_of, post, running_plane
from tests.support.raw_engine import STREAM_HEAD, RawEngine, Talk, chunked, json_answer, raw_engine
from tests.unit.dataplane import test_seen_messages as messages
from tests.unit.dataplane import test_seen_responses as responses


def chat(*choices: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"choices": list(choices)} | more


CALL = {"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "call_1", "function": {"name": "f"}}]}}
STREAMS = {
    "/v1/chat/completions": (
        responses.sse(
            chat({"index": 0, "delta": {"role": "assistant", "content": "hé"}}),
            chat(CALL),
            chat({"index": 0, "delta": {}, "finish_reason": "tool_calls"}),
            chat(usage={"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}),
            "[DONE]",
            named=False,
        ),
        ("tool_calls", Usage(9, 3, 4), True, ("call_1",)),
    ),
    "/v1/completions": (
        responses.sse(
            chat({"index": 0, "text": "hé"}),
            chat({"index": 0, "text": "", "finish_reason": "length"}),
            chat(usage={"prompt_tokens": 9, "completion_tokens": 3}),
            named=False,
        ),
        ("length", Usage(9, 3, None), False, ()),
    ),
    "/v1/responses": (responses.sse(*responses.TOOLS), ("completed", Usage(9, 3, 4), True, ("call_1",))),
    "/v1/messages": (messages.sse(*messages.TOOLS), ("tool_use", Usage(9, 7, 4), True, ("toolu_1",))),
}
BODY = json.dumps({"model": "m", "stream": True, "input": "x", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}).encode()
APIS = {"/v1/chat/completions": "chat", "/v1/completions": "completions", "/v1/responses": "responses", "/v1/messages": "messages"}


async def ask(engine: RawEngine, path: str, body: bytes = BODY, **headers: str) -> tuple[FakeScheduler, Any]:
    scheduler = FakeScheduler(replica("a", engine.url))
    async with running_plane(scheduler) as plane, client_of(plane) as client:
        answer = await client.ask(post(body, path=path, **headers))
        await scheduler.all_over()
    return scheduler, answer


@pytest.mark.parametrize("path", STREAMS)
@pytest.mark.parametrize("step", [1, 7, 64, 100_000])
@pytest.mark.parametrize("ends", [b"\n", b"\r\n"])
async def test_a_stream_passes_byte_for_byte_and_is_reported(path: str, step: int, ends: bytes) -> None:
    stream, finished = STREAMS[path]
    stream = b": a comment\n\n" + stream
    stream = stream.replace(b"\n", ends)

    async def behave(talk: Talk) -> None:
        parts = [stream[at : at + step] for at in range(0, len(stream), step)]
        talk.writer.write(STREAM_HEAD)
        for part in parts:
            talk.writer.write(chunked(part))
            await talk.writer.drain()
            if step > 1:
                await asyncio.sleep(0)
        await talk.send(b"0\r\n\r\n")

    async with raw_engine(behave) as engine:
        scheduler, answer = await ask(engine, path)
        assert (engine.talks[0].head.split(b" ")[1], engine.talks[0].body) == (path.encode(), BODY)
    assert (answer.status, answer.body, answer.complete) == (200, stream, True)
    told = scheduler.told()
    assert told[:2] == ["ask", "started"]
    assert told[-1] == "finished"
    assert "first_token" in told
    assert scheduler.last("finished")[2:] == finished
    assert scheduler.tools[scheduler.only] == (("f",) if finished[3] else ())
    asked = scheduler.asks[scheduler.only]
    assert (asked.api, asked.kind, asked.model) == (APIS[path], Kind.GENERATIVE, "m")


@pytest.mark.parametrize("path", STREAMS)
async def test_an_engine_with_a_priority_queue_reads_the_schedulers_priority_and_no_other_engine_does(path: str) -> None:
    async def busy(talk: Talk) -> None:
        await talk.send(json_answer(b'{"object":"error","message":"The request queue is full.","code":503}', "503 Busy"))

    async def behave(talk: Talk) -> None:
        await talk.stream(STREAMS[path][0])

    def decide(scheduler: FakeScheduler, ask: Ask) -> None:
        if scheduler.attempts[ask.turn] == 1:
            scheduler.place(ask.turn, "has one", priority=-1)
        else:
            scheduler.place(ask.turn, "has none")

    async with raw_engine(busy) as one, raw_engine(behave) as two:
        scheduler = FakeScheduler(replica("has one", one.url), replica("has none", two.url), decide=decide)
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            assert (await client.ask(post(BODY, path=path))).status == 200
    assert one.talks[0].body == BODY[:-1] + b',"priority":-1}'
    assert two.talks[0].body == BODY


@pytest.mark.parametrize("path", STREAMS)
@pytest.mark.parametrize("error", [b'{"error":{"message":"broke","code":504}}', b'{"type":"error","error":{"message":"broke"}}'])
async def test_an_error_inside_a_good_stream_passes_and_counts_as_failed(path: str, error: bytes) -> None:
    stream = b"data: " + error + b"\n\n"

    async def behave(talk: Talk) -> None:
        await talk.stream(stream)

    async with raw_engine(behave) as engine:
        scheduler, answer = await ask(engine, path)
    assert (answer.status, answer.body) == (200, stream)
    assert scheduler.told() == ["ask", "started", "failed"]
    assert scheduler.last("failed")[2] == "stream_error"


@pytest.mark.parametrize("path", STREAMS)
async def test_an_engines_error_passes_unchanged(path: str) -> None:
    body = b'{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}'

    async def behave(talk: Talk) -> None:
        await talk.send(json_answer(body, "429 Too Many Requests", b"retry-after: 7\r\nx-odd: 1\r\n"))

    async with raw_engine(behave) as engine:
        scheduler, answer = await ask(engine, path)
    assert (answer.status, answer.body, answer.headers["retry-after"], answer.headers["x-odd"]) == (429, body, "7", "1")
    assert answer.headers["x-luftpause-run-id"]
    assert scheduler.told() == ["ask", "started", "failed"]


@pytest.mark.parametrize("path", STREAMS)
async def test_a_stream_cut_off_is_cut_off_for_the_client_too(path: str) -> None:
    stream = STREAMS[path][0][:-20]

    async def behave(talk: Talk) -> None:
        await talk.stream(stream, end=False)
        talk.reset()

    async with raw_engine(behave) as engine:
        scheduler, answer = await ask(engine, path)
    assert not answer.complete
    assert scheduler.last("failed")[2] == "engine_died"


@pytest.mark.parametrize("path", [*STREAMS, "/v1/embeddings", "/v1/decide", "/v1/messages/count_tokens"])
@pytest.mark.parametrize("body", [b"{", b"{}", b'{"model": 5}', b"[]", b'{"model": ""}'])
async def test_a_body_that_makes_no_sense_has_the_one_error_shape(path: str, body: bytes) -> None:
    scheduler = FakeScheduler(replica("a", "http://127.0.0.1:9"))
    async with running_plane(scheduler) as plane, client_of(plane) as client:
        answer = await client.ask(post(body, path=path))
    assert answer.status == 400
    error = json.loads(answer.body)
    assert (set(error), error["type"], set(error["error"])) == ({"type", "error"}, "error", {"message", "type", "code"})
    assert scheduler.told() == []


@pytest.mark.parametrize("path", STREAMS)
async def test_no_credential_of_a_client_goes_to_an_engine(path: str) -> None:
    async def behave(talk: Talk) -> None:
        await talk.send(json_answer(b"{}"))

    secrets = dict.fromkeys(
        ("authorization", "x_api_key", "api_key", "x_goog_api_key", "xi_api_key", "cookie", "proxy_authorization"), "hush"
    )
    async with raw_engine(behave) as engine:
        await ask(engine, path, anthropic_version="2023-06-01", anthropic_beta="b", openai_beta="c", **secrets)
        assert b"hush" not in engine.talks[0].head
        assert [engine.talks[0].header(name) for name in ("anthropic-version", "anthropic-beta", "openai-beta")] == ["2023-06-01", "b", "c"]


@pytest.mark.parametrize("path", STREAMS)
@pytest.mark.parametrize(
    ("headers", "run", "parent"),
    [
        ({"x_claude_code_session_id": "s"}, "s", ""),
        ({"x_claude_code_session_id": "s", "x_claude_code_agent_id": "a"}, "s:a", "s"),
        ({"x_claude_code_session_id": "s", "x_claude_code_agent_id": "a", "x_claude_code_parent_agent_id": "p"}, "s:a", "s:p"),
        ({"session_id": "codex"}, "codex", ""),
        ({"x_session_id": "oc", "x_parent_session_id": "above"}, "oc", "above"),
        ({"x_session_id": "oc", "x_luftpause_run_id": "mine"}, "mine", "above-none"),
    ],
)
async def test_harnesses_name_their_runs_in_every_format(path: str, headers: dict[str, str], run: str, parent: str) -> None:
    async def behave(talk: Talk) -> None:
        await talk.send(json_answer(b"{}"))

    async with raw_engine(behave) as engine:
        scheduler, answer = await ask(engine, path, **headers)
    asked = scheduler.asks[scheduler.only]
    assert (asked.run, answer.headers["x-luftpause-run-id"]) == (run, run)
    assert asked.parent == ("" if parent == "above-none" else parent)


async def test_a_stored_response_is_told_where_it_is_and_its_continuation_names_it() -> None:
    async def behave(talk: Talk) -> None:
        await talk.stream(responses.sse(*responses.TOOLS))

    async with raw_engine(behave) as engine:
        scheduler, _ = await ask(engine, "/v1/responses")
        assert scheduler.told() == ["ask", "started", "first_token", "tool_calls_seen", "response_seen", "finished"]
        assert scheduler.last("response_seen")[2] == "resp_1"
        unstored = json.dumps({"model": "m", "stream": True, "input": "x", "store": False, "previous_response_id": "resp_0"}).encode()
        scheduler, _ = await ask(engine, "/v1/responses", unstored)
        assert "response_seen" not in scheduler.told()
        assert scheduler.asks[scheduler.only].previous_response == "resp_0"


async def test_a_whole_response_is_reported_like_a_stream() -> None:
    body = json.dumps(responses.response("completed", output=[responses.call("c")], usage=responses.USAGE)).encode()

    async def behave(talk: Talk) -> None:
        await talk.send(json_answer(body))

    async with raw_engine(behave) as engine:
        scheduler, answer = await ask(engine, "/v1/responses", json.dumps({"model": "m", "input": "x"}).encode())
    assert answer.body == body
    assert scheduler.told() == ["ask", "started", "tool_calls_seen", "response_seen", "finished"]
    assert scheduler.last("finished")[2:] == ("completed", Usage(9, 3, 4), True, ("c",))


async def test_embeddings_and_classification_are_single_passes() -> None:
    body = json.dumps({"data": [{"embedding": [0.5] * 5000}], "usage": {"prompt_tokens": 5, "total_tokens": 5}}).encode()

    async def behave(talk: Talk) -> None:
        await talk.send(json_answer(body))

    async with raw_engine(behave) as engine:
        asked = json.dumps({"model": "m", "input": ["a", "b"]}).encode()
        scheduler, answer = await ask(engine, "/v1/embeddings", asked)
        assert (answer.body, engine.talks[-1].head.split(b" ")[1]) == (body, b"/v1/embeddings")
        assert (scheduler.asks[scheduler.only].kind, scheduler.asks[scheduler.only].api) == (Kind.EMBEDDING, "embeddings")
        assert scheduler.last("finished")[2:] == ("", Usage(5, 0, None), False, ())
        scheduler, answer = await ask(engine, "/v1/decide", asked)
        assert (answer.body, engine.talks[-1].head.split(b" ")[1], engine.talks[-1].body) == (body, b"/classify", asked)
        assert (scheduler.asks[scheduler.only].kind, scheduler.asks[scheduler.only].api) == (Kind.CLASSIFIER, "classify")


async def test_background_is_refused_before_anything_else() -> None:
    scheduler = FakeScheduler(replica("a", "http://127.0.0.1:9"))
    async with running_plane(scheduler) as plane, client_of(plane) as client:
        answer = await client.ask(post(b'{"model": "m", "input": "x", "background": true}', path="/v1/responses"))
    assert (answer.status, answer.error["code"], scheduler.told()) == (400, "background", [])


async def test_usage_is_asked_for_and_hidden_where_it_can_be() -> None:
    stream, finished = STREAMS["/v1/completions"]

    async def behave(talk: Talk) -> None:
        await talk.stream(stream)

    async with raw_engine(behave) as engine:
        for path, asks in (("/v1/completions", True), ("/v1/responses", False), ("/v1/messages", False)):
            scheduler = FakeScheduler(replica("a", engine.url))
            async with running_plane(scheduler, usage="ask") as plane, client_of(plane) as client:
                answer = await client.ask(post(BODY, path=path))
                await scheduler.all_over()
            assert (b"stream_options" in engine.talks[-1].body) is asks
            assert (b'"usage"' in answer.body) is not asks
            if asks:
                assert scheduler.last("finished")[2:] == finished
