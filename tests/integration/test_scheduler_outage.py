"""What do clients notice, and what is counted, when a dataplane dies, or it or the scheduler stands still?"""

import asyncio
import contextlib
import os
import re
import signal
import time
from collections.abc import AsyncGenerator
from typing import Self

import pytest
import pytest_asyncio

from luftpause.kit.protocol import SILENCE_SECONDS
from tests.support.cluster import Cluster, Json, cluster, reserve
from tests.support.processes import Process
from tests.support.tool_agents import Agent, errors_of

ENGINE = ("--decode-seconds", "0.02", "--health-seconds", "0")
LOST_SECONDS = 2.0
STILL_SECONDS = float(os.environ.get("LUFTPAUSE_TEST_STILL_SECONDS", "4.5"))
SLACK_SECONDS = 10.0

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Cluster]:
    limits = [{"load": "none", "max_in_flight": 4}] * 2
    async with cluster(
        tmp_path_factory.mktemp("outage"), engines=[ENGINE, ENGINE], replicas=limits, scheduler={"dataplane_lost_seconds": LOST_SECONDS}
    ) as made:
        yield made


@contextlib.asynccontextmanager
async def standing_still(process: Process) -> AsyncGenerator[None]:
    """Neither dead nor alive: its sockets are open, and nobody is behind them."""
    process.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.process.send_signal(signal.SIGCONT)


class Load:
    """Agents in closed loops at some dataplanes until the block ends; then those under way finish."""

    def __init__(self, whole: Cluster, name: str, planes: tuple[int, ...], agents: int) -> None:
        self.agents: list[Agent] = []
        self._whole, self._name, self._planes = whole, name, planes
        self._stop = False
        self._tasks = [asyncio.create_task(self._place(n)) for n in range(agents)]

    async def _place(self, place: int) -> None:
        plane = self._planes[place % len(self._planes)]
        number = 0
        while not self._stop:
            number += 1
            headers = {"x-luftpause-class": "batch"} if place % 3 == 2 else {}
            agent = Agent(self._whole.http, f"{self._name} {place}-{number}. [calls=2 answer=20]", headers=headers)
            self.agents.append(agent)
            await agent.loop(lambda _: self._whole.url(plane), 0.1)

    def ended_since(self, moment: float) -> int:
        return sum(turn.ended > moment for agent in self.agents for turn in agent.turns)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop = True
        try:
            async with asyncio.timeout(60):
                await asyncio.gather(*self._tasks)
        finally:
            for task in self._tasks:
                task.cancel()

    async def until(self, number: int) -> None:
        """So many further turns have ended."""
        moment = time.monotonic()
        async with asyncio.timeout(30):
            while self.ended_since(moment) < number:
                await asyncio.sleep(0.01)  # the load is what this waits for


async def engine_turns(whole: Cluster) -> tuple[int, int, int]:
    """How many turns the engines got, finished, and lost their client in."""
    engines = [await whole.engine_at_rest(index) for index in (0, 1)]
    return tuple(sum(each[name] for each in engines) for name in ("turns", "finished", "aborted"))


def silences(process: Process) -> int:
    return len(re.findall(r"nothing (?:heard|came) for 4 s|(?:read nothing|was read) for 4 s", process.logged()))


def outages(process: Process) -> int:
    return process.logged().count("no session with the scheduler")


def expiries(seen: Json) -> int:
    return seen["state"]["counters"].get("expired", 0)


async def test_a_dataplane_that_is_killed_keeps_its_places_for_a_while_and_the_others_clients_notice_nothing(whole: Cluster) -> None:
    before = await engine_turns(whole)
    expired = expiries(await whole.status())
    async with Load(whole, "other", (0,), 4) as others:
        await others.until(4)
        lost = [Agent(whole.http, f"Lost {n}. [calls=0 answer=400]") for n in range(2)]
        begun = [asyncio.Event() for _ in lost]
        streaming = [asyncio.create_task(agent.turn(whole.url(1), begun[n].set)) for n, agent in enumerate(lost)]
        await asyncio.gather(*(event.wait() for event in begun))
        whole.planes["dp-1"].kill()
        killed = time.monotonic()
        await asyncio.gather(*streaming)
        assert all(agent.turns[0].error for agent in lost)
        await whole.until(lambda seen: [each["dataplane"] for each in seen["sessions"]] == ["dp-0"])
        await whole.until(lambda seen: expiries(seen) == expired + 2, LOST_SECONDS + SLACK_SECONDS)
        took = time.monotonic() - killed
        print(f"places of a killed dataplane are free after {took:.2f} s (dataplane_lost_seconds {LOST_SECONDS:g})")
        assert took > 0.9 * LOST_SECONDS
        await others.until(4)
    assert errors_of(others.agents) == []
    await whole.quiet()
    assert max(turn.held_ms for agent in others.agents for turn in agent.turns) < 5000
    await whole.start_plane("dp-1")
    again = Agent(whole.http, "Again. [calls=0 answer=2]")
    await again.turn(whole.url(1))
    assert not errors_of([again])
    turns, finished, aborted = (now - then for now, then in zip(await engine_turns(whole), before, strict=True))
    assert (turns, aborted) == (finished + 2, 2), "the engines stopped what nobody reads"


async def test_a_scheduler_that_stands_still_is_an_outage_on_both_sides_and_no_turn_runs_twice(whole: Cluster) -> None:
    said = {name: silences(plane) for name, plane in whole.planes.items()}
    before = await engine_turns(whole)
    async with Load(whole, "still", (0, 1), 6) as load:
        await load.until(6)
        kept = reserve(await whole.status())
        async with standing_still(whole.scheduler):
            await asyncio.sleep(STILL_SECONDS)
            async with asyncio.timeout(SLACK_SECONDS):
                while any(silences(plane) == said[name] for name, plane in whole.planes.items()):
                    await asyncio.sleep(0.02)  # polling a log
            went_on = time.monotonic()
            waiting = sum(not turn.head for agent in load.agents for turn in agent.turns)
        assert waiting == 6, "held, all of them"
        await load.until(12)
        back = min(turn.head for agent in load.agents for turn in agent.turns if turn.head > went_on)
        print(f"placed again {back - went_on:.2f} s after the scheduler went on; kept before: {kept}")
    assert errors_of(load.agents) == []
    assert all(len(agent.runs) == len(agent.homes) == 1 for agent in load.agents)
    seen = await whole.quiet()
    assert set(reserve(seen).values()) == {0}
    assert all(silences(plane) == said[name] + 1 for name, plane in whole.planes.items()), "each dataplane called it an outage, once"
    after = await engine_turns(whole)
    asked = sum(len(agent.turns) for agent in load.agents)
    assert (after[0] - before[0], after[1] - before[1]) == (asked, asked)


@pytest.mark.slow
async def test_a_dataplane_that_stands_still_is_an_outage_on_both_sides_and_its_turns_are_counted_again(whole: Cluster) -> None:
    said, missed = outages(whole.planes["dp-1"]), silences(whole.scheduler)
    before = await engine_turns(whole)
    expired = expiries(await whole.status())
    async with Load(whole, "others", (0,), 3) as others, Load(whole, "frozen", (1,), 3) as frozen:
        await frozen.until(3)
        long = Agent(whole.http, "Long. [calls=0 answer=250]")  # still in flight when the dataplane goes on
        begun = asyncio.Event()
        streaming = asyncio.create_task(long.turn(whole.url(1), begun.set))
        await begun.wait()
        async with standing_still(whole.planes["dp-1"]):
            stopped = time.monotonic()
            await whole.until(lambda seen: len(seen["sessions"]) == 1, SILENCE_SECONDS + SLACK_SECONDS)
            print(f"an outage after {time.monotonic() - stopped:.2f} s of silence")
            # Its turns stay counted for a while and then expire.
            await whole.until(lambda seen: expiries(seen) > expired, LOST_SECONDS + SLACK_SECONDS)
        # It goes on, and what it still has in flight is counted again.
        await whole.until(lambda seen: len(seen["sessions"]) == 2)
        seen = await whole.until(lambda seen: seen["events"]["Resync"] > seen["events"]["DataplaneLost"] + 1)
        assert long.turns[0].ended or seen["state"]["runs"]["generating"]["interactive"] >= 1
        await frozen.until(6)
        await streaming
    assert errors_of([*others.agents, *frozen.agents, long]) == []
    assert all(len(agent.runs) == 1 for agent in (*others.agents, *frozen.agents))
    assert max(turn.held_ms for agent in others.agents for turn in agent.turns) < 5000
    await whole.quiet()
    assert silences(whole.scheduler) == missed + 1
    assert outages(whole.planes["dp-1"]) == said + 1
    after = await engine_turns(whole)
    asked = sum(len(agent.turns) for agent in (*others.agents, *frozen.agents, long))
    assert (after[0] - before[0], after[1] - before[1]) == (asked, asked), "no turn was sent twice"
