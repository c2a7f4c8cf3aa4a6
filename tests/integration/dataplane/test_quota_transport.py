"""Does an agent that changes one line of its httpx client share a quota, from threads and on an event loop alike?"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest

from luftpause.client import LuftpauseAwayError, QuotaTransport, words
from luftpause.client.asking import Asking, AsyncAsking, Outage
from luftpause.client.errors import LuftpauseSetupError
from luftpause.client.settings import settings_of
from luftpause.dataplane.app import Dataplane
from luftpause.kit.auth import Tokens
from luftpause.kit.quota_port import Granted, NotNow, QuotaUnavailableError, Refused
from tests.support.ports import a_refusing_port
from tests.support.proxied_calls import proxying
from tests.support.quota_double import QuotaDouble
from tests.support.raw_engine import STREAM_HEAD, RawEngine, Talk, chunked, json_answer, raw_engine

OK = b'{"ok":true}'
LIMITS = b"x-ratelimit-limit: 5000\r\nx-ratelimit-remaining: 4999\r\nset-cookie: secret=1\r\n"
SLOW_DOWN = json_answer(b'{"message":"slow down"}', "429 Too Many Requests", b"retry-after: 1\r\n")
TOKEN = "right-" + "r" * 30

Ask = Callable[..., Awaitable[httpx.Response]]


async def fine(talk: Talk) -> None:
    await talk.send(json_answer(OK, more=LIMITS))


def first(*answers: bytes) -> Callable[[Talk], Awaitable[None]]:
    left = list(answers)

    async def behave(talk: Talk) -> None:
        await talk.send(left.pop(0) if left else json_answer(OK))

    return behave


@contextlib.asynccontextmanager
async def agent(kind: str, transport: QuotaTransport, **config: Any) -> AsyncGenerator[Ask]:
    """`ask(method, url, …)` of a client of this kind."""
    if kind == "threads":
        with httpx.Client(transport=transport, **config) as client:

            async def in_thread(*args: Any, **kwargs: Any) -> httpx.Response:
                return await asyncio.to_thread(client.request, *args, **kwargs)

            yield in_thread
    else:
        async with httpx.AsyncClient(transport=transport, **config) as loops:
            yield loops.request


@contextlib.asynccontextmanager
async def governing(
    quota: QuotaDouble, behave: Callable[[Talk], Awaitable[None]], **config: Any
) -> AsyncGenerator[tuple[Dataplane, RawEngine]]:
    async with raw_engine(behave) as api, proxying(quota, targets={"github": None}, **config) as plane:
        yield plane, api


class NoTls(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """httpx's own transports, without the certificates that these tests never need and that take long to load."""

    def __init__(self) -> None:
        self.threads, self.loop = httpx.HTTPTransport(verify=False), httpx.AsyncHTTPTransport(verify=False)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self.threads.handle_request(request)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self.loop.handle_async_request(request)

    def close(self) -> None:
        self.threads.close()

    async def aclose(self) -> None:
        await self.loop.aclose()


def transport(url: str, **arguments: Any) -> QuotaTransport:
    return QuotaTransport("github", url=url, inner=NoTls(), **arguments)


both = pytest.mark.parametrize("kind", ["threads", "loop"])


@both
async def test_a_call_is_reserved_sent_and_settled(kind: str) -> None:
    quota = QuotaDouble()
    async with governing(quota, fine, tokens=Tokens(TOKEN)) as (plane, api):
        governed = transport(plane.url, token=TOKEN, caller="worf", batch=True, cost=2)
        async with agent(kind, governed) as ask:
            answer = await ask("POST", api.url + "/repos?x=1", content=b"body", headers={"authorization": "Bearer ghp_own"})
            assert (answer.status_code, answer.content) == (200, OK)
            assert answer.extensions["luftpause"]["governed"]
            assert quota.kinds() == ["report"], "the governor knows before the caller goes on"
    (talk,) = api.talks
    assert (talk.body, talk.header("authorization"), talk.header("x-luftpause-caller")) == (b"body", "Bearer ghp_own", None)
    assert TOKEN.encode() not in talk.head
    (wish,) = quota.wishes
    assert (wish["target"], wish["caller"], wish["priority"], wish["cost"], wish["retry"]) == ("github", "worf", 2, {"requests": 2}, False)
    (report,) = await quota.until("report")
    assert (report["status"], report["headers"]["x-ratelimit-remaining"], report["body"]) == (200, "4999", "")
    assert "secret" not in repr(quota.told)
    assert "ghp_own" not in repr((quota.told, quota.wishes))


@both
async def test_a_refusal_by_quota_is_not_seen(kind: str) -> None:
    quota = QuotaDouble()
    async with governing(quota, first(SLOW_DOWN, SLOW_DOWN)) as (plane, api), agent(kind, transport(plane.url)) as ask:
        answer = await ask("POST", api.url, json={"a": 1})
    assert (answer.status_code, answer.content) == (200, OK)
    assert [talk.body for talk in api.talks] == [b'{"a":1}'] * 3
    assert [wish["retry"] for wish in quota.wishes] == [False, True, True]
    assert [facts["status"] for facts in await quota.until("report", 3)] == [429, 429, 200]


STAYING: list[tuple[float | None, float, int, dict[str, str | None]]] = [
    (0.01, 5.0, 4, {"retry-after": "1", "retry-after-ms": "10", "x-should-retry": None}),
    (30.0, 5.0, 1, {"retry-after": "30", "retry-after-ms": "30000", "x-should-retry": None}),
    (90.0, 5.0, 1, {"retry-after": "90", "x-should-retry": "false"}),
    (None, 5.0, 1, {"retry-after": None, "x-should-retry": "false"}),
]


@both
async def test_a_refusal_that_stays_one_is_the_providers_with_our_word_on_when(kind: str) -> None:
    quota = QuotaDouble()
    async with governing(quota, first(*[SLOW_DOWN] * 9)) as (plane, api), agent(kind, transport(plane.url)) as ask:
        for quota.retry_seconds, pool_seconds, sent, headers in STAYING:
            before = len(api.talks)
            answer = await ask("GET", api.url, timeout=pool_seconds)
            assert (answer.status_code, answer.json()) == (429, {"message": "slow down"})
            assert {name: answer.headers.get(name) for name in headers} == headers
            assert len(api.talks) - before == sent
    assert quota.kinds().count("report") == len(api.talks)


@both
async def test_a_body_that_can_be_read_once_only_is_sent_once_only(kind: str) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"once"

    async def pieces_in_loop() -> AsyncIterator[bytes]:
        yield b"once"

    quota = QuotaDouble()
    async with governing(quota, first(SLOW_DOWN)) as (plane, api), agent(kind, transport(plane.url)) as ask:
        content = pieces() if kind == "threads" else pieces_in_loop()
        answer = await ask("POST", api.url, content=content, headers={"content-length": "4"})
    assert (answer.status_code, answer.headers["retry-after-ms"]) == (429, "50")
    assert [talk.body for talk in api.talks] == [b"once"]


OWN: list[tuple[NotNow | Refused, int, dict[str, str | None]]] = [
    (NotNow(7.5, "paced"), 429, {"retry-after": "8", "retry-after-ms": "7500", "x-luftpause-refused": "github"}),
    (Refused("too_large", "no wait helps"), 413, {"x-should-retry": "false", "retry-after": None}),
    (Refused("out_of_credit", "pay"), 402, {"x-should-retry": "false", "retry-after": None}),
]


@both
async def test_the_governors_own_no_has_the_form_of_a_providers(kind: str) -> None:
    left = [said for said, _, _ in OWN]

    async def decide(wish: dict[str, Any]) -> NotNow | Refused:
        return left.pop(0)

    async with governing(QuotaDouble(decide), fine) as (plane, api), agent(kind, transport(plane.url)) as ask:
        for _, status, headers in OWN:
            answer = await ask("GET", api.url)
            assert (answer.status_code, api.talks) == (status, [])
            assert answer.json()["error"]["message"]
            assert {name: answer.headers.get(name) for name in headers} == headers


@both
async def test_a_mistake_of_the_set_up_is_no_answer_but_says_what_would_do(kind: str) -> None:
    async def nowhere(wish: dict[str, Any]) -> Refused:
        return Refused("unknown_target", "no target is called 'github'; known: none")

    async with governing(QuotaDouble(nowhere), fine, tokens=Tokens(TOKEN)) as (plane, api):
        for governed, said in (
            (transport(plane.url, token="wrong"), "opens nothing"),
            (transport(plane.url, token=TOKEN), "no target is called"),
            (transport(plane.url, token=TOKEN, priority=0), "may_claim"),
        ):
            async with agent(kind, governed) as ask:
                with pytest.raises(LuftpauseSetupError, match=said):
                    await ask("GET", api.url)
    assert api.talks == []


@both
async def test_what_one_call_says_goes_before_what_the_transport_says(kind: str) -> None:
    quota = QuotaDouble()
    async with governing(quota, fine) as (plane, api), agent(kind, transport(plane.url, caller="a")) as ask:
        own = {"caller": "claimant", "priority": 0, "cost": {"points": 5}, "wait_seconds": 3}
        await ask("GET", api.url, extensions={"luftpause": own})
        await ask("GET", api.url)
        await ask("POST", api.url)
    write = {"content": 1, "points": 5, "requests": 1}
    wishes = [(wish["caller"], wish["priority"], wish["cost"]) for wish in quota.wishes]
    assert wishes == [("claimant", 0, {"points": 5}), ("a", 1, None), ("a", 1, write)]
    assert all(most - 2 < wish["wait_seconds"] <= most for wish, most in zip(quota.wishes, (3, 5), strict=False)), "what of it is left"


@both
async def test_it_waits_as_long_as_the_call_may_and_no_longer(kind: str) -> None:
    async def decide(wish: dict[str, Any]) -> NotNow:
        await asyncio.sleep(wish["wait_seconds"])
        return NotNow(0.01, "paced")

    quota = QuotaDouble(decide)
    async with governing(quota, fine) as (plane, api), agent(kind, transport(plane.url, wait_seconds=0.3)) as ask:
        began = time.monotonic()
        answer = await ask("GET", api.url)
        assert time.monotonic() - began < 10
    assert (answer.status_code, api.talks) == (429, [])


@both
async def test_a_call_that_was_not_sent_gives_its_lease_back_and_one_that_was_lost_does_not(kind: str) -> None:
    async def behave(talk: Talk) -> None:
        talk.reset()

    quota = QuotaDouble()
    async with governing(quota, behave) as (plane, api), agent(kind, transport(plane.url)) as ask:
        with pytest.raises(httpx.ConnectError):
            await ask("GET", f"http://127.0.0.1:{a_refusing_port()}")
        assert quota.kinds() == ["release"]
        with pytest.raises(httpx.TransportError):
            await ask("GET", api.url)
    assert quota.kinds() == ["release", "report"]
    assert quota.told[-1][2]["status"] is None


@both
async def test_streams_are_not_touched_and_their_leases_are_renewed(kind: str) -> None:
    go_on = asyncio.Event()

    async def behave(talk: Talk) -> None:
        await talk.send(STREAM_HEAD.removesuffix(b"\r\n") + LIMITS + b"\r\n" + chunked(b"data: one\n\n"))
        await go_on.wait()
        await talk.send(chunked(b"data: two\n\n") + b"0\r\n\r\n")

    quota = QuotaDouble(lease_seconds=0.3)
    got: list[bytes] = []
    async with governing(quota, behave) as (plane, api):
        governed = transport(plane.url)

        def in_thread() -> None:
            with httpx.Client(transport=governed) as client, client.stream("GET", api.url) as answer:
                got.extend(answer.iter_raw())

        async def in_loop() -> None:
            async with httpx.AsyncClient(transport=governed) as client, client.stream("GET", api.url) as answer:
                got.extend([piece async for piece in answer.aiter_raw()])

        reading = asyncio.ensure_future(asyncio.to_thread(in_thread) if kind == "threads" else in_loop())
        await quota.until("renew", 2)
        assert [facts["headers"]["x-ratelimit-limit"] for facts in await quota.until("observe")] == ["5000"]
        go_on.set()
        await reading
    assert b"".join(got) == b"data: one\n\ndata: two\n\n"
    (report,) = await quota.until("report")
    assert (report["status"], report["headers"]) == (200, {})


@both
async def test_while_luftpause_is_away_calls_wait_for_it(
    kind: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("luftpause.client.flow.AWAY_SECONDS", 0.02)
    quota = QuotaDouble()
    quota.failure = QuotaUnavailableError("the scheduler can't be reached")
    async with governing(quota, fine) as (plane, api), agent(kind, transport(plane.url, wait_seconds=60)) as ask:
        waiting = asyncio.ensure_future(ask("GET", api.url))
        async with asyncio.timeout(60):
            while "wait for it" not in caplog.text:
                await asyncio.sleep(0.01)  # another thread's log
        assert api.talks == []
        quota.failure = None
        assert (await waiting).status_code == 200
    assert [record.levelno for record in caplog.records if record.name == "luftpause.client"] == [logging.WARNING] * 2
    assert "calls to github wait for it" in caplog.text
    assert "is back" in caplog.text


@both
async def test_who_waits_in_vain_is_told_and_nothing_is_sent(kind: str) -> None:
    async with raw_engine(fine) as api:
        governed = transport(f"http://127.0.0.1:{a_refusing_port()}", wait_seconds=0.1)
        async with agent(kind, governed) as ask:
            with pytest.raises(LuftpauseAwayError, match="when_away='send'"):
                await ask("GET", api.url)
    assert api.talks == []


@both
async def test_calls_may_go_out_ungoverned_meanwhile_but_never_silently(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async with raw_engine(first(SLOW_DOWN)) as api:
        governed = transport(f"http://127.0.0.1:{a_refusing_port()}", when_away="send")
        async with agent(kind, governed) as ask:
            answer = await ask("GET", api.url)
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "1"), "as it came"
            assert answer.extensions["luftpause"]["governed"] is False
            assert (await ask("GET", api.url)).status_code == 200
    assert [record.getMessage().count("go out ungoverned") for record in caplog.records if record.name == "luftpause.client"] == [1]


async def test_a_cancelled_call_has_asked_for_nothing_or_counts() -> None:
    held = asyncio.Event()

    async def decide(wish: dict[str, Any]) -> Granted:
        if not held.is_set():
            held.set()
            await asyncio.Event().wait()
        return await quota.grant(wish)

    async def behave(talk: Talk) -> None:
        await talk.gone.wait()

    quota = QuotaDouble(decide)
    async with governing(quota, behave) as (plane, api), httpx.AsyncClient(transport=transport(plane.url)) as client:
        waiting = asyncio.create_task(client.get(api.url))
        await held.wait()
        waiting.cancel()
        async with asyncio.timeout(60):
            while not quota.withdrawn:
                await asyncio.sleep(0.01)  # the dataplane notices by itself
        asked = asyncio.create_task(client.get(api.url))
        async with asyncio.timeout(60):
            while not api.talks:
                await asyncio.sleep(0.01)
        asked.cancel()
        (report,) = await quota.until("report")
        assert report["status"] is None


@both
async def test_a_question_whose_connection_was_closed_meanwhile_is_asked_again(kind: str) -> None:
    async def behave(talk: Talk) -> None:
        if talk.again:
            talk.reset()
        else:
            await talk.send(json_answer(b'{"settled":true}'))

    async with raw_engine(behave) as engine:
        settings = settings_of("github", engine.url, "", "worf", None, False, None, None, "wait")
        question = words.Question("report", b"{}", "worf")
        if kind == "threads":
            asking = Asking(settings, Outage(settings))
            replies = [await asyncio.to_thread(asking.ask, question) for _ in range(2)]
            asking.close()
        else:
            loops = AsyncAsking(settings, Outage(settings))
            replies = [await loops.ask(question) for _ in range(2)]
            await loops.aclose()
    assert replies == [words.Reply(200, b'{"settled":true}')] * 2
    assert [talk.head.split(b" ")[1] for talk in engine.talks] == [b"/v1/quota/github/report"] * 3
    assert engine.talks[0].header("x-luftpause-caller") == "worf"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"target": ""}, "target"),
        ({"target": "a/b"}, "target"),
        ({"target": "a", "priority": 3}, "priority"),
        ({"target": "a", "when_away": "hope"}, "when_away"),
        ({"target": "a", "wait_seconds": -1}, "wait_seconds"),
        ({"target": "a", "url": "localhost:8080"}, "url"),
    ],
)
def test_arguments_that_make_no_sense_are_named(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        QuotaTransport(**arguments)


def test_an_inner_transport_must_fit_its_client() -> None:
    class InLoop(httpx.AsyncBaseTransport):
        pass

    with httpx.Client(transport=QuotaTransport("a", inner=InLoop())) as client, pytest.raises(TypeError, match="event loops only"):
        client.get("http://127.0.0.1:9")
