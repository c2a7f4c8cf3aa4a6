"""How much of an answer waits here, whatever an engine sends without end?"""

import asyncio

import pytest

from tests.support.fake_scheduler import FakeScheduler, replica
from tests.support.plane import STREAM_BODY, client_of, post, running_plane
from tests.support.raw_engine import STREAM_HEAD, Talk, chunked, json_answer, raw_engine

TEXT = b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\n'
EXTENDED = b"1;%b\r\n\n\r\n" % (b"x" * 4000)  # a byte that costs 4,000


@pytest.mark.parametrize(
    "first", [chunked(b"\n" * 9000), chunked(b"\r\n\r\n") * 4000, EXTENDED * 10], ids=["blank", "pieces", "extensions"]
)
async def test_the_head_does_not_wait_for_an_event_for_ever(first: bytes) -> None:
    seen = asyncio.Event()

    async def behave(talk: Talk) -> None:
        await talk.send(STREAM_HEAD, first)
        await seen.wait()
        await talk.send(chunked(TEXT) + b"0\r\n\r\n")

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            await client.send(post(STREAM_BODY))
            await client.until(b"HTTP/1.1 200")
            seen.set()
            await client.until(b"0\r\n\r\n")
    assert first + chunked(TEXT) + b"0\r\n\r\n" in client.raw, "and every byte passes"
    assert scheduler.told() == ["ask", "started", "first_token", "finished"]


async def test_an_empty_answer_with_trailers_without_end_is_502() -> None:
    async def behave(talk: Talk) -> None:
        await talk.send(STREAM_HEAD + b"0\r\n")
        while not talk.gone.is_set():
            await talk.send(b"x: y\r\n" * 100)

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler, failover=False) as plane, client_of(plane) as client:
            answer = await client.ask(post(STREAM_BODY))
            await asyncio.wait_for(engine.talks[0].gone.wait(), 60)
    assert (answer.status, answer.error["message"]) == (502, "engine a: sent a malformed answer (endless trailers)")


@pytest.mark.parametrize("connection", ["keep-alive", "close"])
async def test_an_answer_that_nobody_takes_is_thrown_away_with_its_connection(connection: str) -> None:
    """The engine is done, and what is left waits here: not for ever."""
    big = json_answer(b'{"x":"' + b"y" * 12_000_000 + b'"}')

    async def behave(talk: Talk) -> None:
        await talk.send(big)

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler, slow_reader_seconds=0.5) as plane, client_of(plane) as client:
            client.writer.transport.pause_reading()
            await client.send(post(connection=connection))
            await scheduler.all_over(60)
            async with asyncio.timeout(60):
                while plane._server.server_state.connections:
                    await asyncio.sleep(0.05)  # the sweep sees it within 250 ms of the limit
