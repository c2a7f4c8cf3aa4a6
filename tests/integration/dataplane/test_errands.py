"""Does a request that is no turn find the replica that can answer it: stored responses, counting tokens, models?"""

import asyncio
import json
from typing import Any

import pytest

from luftpause.dataplane.errand import KEPT_BYTES_MAX
from luftpause.dataplane.turns import Kind, Replica
from tests.support.fake_scheduler import FakeScheduler
from tests.support.plane import Answer, client_of, get, post, running_plane
from tests.support.raw_engine import STREAM_HEAD, Behave, Talk, chunked, json_answer, raw_engine

FOUND, NOT_FOUND = b'{"id":"resp_1","object":"response"}', b'{"error":{"message":"no response resp_1","code":404}}'
COUNT = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}]}).encode()
NOWHERE = "http://127.0.0.1:9"


def a_replica(name: str, url: str, *, state: str = "healthy", apis: tuple[str, ...] = (), key: str = "", models: Any = ("m",)) -> Replica:
    return Replica(name, url, models, Kind.GENERATIVE, state, key, apis)


def says(body: bytes, status: str = "200 OK") -> Behave:
    async def behave(talk: Talk) -> None:
        await talk.send(json_answer(body, status, b"x-engine: " + body[:4].hex().encode() + b"\r\n"))

    return behave


async def ask(scheduler: FakeScheduler, data: bytes, method: str, **config: Any) -> Answer:
    async with running_plane(scheduler, **config) as plane, client_of(plane) as client:
        await client.send(data)
        answer = await client.answer(method)
        assert not plane.relay.turns
        assert scheduler.facts == [] or all(fact[0] == "suspect" for fact in scheduler.facts), "an errand is no turn"
        return answer


@pytest.mark.parametrize(
    ("data", "method", "line"),
    [
        (get("/v1/responses/resp_1?include[]=x&stream=true"), "GET", b"GET /v1/responses/resp_1?include[]=x&stream=true HTTP/1.1"),
        (get("/v1/responses/resp_1/input_items"), "GET", b"GET /v1/responses/resp_1/input_items HTTP/1.1"),
        (get("/v1/responses/resp_1", "DELETE"), "DELETE", b"DELETE /v1/responses/resp_1 HTTP/1.1"),
        (get("/v1/responses/resp_1/cancel", "POST", content_length="0"), "POST", b"POST /v1/responses/resp_1/cancel HTTP/1.1"),
    ],
)
async def test_a_stored_response_is_asked_of_the_replica_that_has_it(data: bytes, method: str, line: bytes) -> None:
    async with raw_engine(says(FOUND)) as one, raw_engine(says(FOUND)) as two:
        scheduler = FakeScheduler(a_replica("one", one.url), a_replica("two", two.url, key="secret"))
        scheduler.located["resp_1"] = "two"
        answer = await ask(scheduler, data, method)
    assert (answer.status, answer.body, answer.headers["x-luftpause-replica"]) == (200, FOUND, "two")
    assert one.talks == []
    assert two.talks[0].head.startswith(line)
    assert two.talks[0].header("authorization") == "Bearer secret"


async def test_an_unknown_one_is_asked_of_each_until_one_has_it() -> None:
    async with raw_engine(says(NOT_FOUND, "404 Not Found")) as one, raw_engine(says(FOUND)) as two, raw_engine(says(FOUND)) as three:
        scheduler = FakeScheduler(
            a_replica("down", NOWHERE),
            a_replica("sick", one.url, state="unhealthy"),
            a_replica("chat", one.url, apis=("chat",)),
            a_replica("one", one.url, apis=("chat", "responses")),
            a_replica("two", two.url),
            a_replica("three", three.url),
        )
        answer = await ask(scheduler, get("/v1/responses/resp_1"), "GET")
    assert (answer.status, answer.body, answer.headers["x-luftpause-replica"]) == (200, FOUND, "two")
    assert (len(one.talks), len(two.talks), len(three.talks)) == (1, 1, 0)
    assert scheduler.facts == [("suspect", "down", "connection refused")]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
async def test_if_nobody_has_it_an_engines_404_is_the_answer(order: tuple[int, ...]) -> None:
    async with raw_engine(says(NOT_FOUND, "404 Not Found")) as one, raw_engine(says(b'{"odd":1}', "400 Bad Request")) as two:
        replicas = [a_replica("none", one.url), a_replica("odd", two.url), a_replica("down", NOWHERE)]
        answer = await ask(FakeScheduler(*(replicas[n] for n in order)), get("/v1/responses/resp_1"), "GET")
    assert (answer.status, answer.body, answer.headers["x-engine"]) == (404, NOT_FOUND, NOT_FOUND[:4].hex())
    assert (answer.headers["x-luftpause-replica"], answer.complete) == ("none", True)


async def test_a_located_response_is_asked_of_nobody_else() -> None:
    async with raw_engine(says(FOUND)) as one:
        scheduler = FakeScheduler(a_replica("one", one.url), a_replica("down", NOWHERE))
        scheduler.located["resp_1"] = "down"
        answer = await ask(scheduler, get("/v1/responses/resp_1"), "GET")
    assert (answer.status, answer.error["code"]) == (502, "engine_failed" if answer.status == 504 else "engine_unreachable")
    assert one.talks == []


async def test_nobody_to_ask_is_a_404_of_our_own() -> None:
    answer = await ask(FakeScheduler(a_replica("chat", NOWHERE, apis=("chat",))), get("/v1/responses/resp_1"), "GET")
    assert (answer.status, answer.error["code"]) == (404, "response_not_found")


async def test_a_scheduler_that_does_not_answer_is_not_waited_for() -> None:
    async with raw_engine(says(FOUND)) as one:
        scheduler = FakeScheduler(a_replica("one", one.url))
        scheduler.silent = True
        answer = await ask(scheduler, get("/v1/responses/resp_1"), "GET")
    assert (answer.status, scheduler.seeking) == (200, {})


async def test_a_client_that_leaves_meanwhile_leaves_nothing_behind() -> None:
    scheduler = FakeScheduler(a_replica("one", NOWHERE))
    scheduler.silent = True
    async with running_plane(scheduler) as plane, client_of(plane) as client:
        await client.send(get("/v1/responses/resp_1"))
        await scheduler.until(lambda: bool(scheduler.seeking))
        client.reset()
        await scheduler.until(lambda: not scheduler.seeking)
        assert not plane.relay.turns


async def test_a_stored_stream_passes_as_it_comes_and_ends_with_its_client() -> None:
    gone = asyncio.Event()

    async def behave(talk: Talk) -> None:
        await talk.send(STREAM_HEAD + chunked(b"data: one\n\n"))
        async with asyncio.timeout(60):
            await talk.gone.wait()
        gone.set()

    async with (
        raw_engine(behave) as engine,
        running_plane(FakeScheduler(a_replica("one", engine.url))) as plane,
        client_of(plane) as client,
    ):
        await client.send(get("/v1/responses/resp_1?stream=true"))
        await client.until(b"data: one\n\n")
        client.reset()
        async with asyncio.timeout(60):
            await gone.wait()


async def test_an_engine_that_dies_in_the_middle_breaks_the_answer() -> None:
    async def behave(talk: Talk) -> None:
        await talk.send(STREAM_HEAD + chunked(b"data: one\n\n"))
        talk.reset()

    async with raw_engine(behave) as engine:
        answer = await ask(FakeScheduler(a_replica("one", engine.url)), get("/v1/responses/resp_1"), "GET")
    assert (answer.status, answer.complete) == (200, False)


async def test_an_endless_no_is_not_kept() -> None:
    async with raw_engine(says(b"x" * (4 * KEPT_BYTES_MAX), "404 Not Found")) as one, raw_engine(says(FOUND)) as two:
        answer = await ask(FakeScheduler(a_replica("one", one.url), a_replica("two", two.url)), get("/v1/responses/r"), "GET")
        assert answer.body == FOUND
        answer = await ask(FakeScheduler(a_replica("one", one.url)), get("/v1/responses/r"), "GET")
        assert (answer.status, answer.error["code"]) == (502, "engine_failed")


@pytest.mark.parametrize(
    ("path", "method", "allow"),
    [
        ("/v1/responses/resp_1", "PUT", "DELETE, GET, OPTIONS"),
        ("/v1/responses/resp_1", "HEAD", "DELETE, GET, OPTIONS"),
        ("/v1/responses/resp_1/cancel", "GET", "OPTIONS, POST"),
        ("/v1/responses/resp_1/input_items", "DELETE", "GET, OPTIONS"),
        ("/v1/responses", "GET", "OPTIONS, POST"),
        ("/v1/messages/count_tokens", "GET", "OPTIONS, POST"),
    ],
)
async def test_a_wrong_method_is_told_the_right_ones(path: str, method: str, allow: str) -> None:
    answer = await ask(FakeScheduler(a_replica("one", NOWHERE)), get(path, method), method)
    assert (answer.status, answer.headers["allow"]) == (405, allow)


@pytest.mark.parametrize("path", ["/v1/responses/..", "/v1/responses/a/b", "/v1/responses/%2e%2e", "/v1/responses/a b"[:15] + "%20"])
async def test_a_path_that_names_no_response_reaches_no_engine(path: str) -> None:
    answer = await ask(FakeScheduler(a_replica("one", NOWHERE)), get(path), "GET")
    assert (answer.status, answer.error["code"]) == (404, "not_found")


async def test_tokens_are_counted_by_any_healthy_replica_of_the_model_in_turn() -> None:
    async with raw_engine(says(b'{"input_tokens":7}')) as one, raw_engine(says(b'{"input_tokens":7}')) as two:
        scheduler = FakeScheduler(
            a_replica("one", one.url, apis=("messages",)), a_replica("two", two.url), a_replica("other", NOWHERE, models=("n",))
        )
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            for _ in range(4):
                answer = await client.ask(post(COUNT, path="/v1/messages/count_tokens", x_api_key="hush"))
                assert (answer.status, answer.body) == (200, b'{"input_tokens":7}')
        assert scheduler.facts == []
    assert (len(one.talks), len(two.talks)) == (2, 2)
    assert one.talks[0].body == COUNT
    assert b"hush" not in one.talks[0].head


async def test_an_engine_without_that_route_or_one_that_is_gone_is_passed_over() -> None:
    async with raw_engine(says(b'{"detail":"Not Found"}', "404 Not Found")) as one, raw_engine(says(b'{"input_tokens":7}')) as two:
        scheduler = FakeScheduler(a_replica("one", one.url), a_replica("down", NOWHERE), a_replica("two", two.url))
        for _ in range(3):
            answer = await ask(scheduler, post(COUNT, path="/v1/messages/count_tokens"), "POST")
            assert (answer.status, answer.headers["x-luftpause-replica"]) == (200, "two")
            scheduler.facts.clear()


async def test_an_engines_refusal_to_count_passes_at_once() -> None:
    async with raw_engine(says(b'{"type":"error"}', "400 Bad Request")) as one:
        scheduler = FakeScheduler(a_replica("one", one.url), a_replica("two", one.url))
        answer = await ask(scheduler, post(COUNT, path="/v1/messages/count_tokens"), "POST")
    assert (answer.status, answer.body, len(one.talks)) == (400, b'{"type":"error"}', 1)


@pytest.mark.parametrize(
    ("replicas", "status", "code", "says_so"),
    [
        ([a_replica("a", NOWHERE, models=("n", "o"))], 404, "model_not_found", "n, o"),
        ([a_replica("a", NOWHERE, apis=("chat", "responses"))], 404, "api_not_served", "a serves chat, responses"),
        ([a_replica("a", NOWHERE, state="unhealthy")], 503, "no_replica", "healthy"),
        ([a_replica("a", NOWHERE, state="unknown", models=())], 503, "no_replica", "healthy"),
        ([], 503, "no_replica", "healthy"),
    ],
)
async def test_why_nobody_counts(replicas: list[Replica], status: int, code: str, says_so: str) -> None:
    answer = await ask(FakeScheduler(*replicas), post(COUNT, path="/v1/messages/count_tokens"), "POST")
    assert (answer.status, answer.error["code"]) == (status, code)
    assert says_so in answer.error["message"]
    assert ("retry-after" in answer.headers) is (status == 503)


async def test_errands_end_when_the_dataplane_does() -> None:
    async def behave(talk: Talk) -> None:
        await talk.gone.wait()

    async with (
        raw_engine(behave) as engine,
        running_plane(FakeScheduler(a_replica("one", engine.url)), stop_grace_seconds=0.1) as plane,
        client_of(plane) as client,
    ):
        await client.send(get("/v1/responses/resp_1"))
        async with asyncio.timeout(60):
            while not engine.talks:
                await asyncio.sleep(0.01)
        stopping = asyncio.create_task(plane.stop(asyncio.Event()))
        answer = await client.answer("GET")
        await stopping
    assert (answer.status, answer.error["code"]) == (503, "stopping")
