"""What becomes of a run that is ended, and of turns whose dataplane is (O35)? Real processes; the dataplane is stopped at the end."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from luftpause.kit.serve import listen
from tests.integration.dataplane.world import PLACES, World, body_of, world
from tests.support.cluster import turns_in
from tests.support.plane import Answer, Client, get, post
from tests.support.processes import port_of

RUN = {"x_luftpause_run_id": "mine"}
ENDLESS = body_of("Hello. [calls=0 answer=90000]")  # a quarter of an hour


async def end_run(there: World, run: str) -> int:
    client = await there.client()
    await client.send(get(f"/v1/runs/{run}", "DELETE", connection="close"))
    answer = await client.answer("DELETE", seconds=60)
    client.close()
    return answer.status


async def streaming(there: World, stack: contextlib.AsyncExitStack, **headers: Any) -> Client:
    client = await there.client()
    stack.callback(client.reset)
    await client.send(post(ENDLESS, **headers))
    await client.until(b"data: ")
    return client


async def asked(client: Client, data: bytes) -> Answer:
    try:
        return await client.ask(data, seconds=60)
    finally:
        client.writer.transport.abort()


async def test_a_run_that_is_ended_and_a_dataplane_that_is_stopped_leave_nothing_behind(tmp_path: Path) -> None:
    async with world(tmp_path) as there, contextlib.AsyncExitStack() as stack:
        flying = await streaming(there, stack, **RUN)
        for _ in range(PLACES - 1):
            await streaming(there, stack)
        held = asyncio.create_task(asked(await there.client(), post(body_of(), **RUN)))
        other = asyncio.create_task(asked(await there.client(), post(body_of(), x_luftpause_run_id="other")))
        await there.held(2)

        assert await end_run(there, "mine") == 204
        answer = await held
        assert (answer.status, answer.error["code"], answer.headers["x-luftpause-run-id"]) == (409, "run_ended", "mine")
        await there.held(1)
        flying.raw.clear()
        await flying.until(b"data: ")  # what an engine has goes on
        assert await end_run(there, "unknown") == 204

        plane = there.whole.planes["dp-0"]
        before = (await there.status())["events"].get("TurnFailed", 0)
        plane.terminate()
        answer = await other
        assert (answer.status, answer.error["code"], answer.headers["retry-after"]) == (503, "stopping", "1")
        health = await there.client()
        await health.send(get("/health", connection="close"))
        assert (await health.answer("GET", seconds=60)).status == 200
        health.close()
        plane.terminate()  # nobody waits for the streams any more
        assert await plane.ended() == 0, plane.logged()
        seen = await there.whole.until(lambda seen: turns_in(seen) == 0)
        assert seen["events"]["TurnFailed"] - before == PLACES, "each stream's end was told before it left"
        assert "Traceback" not in plane.logged()
        listen("127.0.0.1", port_of(there.plane), option="dataplane.port").close()  # which can be taken again at once
