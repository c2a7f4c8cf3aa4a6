"""Does any client notice that the scheduler is down?"""

import asyncio
import os
import time
from pathlib import Path

import pytest

from tests.support.cluster import Cluster, cluster
from tests.support.tool_agents import Agent, errors_of

ENGINE = ("--decode-seconds", "0.01", "--health-seconds", "0")
AGENTS = 24
DOWN_SECONDS = float(os.environ.get("LUFTPAUSE_TEST_DOWN_SECONDS", "4"))
KINDS = ({}, {"x-luftpause-class": "batch"}, {"x-luftpause-run-id": "r-{}"})


async def load(whole: Cluster, agents: list[Agent], place: int, stop: asyncio.Event) -> None:
    """One agent after the other, until told to stop; the last one finishes. Some leave while they are held."""
    number = 0
    while not stop.is_set():
        number += 1
        headers = {name: value.format(f"{place}-{number}") for name, value in KINDS[place % 3].items()}
        agent = Agent(whole.http, f"Place {place}, {number}. [calls=2 answer=12]", headers=headers)
        agents.append(agent)
        await agent.loop(lambda _: whole.url(place % 2), 0.05)


async def impatient(whole: Cluster, stop: asyncio.Event) -> None:
    """Asks and leaves after 0.3 s, again and again: what is held for it must not be sent when the scheduler is back."""
    while not stop.is_set():
        agent = Agent(whole.http, "Impatient. [calls=0 answer=4000]")
        asking = asyncio.create_task(agent.turn(whole.url()))
        await asyncio.wait({asking}, timeout=0.3)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


@pytest.mark.slow
@pytest.mark.timeout(240 + DOWN_SECONDS)
async def test_a_scheduler_that_is_down_costs_no_client_an_error(tmp_path: Path) -> None:
    limits = [{"load": "none", "max_in_flight": 8}] * 2
    stop, agents = asyncio.Event(), list[Agent]()
    async with cluster(tmp_path, engines=[ENGINE, ENGINE], replicas=limits) as whole:
        loads = [asyncio.create_task(load(whole, agents, place, stop)) for place in range(AGENTS)]
        leaving = asyncio.create_task(impatient(whole, stop))
        async with asyncio.timeout(60):
            while sum(bool(turn.ended) for agent in agents for turn in agent.turns) < AGENTS:
                await asyncio.sleep(0.02)  # until all are at work
        whole.scheduler.kill()
        down = time.monotonic()
        await whole.scheduler.ended()
        await asyncio.sleep(DOWN_SECONDS)  # the outage itself is what is tested
        waiting = [turn for agent in agents for turn in agent.turns if not turn.ended]
        for plane in whole.planes.values():
            assert (await whole.http.get(plane.at["http"] + "/ready")).status_code == 200, "it stays where clients find it"
        await whole.start_scheduler()
        back = time.monotonic()
        async with asyncio.timeout(60):
            while not all(turn.ended for turn in waiting):
                await asyncio.sleep(0.02)  # until everything that waited was served
        stop.set()
        async with asyncio.timeout(60):
            await asyncio.gather(*loads)
        await leaving
        seen = await whole.quiet()
        engines = [await whole.engine_at_rest(index) for index in (0, 1)]
    print(f"{len(waiting)} turns waited for {back - down:.1f} s; the last began {max(turn.head for turn in waiting) - back:.2f} s after")
    assert len(waiting) == AGENTS
    assert errors_of(agents) == []
    assert all(len(agent.runs) == 1 for agent in agents), "whoever sends no header is still known"
    assert max(turn.head for turn in waiting) - back < 20
    assert seen["events"]["Resync"] == 2
    served = sum(len(agent.turns) for agent in agents)
    counts = {name: sum(each[name] for each in engines) for name in ("turns", "finished", "aborted")}
    assert counts["finished"] == served, "nothing was sent twice"
    assert counts["turns"] == served + counts["aborted"]
