"""Does guard's word reach real engines, and do their answers teach it?

One process with dataplane and scheduler, as `luftpause dataplane --with-scheduler` has them; the fake engine in another.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from luftpause.cli.one_process import InProcessLink
from luftpause.dataplane.app import Dataplane, plane_of
from luftpause.dataplane.metrics import LinkMetrics
from luftpause.kit.config import Config
from luftpause.scheduler import app as scheduler_app
from luftpause.scheduler.app import Running
from luftpause.scheduler.core.guard_model import Guarded
from tests.integration.fakes.asking import TOOLS, until
from tests.support.plane import Client, client_of, post
from tests.support.processes import Process, running

MODEL = "fake-1b"
BATCH = {"x_luftpause_class": "batch"}
LONG = "Hello. [calls=0 answer=2000]"
SHORT = "Hello. [calls=0 answer=5]"
LATER = "Hello. [calls=0 answer=60]"  # it ends half a second after what goes before it


@dataclass
class Whole:
    engine: httpx.AsyncClient
    plane: Dataplane
    scheduler: Running

    async def engine_has(self, count: int) -> None:
        await until(self.engine, lambda shown: shown["running"] + shown["waiting"] == count)

    async def ask(self, **body: Any) -> dict[str, Any]:
        async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
            answer = await http.post(self.plane.url + "/v1/chat/completions", json={"model": MODEL, **body})
            return answer.raise_for_status().json()


@contextlib.asynccontextmanager
async def whole(engine: Process, priority: str) -> AsyncGenerator[Whole]:
    config = Config.model_validate({
        "replicas": [{"name": "e", "url": engine.at["http"], "models": [MODEL], "priority": priority}],
        "scheduler": {"grpc_port": 0, "http_port": 0, "probe_seconds": 0.2, "policy": "guard", "dataplanes_expected": ["dataplane"]},
        "dataplane": {"port": 0},
    })
    async with (
        scheduler_app.running(config) as scheduler,
        httpx.AsyncClient(base_url=engine.at["http"], trust_env=False, timeout=60) as asking,
    ):
        link = InProcessLink("dataplane", scheduler.host, scheduler.sessions, memory_seconds=60)
        plane = plane_of(config, link, LinkMetrics(link.ledger, lambda: scheduler.host.waiting))
        link.join()
        living = asyncio.create_task(link.run())
        await plane.start()
        try:
            yield Whole(asking, plane, scheduler)
        finally:
            now = asyncio.Event()
            now.set()
            await plane.stop(now)
            living.cancel()
            await asyncio.wait({living})


def streamed(task: str) -> bytes:
    """As Chat Completions have it, and Responses."""
    message = [{"role": "user", "content": task}]
    return json.dumps({"model": MODEL, "stream": True, "messages": message, "input": message}).encode()


@pytest.mark.parametrize(("sign", "api"), [("sglang", "chat/completions"), ("vllm", "responses")])
async def test_an_engine_with_a_priority_queue_serves_a_later_interactive_turn_before_a_batch_turn(sign: str, api: str) -> None:
    options = (
        "--port",
        "0",
        "--flavour",
        sign,
        "--priority",
        sign,
        "--max-running",
        "1",
        "--health-seconds",
        "0",
        "--decode-seconds",
        "0.01",
    )
    async with running("fake-engine", *options) as engine, whole(engine, sign) as all_of_it, contextlib.AsyncExitStack() as stack:
        first, batch, interactive = [await stack.enter_async_context(client_of(all_of_it.plane)) for _ in range(3)]
        await first.send(post(streamed(LONG)))
        await all_of_it.engine_has(1)
        await batch.send(post(streamed(LATER), path=f"/v1/{api}", **BATCH))
        await all_of_it.engine_has(2)  # one may wait in the engine, where it is in nobody's way
        await interactive.send(post(streamed(SHORT), path=f"/v1/{api}"))
        await all_of_it.engine_has(3)
        ends: list[str] = []

        async def ended(name: str, client: Client) -> None:
            assert (await client.answer()).complete
            ends.append(name)

        first.reset()
        async with asyncio.timeout(60):
            await asyncio.gather(ended("batch", batch), ended("interactive", interactive))
        assert ends == ["interactive", "batch"]


async def test_what_answers_tell_is_learned() -> None:
    """Pauses by the tools that were called; tokens also of streams whose clients did not ask for them."""
    async with running("fake-engine", "--port", "0", "--speed", "20", "--health-seconds", "0") as engine, whole(engine, "off") as all_of_it:
        messages: list[Any] = [{"role": "user", "content": "Look it up. [calls=2 tool=lookup]"}]
        for _ in range(3):
            said = (await all_of_it.ask(messages=messages, tools=TOOLS))["choices"][0]["message"]
            messages.append(said)
            messages += [{"role": "tool", "tool_call_id": call["id"], "content": "found"} for call in said.get("tool_calls") or ()]
        async with client_of(all_of_it.plane) as client:  # it asks for no usage, so luftpause does
            answer = await client.ask(post(streamed(SHORT)))
        while all_of_it.scheduler.host.waiting:
            await asyncio.sleep(0)
        assert b'"usage":{' not in answer.body
        state = all_of_it.scheduler.host.state.policy_state
        assert isinstance(state, Guarded)
        assert dict(state.pauses).keys() == {"lookup"}
        assert len(state.pauses["lookup"].last) == 2
        assert state.engines["e"].context.count == 4, "of each turn the engine told its tokens"
