"""Do bodies that are read or wait stay within their memory, at nobody else's cost?"""

import asyncio
import json
from collections.abc import Callable

from tests.support.fake_scheduler import FakeScheduler, hold_all, replica
from tests.support.plane import BODY, client_of, post, running_plane
from tests.support.raw_engine import STREAM_HEAD, Talk, chunked, json_answer, raw_engine


def sized(size: int) -> bytes:
    empty = json.dumps({"model": "m", "messages": [{"role": "user", "content": ""}]})
    return empty.replace('""', json.dumps("x" * (size - len(empty)))).encode()


async def answers(talk: Talk) -> None:
    await talk.send(json_answer(b'{"choices":[]}'))


async def test_a_body_for_which_there_is_no_room_is_refused_and_the_others_wait_on() -> None:
    async with raw_engine(answers) as engine:
        scheduler = FakeScheduler(replica("a", engine.url), decide=hold_all)
        async with running_plane(scheduler, held_bytes_max=5000) as plane, client_of(plane) as first, client_of(plane) as second:
            await first.send(post(sized(3000)))
            await scheduler.until(lambda: len(scheduler.asks) == 1)
            refused = await second.ask(post(sized(3000)))
            assert (refused.status, refused.error["code"], refused.error["type"]) == (503, "no_room", "server_error")
            assert refused.headers["retry-after"] == "2"
            await second.send(post(sized(1500)))  # the same connection goes on, and what is small enough has room
            await scheduler.until(lambda: len(scheduler.asks) == 2)
            for turn in scheduler.open_turns:
                scheduler.place(turn, "a")
            assert (await first.answer()).status == 200
            assert (await second.answer()).status == 200
            assert plane.door.room.taken == 0


async def test_bodies_count_while_they_are_read_and_are_forgotten_with_their_client() -> None:
    scheduler = FakeScheduler(decide=hold_all)
    async with running_plane(scheduler, held_bytes_max=5000) as plane, client_of(plane) as slow, client_of(plane) as other:
        await slow.send(post(sized(3000))[:-100])
        await until(lambda: plane.door.room.taken > 2500)
        declared = await other.ask(b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
                                   b"content-length: 4000\r\nexpect: 100-continue\r\n\r\n")  # fmt: skip
        assert (declared.status, declared.interim) == (503, [])
        slow.reset()
        await until(lambda: plane.door.room.taken == 0)
        assert scheduler.asks == {}


async def test_a_chunked_body_is_cut_off_where_the_room_ends() -> None:
    async with running_plane(FakeScheduler(decide=hold_all), held_bytes_max=5000) as plane, client_of(plane) as client:
        head = (
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        refused = await client.ask(head + b"ffff\r\n" + b" " * 6000)
        assert refused.status == 503
        assert refused.headers["connection"] == "close"
        assert plane.door.room.taken == 0


async def test_a_body_is_let_go_when_the_answer_begins() -> None:
    go_on = asyncio.Event()

    async def streams(talk: Talk) -> None:
        await talk.send(STREAM_HEAD + chunked(b"data: {}\n\n"))
        await go_on.wait()

    async with raw_engine(streams) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler, held_bytes_max=5000) as plane, client_of(plane) as client:
            await client.send(post(sized(3000)))
            await client.until(b"data: {}")
            assert plane.door.room.taken == 0
            go_on.set()


async def test_a_caller_has_a_limit_of_its_own() -> None:
    scheduler = FakeScheduler(decide=hold_all)
    limit = 2 * len(BODY) - 1
    async with (
        running_plane(scheduler, held_bytes_per_caller_max=limit) as plane,
        client_of(plane) as one,
        client_of(plane) as two,
        client_of(plane) as three,
    ):
        await one.send(post(x_luftpause_caller="me"))
        await scheduler.until(lambda: len(scheduler.asks) == 1)
        refused = await two.ask(post(x_luftpause_caller="me"))
        assert (refused.status, refused.error["code"]) == (503, "no_room")
        await three.send(post(x_luftpause_caller="you"))
        await scheduler.until(lambda: len(scheduler.asks) == 2)


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)  # polling: a counter tells nobody
