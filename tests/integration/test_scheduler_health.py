"""What becomes of runs whose engine dies, hangs, is only busy, or comes back?"""

import asyncio
import signal
import time
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.support.cluster import Cluster, cluster, reserve
from tests.support.tool_agents import Agent, errors_of

PROBE_SECONDS = 0.5
ENGINE = ("--decode-seconds", "0.02", "--health-seconds", "0")
SLACK_SECONDS = 10.0  # of a machine on which all this runs at the same time, with other things

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Cluster]:
    """Two engines of which each test takes one down and up again."""
    limits = [{"load": "none", "max_in_flight": 3}] * 2
    async with cluster(
        tmp_path_factory.mktemp("health"), engines=[ENGINE, ENGINE], replicas=limits, scheduler={"probe_seconds": PROBE_SECONDS}
    ) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def whole(shared: Cluster) -> AsyncGenerator[Cluster]:
    """Both engines are well and no run is known, whatever the test before left behind."""
    for index, engine in enumerate(shared.engines):
        if engine.process.returncode is not None:
            await shared.start_engine(index)
    await shared.until(lambda seen: shared.health_of(seen) == {"healthy"})
    yield shared
    await shared.quiet()
    await shared.until(lambda seen: set(reserve(seen).values()) == {0})  # nothing is kept for runs that are over


def index_of(replica: str) -> int:
    return int(replica.removeprefix("engine-"))


async def paused_runs(whole: Cluster, number: int, task: str = "Look it up. [calls=3 answer=8]") -> list[Agent]:
    agents = [Agent(whole.http, f"{n}: {task}") for n in range(number)]
    await asyncio.gather(*(agent.turn(whole.url(n % 2)) for n, agent in enumerate(agents)))
    assert errors_of(agents) == []
    assert {agent.turns[0].replica for agent in agents} == {"engine-0", "engine-1"}
    return agents


async def all_turn(whole: Cluster, agents: list[Agent]) -> float:
    """The next turn of each; the longest time until a head came."""
    turns = await asyncio.gather(*(agent.turn(whole.url(n % 2)) for n, agent in enumerate(agents)))
    assert errors_of(agents) == []
    return max(turn.head - turn.asked for turn in turns)


async def over(whole: Cluster, agents: list[Agent]) -> None:
    assert errors_of(agents) == []
    for agent in agents:
        (run,) = agent.runs
        assert (await whole.http.delete(f"{whole.url()}/runs/{run}")).status_code == 204


async def seconds_until_it_gets_turns(whole: Cluster, replica: str) -> float:
    """From now until a new run is placed there."""
    begun = time.monotonic()
    async with asyncio.timeout(20):
        for number in range(1000):
            pair = [Agent(whole.http, f"New {number}-{n}. [calls=0 answer=2]") for n in range(2)]  # at the same time: one for each
            await asyncio.gather(*(agent.turn(whole.url(n)) for n, agent in enumerate(pair)))
            assert errors_of(pair) == []
            if any(agent.turns[0].replica == replica for agent in pair):
                break
    return time.monotonic() - begun


async def test_runs_of_a_closed_port_move_within_one_period_and_stay_where_they_went(whole: Cluster) -> None:
    agents = await paused_runs(whole, 4)
    lost = agents[0].turns[0].replica
    dead = index_of(lost)
    # One more run of that engine is held there, because it is full when it dies.
    long = [Agent(whole.http, f"Long {n}. [calls=0 answer=400]") for n in range(6)]
    begun = [asyncio.Event() for _ in long]
    streaming = [
        asyncio.create_task(agent.turn(whole.url(n % 2), begun[n].set)) for n, agent in enumerate(long)
    ]  # both engines are full with these
    await asyncio.gather(*(event.wait() for event in begun))
    held = asyncio.create_task(agents[0].turn(whole.url(0)))
    await whole.until(lambda seen: [turn["reason"] for turn in seen["state"]["held_turns"]] == ["sticky"])
    killed = time.monotonic()
    whole.engines[dead].kill()
    await whole.until(lambda seen: whole.replica(seen, dead)["health"] == "unhealthy", PROBE_SECONDS + SLACK_SECONDS)
    print(f"closed port: unhealthy after {time.monotonic() - killed:.2f} s")
    broken = [agent for agent in long if agent.turns[0].replica == lost]
    await asyncio.gather(*(task for task, agent in zip(streaming, long, strict=True) if agent in broken))
    assert len(broken) == 3
    assert all(agent.turns[0].status == 200 and agent.turns[0].error for agent in broken), "their bytes had gone out: nothing is repeated"
    others = [agent for agent in agents[1:] if agent.turns[0].replica == lost]
    for task in streaming:
        task.cancel()  # so that the other engine has room
    await asyncio.gather(*streaming, return_exceptions=True)
    await held
    longest = await all_turn(whole, others)
    assert longest < SLACK_SECONDS
    assert {agent.turns[1].replica for agent in (agents[0], *others)} == {f"engine-{1 - dead}"}

    await whole.start_engine(dead)
    took = await seconds_until_it_gets_turns(whole, lost)
    print(f"back: the first turn after {took:.2f} s")
    assert took < 2 * PROBE_SECONDS + SLACK_SECONDS
    moved = [agents[0], *others]
    await all_turn(whole, moved)
    assert {agent.turns[2].replica for agent in moved} == {f"engine-{1 - dead}"}, "where the prefix is now"
    await over(whole, agents)


async def test_a_run_whose_engine_refuses_goes_on_elsewhere_before_any_probe_has_seen_it(whole: Cluster) -> None:
    agents = await paused_runs(whole, 2)
    lost = agents[0].turns[0].replica
    whole.engines[index_of(lost)].kill()
    await whole.engines[index_of(lost)].ended()
    longest = await all_turn(whole, agents)
    print(f"refused: elsewhere after {longest:.2f} s")
    assert longest < SLACK_SECONDS
    assert len({agent.turns[1].replica for agent in agents}) == 1
    seen = await whole.status()
    assert whole.replica(seen, index_of(lost))["paused_interactive"] == 0, "what was kept for it there is given back"

    # Both dead, and nobody asks: the next probe sees it. Then turns are held, without limit, until one is back.
    whole.engines[1 - index_of(lost)].kill()
    killed = time.monotonic()
    await whole.until(lambda seen: whole.health_of(seen) == {"unhealthy"}, PROBE_SECONDS + SLACK_SECONDS)
    print(f"closed port without traffic: unhealthy after {time.monotonic() - killed:.2f} s")
    waiting = [asyncio.create_task(agent.turn(whole.url(n))) for n, agent in enumerate(agents)]
    await whole.until(lambda seen: seen["state"]["held"] == 2)
    await whole.start_engine(index_of(lost))
    turns = await asyncio.wait_for(asyncio.gather(*waiting), 60)
    assert {turn.replica for turn in turns} == {lost}
    await over(whole, agents)


async def test_runs_of_an_engine_that_hangs_move_after_three_periods_and_it_gets_turns_again_when_it_is_back(whole: Cluster) -> None:
    agents = await paused_runs(whole, 4)
    lost = agents[0].turns[0].replica
    hung = index_of(lost)
    process = whole.engines[hung].process
    answered = time.monotonic() - whole.replica(await whole.status(), hung)["probed_seconds_ago"]
    process.send_signal(signal.SIGSTOP)  # its kernel goes on accepting connections, and nobody answers
    try:
        swallowed = asyncio.create_task(agents[0].turn(whole.url(0)))  # sent before anybody can know
        await whole.until(lambda seen: whole.replica(seen, hung)["health"] == "unhealthy", 10 * PROBE_SECONDS + SLACK_SECONDS)
        took = time.monotonic() - (answered + PROBE_SECONDS)
        print(f"hung: unhealthy {took:.2f} s after the first probe that got no answer, periods of {PROBE_SECONDS:g} s")
        assert took < 4 * PROBE_SECONDS + SLACK_SECONDS  # three, and the one that was under way when it stopped
        longest = await all_turn(whole, agents[1:])
        assert longest < SLACK_SECONDS
        assert {agent.turns[1].replica for agent in agents[1:]} == {f"engine-{1 - hung}"}
        assert not swallowed.done()
    finally:
        process.send_signal(signal.SIGCONT)
    took = await seconds_until_it_gets_turns(whole, lost)
    print(f"back: the first turn after {took:.2f} s")
    assert took < 2 * PROBE_SECONDS + SLACK_SECONDS
    await swallowed
    await over(whole, agents)


async def test_a_busy_engine_whose_health_check_times_out_is_not_dead_while_it_delivers(whole: Cluster) -> None:
    agents = await paused_runs(whole, 2)
    busy = agents[0].turns[0].replica
    before = whole.scheduler.logged().count("replica is now unhealthy")
    long = [Agent(whole.http, f"Long {n}. [calls=0 answer=200]") for n in range(2)]
    streaming = [asyncio.create_task(agent.turn(whole.url(n))) for n, agent in enumerate(long)]
    await whole.until(lambda seen: whole.replica(seen, index_of(busy))["in_flight"] == 1)
    await whole.order(index_of(busy), health_seconds=60)
    begun = time.monotonic()
    while time.monotonic() - begun < 4.5 * PROBE_SECONDS:  # more than three periods: the time that is tested
        assert whole.health_of(await whole.status()) == {"healthy"}
        await asyncio.sleep(0.05)
    await all_turn(whole, agents)
    assert len(agents[0].homes) == 1, "a run that is paused there stays"
    await whole.order(index_of(busy), health_seconds=0)
    await asyncio.gather(*streaming)
    assert not errors_of(long)
    await whole.until(lambda seen: whole.replica(seen, index_of(busy))["probed_seconds_ago"] < 0.5)
    assert whole.scheduler.logged().count("replica is now unhealthy") == before
    await over(whole, agents)
