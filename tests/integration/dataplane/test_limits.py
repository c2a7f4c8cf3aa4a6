"""What do client and scheduler see of the limits of a hosted API?"""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from luftpause.dataplane.turns import Ask, Lease, ReturnReason, Usage
from tests.support.fake_scheduler import FakeScheduler, hosted
from tests.support.plane import BODY, STREAM_BODY, client_of, post, running_plane
from tests.support.raw_engine import STREAM_HEAD, Talk, chunked, json_answer, raw_engine

LATER = b'{"error":{"message":"Rate limit reached, try again in 20s","code":"rate_limit_exceeded"}}'
GOOD = b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":2}}'
TELLS = b"x-ratelimit-remaining-requests: 7\r\nset-cookie: secret\r\n"
AZURE = b'data: {"error":{"code":"429","message":"Requests have exceeded the call rate limit. Please retry after 37 seconds."}}\n\n'
EVENTS = (
    b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}\n\ndata: [DONE]\n\n'
)

Say = Callable[[Talk], Awaitable[None]]


def then(*says: Say) -> Say:
    """One answer after the other; the last goes on."""
    left = list(says)

    async def say(talk: Talk) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(talk)

    return say


async def limited(talk: Talk) -> None:
    await talk.send(json_answer(LATER, "429 Too Many Requests", b"retry-after: 20\r\n" + TELLS))


async def good(talk: Talk) -> None:
    await talk.send(json_answer(GOOD, more=TELLS))


async def refused_inside(talk: Talk) -> None:
    await talk.send(STREAM_HEAD + chunked(AZURE) + b"0\r\n\r\n")


async def streamed(talk: Talk) -> None:
    await talk.send(STREAM_HEAD + chunked(EVENTS) + b"0\r\n\r\n")


def again(scheduler: FakeScheduler, ask: Ask) -> None:
    """Its window has opened."""
    scheduler.place(ask.turn, "a")


async def test_a_refusal_is_hidden_and_told_and_the_turn_is_held_again() -> None:
    async with raw_engine(then(limited, good)) as engine:
        scheduler = FakeScheduler(hosted("a", engine.url), decide=again)
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            answer = await client.ask(post())
    assert (answer.status, answer.body) == (200, GOOD)
    turn = scheduler.only
    refusal = {"retry-after": "20", "x-ratelimit-remaining-requests": "7"}
    assert scheduler.facts[1:] == [
        ("started", turn),
        ("answer_told", turn, 429, refusal, LATER.decode()),
        ("give_back", turn, ReturnReason.LIMITED),
        ("started", turn),
        ("answer_told", turn, 200, {"x-ratelimit-remaining-requests": "7"}, ""),
        ("finished", turn, "stop", Usage(7, 2), False, ()),
    ]


async def test_a_refusal_inside_a_stream_is_hidden_too() -> None:
    async with raw_engine(then(refused_inside, streamed)) as engine:
        scheduler = FakeScheduler(hosted("a", engine.url), decide=again)
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            answer = await client.ask(post(STREAM_BODY))
    assert answer.status == 200
    assert b"429" not in answer.body
    assert answer.body.endswith(b"data: [DONE]\n\n")
    told = [fact for fact in scheduler.facts if fact[0] == "answer_told"]
    assert told[0][2] == 429
    assert "37 seconds" in str(told[0][4])


HI = b'data: {"choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n'
OPENROUTER = (
    b'data: {"error":{"code":429,"message":"slow down"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}\n\n'
)
BROKEN = b'data: {"error":{"message":"the model crashed","code":500}}\n\n'


@pytest.mark.parametrize(("refusal", "status"), [(AZURE, 429), (OPENROUTER, 429), (BROKEN, 200)])
@pytest.mark.parametrize("holds", [True, False])
async def test_a_refusal_after_the_first_tokens_passes_and_is_told(refusal: bytes, status: int, holds: bool) -> None:
    """The client has part of the answer, so it must see how it ended; others must not run into the same limit."""

    async def refused_late(talk: Talk) -> None:
        await talk.send(STREAM_HEAD + chunked(HI) + chunked(refusal) + b"0\r\n\r\n")

    async with raw_engine(refused_late) as engine:
        scheduler = FakeScheduler(hosted("a", engine.url, holds=holds))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            answer = await client.ask(post(STREAM_BODY))
    assert (answer.status, answer.body) == (200, HI + refusal)
    (told,) = [fact for fact in scheduler.facts if fact[0] == "answer_told"]
    assert told[2:] == (status, {}, refusal.removeprefix(b"data: ").strip().decode() if status == 429 else "")
    assert scheduler.told()[-1] == "failed"


async def test_a_refusal_that_is_the_first_event_is_told_where_refusals_pass() -> None:
    async with raw_engine(refused_inside) as engine:
        scheduler = FakeScheduler(hosted("a", engine.url, holds=False))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            answer = await client.ask(post(STREAM_BODY))
    assert (answer.status, answer.body) == (200, AZURE)
    (told,) = [fact for fact in scheduler.facts if fact[0] == "answer_told"]
    assert told[2] == 429
    assert "37 seconds" in str(told[4])


async def test_a_refusal_in_a_good_answer_that_is_no_stream_is_told() -> None:
    async def refused(talk: Talk) -> None:
        await talk.send(json_answer(LATER))

    async with raw_engine(refused) as engine:
        scheduler = FakeScheduler(hosted("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            answer = await client.ask(post())
    assert (answer.status, answer.body) == (200, LATER)
    assert scheduler.facts[2:] == [
        ("answer_told", scheduler.only, 429, {}, LATER.decode()),
        ("failed", scheduler.only, "stream_error"),
    ]


@pytest.mark.parametrize("code", ["quota_wait_too_long", "quota_out_of_credit"])
async def test_where_the_wait_is_too_long_the_client_gets_the_engines_own_refusal(code: str) -> None:
    def decide(scheduler: FakeScheduler, ask: Ask) -> None:
        if scheduler.attempts[ask.turn] == 1:
            scheduler.place(ask.turn, "a")
        else:
            scheduler.refuse(ask.turn, 429, code, "no", 20)

    async with raw_engine(limited) as engine:
        scheduler = FakeScheduler(hosted("a", engine.url), decide=decide)
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            first, second = await client.ask(post()), await client.ask(post())
    for answer in (first, second):  # on one connection: its framing is whole
        assert (answer.status, answer.body, answer.headers["retry-after"]) == (429, LATER, "20")
        assert answer.headers["x-luftpause-replica"] == "a"


async def test_a_refusal_for_another_reason_is_the_schedulers_own() -> None:
    def decide(scheduler: FakeScheduler, ask: Ask) -> None:
        if scheduler.attempts[ask.turn] == 1:
            scheduler.place(ask.turn, "a")
        else:
            scheduler.refuse(ask.turn, 409, "run_ended", "ended")

    async with raw_engine(limited) as engine:
        scheduler = FakeScheduler(hosted("a", engine.url), decide=decide)
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            answer = await client.ask(post())
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (409, "run_ended")


async def test_where_refusals_pass_they_are_told_and_unchanged() -> None:
    async with raw_engine(limited) as engine:
        scheduler = FakeScheduler(hosted("a", engine.url, holds=False))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            answer = await client.ask(post())
    assert (answer.status, answer.body, answer.headers["retry-after"]) == (429, LATER, "20")
    turn = scheduler.only
    assert scheduler.facts[2:] == [
        ("answer_told", turn, 429, {"retry-after": "20", "x-ratelimit-remaining-requests": "7"}, LATER.decode()),
        ("failed", turn, "engine_error"),
    ]


async def test_a_client_that_leaves_while_its_turn_is_held_again_leaves_nothing() -> None:
    def decide(scheduler: FakeScheduler, ask: Ask) -> None:
        if scheduler.attempts[ask.turn] == 1:
            scheduler.place(ask.turn, "a")

    async with raw_engine(limited) as engine:
        scheduler = FakeScheduler(hosted("a", engine.url), decide=decide)
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            await client.send(post())
            await scheduler.until(lambda: any(fact[0] == "give_back" for fact in scheduler.facts))
            client.reset()
            await scheduler.all_over()
    assert scheduler.told()[-2:] == ["give_back", "abandon"]


@pytest.mark.parametrize(("level", "hint"), [(0, None), (1, None), (2, "1"), (3, "1")])
async def test_how_far_the_load_is_cut(level: int, hint: str | None) -> None:
    lease = Lease(7, level, 0.5, 256, "small" if level == 3 else "")

    def decide(scheduler: FakeScheduler, ask: Ask) -> None:
        scheduler.place(ask.turn, "a", lease=lease)

    body = BODY.replace(b"{", b'{"max_tokens": 1000, ', 1)
    async with raw_engine(good) as engine:
        scheduler = FakeScheduler(hosted("a", engine.url), decide=decide)
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            answer = await client.ask(post(body))
        (sent,) = [talk.body for talk in engine.talks]
    assert answer.headers.get("x-luftpause-compact") == hint
    expected = body if level == 0 else body.replace(b"1000", b"500")
    assert sent == (expected.replace(b'"m"', b'"small"', 1) if level == 3 else expected)
    assert scheduler.asks[scheduler.only].answer_tokens_max == 1000


async def test_two_turns_that_are_refused_are_each_told_once() -> None:
    async with raw_engine(then(limited, limited, good)) as engine:
        scheduler = FakeScheduler(hosted("a", engine.url), decide=again)
        async with running_plane(scheduler) as plane, client_of(plane) as one, client_of(plane) as two:
            answers = await asyncio.gather(one.ask(post()), two.ask(post()))
    assert [answer.status for answer in answers] == [200, 200]
    for turn in scheduler.asks:
        told = scheduler.told(turn)
        assert told.count("answer_told") == told.count("started")
