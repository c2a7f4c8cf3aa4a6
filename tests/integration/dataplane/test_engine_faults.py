"""What do client and scheduler see when an engine misbehaves?"""

import asyncio
import contextlib
import gzip
import json
import socket

import pytest

from luftpause.dataplane.turns import Ask, ReturnReason, Usage
from tests.support.fake_scheduler import FakeScheduler, hold_all, replica
from tests.support.plane import BODY, STREAM_BODY, Client, client_of, post, running_plane
from tests.support.ports import a_refusing_port
from tests.support.raw_engine import STREAM_HEAD, Talk, chunked, json_answer, raw_engine

TEXT = b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}]}\n\n'
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
CALL = b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_0123456789abcdef"}]}}]}\n\n'
CALLS_END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}\n\n'
GOOD = b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}'

VLLM_FULL = (
    b'{"error":{"message":"The engine is currently busy and cannot accept new requests. Please try again later or on a different '
    b'instance.","type":"Service Unavailable","param":null,"code":503}}'
)
SGLANG_FULL = b'{"object":"error","message":"The request queue is full.","type":"ServiceUnavailable","param":null,"code":503}'
OLLAMA_FULL = b'{"error":"server busy, please try again.  maximum pending requests exceeded"}'
SGLANG_EVENT = b'data: {"error":{"message":"The request queue is full.","type":"ServiceUnavailable","code":503}}\n\n'
LOADING = b'{"error":{"message":"Loading model","type":"unavailable_error","code":503}}'


async def good(talk: Talk) -> None:
    await talk.send(json_answer(GOOD))


def closed_port() -> str:
    return f"http://127.0.0.1:{a_refusing_port()}"


# ---- unreachable ---------------------------------------------------------------------------------------------------


async def test_a_refused_connection_sends_the_turn_elsewhere() -> None:
    async with raw_engine(good) as engine:
        scheduler = FakeScheduler(replica("dead", closed_port()), replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            answer = await client.ask(post())
    assert (answer.status, answer.body, answer.headers["x-luftpause-replica"]) == (200, GOOD, "a")
    assert scheduler.told() == ["ask", "give_back", "started", "finished"]
    assert ("give_back", scheduler.only, ReturnReason.UNREACHABLE) in scheduler.facts
    assert ("suspect", "dead", "connection refused") in scheduler.facts


async def test_every_replica_is_tried_once_until_one_takes_it() -> None:
    dead = [replica(f"dead-{number}", closed_port()) for number in range(3)]
    async with raw_engine(good) as engine:
        scheduler = FakeScheduler(*dead, replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            answer = await client.ask(post())
    assert (answer.status, answer.headers["x-luftpause-replica"]) == (200, "a")
    assert scheduler.told() == ["ask", "give_back", "give_back", "give_back", "started", "finished"]
    assert [fact[1] for fact in scheduler.facts if fact[0] == "suspect"] == [each.name for each in dead]


async def test_a_connection_that_is_never_made_is_given_up_and_the_turn_goes_elsewhere() -> None:
    """A host that is down, or behind a wall, answers nothing at all: a listener whose queue is full does the same."""
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        async with raw_engine(good) as engine:
            scheduler = FakeScheduler(replica("dead", f"http://127.0.0.1:{full.getsockname()[1]}"), replica("a", engine.url))
            async with running_plane(scheduler, connect_seconds=0.3) as plane, client_of(plane) as client:
                answer = await client.ask(post())
    assert (answer.status, answer.headers["x-luftpause-replica"]) == (200, "a")
    assert scheduler.told() == ["ask", "give_back", "started", "finished"]
    assert ("suspect", "dead", "no connection within 0.3 s") in scheduler.facts


@pytest.mark.parametrize("word", ["no_replica", "none"])
async def test_without_another_replica_the_client_gets_502_soon(word: str) -> None:
    scheduler = FakeScheduler(replica("dead", closed_port()))
    if word == "none":
        scheduler.decide = lambda s, ask: None if s.without[ask.turn] else s.place(ask.turn, "dead")
    async with running_plane(scheduler) as plane, client_of(plane) as client:
        answer = await client.ask(post())
    assert answer.status == 502
    assert answer.error == {"message": "engine dead: connection refused", "type": "server_error", "code": "engine_unreachable"}
    assert answer.headers["x-luftpause-run-id"]
    assert scheduler.told() == ["ask", "give_back", "abandon"]


async def test_a_turn_that_another_replica_can_take_later_waits_for_it() -> None:
    async with raw_engine(good) as engine:
        scheduler = FakeScheduler(replica("dead", closed_port()), replica("a", engine.url))
        scheduler.decide = lambda s, ask: s.hold(ask.turn, "capped") if s.without[ask.turn] else s.place(ask.turn, "dead")
        async with running_plane(scheduler, failover_seconds=0.1) as plane, client_of(plane) as client:
            await client.send(post())
            await scheduler.until(lambda: "give_back" in scheduler.told())
            await asyncio.sleep(0.5)  # longer than failover_seconds
            scheduler.place(scheduler.only, "a")
            assert (await client.answer()).status == 200


async def test_without_failover_a_refused_connection_is_502_at_once() -> None:
    async with raw_engine(good) as engine:
        scheduler = FakeScheduler(replica("dead", closed_port()), replica("a", engine.url))
        async with running_plane(scheduler, failover=False) as plane, client_of(plane) as client:
            answer = await client.ask(post())
    assert (answer.status, answer.error["message"]) == (502, "engine dead: connection refused")
    assert scheduler.told() == ["ask", "started", "failed"]
    assert not any(fact[0] == "suspect" for fact in scheduler.facts)


# ---- dies ----------------------------------------------------------------------------------------------------------


async def test_an_engine_that_dies_before_the_head_costs_one_more_try() -> None:
    async def dies(talk: Talk) -> None:
        talk.writer.close()

    async with raw_engine(dies) as one, raw_engine(dies) as two, raw_engine(good) as three:
        scheduler = FakeScheduler(replica("a", one.url), replica("b", two.url), replica("c", three.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            answer = await client.ask(post())
    assert (answer.status, answer.error["code"]) == (502, "engine_failed"), "a request that kills engines must not reach all of them"
    assert answer.error["message"] == "engine b: closed the connection before it answered"
    assert scheduler.told() == ["ask", "started", "give_back", "started", "failed"]
    assert len(three.talks) == 0


async def test_a_malformed_answer_is_not_called_unreachable_where_no_other_replica_is_found() -> None:
    async def malformed(talk: Talk) -> None:
        await talk.send(STREAM_HEAD + b"zz\r\n")
        await talk.gone.wait()

    async with raw_engine(malformed) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            answer = await client.ask(post())
    assert (answer.status, answer.error["code"]) == (502, "engine_failed")
    assert answer.error["message"] == "engine a: sent a malformed answer (bad chunk size)"


SIZED_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 99999\r\n\r\n"


@pytest.mark.parametrize(
    ("head", "way"),
    [
        (STREAM_HEAD, "close"),
        (STREAM_HEAD, "reset"),
        (STREAM_HEAD, "bad chunk"),
        (STREAM_HEAD, "bad trailer"),
        (SIZED_HEAD, "close"),
        (SIZED_HEAD, "reset"),
    ],
)
async def test_a_stream_that_breaks_reaches_the_client_as_a_broken_transfer(head: bytes, way: str) -> None:
    began = asyncio.Event()

    async def breaks(talk: Talk) -> None:
        await talk.send(head, TEXT if head is SIZED_HEAD else chunked(TEXT))
        if way == "close":
            talk.writer.close()
        elif way == "reset":
            await began.wait()  # what was sent before has arrived
            talk.reset()
        elif way == "bad trailer":
            await talk.send(b"0\r\nx\0: y\r\n\r\n")
        else:
            await talk.send(b"zz\r\n", TEXT)

    async with raw_engine(breaks) as one, raw_engine(good) as two:
        scheduler = FakeScheduler(replica("a", one.url), replica("b", two.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            await client.send(post(STREAM_BODY))
            await scheduler.until(lambda: "first_token" in scheduler.told())
            began.set()
            answer = await client.answer()
    assert (answer.status, answer.complete, answer.body) == (200, False, TEXT)
    assert not client.raw.endswith(b"0\r\n\r\n")
    assert scheduler.told() == ["ask", "started", "first_token", "failed"]
    assert scheduler.last("failed")[2] == "engine_died"
    assert not two.talks, "once a byte went on nothing is tried again"


async def test_a_broken_stream_is_a_reset_for_an_http_1_0_client() -> None:
    began = asyncio.Event()

    async def breaks(talk: Talk) -> None:
        await talk.send(STREAM_HEAD, chunked(TEXT))
        await began.wait()
        talk.reset()

    async with raw_engine(breaks) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            await client.send(post(STREAM_BODY, version="1.0"))
            await client.until(TEXT)
            began.set()
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(client.reader.read(), 60)


async def test_a_stale_connection_is_replaced_unseen() -> None:
    async def once(talk: Talk) -> None:
        if talk.again:
            talk.reset()
            return
        await good(talk)

    async with raw_engine(once) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            assert (await client.ask(post())).status == 200
            assert (await client.ask(post())).status == 200
    assert engine.connections == 2
    assert [fact[0] for fact in scheduler.facts] == ["ask", "started", "finished"] * 2


# ---- stalls --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sends", [b"", b"HTTP/1.1 200", STREAM_HEAD])
async def test_an_engine_without_an_answer_is_504(sends: bytes) -> None:
    """O03."""

    async def stalls(talk: Talk) -> None:
        if sends:
            await talk.send(sends)
        await talk.gone.wait()

    async with raw_engine(stalls) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler, first_byte_seconds=0.3, idle_seconds=0.3) as plane, client_of(plane) as client:
            answer = await client.ask(post(STREAM_BODY))
            assert answer.status == 504
            assert answer.error["message"].startswith("engine a: ")
            await asyncio.wait_for(engine.talks[0].gone.wait(), 60)
    assert scheduler.last("failed")[2] in {"first_byte_timeout", "idle_timeout"}
    assert scheduler.told() == ["ask", "started", "failed"]


async def test_a_head_that_drips_does_not_gain_time() -> None:
    async def drips(talk: Talk) -> None:
        while not talk.gone.is_set():
            await talk.send(b"HTTP/1.1 102 Processing\r\n\r\n")
            await asyncio.sleep(0.02)  # the pace of its signs of life

    async with raw_engine(drips) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler, first_byte_seconds=0.5, idle_seconds=30) as plane, client_of(plane) as client:
            answer = await client.ask(post(STREAM_BODY))
    assert (answer.status, answer.error["code"]) == (504, "first_byte_timeout")
    assert scheduler.last("failed")[2] == "first_byte_timeout"


async def test_interim_answers_are_passed_over_however_many_a_read_brings() -> None:
    async def behave(talk: Talk) -> None:
        await talk.send(b"HTTP/1.1 102 Processing\r\n\r\n" * 2_000 + json_answer(GOOD))

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            for _ in range(2):
                answer = await client.ask(post())
                assert (answer.status, answer.body, answer.interim) == (200, GOOD, [])
    assert engine.connections == 1


async def test_an_engine_that_falls_silent_breaks_the_stream() -> None:
    async def stalls(talk: Talk) -> None:
        await talk.send(STREAM_HEAD + chunked(TEXT))
        await talk.gone.wait()

    async with raw_engine(stalls) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler, idle_seconds=0.3) as plane, client_of(plane) as client:
            answer = await client.ask(post(STREAM_BODY))
    assert (answer.complete, answer.body) == (False, TEXT)
    assert scheduler.last("failed")[2] == "idle_timeout"


async def test_comments_alone_do_not_keep_a_stream_alive_for_ever() -> None:
    """O03."""

    async def comments(talk: Talk) -> None:
        await talk.send(STREAM_HEAD)
        while not talk.gone.is_set():
            await talk.send(chunked(b": ping\n\n"))
            await asyncio.sleep(0.05)

    async with raw_engine(comments) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler, first_byte_seconds=0.5, idle_seconds=30) as plane, client_of(plane) as client:
            answer = await client.ask(post(STREAM_BODY))
    assert not answer.complete
    assert scheduler.last("failed")[2] == "first_byte_timeout"


# ---- busy ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "full",
    [
        json_answer(VLLM_FULL, "503 Service Unavailable"),
        json_answer(SGLANG_FULL, "503 X"),
        json_answer(OLLAMA_FULL, "503 Y"),
        STREAM_HEAD + chunked(SGLANG_EVENT) + chunked(DONE) + b"0\r\n\r\n",
        STREAM_HEAD + chunked(SGLANG_EVENT[:12]) + chunked(SGLANG_EVENT[12:]),
    ],
    ids=["vllm", "sglang", "ollama", "sglang stream", "sglang stream cut"],
)
@pytest.mark.parametrize("split", [False, True])
async def test_a_full_queue_gives_the_turn_back(full: bytes, split: bool) -> None:
    async def behave(talk: Talk) -> None:
        if len(engine.talks) > 1:
            await good(talk)
        elif split:
            await talk.send(*(full[at : at + 40] for at in range(0, len(full), 40)))
        else:
            await talk.send(full)

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        scheduler.decide = lambda s, ask: s.hold(ask.turn, "capped") if s.without[ask.turn] else s.place(ask.turn, "a")
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            await client.send(post(STREAM_BODY))
            await scheduler.until(lambda: "give_back" in scheduler.told())
            assert scheduler.last("give_back")[2] is ReturnReason.BUSY
            scheduler.place(scheduler.only, "a")
            answer = await client.answer()
    assert (answer.status, answer.body) == (200, GOOD)
    assert engine.talks[1].body == STREAM_BODY
    assert scheduler.told() == ["ask", "started", "give_back", "started", "finished"]
    assert not any(fact[0] == "suspect" for fact in scheduler.facts), "a busy engine is not a dead one"


async def test_a_client_that_leaves_after_a_give_back_is_abandoned() -> None:
    async def behave(talk: Talk) -> None:
        await talk.send(json_answer(VLLM_FULL, "503 X"))

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        scheduler.decide = lambda s, ask: s.hold(ask.turn, "capped") if s.without[ask.turn] else s.place(ask.turn, "a")
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            await client.send(post())
            await scheduler.until(lambda: "give_back" in scheduler.told())
            client.close()
            await scheduler.all_over()
    assert scheduler.told() == ["ask", "started", "give_back", "abandon"]


@pytest.mark.parametrize(("config", "body"), [({"on_busy": "pass"}, VLLM_FULL), ({}, LOADING), ({}, b"<html>"), ({}, b"x" * 20_000)])
async def test_another_503_passes_unchanged(config: dict[str, str], body: bytes) -> None:
    async def behave(talk: Talk) -> None:
        await talk.send(json_answer(body, "503 Service Unavailable", b"retry-after: 17\r\n"))

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler, **config) as plane, client_of(plane) as client:
            answer = await client.ask(post())
    assert (answer.status, answer.body, answer.headers["retry-after"]) == (503, body, "17")
    assert scheduler.told() == ["ask", "started", "failed"]
    assert scheduler.last("failed")[2] == ("engine_error" if config else "engine_fault"), "a full engine is not a broken one"


# ---- errors and odd answers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        ("429 Too Many Requests", b'{"error":{}}', "engine_error"), ("400 Bad Request", b"{}", "engine_error"),
        ("403 Forbidden", b"{}", "engine_error"), ("401 Unauthorized", b"{}", "engine_fault"),
        ("502 Bad Gateway", b"<html>", "engine_fault"), ("302 Found", b"", "engine_error"),
        ("501 Not Implemented", b"{}", "engine_error"),
    ],
)  # fmt: skip
async def test_an_engines_error_passes_with_its_headers(status: str, body: bytes, why: str) -> None:
    async def behave(talk: Talk) -> None:
        await talk.send(json_answer(body, status, b"Retry-After: 1.5\r\nx-ratelimit-remaining: 0\r\nlocation: /x\r\n"))

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            answer = await client.ask(post())
    assert (answer.status, answer.body) == (int(status[:3]), body)
    assert answer.headers["retry-after"] == "1.5"
    assert answer.headers["x-ratelimit-remaining"] == "0"
    assert scheduler.told() == ["ask", "started", "failed"]
    assert scheduler.last("failed")[2] == why
    assert len(engine.talks) == 1, "redirects are not followed"


@pytest.mark.parametrize("answer", [json_answer(b""), b"HTTP/1.1 200 OK\r\n\r\n", STREAM_HEAD + b"0\r\n\r\n"])
async def test_a_good_status_with_an_empty_body_is_502(answer: bytes) -> None:
    async def behave(talk: Talk) -> None:
        await talk.send(answer)
        if b"length" not in answer:
            talk.writer.close()

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            got = await client.ask(post())
    assert (got.status, got.error["message"]) == (502, "engine a: answered with an empty body")
    assert scheduler.told() == ["ask", "started", "failed"]
    assert scheduler.last("failed")[2] == "engine_fault"


@pytest.mark.parametrize(
    ("events", "token", "usage"),
    [
        ((b'data: {"error":{"message":"x","code":504}}\n\n', DONE), False, None),
        ((TEXT, TEXT, b'data: {"error":{"message":"x","code":504}}\n\n', DONE), True, None),
        ((TEXT, USAGE, b'data: {"error":{"message":"x","code":504}}\n\n', DONE), True, Usage(7, 2, None)),
        ((b'data: {"error":{"message":"context","code":400}}\n\n',), False, None),
    ],
)
async def test_an_error_inside_a_good_stream_passes_and_counts_as_failed(
    events: tuple[bytes, ...], token: bool, usage: Usage | None
) -> None:
    """O02."""

    async def behave(talk: Talk) -> None:
        await talk.stream(*events)

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url), replica("b", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            answer = await client.ask(post(STREAM_BODY))
    assert (answer.status, answer.body, answer.complete) == (200, b"".join(events), True)
    assert scheduler.told() == ["ask", "started", *(["first_token"] if token else []), "failed"]
    assert scheduler.last("failed")[2] == "stream_error"
    assert scheduler.lost[scheduler.only] == usage
    assert len(engine.talks) == 1


@pytest.mark.parametrize(
    ("head", "body", "closes"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\ntransfer-encoding: chunked\r\n", chunked(GOOD) + b"0\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 9\r\n", chunked(GOOD) + b"0\r\nt: v\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n" % len(GOOD), GOOD, False),
        (b"HTTP/1.1 200\r\ncontent-length: %d\r\n" % len(GOOD), GOOD, False),
        (b"HTTP/1.0 200 OK\r\n", GOOD, True),
        (b"HTTP/1.1 200 OK\r\nconnection: close\r\n", GOOD, True),
        (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: %d\r\n"
            % len(GOOD),
            GOOD,
            False,
        ),
    ],
)
@pytest.mark.parametrize("split", [False, True])
async def test_every_framing_becomes_exactly_one(head: bytes, body: bytes, closes: bool, split: bool) -> None:
    whole = head + b"content-type: application/json\r\nKeep-Alive: timeout=5\r\nx-luftpause-replica: forged\r\nx-own: 1\r\n\r\n" + body

    async def behave(talk: Talk) -> None:
        await talk.send(*([whole[at : at + 7] for at in range(0, len(whole), 7)] if split else [whole]))
        if closes:
            talk.writer.close()

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            answer = await client.ask(post())
            assert (answer.status, answer.body, answer.complete, answer.interim) == (200, GOOD, True, [])
            raw_head = bytes(client.raw).partition(b"\r\n\r\n")[0].lower()
            assert raw_head.count(b"content-length:") + raw_head.count(b"transfer-encoding:") == 1
            assert b"keep-alive" not in raw_head
            assert answer.headers["x-luftpause-replica"] == "a"
            assert answer.headers["x-own"] == "1"
            assert (await client.ask(post())).status == 200, "our side of the connection goes on"
    assert scheduler.last("finished")[2] == "stop"
    assert engine.connections == (2 if closes else 1)


@pytest.mark.parametrize("usage", ["observe", "ask"])
async def test_a_compressed_answer_that_nobody_asked_for_passes_as_it_is(usage: str) -> None:
    """Nothing is seen in it, so that it ends without a reason."""
    squeezed = gzip.compress(GOOD)

    async def behave(talk: Talk) -> None:
        await talk.send(STREAM_HEAD[:-2] + b"Content-Encoding: gzip\r\n\r\n", chunked(squeezed[:9]), chunked(squeezed[9:]), b"0\r\n\r\n")

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler, usage=usage) as plane, client_of(plane) as client:
            answer = await client.ask(post(STREAM_BODY, accept_encoding="gzip"))
    assert engine.talks[0].header("accept-encoding") == "identity"
    assert (answer.status, answer.headers["content-encoding"], answer.body, answer.complete) == (200, "gzip", squeezed, True)
    assert scheduler.told() == ["ask", "started", "finished"]


@pytest.mark.parametrize("more", [b"", b"content-type: text/event-stream\r\n", b"transfer-encoding: chunked\r\n", b"content-length: 5\r\n"])
@pytest.mark.parametrize("usage", ["observe", "ask"])
async def test_an_answer_without_content_passes(more: bytes, usage: str) -> None:
    """O06."""

    async def behave(talk: Talk) -> None:
        await talk.send(b"HTTP/1.1 204 No Content\r\n" + more + b"\r\n")

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler, usage=usage) as plane, client_of(plane) as client:
            assert (await client.ask(post(STREAM_BODY))).status == 204
            assert (await client.ask(post(STREAM_BODY))).status == 204
    assert b"content-length" not in client.raw.lower()
    assert b"transfer-encoding" not in client.raw.lower()


@pytest.mark.parametrize(
    "first",
    [
        json_answer(GOOD),
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n" + chunked(GOOD) + b"0\r\n\r\n",
    ],
)
@pytest.mark.parametrize("extra", [b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nEVIL!", b"EVIL!"])
@pytest.mark.parametrize("later", [False, True])
async def test_bytes_behind_an_answer_are_nobodys(first: bytes, extra: bytes, later: bool) -> None:
    async def behave(talk: Talk) -> None:
        if later:
            await talk.send(first)
            await asyncio.sleep(0.05)
            await talk.send(extra)
        else:
            await talk.send(first + extra)

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            assert (await client.ask(post())).body == GOOD
            await asyncio.wait_for(engine.talks[0].gone.wait(), 60)
            assert (await client.ask(post())).body == GOOD
    assert engine.connections == 2
    assert b"EVIL" not in client.raw


@pytest.mark.parametrize(
    "answer",
    [
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\nx: y\n\n",
        b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: " + b"y" * 70_000,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 102 Processing\r\n\r\n" * 10_000,
        b"HTTP/1.1 099 Odd\r\n\r\n",
        b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00d",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x15\x03\x03\x00\x02\x02\x46",
    ],
)
async def test_an_answer_that_is_no_http_is_502(answer: bytes) -> None:
    async def behave(talk: Talk) -> None:
        await talk.send(answer)
        await talk.gone.wait()

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler, failover=False) as plane, client_of(plane) as client:
            got = await client.ask(post())
    assert (got.status, got.error["code"]) == (502, "engine_failed")
    assert scheduler.told() == ["ask", "started", "failed"]


async def test_an_event_without_an_end_passes_and_costs_no_memory() -> None:
    size, piece = 40 * 2**20, b"x" * 65_536

    async def behave(talk: Talk) -> None:
        await talk.send(STREAM_HEAD + chunked(TEXT) + chunked(b"data: "))
        for _ in range(size // len(piece)):
            await talk.send(chunked(piece))
        await talk.send(b"0\r\n\r\n")

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            answer = await client.ask(post(STREAM_BODY), seconds=30)
    assert (answer.complete, len(answer.body)) == (True, size + len(TEXT) + 6)
    assert scheduler.last("finished")[3] is None, "usage unknown"


async def test_a_big_answer_passes_unread() -> None:
    body = json.dumps({"choices": [{"message": {"content": "x" * 100_000}, "finish_reason": "stop"}]}).encode()

    async def behave(talk: Talk) -> None:
        await talk.send(json_answer(body))

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler, answer_bytes_max=10_000) as plane, client_of(plane) as client:
            assert (await client.ask(post())).body == body
    assert scheduler.last("finished")[2:] == ("", None, False, ())


async def test_the_engine_may_answer_before_it_has_read_the_request() -> None:
    async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(json_answer(b'{"error":"too large"}', "413 X"))
        await writer.drain()
        await reader.read(1)
        writer.close()

    server = await asyncio.start_server(early, "127.0.0.1", 0, limit=2**16)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    scheduler = FakeScheduler(replica("a", url))
    body = BODY[:-1] + b', "x": "' + b"y" * 20_000_000 + b'"}'
    async with server, running_plane(scheduler) as plane, client_of(plane) as client:
        answer = await client.ask(post(body), seconds=20)
        assert (answer.status, answer.body) == (413, b'{"error":"too large"}')
    assert scheduler.told() == ["ask", "started", "failed"]


async def ends_in_its_own_way(talk: Talk) -> None:
    """By the number in its x-request-id, as in `leaves_in_its_own_way`."""
    match int(talk.header("x-request-id") or 0) % 8:
        case 0 | 1 | 2:
            await talk.stream(TEXT, END, DONE)
        case 3:
            talk.reset()
        case 4:
            await talk.send(STREAM_HEAD + chunked(TEXT))
            talk.reset()
        case 5:
            await talk.send(json_answer(VLLM_FULL, "503 X"))
        case 6:
            await talk.send(STREAM_HEAD + chunked(TEXT))
            await talk.gone.wait()
        case _:
            await talk.gone.wait()


async def leaves_in_its_own_way(client: Client, number: int) -> None:
    await client.send(post(STREAM_BODY, x_request_id=str(number)))
    match number % 8:
        case 1:
            client.reset()
        case 2:
            await client.until(b"DONE")
            client.close()
        case 5 | 7:
            await asyncio.sleep(0.01)  # some leave before their turn is placed, some after
            client.close()
        case 6:
            await client.until(b"hi")
            client.reset() if number % 16 > 8 else client.close()
        case _:
            await client.answer()


async def test_turns_that_end_in_every_way_leave_nothing_in_flight() -> None:
    """O15."""

    async def one(url: str, number: int) -> None:
        client = await Client.to(url)
        try:
            await leaves_in_its_own_way(client, number)
        finally:
            client.writer.transport.abort()

    def decide(scheduler: FakeScheduler, ask: Ask) -> None:
        turn = ask.turn
        if scheduler.attempts[turn] > 2:
            hold_all(scheduler, ask)
            scheduler.refuse(turn, 503, "full", "full", 1)
        else:
            asyncio.get_running_loop().call_soon(lambda: scheduler.state[turn] == "held" and scheduler.place(turn, "a"))

    async with raw_engine(ends_in_its_own_way) as engine:
        scheduler = FakeScheduler(replica("a", engine.url), decide=decide)
        async with running_plane(scheduler, half_close_seconds=1) as plane:
            for batch in range(10):
                await asyncio.gather(*(one(plane.url, batch * 40 + n) for n in range(40)))
            await scheduler.all_over(60)
            assert not plane.relay.turns
    ends = {"finished", "failed", "abandon"}
    for turn in scheduler.asks:
        assert sum(name in ends for name in scheduler.told(turn)) <= 1


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize(
    "content_type", [b"", b"content-type: text/plain\r\n", b"content-type: application/json\r\n", b"content-type: text/event-stream\r\n"]
)
async def test_a_stream_is_one_whatever_it_is_called_and_however_its_lines_end(content_type: bytes, line_end: bytes) -> None:
    events = [each.replace(b"\n", line_end) for each in (b"\xef\xbb\xbf" + ROLE, CALL, CALLS_END, USAGE, DONE)]

    async def behave(talk: Talk) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\n" + content_type + b"transfer-encoding: chunked\r\n\r\n", *map(chunked, events), b"0\r\n\r\n")

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler, usage="ask") as plane, client_of(plane) as client:
            got = await client.ask(post(STREAM_BODY))
    assert got.body == b"".join(each for each in events if b"usage" not in each)
    assert scheduler.told() == ["ask", "started", "first_token", "tool_calls_seen", "finished"]
    assert scheduler.last("finished")[2:] == ("tool_calls", Usage(7, 2, None), True, ("call_0123456789abcdef",))


async def test_a_page_instead_of_an_answer_passes_and_counts_as_failed() -> None:
    async def behave(talk: Talk) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>")

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            got = await client.ask(post())
    assert (got.status, got.body) == (200, b"<html>")
    assert scheduler.told() == ["ask", "started", "failed"]
    assert scheduler.last("failed")[2] == "engine_fault"


async def test_a_count_that_no_engine_can_have_counted_is_none() -> None:
    async def behave(talk: Talk) -> None:
        await talk.send(json_answer(b'{"choices":[],"usage":{"prompt_tokens":1%b,"completion_tokens":2}}' % (b"0" * 40)))

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            assert (await client.ask(post())).status == 200
    assert scheduler.last("finished")[3] == Usage(0, 2, None)
