"""Does a turn reach its engine and its answer the client, unchanged?"""

import json

from tests.support.fake_scheduler import FakeScheduler, place_soon, replica
from tests.support.plane import BODY, STREAM_BODY, client_of, get, post, running_plane
from tests.support.raw_engine import Talk, json_answer, raw_engine

ANSWER = json.dumps({
    "id": "x", "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 2}},
}).encode()  # fmt: skip


async def answers(talk: Talk) -> None:
    await talk.send(json_answer(ANSWER))


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
            again = await client.ask(post())
            assert again.status == 200
            assert engine.connections == 1
