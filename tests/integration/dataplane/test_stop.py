"""What happens to turns, clients and the process when the dataplane is told to stop? (O35)"""

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from tests.support.fake_scheduler import FakeScheduler, hold_all, replica
from tests.support.plane import STREAM_BODY, client_of, get, post, running_plane
from tests.support.processes import running, start
from tests.support.raw_engine import STREAM_HEAD, Talk, chunked, json_answer, raw_engine

TEXT = b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}]}\n\n'
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'


async def test_held_turns_are_refused_new_ones_too_and_running_ones_finish() -> None:
    go = asyncio.Event()

    async def behave(talk: Talk) -> None:
        await talk.send(STREAM_HEAD + chunked(TEXT))
        await go.wait()
        await talk.send(chunked(END) + b"0\r\n\r\n")

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as one, client_of(plane) as two, client_of(plane) as three:
            await one.send(post(STREAM_BODY))
            await one.until(b"hi")
            scheduler.decide = hold_all
            await two.send(post())
            await three.ask(get("/health"))
            await scheduler.until(lambda: len(scheduler.asks) == 2)
            stopping = asyncio.create_task(plane.stop(asyncio.Event()))
            held = await two.answer()
            new = await three.ask(post())
            assert not stopping.done()
            async with client_of(plane) as four:
                ready = await four.ask(get("/ready"))
            go.set()
            await one.until(b"0\r\n\r\n")
            await asyncio.wait_for(stopping, 60)
    for answer in (held, new):
        assert (answer.status, answer.error["code"], answer.headers["retry-after"]) == (503, "stopping", "1")
        assert answer.headers["connection"] == "close"
    assert ready.status == 503
    assert json.loads(ready.body)["stopping"] is True
    assert not scheduler.open_turns
    assert sorted(fact[0] for fact in scheduler.facts if fact[0] in {"abandon", "finished"}) == ["abandon", "finished"]


@pytest.mark.parametrize("dies", [False, True])
async def test_a_turn_that_an_engine_did_not_take_meanwhile_is_refused_and_not_held(dies: bool) -> None:
    go = asyncio.Event()

    async def behave(talk: Talk) -> None:
        await go.wait()
        if dies:
            talk.reset()
            return
        await talk.send(json_answer(b'{"error":{"message":"The request queue is full.","code":503}}', "503 Service Unavailable"))

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            await client.send(post(STREAM_BODY))
            await scheduler.until(lambda: "started" in scheduler.told())
            scheduler.decide = hold_all
            stopping = asyncio.create_task(plane.stop(asyncio.Event()))
            while not plane.door.stopping:
                await asyncio.sleep(0)
            go.set()
            answer = await client.answer()
            await asyncio.wait_for(stopping, 60)
    assert (answer.status, answer.error["code"], answer.headers["retry-after"]) == (503, "stopping", "1")
    assert scheduler.told() == ["ask", "started", "give_back", "abandon"]


@pytest.mark.parametrize("how", ["grace", "now"])
async def test_a_stream_that_does_not_finish_is_broken_off(how: str) -> None:
    async def behave(talk: Talk) -> None:
        await talk.send(STREAM_HEAD + chunked(TEXT))
        await talk.gone.wait()

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        grace = 0.3 if how == "grace" else 30
        async with running_plane(scheduler, stop_grace_seconds=grace) as plane, client_of(plane) as client:
            await client.send(post(STREAM_BODY))
            await client.until(b"hi")
            now = asyncio.Event()
            stopping = asyncio.create_task(plane.stop(now))
            if how == "now":
                now.set()
            rest = await client.closed()
            await asyncio.wait_for(stopping, 60)
            assert not rest.endswith(b"0\r\n\r\n")
            await asyncio.wait_for(engine.talks[0].gone.wait(), 60)
    assert scheduler.last("failed")[2] == "stopped"
    assert not scheduler.open_turns


async def test_a_client_that_does_not_read_does_not_hold_up_the_end() -> None:
    async def behave(talk: Talk) -> None:
        await talk.send(STREAM_HEAD)
        while not talk.gone.is_set():
            await talk.send(chunked(b"data: " + b"x" * 60_000 + b"\n\n"))

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler, stop_grace_seconds=0.2) as plane, client_of(plane) as client:
            client.writer.transport.pause_reading()
            await client.send(post(STREAM_BODY))
            await scheduler.until(lambda: "started" in scheduler.told())
            await asyncio.wait_for(plane.stop(asyncio.Event()), 60)
    assert not scheduler.open_turns


def config_in(folder: Path) -> str:
    path = folder / "luftpause.yaml"
    path.write_text("dataplane:\n  port: 0\n  scheduler: 127.0.0.1:9\n")
    return str(path)


async def until_it_holds_a_turn(url: str) -> None:
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http, asyncio.timeout(60):
        while 'held_turns{class="interactive"} 1.0' not in (await http.get(url + "/metrics")).text:
            await asyncio.sleep(0.02)  # another process's state; nothing tells when it changes


@pytest.mark.parametrize("signals", [1, 2])
async def test_the_process_ends_in_good_order(tmp_path: Path, signals: int) -> None:
    process = await start("dataplane", "--config", config_in(tmp_path), folder=tmp_path)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(process.at["http"].rpartition(":")[2]))
        writer.write(post())  # held: there is no scheduler
        await until_it_holds_a_turn(process.at["http"])
        for _ in range(signals):
            process.terminate()
        head = await asyncio.wait_for(reader.read(65_536), 60)
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1\r\n" in head
        writer.close()
        assert await process.ended() == 0, process.logged()
    finally:
        process.kill()
    assert "Traceback" not in process.logged()


async def test_the_process_is_alive_but_not_ready_without_a_scheduler(tmp_path: Path) -> None:
    async with running("dataplane", "--config", config_in(tmp_path), folder=tmp_path) as process:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(process.at["http"].rpartition(":")[2]))
        writer.write(get("/health", connection="close"))
        assert (await asyncio.wait_for(reader.read(), 60)).startswith(b"HTTP/1.1 200 ")
        writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", int(process.at["http"].rpartition(":")[2]))
        writer.write(get("/ready", connection="close"))
        assert (await asyncio.wait_for(reader.read(), 60)).startswith(b"HTTP/1.1 503 ")
        writer.close()
