"""Does luftpause, and not llama.cpp, hold what is more than its slots?"""

import asyncio
import itertools
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.integration.llama.test_llama_engine import needs_llama
from tests.support.processes import running
from tests.support.tool_agents import percentile

SLOTS, CLIENTS = 4, 12
SAMPLES = int(os.environ.get("LUFTPAUSE_TEST_SAMPLES", "40"))  # of the steady state: a slow machine comes to it late
LOAD_SECONDS_MAX = 60.0
TOKENS = 16

pytestmark = [pytest.mark.llama, pytest.mark.timeout(300)]


class Samples:
    """What llama.cpp and the scheduler said at the same time, more or less: (deferred there, held here, its cap)."""

    def __init__(self) -> None:
        self.taken: list[tuple[int, int, int | None]] = []

    async def take(self, http: httpx.AsyncClient, engine: str, scheduler: str) -> None:
        while True:
            page = (await http.get(f"{engine}/metrics")).text  # between two of its steps; until then this waits
            deferred = int(float(re.findall(r"^llamacpp:requests_deferred (\S+)", page, flags=re.MULTILINE)[0]))
            state = (await http.get(f"{scheduler}/status")).json()["state"]
            self.taken.append((deferred, state["held"], state["replicas"][0]["cap"]))
            await asyncio.sleep(0.1)  # sampling

    def steady(self) -> list[tuple[int, int, int | None]]:
        """From when a queue was reported and what had come before it has run out."""
        capped = next((n for n, (_, _, cap) in enumerate(self.taken) if cap is not None), len(self.taken))
        return list(itertools.dropwhile(lambda sample: sample[0] > 1, self.taken[capped:]))


async def client(http: httpx.AsyncClient, base_url: str, number: int, over: Callable[[], bool]) -> list[float]:
    """Short turns, one after the other; seconds of each."""
    took: list[float] = []
    while not over():
        begun = time.monotonic()
        task = [{"role": "user", "content": f"Animal {number}, part {len(took)}: a story."}]
        body = {"model": "smollm2", "messages": task, "max_tokens": TOKENS, "ignore_eos": True}
        answer = await http.post(f"{base_url}/chat/completions", json=body, headers={"x-luftpause-run-id": f"client-{number}"})
        assert answer.status_code == 200, answer.text
        took.append(time.monotonic() - begun)
    return took


async def at_rest(http: httpx.AsyncClient, scheduler: str, turns: int) -> dict[str, Any]:
    """The state once the scheduler has heard of so many ends: a client has its answer a moment before that."""
    async with asyncio.timeout(60):
        while True:
            state = (await http.get(scheduler + "/status")).json()["state"]
            if state["counters"].get("finished/idle", 0) >= turns:
                return state
            await asyncio.sleep(0.02)  # polling


@pytest.mark.slow
@pytest.mark.alone
async def test_with_four_slots_and_twelve_clients_luftpause_holds_the_rest_and_llama_cpp_defers_next_to_nothing(tmp_path: Path) -> None:
    needs_llama()
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with (
        running("llama-engine", "--port", "0", "--slots", str(SLOTS), "--context", "4096", folder=tmp_path) as engine,
        httpx.AsyncClient(timeout=120, trust_env=False, limits=limits) as http,
    ):
        config = tmp_path / "scheduler.yaml"
        replica = {"name": "llama", "url": engine.at["http"], "load": "llamacpp"}
        own = {"grpc_port": 0, "http_port": 0, "start_grace_seconds": 0}
        config.write_text(yaml.safe_dump({"replicas": [replica], "scheduler": own}))
        async with running("scheduler", "--config", str(config), folder=tmp_path) as scheduler:
            config = tmp_path / "dataplane.yaml"
            config.write_text(yaml.safe_dump({"dataplane": {"port": 0, "scheduler": scheduler.at["grpc"]}}))
            async with running("dataplane", "--config", str(config), folder=tmp_path) as dataplane:
                samples, begun = Samples(), time.monotonic()

                def over() -> bool:
                    return len(samples.steady()) >= SAMPLES or time.monotonic() - begun > LOAD_SECONDS_MAX

                sampling = asyncio.create_task(samples.take(http, engine.at["http"], scheduler.at["http"]))
                try:
                    took = await asyncio.gather(*(client(http, dataplane.at["http"] + "/v1", n, over) for n in range(CLIENTS)))
                finally:
                    sampling.cancel()
                seconds = time.monotonic() - begun
                shown = await at_rest(http, scheduler.at["http"], sum(len(run) for run in took))
    turns = sorted(each for run in took for each in run)
    steady = samples.steady()[:SAMPLES]  # later ones are of the last turns, behind which nobody waits
    deferred = [each for each, _, _ in steady]
    print(f"{len(turns)} turns in {seconds:.1f} s: p50 {percentile(turns, 0.5):.1f} s, max {turns[-1]:.1f} s")
    print(f"(deferred, held, cap): {samples.taken}")
    assert shown["counters"]["finished/idle"] == len(turns)
    assert min(len(run) for run in took) > 0
    assert [(each["in_flight"], each["health"]) for each in shown["replicas"]] == [(0, "healthy")]
    assert len(steady) >= 10, "too short to speak of a steady state"
    # A second one only while the next report is on its way: the one before was from before llama.cpp had seen the turn.
    # How long that while is depends on how busy the machine is; who waits waits here all the same.
    assert max(deferred) <= 2
    assert sum(held for _, held, _ in steady) > 3 * sum(deferred)
    assert max(held for _, held, _ in steady) >= CLIENTS - SLOTS - 2, "the rest was held here"
