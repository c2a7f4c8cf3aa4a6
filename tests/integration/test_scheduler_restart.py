"""What is left of a killed scheduler when it is back: turns, homes, reserves, counts?"""

import asyncio
import contextlib
import itertools
import os
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest

from tests.support.cluster import Cluster, cluster, reserve
from tests.support.tool_agents import Agent, Turn, errors_of, percentile

KILLS = int(os.environ.get("LUFTPAUSE_TEST_KILLS", "3"))
AGENTS = 12
SLEEPERS = 4  # interactive runs that sit in a long tool call while everything else goes on
TOOL_SECONDS = 0.15
OUTAGE_SECONDS = float(os.environ.get("LUFTPAUSE_TEST_OUTAGE_SECONDS", "2"))
ENGINE = ("--decode-seconds", "0.02", "--max-running", "8", "--health-seconds", "0")
FAST = ("--health-seconds", "0", "--decode-seconds", "0.01")

pytestmark = pytest.mark.timeout(240 + 15 * KILLS)


class Load:
    """Agents one after the other in `AGENTS` places, until told to stop; each of them of another kind."""

    def __init__(self, whole: Cluster) -> None:
        self.whole = whole
        self.agents: list[Agent] = []
        self._numbers = itertools.count()
        self._stop = False
        self._tasks = [asyncio.create_task(self._place()) for _ in range(AGENTS)]

    async def _place(self) -> None:
        while not self._stop:
            number = next(self._numbers)
            agent = Agent(self.whole.http, f"Task {number}: compare the notes. [calls=4 answer=16]", headers=_headers(number))
            self.agents.append(agent)
            await agent.loop(self._way(number), TOOL_SECONDS)

    def _way(self, number: int) -> Callable[[int], str]:
        """Where its n-th turn goes: half of them change the dataplane with each turn."""
        first, step = number % 2, number // 2 % 2
        return lambda n: self.whole.url((first + n * step) % 2)

    @property
    def turns(self) -> list[Turn]:
        return [turn for agent in self.agents for turn in agent.turns]

    async def until_answered_since(self, moment: float, count: int) -> None:
        """Until so many turns that were asked after `moment` have got their head."""
        async with asyncio.timeout(60):
            while sum(turn.head > turn.asked >= moment for turn in self.turns) < count:
                await asyncio.sleep(0.005)  # the load is what this waits for

    async def finish(self) -> None:
        self._stop = True
        async with asyncio.timeout(60):
            await asyncio.gather(*self._tasks)

    async def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _headers(number: int) -> dict[str, str]:
    """A run id for a third of them, a class, a caller, or nothing at all."""
    match number % 6:
        case 0:
            return {"x-luftpause-run-id": f"stated-{number}", "x-luftpause-class": "batch", "x-luftpause-caller": "night"}
        case 1:
            return {"x-luftpause-run-id": f"stated-{number}"}
        case 2:
            return {"x-luftpause-class": "batch"}
        case 3:
            return {"x-luftpause-caller": "day"}
        case _:
            return {}


@contextlib.asynccontextmanager
async def under_load(whole: Cluster) -> AsyncGenerator[Load]:
    load = Load(whole)
    try:
        yield load
    finally:
        await load.cancel()


async def sleepers(whole: Cluster) -> list[Agent]:
    """Agents that are paused in their first tool call, on both engines and through both dataplanes."""
    found = [Agent(whole.http, f"Sleeper {n}. [calls=2 answer=8]", headers={"x-luftpause-caller": "sleeper"}) for n in range(SLEEPERS)]
    await asyncio.gather(*(agent.turn(whole.url(n % 2)) for n, agent in enumerate(found)))
    assert errors_of(found) == []
    return found


async def paused_on(whole: Cluster) -> dict[str, int]:
    seen = await whole.quiet()
    return reserve(seen)


async def kill_and_restart(whole: Cluster, load: Load) -> tuple[float, float]:
    """Seconds from the kill, and from the new scheduler's readiness, to the first turn that it placed."""
    killed = time.monotonic()
    await kill(whole)
    back = time.monotonic()
    await load.until_answered_since(killed, 1)
    first = min(turn.head for turn in load.turns if turn.head > turn.asked >= killed)
    await load.until_answered_since(killed, AGENTS)  # and then it goes on for everybody
    seen = await whole.until(lambda seen: len(seen["sessions"]) == 2)
    assert seen["events"]["Resync"] == 2, "each dataplane is to resync once"
    assert seen["events"].get("DataplaneLost", 0) == 0
    return first - killed, first - back


@pytest.mark.slow
async def test_killed_again_and_again_under_load_no_client_notices_and_all_counts_are_right(tmp_path: Path) -> None:
    async with cluster(tmp_path, engines=[ENGINE, ENGINE]) as whole:
        asleep = await sleepers(whole)
        before = await paused_on(whole)
        homes = Counter(agent.turns[0].replica for agent in asleep)
        assert before == {"engine-0": homes["engine-0"], "engine-1": homes["engine-1"]}
        async with under_load(whole) as load:
            await load.until_answered_since(0, 3 * AGENTS)
            placed_after = [await kill_and_restart(whole, load) for _ in range(KILLS)]
            await load.finish()
        after = await paused_on(whole)
        await asyncio.gather(*(agent.loop(lambda n: whole.url(n % 2), 0) for agent in asleep))
        await whole.quiet()
        everybody = [*load.agents, *asleep]
        engines = [await whole.engine_at_rest(index) for index in (0, 1)]

    assert errors_of(everybody) == []
    assert after == before, "the places of paused runs"
    torn = [agent.turns for agent in everybody if len(agent.runs) != 1 or len(agent.homes) != 1]
    assert torn == [], "each run keeps its identity and its home"
    assert len({run for agent in everybody for run in agent.runs}) == len(everybody)
    turns = [turn for agent in everybody for turn in agent.turns]
    assert sum(each["turns"] for each in engines) == sum(each["finished"] for each in engines) == len(turns), "no turn ran twice"
    for name, values in (("kill", [pair[0] for pair in placed_after]), ("ready", [pair[1] for pair in placed_after])):
        print(f"{name} → placed: p50 {percentile(values, 0.5):.2f} s, max {max(values):.2f} s over {len(values)} kills")
    print(f"{len(turns)} turns of {len(everybody)} runs, longest hold {max(turn.held_ms for turn in turns) / 1000:.2f} s")
    assert max(pair[1] for pair in placed_after) < 10


async def test_after_a_longer_outage_turns_are_served_at_once_and_places_of_paused_runs_are_kept_from_batch(tmp_path: Path) -> None:
    """A back-off that grows while nobody listens must not delay the first turns of the new scheduler, which knows what was kept."""
    async with cluster(tmp_path, engines=[FAST], replicas=[{"load": "none", "max_in_flight": 3}]) as whole:
        paused = [Agent(whole.http, f"Paused {n}. [calls=2 answer=8]") for n in range(2)]
        going_on = [Agent(whole.http, f"Going on {n}. [calls=1 answer=8]") for n in range(2)]
        await asyncio.gather(*(agent.turn(whole.url(n % 2)) for n, agent in enumerate([*paused, *going_on])))
        whole.scheduler.kill()
        await whole.scheduler.ended()
        waiting = [asyncio.create_task(agent.turn(whole.url(n))) for n, agent in enumerate(going_on)]
        await asyncio.sleep(OUTAGE_SECONDS)  # the outage itself is what is tested
        assert not any(task.done() for task in waiting)
        await whole.start_scheduler()
        back = time.monotonic()
        turns = await asyncio.gather(*waiting)
        print(f"served {max(turn.head for turn in turns) - back:.2f} s after the scheduler was back from {OUTAGE_SECONDS:g} s")
        assert max(turn.head for turn in turns) - back < 10
        assert (await whole.quiet())["events"]["Resync"] == 2, "each dataplane is to resync once"

        batch = [Agent(whole.http, f"Batch {n}. [calls=0 answer=4000]", headers={"x-luftpause-class": "batch"}) for n in range(3)]
        working = [asyncio.create_task(agent.turn(whole.url(n % 2))) for n, agent in enumerate(batch)]
        seen = await whole.until(lambda seen: whole.replica(seen, 0)["in_flight"] == 1 and seen["state"]["held"] == 2)
        assert whole.replica(seen, 0)["paused_interactive"] == 2
        assert {held["reason"] for held in seen["state"]["held_turns"]} == {"reserved"}
        again = await asyncio.gather(*(agent.turn(whole.url(1 - n)) for n, agent in enumerate(paused)))
        assert [(turn.error, turn.hold_reason) for turn in again] == [("", "")] * 2, "their places were free"
        assert not any(task.done() for task in working), "batch waits, or is at work"
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
        for agent in paused:
            await whole.http.delete(f"{whole.url()}/runs/{agent.turns[0].run}")
        await whole.quiet()
    assert errors_of([*paused, *going_on]) == []
    assert all(len(agent.runs) == 1 for agent in (*paused, *going_on))


async def kill(whole: Cluster) -> None:
    """kill -9 of the scheduler, and another one in its place."""
    whole.scheduler.kill()
    await whole.scheduler.ended()
    await whole.start_scheduler()
