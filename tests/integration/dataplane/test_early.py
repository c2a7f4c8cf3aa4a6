"""Does a client whose stream is held hear something, and how does it hear of what goes wrong afterwards?"""

import asyncio
import json
from typing import Any

import h11
import pytest

from luftpause.dataplane.turns import ReturnReason
from tests.support.fake_scheduler import FakeScheduler, hold_all, replica
from tests.support.plane import BODY, STREAM_BODY, Answer, Client, client_of, post, running_plane
from tests.support.raw_engine import Talk, json_answer, raw_engine

SOON = 0.01  # the sweep looks four times a second
TEXT = b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}]}\n\n'
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
HELD = b": luftpause: held (capped), "
BAD = b'{"error":{"message":"too long for me","type":"invalid_request_error","code":"context_length_exceeded"}}'
BUSY = b'{"error":{"message":"The request queue is full.","code":503}}'
RESPONSES = json.dumps({"model": "m", "stream": True, "input": "hello"}).encode()
MESSAGES = json.dumps({"model": "m", "stream": True, "max_tokens": 5, "messages": [{"role": "user", "content": "hello"}]}).encode()


async def streams(talk: Talk) -> None:
    await talk.stream(TEXT, END)


async def in_one_piece(talk: Talk) -> None:
    body = TEXT + END
    await talk.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))


async def begun(scheduler: FakeScheduler, client: Client, request: bytes) -> str:
    """A held turn whose client has heard a comment."""
    await client.send(request)
    await scheduler.until(lambda: bool(scheduler.asks))
    await client.until(HELD)
    return scheduler.only


async def rest(client: Client, version: str = "1.1") -> Answer:
    """The whole answer, of which some was read before."""
    if version == "1.1":
        await client.until(b"\r\n0\r\n\r\n")
    else:
        await client.closed()
    parser = h11.Connection(h11.CLIENT)
    parser.send(h11.Request(method="POST", target="/", headers=[("host", "x")]))
    parser.send(h11.EndOfMessage())
    parser.receive_data(bytes(client.raw))
    if version != "1.1":
        parser.receive_data(b"")
    answer = Answer(0, {}, b"", complete=False)
    while not answer.complete:
        match event := parser.next_event():
            case h11.Response():
                answer.status = event.status_code
                answer.headers = {name.decode(): value.decode("latin-1") for name, value in event.headers}
            case h11.Data():
                answer.body += bytes(event.data)
            case h11.EndOfMessage():
                answer.complete = True
            case _:
                raise AssertionError(event)
    return answer


def events(answer: Answer) -> list[bytes]:
    """Without the comments."""
    return [each for each in answer.body.split(b"\n\n") if each and not each.startswith(b":")]


def error(answer: Answer) -> dict[str, Any]:
    (event,) = events(answer)
    return json.loads(event.partition(b"data: ")[2])


@pytest.mark.parametrize("engine_answers", [streams, in_one_piece])
async def test_a_held_stream_has_a_head_and_comments_and_then_the_engines_answer(engine_answers: Any) -> None:
    async with raw_engine(engine_answers) as engine:
        scheduler = FakeScheduler(replica("a", engine.url), decide=hold_all)
        async with running_plane(scheduler, hold_keepalive_s=SOON) as plane, client_of(plane) as client:
            turn = await begun(scheduler, client, post(STREAM_BODY, x_luftpause_run_id="run-1"))
            scheduler.place(turn, "a")
            answer = await rest(client)
            assert plane.relay.turns == set()
    assert (answer.status, answer.complete) == (200, True)
    assert events(answer) == [each for each in (TEXT + END).split(b"\n\n") if each]
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["x-luftpause-run-id"] == "run-1"
    assert answer.headers["x-luftpause-turn-id"] == turn
    assert "x-luftpause-replica" not in answer.headers
    assert "x-luftpause-held-ms" not in answer.headers
    assert scheduler.told() == ["ask", "started", "first_token", "finished"]


async def test_comments_go_on_until_the_answer_begins() -> None:
    async with running_plane(FakeScheduler(decide=hold_all), hold_keepalive_s=SOON) as plane, client_of(plane) as client:
        await client.send(post(STREAM_BODY))
        async with asyncio.timeout(60):
            while client.raw.count(HELD) < 3:
                client.raw += await client.reader.read(65_536)


async def test_an_http_1_0_client_gets_it_unframed() -> None:
    async with raw_engine(streams) as engine:
        scheduler = FakeScheduler(replica("a", engine.url), decide=hold_all)
        async with running_plane(scheduler, hold_keepalive_s=SOON) as plane, client_of(plane) as client:
            turn = await begun(scheduler, client, post(STREAM_BODY, version="1.0"))
            scheduler.place(turn, "a")
            answer = await rest(client, "1.0")
    assert "transfer-encoding" not in answer.headers
    assert events(answer) == [each for each in (TEXT + END).split(b"\n\n") if each]


@pytest.mark.parametrize(
    ("path", "body", "name", "top"),
    [
        ("/v1/chat/completions", STREAM_BODY, b"", False),
        ("/v1/responses", RESPONSES, b"event: error", True),
        ("/v1/messages", MESSAGES, b"event: error", False),
    ],
)
async def test_a_refusal_is_told_by_an_event_of_the_formats_own_shape(path: str, body: bytes, name: bytes, top: bool) -> None:
    scheduler = FakeScheduler(decide=hold_all)
    async with running_plane(scheduler, hold_keepalive_s=SOON) as plane, client_of(plane) as client:
        turn = await begun(scheduler, client, post(body, path=path))
        scheduler.refuse(turn, 503, "no_replica", "nobody is there", 2)
        answer = await rest(client)
        assert (await client_goes_on(client, scheduler)).status == 200
    found = error(answer)
    assert events(answer)[0].startswith(name or b"data: ")
    nested = {"type": "error", "error": {"message": "nobody is there", "type": "server_error", "code": "no_replica"}}
    assert found == nested | ({"code": "no_replica", "message": "nobody is there", "param": None, "sequence_number": 0} if top else {})


async def client_goes_on(client: Client, scheduler: FakeScheduler) -> Answer:
    client.raw.clear()
    await client.send(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
    return await client.answer("GET")


@pytest.mark.parametrize(
    ("body", "status", "message", "code"),
    [
        (BAD, "400 Bad Request", "too long for me", "context_length_exceeded"),
        (b"no room", "507 Full", "no room", "engine_error"),
        (b"", "500 No", "the engine answered 500", "engine_error"),
        (b'{"choices":[]}', "200 OK", "the engine answered a stream's request without a stream", "engine_failed"),
        (b"x" * 100_000, "500 No", "x" * 1000, "engine_error"),
    ],
)
async def test_an_engines_no_is_told_by_an_event(body: bytes, status: str, message: str, code: str) -> None:
    async def answers(talk: Talk) -> None:
        await talk.send(json_answer(body, status))

    async with raw_engine(answers) as engine:
        scheduler = FakeScheduler(replica("a", engine.url), decide=hold_all)
        async with running_plane(scheduler, hold_keepalive_s=SOON) as plane, client_of(plane) as client:
            scheduler.place(await begun(scheduler, client, post(STREAM_BODY)), "a")
            answer = await rest(client)
    assert (answer.status, answer.complete) == (200, True)
    assert (error(answer)["error"]["message"], error(answer)["error"]["code"]) == (message, code)
    assert scheduler.told() == ["ask", "started", "failed"]
    assert scheduler.last("failed")[2] == ("engine_fault" if status[0] == "5" else "engine_error")


async def test_no_engine_byte_went_on_so_a_full_queue_and_a_dead_engine_still_cost_nothing() -> None:
    async def is_full(talk: Talk) -> None:
        await talk.send(json_answer(BUSY, "503 Busy"))

    async with raw_engine(is_full) as full, raw_engine(streams) as good:
        table = replica("full", full.url), replica("gone", "http://127.0.0.1:9"), replica("good", good.url)
        scheduler = FakeScheduler(*table, decide=hold_all)
        async with running_plane(scheduler, hold_keepalive_s=SOON) as plane, client_of(plane) as client:
            turn = await begun(scheduler, client, post(STREAM_BODY))
            scheduler.place(turn, "full")
            await scheduler.until(lambda: scheduler.attempts[turn] == 2)
            scheduler.place(turn, "gone")
            await scheduler.until(lambda: scheduler.attempts[turn] == 3)
            scheduler.place(turn, "good")
            answer = await rest(client)
    assert events(answer) == [each for each in (TEXT + END).split(b"\n\n") if each]
    assert [fact[2] for fact in scheduler.facts if fact[0] == "give_back"] == [ReturnReason.BUSY, ReturnReason.UNREACHABLE]


async def test_an_engine_that_dies_before_its_answer_is_told_by_an_event() -> None:
    async def dies(talk: Talk) -> None:
        talk.reset()

    async with raw_engine(dies) as engine:
        scheduler = FakeScheduler(replica("a", engine.url), decide=hold_all)
        async with running_plane(scheduler, hold_keepalive_s=SOON, failover=False) as plane, client_of(plane) as client:
            scheduler.place(await begun(scheduler, client, post(STREAM_BODY)), "a")
            answer = await rest(client)
    assert error(answer)["error"]["code"] == "engine_failed"
    assert error(answer)["error"]["message"].startswith("engine a: closed the connection before it answered")


async def test_what_is_no_stream_or_is_not_held_waits_for_its_own_status() -> None:
    go_on = asyncio.Event()

    async def slowly(talk: Talk) -> None:
        await go_on.wait()
        await talk.send(json_answer(BAD, "400 Bad Request"))

    async with raw_engine(slowly) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler, hold_keepalive_s=SOON) as plane, client_of(plane) as placed, client_of(plane) as whole:
            await placed.send(post(STREAM_BODY))
            await scheduler.until(lambda: "started" in scheduler.told())
            scheduler.decide = hold_all
            await whole.send(post(BODY))
            await scheduler.until(lambda: len(scheduler.asks) == 2)
            plane.sweep.look(plane.sweep.now + 1)
            scheduler.place(list(scheduler.asks)[1], "a")
            go_on.set()
            assert (await placed.answer()).status == 400
            assert (await whole.answer()).status == 400


async def test_a_client_that_leaves_while_it_hears_comments_is_noticed() -> None:
    scheduler = FakeScheduler(decide=hold_all)
    async with running_plane(scheduler, hold_keepalive_s=SOON) as plane, client_of(plane) as client:
        await begun(scheduler, client, post(STREAM_BODY))
        client.reset()
        await scheduler.all_over()
    assert scheduler.told() == ["ask", "abandon"]
