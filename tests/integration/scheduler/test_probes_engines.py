"""Are health, load, models and formats of engines found out as they really are: the fake engine's, and llama.cpp's own?"""

from pathlib import Path

import httpx
import pytest

from luftpause.scheduler.core.events import Load, ProbeOutcome
from tests.integration.llama.test_llama_engine import needs_llama
from tests.integration.scheduler.test_probes import probing, replica
from tests.support.processes import running

OK = ProbeOutcome.OK


@pytest.mark.parametrize("flavour", ["sglang", "vllm", "llamacpp"])
async def test_a_fake_engine_is_found_out_without_a_turn(flavour: str, tmp_path: Path):
    async with (
        running("fake-engine", "--port", "0", "--flavour", flavour, "--speed", "20", folder=tmp_path) as fake,
        probing(replica(fake.at["http"])) as (_, found),
    ):
        event = await found.next()
        assert (event.outcome, event.models) == (OK, ("fake-1b",))
        tokens = None if flavour == "llamacpp" else 16_000
        assert event.load == Load(0, 0, tokens, None if tokens is None else 0, slots=4 if flavour == "llamacpp" else None)
        assert event.apis is not None
        assert "chat" in event.apis
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            counters = (await client.get(fake.at["http"] + "/_fake")).json()
        assert (counters["bad"], counters["refused"], counters["failed"]) == (0, 0, 0)


async def test_sglang_whose_metrics_are_off_is_read_from_its_loads(tmp_path: Path):
    command = ("fake-engine", "--port", "0", "--flavour", "sglang", "--speed", "20", "--faults", '{"gauges": "missing"}')
    async with running(*command, folder=tmp_path) as fake, probing(replica(fake.at["http"])) as (_, found):
        event = await found.next()
        assert (event.outcome, event.load) == (OK, Load(0, 0, 16_000, 0))


@pytest.mark.llama
async def test_llama_cpp_serves_all_formats_but_embeddings(tmp_path: Path):
    needs_llama()
    async with (
        running("llama-engine", "--port", "0", "--slots", "2", "--context", "2048", folder=tmp_path) as llama,
        probing(replica(llama.at["http"]), again=True) as (_, found),
    ):
        event = await found.until(lambda event: event.outcome is OK)
        assert (event.load, event.models) == (Load(0, 0, slots=2), ("smollm2",))
        assert event.apis == ("chat", "completions", "responses", "messages")
        assert (await found.next()).load == Load(0, 0, slots=2)  # none of the questions made it work
