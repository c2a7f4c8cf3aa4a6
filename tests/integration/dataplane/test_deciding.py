"""Does `POST /v1/decide` with labels become one interactive turn whose answer is a decision?"""

import asyncio
import json
from typing import Any

import pytest

from luftpause.dataplane.turns import Kind, TurnClass, Usage
from tests.support.fake_scheduler import FakeScheduler, hold_all, replica
from tests.support.plane import client_of, post, running_plane
from tests.support.raw_engine import Talk, chunked, json_answer, raw_engine
from tests.unit.dataplane.test_decide import completion

QUESTION = json.dumps({"model": "m", "input": "is it?", "labels": ["yes", "no"]}).encode()
COMPLETION = completion(("yes", 0.6), (" no", 0.2))


def ask(**more: str) -> bytes:
    return post(QUESTION, path="/v1/decide", **more)


async def answers(talk: Talk) -> None:
    await talk.send(json_answer(COMPLETION))


async def in_chunks(talk: Talk) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    await talk.send(head, *(chunked(COMPLETION[at : at + 50]) for at in range(0, len(COMPLETION), 50)), b"0\r\n\r\n")


async def until_close(talk: Talk) -> None:
    await talk.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n" + COMPLETION)
    talk.writer.close()


@pytest.mark.parametrize("behave", [answers, in_chunks, until_close])
async def test_labels_make_it_one_interactive_turn(behave: Any) -> None:
    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            for _ in range(2):  # the connection goes on, however the engine framed its answer
                answer = await client.ask(ask(x_luftpause_class="batch", x_luftpause_run_id="r"))
                decision = json.loads(answer.body)
                assert (answer.status, decision["label"], decision["unscored"]) == (200, "yes", [])
                assert decision["probabilities"] == pytest.approx({"yes": 0.75, "no": 0.25})
                assert answer.headers["content-type"] == "application/json"
                assert (answer.headers["x-luftpause-run-id"], answer.headers["x-luftpause-replica"]) == ("r", "a")
            await scheduler.all_over()
    asked = next(iter(scheduler.asks.values()))
    assert (asked.kind, asked.api, asked.turn_class, asked.run) == (Kind.GENERATIVE, "chat", TurnClass.INTERACTIVE, "r")
    assert scheduler.last("finished")[2:] == ("", Usage(5, 0, None), False, ())
    sent = engine.talks[0]
    assert sent.head.startswith(b"POST /v1/chat/completions HTTP/1.1")
    assert json.loads(sent.body)["max_tokens"] == 1


async def test_an_engines_error_passes_with_its_status_and_body() -> None:
    async def behave(talk: Talk) -> None:
        await talk.send(json_answer(b'{"error":{"message":"slow"}}', "429 Too Many Requests", b"retry-after: 3\r\n"))

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            answer = await client.ask(ask())
    assert (answer.status, answer.body, answer.headers["retry-after"]) == (429, b'{"error":{"message":"slow"}}', "3")
    assert scheduler.told() == ["ask", "started", "failed"]


@pytest.mark.parametrize(
    ("body", "code"), [(b'{"choices": []}', "no_logprobs"), (completion(("maybe", 0.9)), "undecided"), (b"x" * 2**21, "engine_failed")]
)
async def test_an_answer_that_decides_nothing_is_told_so(body: bytes, code: str) -> None:
    async def behave(talk: Talk) -> None:
        await talk.send(json_answer(body))

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            answer = await client.ask(ask())
            assert (answer.status, answer.error["code"], answer.headers["x-luftpause-replica"]) == (502, code, "a")
            assert (await client.ask(ask())).status == 502, "the connection goes on"
            await scheduler.all_over()


async def test_an_engine_that_dies_in_the_middle_is_an_error() -> None:
    async def behave(talk: Talk) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{")
        talk.reset()

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            answer = await client.ask(ask())
            assert (answer.status, answer.error["code"]) == (502, "engine_failed")
            assert answer.headers["x-luftpause-run-id"] == scheduler.run(scheduler.only)
            await scheduler.all_over()


async def test_a_refusal_by_the_scheduler_and_a_bad_header_reach_the_client() -> None:
    scheduler = FakeScheduler(decide=lambda it, turn: it.refuse(turn.turn, 404, "model_not_found", "no", 0))
    async with running_plane(scheduler) as plane, client_of(plane) as client:
        answer = await client.ask(ask(x_luftpause_run_id="r"))
        assert (answer.status, answer.error["code"], answer.headers["x-luftpause-run-id"]) == (404, "model_not_found", "r")
        answer = await client.ask(ask(x_luftpause_run_id="r" * 129))
        assert (answer.status, answer.error["code"]) == (400, "bad_run_id")


async def test_a_client_that_leaves_while_it_is_held_takes_its_turn_along() -> None:
    scheduler = FakeScheduler(decide=hold_all)
    async with running_plane(scheduler) as plane, client_of(plane) as client:
        await client.send(ask())
        await scheduler.until(lambda: bool(scheduler.asks))
        client.reset()
        await scheduler.all_over()
        assert scheduler.told() == ["ask", "abandon"]
        assert not plane.relay.turns


async def test_a_client_that_leaves_during_the_answer_closes_the_engines_request() -> None:
    gone = asyncio.Event()

    async def behave(talk: Talk) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{")
        await talk.gone.wait()
        gone.set()

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            await client.send(ask())
            async with asyncio.timeout(60):
                while not engine.talks:
                    await asyncio.sleep(0.01)
            client.reset()
            async with asyncio.timeout(60):
                await gone.wait()
            await scheduler.all_over()
    assert scheduler.told()[-1] == "failed"


async def test_a_stop_refuses_what_is_held() -> None:
    scheduler = FakeScheduler(decide=hold_all)
    async with running_plane(scheduler) as plane, client_of(plane) as client:
        await client.send(ask())
        await scheduler.until(lambda: bool(scheduler.asks))
        plane.relay.stop()
        answer = await client.answer()
        assert (answer.status, answer.error["code"]) == (503, "stopping")
        await scheduler.all_over()
