"""Does a turn reach its engine and its answer the client, unchanged, and does the scheduler hear of it in order?"""

import asyncio
import json
import time

import pytest

from luftpause.dataplane.digest import body_hash
from luftpause.dataplane.turns import Ask, Kind, TurnClass, Usage
from tests.support.fake_scheduler import FakeScheduler, hold_all, place_first, place_soon, replica
from tests.support.plane import BODY, STREAM_BODY, Client, client_of, post, running_plane
from tests.support.raw_engine import STREAM_HEAD, Talk, chunked, json_answer, raw_engine

ANSWER = json.dumps({
    "id": "x",
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 2}},
}).encode()
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
TEXT = b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}]}\n\n'
CALL = b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","function":{"name":"f","arguments":""}}]}}]}\n\n'
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
CALLS_END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}\n\n'
CHUNKS = 600  # of 60 kB: far more than all buffers on the way
DONE = b"data: [DONE]\n\n"


async def answers(talk: Talk) -> None:
    await talk.send(json_answer(ANSWER))


async def streams(talk: Talk) -> None:
    await talk.stream(ROLE, TEXT, END, USAGE, DONE)


async def test_a_json_answer_passes_unchanged_and_is_reported() -> None:
    async with raw_engine(answers) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            answer = await client.ask(post(x_luftpause_run_id="run-1", x_luftpause_class="Batch", x_luftpause_caller="me"))
    assert (answer.status, answer.body, answer.complete) == (200, ANSWER, True)
    assert answer.headers["x-luftpause-run-id"] == "run-1"
    assert answer.headers["x-luftpause-replica"] == "a"
    assert answer.headers["x-luftpause-turn-id"] == scheduler.only
    assert answer.headers["x-luftpause-held-ms"] == "0"
    assert answer.headers["x-accel-buffering"] == "no"
    assert engine.talks[0].body == BODY
    assert scheduler.told() == ["ask", "started", "finished"]
    assert scheduler.last("finished")[2:] == ("stop", Usage(3, 1, 2), False, ())
    ask = scheduler.asks[scheduler.only]
    assert (ask.run, ask.turn_class, ask.caller, ask.model, ask.kind, ask.api) == (
        "run-1",
        TurnClass.BATCH,
        "me",
        "m",
        Kind.GENERATIVE,
        "chat",
    )
    assert ask.body_hash == body_hash(BODY)


async def test_a_stream_passes_byte_for_byte_and_each_fact_is_told_before_its_bytes() -> None:
    wait = asyncio.Event()

    async def behave(talk: Talk) -> None:
        await talk.send(STREAM_HEAD, chunked(ROLE), chunked(TEXT))
        await wait.wait()
        await talk.send(chunked(CALL) + chunked(CALLS_END), chunked(DONE) + b"0\r\n\r\n")

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url), decide=place_soon)
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            await client.send(post(STREAM_BODY))
            await client.until(b"hi")
            assert scheduler.told() == ["ask", "started", "first_token"]
            wait.set()
            await client.until(b"call_1")
            assert ("tool_calls_seen", scheduler.only, ("call_1",)) in scheduler.facts
            await client.until(b"0\r\n\r\n")
    assert chunked(ROLE) + chunked(TEXT) + chunked(CALL) + chunked(CALLS_END) + chunked(DONE) + b"0\r\n\r\n" in client.raw
    assert b"cache-control: no-cache" in client.raw
    assert scheduler.told() == ["ask", "started", "first_token", "tool_calls_seen", "finished"]
    assert scheduler.last("finished")[2:] == ("tool_calls", None, True, ("call_1",))


async def test_one_connection_on_each_side_carries_many_turns() -> None:
    async with raw_engine(answers) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            for _ in range(5):
                assert (await client.ask(post())).body == ANSWER
    assert engine.connections == 1
    assert len(engine.talks) == 5


async def test_only_allowed_headers_and_the_replicas_own_key_reach_the_engine() -> None:
    async with raw_engine(answers) as engine:
        scheduler = FakeScheduler(replica("a", engine.url, api_key="engine-key"))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            secrets = (
                "authorization",
                "x_api_key",
                "api_key",
                "x_goog_api_key",
                "xi_api_key",
                "cookie",
                "proxy_authorization",
                "x_luftpause_caller",
            )
            await client.ask(post(accept_encoding="gzip", x_request_id="r1", traceparent="bad", **dict.fromkeys(secrets, "canary")))
    head = engine.talks[0].head.lower()
    assert b"canary" not in head
    assert b"x-luftpause" not in head
    assert b"traceparent" not in head
    assert head.count(b"authorization: bearer engine-key\r\n") == 1
    assert b"accept-encoding: identity\r\n" in head
    assert b"x-request-id: r1\r\n" in head
    assert f"host: {engine.url.removeprefix('http://')}\r\n".encode() in head


async def test_trace_context_goes_to_scheduler_and_engine_and_what_the_connection_names_stays() -> None:
    context = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    async with raw_engine(answers) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            await client.ask(
                post(traceparent=context, tracestate="v=1", x_request_id="r1", te="trailers", connection="keep-alive, X-Request-Id, TE")
            )
    assert scheduler.asks[scheduler.only].traceparent == context
    assert (engine.talks[0].header("traceparent"), engine.talks[0].header("tracestate")) == (context, "v=1")
    assert [engine.talks[0].header(name) for name in ("x-request-id", "te", "connection")] == [None, None, None]


async def test_what_any_connection_header_names_ends_here() -> None:
    ends = b"connection: x-one\r\nconnection: keep-alive, X-Two\r\nx-one: 1\r\nx-two: 2\r\nx-three: 3\r\n"

    async def behave(talk: Talk) -> None:
        await talk.send(json_answer(ANSWER, "200 OK", ends))

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            head, _, body = post(x_request_id="r1", user_agent="me").partition(b"\r\n\r\n")
            answer = await client.ask(head + b"\r\nconnection: x-request-id\r\nconnection: keep-alive\r\n\r\n" + body)
    assert (engine.talks[0].header("x-request-id"), engine.talks[0].header("user-agent")) == (None, "me")
    assert {name for name in answer.headers if name in {"x-one", "x-two", "x-three"}} == {"x-three"}


async def test_query_and_base_path_reach_the_engine() -> None:
    async with raw_engine(answers) as engine:
        scheduler = FakeScheduler(replica("a", engine.url + "/base"))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            assert (await client.ask(post(path="/v1/chat/completions/?api-version=1"))).status == 200
    assert engine.talks[0].head.startswith(b"POST /base/v1/chat/completions?api-version=1 HTTP/1.1\r\n")


async def test_a_held_turn_waits_and_says_so_afterwards() -> None:
    async with raw_engine(answers) as engine:
        scheduler = FakeScheduler(replica("a", engine.url), decide=hold_all)
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            await client.send(post())
            await scheduler.until(lambda: bool(scheduler.asks))
            assert not engine.talks
            scheduler.place(scheduler.only, "a", hold_reason="capped", held_ms=1234)
            answer = await client.answer()
    assert answer.status == 200
    assert answer.headers["x-luftpause-held-ms"] == "1234"
    assert answer.headers["x-luftpause-hold-reason"] == "capped"


async def test_a_turn_that_is_refused_after_it_was_held_says_how_long_and_why() -> None:
    scheduler = FakeScheduler(decide=hold_all)
    async with running_plane(scheduler) as plane, client_of(plane) as client:
        sent = time.monotonic()
        await client.send(post(x_luftpause_run_id="run-1"))
        await scheduler.until(lambda: bool(scheduler.asks))
        asked = time.monotonic()
        await asyncio.sleep(0.02)  # a hold of some length; how long it was is measured
        scheduler.hold(scheduler.only, "no_replica")
        least_seconds = time.monotonic() - asked
        scheduler.refuse(scheduler.only, 503, "no_replica", "nobody is there", 2)
        answer = await client.answer()
        most_seconds = time.monotonic() - sent
    assert answer.status == 503
    assert (answer.headers["x-luftpause-run-id"], answer.headers["x-luftpause-turn-id"]) == ("run-1", scheduler.only)
    assert answer.headers["x-luftpause-hold-reason"] == "no_replica"
    assert int(least_seconds * 1000) <= int(answer.headers["x-luftpause-held-ms"]) <= most_seconds * 1000
    assert "x-luftpause-replica" not in answer.headers


async def test_a_turn_that_is_refused_at_once_was_not_held() -> None:
    scheduler = FakeScheduler(decide=lambda scheduler, ask: scheduler.refuse(ask.turn, 404, "model_not_found", "no such model"))
    async with running_plane(scheduler) as plane, client_of(plane) as client:
        answer = await client.ask(post())
    assert answer.status == 404
    assert {name for name in answer.headers if name.startswith("x-luftpause-")} == {"x-luftpause-run-id", "x-luftpause-turn-id"}


@pytest.mark.parametrize(("status", "seconds", "shown"), [(503, 0, "1"), (429, 0, "1"), (503, 9, "9"), (404, 0, None), (409, 0, None)])
async def test_who_may_try_again_is_told_when(status: int, seconds: int, shown: str | None) -> None:
    """O19, whatever the scheduler forgot."""
    scheduler = FakeScheduler(decide=lambda s, ask: s.refuse(ask.turn, status, "some_code", "for some reason", seconds))
    async with running_plane(scheduler) as plane, client_of(plane) as client:
        answer = await client.ask(post())
    assert (answer.status, answer.error["code"], answer.headers.get("retry-after")) == (status, "some_code", shown)


@pytest.mark.parametrize(("seconds", "shown"), [(0, None), (7, "7")])
async def test_a_refused_turn_gets_the_schedulers_error(seconds: int, shown: str | None) -> None:
    scheduler = FakeScheduler(
        decide=lambda s, ask: s.refuse(ask.turn, 404, "model_not_found", "no generative replica serves model 'm'", seconds)
    )
    async with running_plane(scheduler) as plane, client_of(plane) as client:
        answer = await client.ask(post(x_luftpause_run_id="r"))
        assert answer.status == 404
        assert answer.error == {"message": "no generative replica serves model 'm'", "type": "not_found_error", "code": "model_not_found"}
        assert answer.headers.get("retry-after") == shown
        assert answer.headers["x-luftpause-run-id"] == "r"
        assert (await client.ask(post())).status == 404, "the connection goes on"
    assert not scheduler.open_turns


@pytest.mark.parametrize("leaves", ["close", "reset"])
async def test_a_client_that_leaves_while_held_is_never_sent_to_an_engine(leaves: str) -> None:
    async with raw_engine(answers) as engine:
        scheduler = FakeScheduler(replica("a", engine.url), decide=hold_all)
        async with running_plane(scheduler) as plane:
            client = await Client.to(plane.url)
            await client.send(post())
            await scheduler.until(lambda: bool(scheduler.asks))
            getattr(client, leaves)()
            await scheduler.all_over()
            assert scheduler.told() == ["ask", "abandon"]
            assert not plane.relay.turns
    assert not engine.talks


async def test_a_client_that_only_closed_its_side_still_gets_its_answer() -> None:
    async with raw_engine(answers) as engine:
        scheduler = FakeScheduler(replica("a", engine.url), decide=hold_all)
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            await client.send(post())
            client.half_close()
            await scheduler.until(lambda: bool(scheduler.asks))
            await asyncio.sleep(0.6)  # longer than two sweeps: it must not be taken for gone
            scheduler.place(scheduler.only, "a")
            answer = await client.answer()
            assert (answer.status, answer.body, answer.interim) == (200, ANSWER, [100])
            assert await client.closed() == b""
    assert scheduler.told() == ["ask", "started", "finished"]


async def test_a_half_closed_client_is_gone_when_its_time_is_up() -> None:
    scheduler = FakeScheduler(decide=hold_all)
    async with running_plane(scheduler, half_close_seconds=0.5) as plane, client_of(plane) as client:
        await client.send(post())
        client.half_close()
        await scheduler.all_over()
    assert scheduler.told() == ["ask", "abandon"]


@pytest.mark.parametrize("leaves", ["close", "reset"])
async def test_a_client_that_leaves_in_mid_stream_stops_the_engine(leaves: str) -> None:
    """O04, R08: this is the whole app, with all that stands before it."""
    gone = asyncio.Event()

    async def behave(talk: Talk) -> None:
        await talk.send(STREAM_HEAD + chunked(USAGE + TEXT))  # as engines that repeat it in every chunk
        while not talk.gone.is_set():
            await talk.send(chunked(TEXT))
            await asyncio.sleep(0.05)
        gone.set()

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane:
            client = await Client.to(plane.url)
            await client.send(post(STREAM_BODY))
            await client.until(b"hi")
            getattr(client, leaves)()
            await asyncio.wait_for(gone.wait(), 60)
            await scheduler.all_over()
            assert not plane.relay.turns
    assert scheduler.told() == ["ask", "started", "first_token", "failed"]
    assert scheduler.last("failed")[2] == "client_left"
    assert scheduler.lost[scheduler.only] == Usage(7, 2, None), "what was seen is counted"


async def test_a_client_that_leaves_before_the_head_stops_the_engine() -> None:
    gone = asyncio.Event()

    async def behave(talk: Talk) -> None:
        await talk.gone.wait()
        gone.set()

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane:
            client = await Client.to(plane.url)
            await client.send(post())
            await scheduler.until(lambda: "started" in scheduler.told())
            client.close()
            await asyncio.wait_for(gone.wait(), 60)
            await scheduler.all_over()
    assert scheduler.told() == ["ask", "started", "failed"]


async def test_a_client_that_reads_slowly_slows_the_engine_and_not_our_memory() -> None:
    sent = 0
    big = chunked(b"data: " + b"x" * 60_000 + b"\n\n")

    async def behave(talk: Talk) -> None:
        nonlocal sent
        await talk.send(STREAM_HEAD)
        for _ in range(CHUNKS):
            await talk.send(big)
            sent += 1
        await talk.send(b"0\r\n\r\n")

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            client.writer.transport.pause_reading()
            await client.send(post(STREAM_BODY))
            await scheduler.until(lambda: "started" in scheduler.told())
            before = -1
            async with asyncio.timeout(60):
                while before != sent or not sent:  # until nothing moves any more
                    before = sent
                    await asyncio.sleep(0.5)
            assert 0 < sent < CHUNKS / 2
            client.writer.transport.resume_reading()
            answer = await client.answer(seconds=30)
    assert answer.complete
    assert len(answer.body) == CHUNKS * 60_008
    assert scheduler.told()[-1] == "finished"


async def test_a_client_that_takes_no_byte_is_dropped() -> None:
    async def behave(talk: Talk) -> None:
        await talk.send(STREAM_HEAD)
        while not talk.gone.is_set():
            await talk.send(chunked(b"data: " + b"x" * 60_000 + b"\n\n"))

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler, slow_reader_seconds=0.5) as plane, client_of(plane) as client:
            client.writer.transport.pause_reading()
            await client.send(post(STREAM_BODY))
            await scheduler.all_over(60)
    assert scheduler.last("failed")[2] == "client_left"


async def test_several_turns_at_once_keep_apart() -> None:
    async def behave(talk: Talk) -> None:
        await asyncio.sleep(0)
        await talk.send(json_answer(talk.body))

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url), decide=place_soon)
        async with running_plane(scheduler) as plane:

            async def one(number: int) -> bool:
                body = json.dumps({"model": "m", "n": number, "messages": []}).encode()
                async with client_of(plane) as client:
                    return (await client.ask(post(body))).body == body

            assert all(await asyncio.gather(*(one(n) for n in range(40))))
        assert not scheduler.open_turns


@pytest.mark.parametrize(
    "body",
    [
        rb'{"model":"m","messages":[{"role":"user","content":"a \ud83e b"}]}',
        b'{"model":"m","messages":[{"role":"assistant","content":null},{"role":"assistant"},{"role":"user","content":""},{"role":"user","content":[]}]}',
        b'{"model":"m"}',
        b' {"messages": [{"content": 5}], "model": "m"}\n',
        '{"model":"m","messages":[{"role":"user","content":"ü€😀"}]}'.encode(),
    ],
)
async def test_odd_bodies_reach_the_engine_as_they_are(body: bytes) -> None:
    async with raw_engine(answers) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            assert (await client.ask(post(body))).status == 200
    assert engine.talks[0].body == body


@pytest.mark.parametrize(
    ("body", "headers", "code", "says"),
    [
        (b"nope", {}, "not_json", "invalid character"),
        (b"[1,2]", {}, "bad_field", "must be an object"),
        (b"{}", {}, "no_model", "`model`"),
        (b'{"model":"m","stream":"yes"}', {}, "bad_field", "`stream`"),
        (BODY, {"x_luftpause_run_id": "a b"}, "bad_run_id", "x-luftpause-run-id"),
        (BODY, {"x_luftpause_class": "urgent"}, "bad_class", "interactive, batch"),
        (BODY, {"x_luftpause_priority": "9"}, "bad_priority", "0, 1 or 2"),
    ],
)
async def test_bad_requests_are_told_what_is_wrong_and_where(body: bytes, headers: dict[str, str], code: str, says: str) -> None:
    scheduler = FakeScheduler()
    async with running_plane(scheduler) as plane, client_of(plane) as client:
        answer = await client.ask(post(body, **headers))
        assert (answer.status, answer.error["code"]) == (400, code)
        assert says in answer.error["message"]
        assert not scheduler.asks
        assert (await client.ask(post(b"{}"))).status == 400, "the connection goes on"


TWICE = post().replace(b"\r\n\r\n", b"\r\nX-LUFTPAUSE-RUN-ID: a\r\nx-luftpause-run-id: %b\r\n\r\n", 1)


async def test_a_header_that_says_two_things_is_refused_and_one_that_only_came_twice_is_not() -> None:
    async with raw_engine(answers) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            refused = await client.ask(TWICE % b"b")
            assert (refused.status, refused.error["code"]) == (400, "header_twice")
            assert "x-luftpause-run-id" in refused.error["message"]
            assert not scheduler.asks
            assert (await client.ask(TWICE % b"a")).headers["x-luftpause-run-id"] == "a"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/embeddings"])
async def test_a_byte_order_mark_before_a_body_is_passed_over(path: str) -> None:
    async with raw_engine(answers) as engine:
        scheduler = FakeScheduler(replica("a", engine.url), decide=lambda it, ask: it.place(ask.turn, "a", priority=3))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            assert (await client.ask(post(b"\xef\xbb\xbf" + BODY, path=path))).status == 200
    assert json.loads(engine.talks[0].body) == json.loads(BODY) | {"priority": 3}


async def test_an_http_1_0_client_gets_a_plain_body_and_a_close() -> None:
    async with raw_engine(streams) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            await client.send(post(STREAM_BODY, version="1.0"))
            everything = await client.closed()
    head, _, body = everything.partition(b"\r\n\r\n")
    assert b"connection: close" in head
    assert b"transfer-encoding" not in head
    assert body == ROLE + TEXT + END + USAGE + DONE


async def test_asked_for_usage_is_counted_and_hidden() -> None:
    async with raw_engine(streams) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler, usage="ask") as plane, client_of(plane) as client:
            hidden = await client.ask(post(STREAM_BODY))
            asked = json.dumps({"model": "m", "stream": True, "stream_options": {"include_usage": True}}).encode()
            shown = await client.ask(post(asked))
            plain = await client.ask(post(BODY))
    assert json.loads(engine.talks[0].body) == json.loads(STREAM_BODY) | {"stream_options": {"include_usage": True}}
    assert engine.talks[0].body.startswith(STREAM_BODY[:-1])
    assert hidden.body == ROLE + TEXT + END + DONE
    assert engine.talks[1].body == asked
    assert shown.body == ROLE + TEXT + END + USAGE + DONE
    assert engine.talks[2].body == BODY
    assert plain.complete
    finished = [fact for fact in scheduler.facts if fact[0] == "finished"]
    assert finished[0][3] == finished[1][3] == Usage(7, 2, None)


@pytest.mark.parametrize(
    ("own", "wanted", "asks"),
    [(None, True, True), (None, False, False), ("observe", True, False), ("ask", False, True)],
)
async def test_usage_is_asked_of_the_engines_whose_the_scheduler_wants_unless_the_file_says_otherwise(
    own: str | None, wanted: bool, asks: bool
) -> None:
    """Decided per place: the engine that did not take the turn was one of the other kind."""

    async def full(talk: Talk) -> None:
        await talk.send(json_answer(b'{"object":"error","message":"The request queue is full.","code":503}', "503 Busy"))

    def decide(scheduler: FakeScheduler, ask: Ask) -> None:
        scheduler.place(ask.turn, "full" if scheduler.attempts[ask.turn] == 1 else "a")

    async with raw_engine(full) as other, raw_engine(streams) as engine:
        replicas = replica("full", other.url, asks_usage=not wanted), replica("a", engine.url, asks_usage=wanted)
        scheduler = FakeScheduler(*replicas, decide=decide)
        async with running_plane(scheduler, usage=own) as plane, client_of(plane) as client:
            answer = await client.ask(post(STREAM_BODY))
    assert (b"include_usage" in engine.talks[0].body) is asks
    assert (b"include_usage" in other.talks[0].body) is (asks if own else not asks)
    assert answer.body == ROLE + TEXT + END + (b"" if asks else USAGE) + DONE


@pytest.mark.parametrize(
    ("status", "refusal"),
    [
        (
            "422 Unprocessable",
            b'{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"Extra inputs are not permitted"}]}',
        ),
        ("400 Bad Request", b'{"error":{"message":"Unrecognized request argument supplied: stream_options"}}'),
    ],
)
async def test_an_engine_that_refuses_to_be_asked_for_usage_is_asked_once_and_its_client_sees_nothing_of_it(
    status: str, refusal: bytes
) -> None:
    async def strict(talk: Talk) -> None:
        if b"stream_options" in talk.body:
            await talk.send(json_answer(refusal, status))
        else:
            await talk.stream(ROLE, TEXT, END, DONE)

    asked = json.dumps({"model": "m", "stream": True, "stream_options": {"include_usage": True}}).encode()
    async with raw_engine(strict) as engine:
        scheduler = FakeScheduler(replica("a", engine.url, asks_usage=True))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            answers = [await client.ask(post(STREAM_BODY)) for _ in range(2)]
            own = await client.ask(post(asked))
    assert [(each.status, each.body) for each in answers] == [(200, ROLE + TEXT + END + DONE)] * 2
    assert [b"stream_options" in talk.body for talk in engine.talks] == [True, False, False, True]
    assert engine.talks[1].body == STREAM_BODY
    assert (own.status, own.body) == (int(status[:3]), refusal)
    assert [fact[0] for fact in scheduler.facts].count("started") == 3
    assert [fact[0] for fact in scheduler.facts].count("finished") == 2


async def test_another_mistake_in_a_turn_whose_usage_is_asked_for_is_the_clients() -> None:
    refusal = b'{"error":{"message":"temperature must be at most 2"}}'

    async def refuses(talk: Talk) -> None:
        await talk.send(json_answer(refusal, "400 Bad Request"))

    async with raw_engine(refuses) as engine:
        scheduler = FakeScheduler(replica("a", engine.url, asks_usage=True))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            answer = await client.ask(post(STREAM_BODY))
    assert (answer.status, answer.body) == (400, refusal)
    assert len(engine.talks) == 1


async def test_an_engine_on_ipv6_is_reached() -> None:
    async with raw_engine(answers, host="::1") as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler, host="::1") as plane, client_of(plane) as client:
            assert plane.url.startswith("http://[::1]:")
            assert (await client.ask(post(host="[::1]:80"))).status == 200
    assert engine.talks[0].header("host") == engine.url.removeprefix("http://")


async def test_replicas_that_deliver_are_named_to_the_scheduler() -> None:
    async with raw_engine(answers) as engine:
        scheduler = FakeScheduler(replica("a", engine.url), decide=place_first)
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            await client.ask(post())
            async with asyncio.timeout(60):
                while scheduler.delivered != ["a"]:
                    await asyncio.sleep(0.05)  # the sweep tells it within 250 ms
            await asyncio.sleep(0.6)
    assert scheduler.delivered == ["a"]


async def test_a_slow_but_steady_reader_gets_its_whole_answer() -> None:
    size = 6_000_000
    big = json_answer(b'{"x":"' + b"y" * size + b'"}')

    async def behave(talk: Talk) -> None:
        await talk.send(big)

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        limits = {"slow_reader_seconds": 1.2, "idle_connection_seconds": 0.3}
        async with running_plane(scheduler, **limits) as plane, client_of(plane) as client:
            await client.send(post())
            read = 0
            async with asyncio.timeout(60):
                while read < size:
                    data = await client.reader.read(200_000)
                    assert data, f"cut after {read} bytes"
                    read += len(data)
                    await asyncio.sleep(0.06)
