"""Is a full, lying or deserted engine met with holding, and is every turn counted out again however it ended?"""

import asyncio
import contextlib
import os
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest
import pytest_asyncio

from tests.support.cluster import Cluster, cluster, turns_in
from tests.support.processes import port_of
from tests.support.tool_agents import Agent, errors_of

TURNS = int(os.environ.get("LUFTPAUSE_TEST_TURNS", "200"))
POURED = 240  # turns; eight of them go out between two reports
NARROW = ("--max-running", "4", "--max-waiting", "2", "--health-seconds", "0", "--decode-seconds", "0.005")

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Cluster]:
    """An SGLang and a vLLM with a short queue, and an engine with a long one; each with a model of its own."""
    engines = [("--flavour", flavour, "--model", flavour, *NARROW) for flavour in ("sglang", "vllm")]
    engines.append(("--model", "deep", "--max-running", "4", "--health-seconds", "0", "--decode-seconds", "0.005"))
    async with cluster(
        tmp_path_factory.mktemp("admission"), engines=engines, scheduler={"policy": "original", "probe_seconds": 0.5}
    ) as made:
        yield made


# ---- the engine's own queue ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("index", "model"), [(0, "sglang"), (1, "vllm")])
async def test_an_engine_that_refuses_before_it_shows_a_queue_leads_to_holding_never_to_dead(
    whole: Cluster, index: int, model: str
) -> None:
    """It says that nobody waits, and has room for two."""
    await whole.order(index, claim_waiting=0)
    before, probed = await whole.engine(index), (await whole.status())["events"]["ReplicaProbed"]
    ill = whole.scheduler.logged().count("replica is now unhealthy")
    agents = [Agent(whole.http, f"{model} {n}. [calls=0 answer=20]", model=model) for n in range(30)]
    await asyncio.gather(*(agent.turn(whole.url(n % 2)) for n, agent in enumerate(agents)))
    await whole.order(index, claim_waiting=None)
    assert errors_of(agents) == []
    after = await whole.engine(index)
    assert after["finished"] - before["finished"] == 30
    refused = after["refused"] - before["refused"]
    seen = await whole.quiet()
    reports = (seen["events"]["ReplicaProbed"] - probed) // 3  # there are three replicas
    assert 0 < refused < max(60, 8 * (reports + 2)), "it was full, and was not asked again and again"
    assert seen["state"]["counters"]["returned/busy"] >= refused
    assert whole.scheduler.logged().count("replica is now unhealthy") == ill
    print(f"{model}: {refused} times full, longest hold {max(agent.turns[0].held_ms for agent in agents):.0f} ms")


# ---- gauges that lie ----------------------------------------------------------------------------------------------


async def test_gauges_that_are_frozen_when_the_engine_is_idle_do_not_keep_it_idle(whole: Cluster) -> None:
    await whole.order(1, claim_running=24, claim_waiting=3)
    await whole.until(lambda seen: whole.replica(seen, 1)["waiting"] == 3)
    begun = time.monotonic()
    agents = [Agent(whole.http, f"Idle {n}. [calls=0 answer=60]", model="vllm") for n in range(12)]
    working = [asyncio.create_task(agent.turn(whole.url(n % 2))) for n, agent in enumerate(agents)]
    await whole.until(lambda seen: whole.replica(seen, 1)["in_flight"] >= 4)  # as many as it runs
    print(f"an idle engine with frozen gauges is full again after {time.monotonic() - begun:.2f} s")
    await asyncio.gather(*working)

    # And where they claim a queue but nobody running, turns still go one by one.
    await whole.order(1, claim_running=0)
    await whole.until(lambda seen: whole.replica(seen, 1)["running"] == 0)
    more = [Agent(whole.http, f"One by one {n}. [calls=0 answer=4]", model="vllm") for n in range(4)]
    await asyncio.gather(*(agent.turn(whole.url()) for agent in more))
    await whole.order(1, claim_running=None, claim_waiting=None)
    assert errors_of([*agents, *more]) == []
    await whole.quiet()


async def test_gauges_that_stay_at_zero_while_turns_pour_in_are_not_taken_for_endless_room(whole: Cluster) -> None:
    """An engine that shows neither running nor waiting for its first two seconds; batch turns pour in, then an interactive one."""
    await whole.order(2, claim_running=0, claim_waiting=0)
    await whole.until(lambda seen: whole.replica(seen, 2)["running"] == 0)
    batch = [
        Agent(whole.http, f"Batch {n}. [calls=0 answer=300]", model="deep", headers={"x-luftpause-class": "batch"}) for n in range(POURED)
    ]
    before = await whole.status()
    working = [asyncio.create_task(agent.turn(whole.url(n % 2))) for n, agent in enumerate(batch)]
    most = 0
    begun = time.monotonic()
    while time.monotonic() - begun < 1.2 or (most <= 8 and time.monotonic() - begun < 60):  # two periods, if it has time for two reports
        seen = await whole.status()
        reports = (seen["events"]["ReplicaProbed"] - before["events"]["ReplicaProbed"]) // 3  # there are three replicas
        most = max(most, whole.replica(seen, 2)["in_flight"])
        assert whole.replica(seen, 2)["in_flight"] <= 8 * (reports + 2), "at most burst_turns_max, 8, between two reports"
        await asyncio.sleep(0.02)
    assert most > 8, "it was asked for more than it runs"
    first = Agent(whole.http, "Now. [calls=0 answer=2]", model="deep")
    interactive = asyncio.create_task(first.turn(whole.url()))
    came = before["events"].get("TurnRequested", 0) + POURED + 1
    seen = await whole.until(lambda seen: seen["events"]["TurnRequested"] == came and not seen["state"]["held_by_class"][0]["held"])
    assert seen["state"]["held_by_class"][1]["held"] > 0, "batch that came before it still waits"
    await whole.order(2, claim_running=None, claim_waiting=None)
    for task in working:
        task.cancel()
    await asyncio.gather(*working, return_exceptions=True)
    turn = await interactive
    assert not turn.error
    print(f"{POURED} turns with gauges at zero: {most} in flight at most; the interactive one was held for {turn.held_ms:.0f} ms")
    await whole.quiet()


# ---- counting out -------------------------------------------------------------------------------------------------


class Leaver:
    """One client that ends its turn in one of many ways."""

    def __init__(self, whole: Cluster, number: int) -> None:
        self.whole = whole
        self.agent = Agent(
            whole.http, f"Leaver {number}. [calls={int(number % 30 == 1)} answer=30]", model="vllm", headers=_headers(number)
        )
        self.base = whole.url(number % 2)
        self.number = number

    async def until_done(self) -> None:
        await self.agent.turn(self.base)

    async def after(self, seconds: float) -> None:
        """Leaves at any moment: while it is held, while it is placed, before the head, or in the middle."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.agent.turn(self.base)

    async def at_first_bytes(self) -> None:
        begun = asyncio.Event()
        turn = asyncio.create_task(self.agent.turn(self.base, begun.set))
        await asyncio.wait({turn, asyncio.create_task(begun.wait())}, return_when=asyncio.FIRST_COMPLETED)
        turn.cancel()
        await asyncio.gather(turn, return_exceptions=True)

    async def after_done_without_close(self) -> None:
        """Resets its connection as soon as [DONE] is there."""
        body = b'{"model":"vllm","stream":true,"messages":[{"role":"user","content":"Hello. [calls=0 answer=6]"}]}'
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(self.base))
        head = "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"[DONE]")
        writer.transport.abort()

    async def and_ends_its_run(self) -> None:
        """`DELETE` of the run while its turn is held or in flight."""
        turn = asyncio.create_task(self.agent.turn(self.base))
        await asyncio.sleep(0.05 * (self.number % 4))
        await self.whole.http.delete(f"{self.base}/runs/leaver-{self.number}")
        await turn


def _headers(number: int) -> dict[str, str]:
    classes = {0: "batch", 1: "interactive"}
    return {
        "x-luftpause-run-id": f"leaver-{number}",
        "x-luftpause-caller": f"caller-{number % 7}",
        "x-luftpause-class": classes[number % 2],
    }


def way(leaver: Leaver, chance: random.Random) -> Callable[[], Awaitable[None]]:
    ways: list[Callable[[], Awaitable[None]]] = [
        leaver.until_done,
        lambda: leaver.after(chance.uniform(0, 0.05)),
        lambda: leaver.after(chance.uniform(0, 2)),
        leaver.at_first_bytes,
        leaver.after_done_without_close,
        leaver.and_ends_its_run,
    ]
    return ways[leaver.number % len(ways)]


async def test_two_hundred_turns_that_end_in_every_way_leave_nothing_counted(whole: Cluster) -> None:
    """Clients that leave at every stage, engines that reset, refuse and stall, ended runs, and a scheduler that is killed meanwhile."""
    chance = random.Random(7)
    before = await whole.engine(1)
    gate = asyncio.Semaphore(40)

    async def one(number: int) -> None:
        async with gate:
            await way(Leaver(whole, number), chance)()

    await whole.order(1, die_after_tokens=3, die_times=TURNS // 10, error_after_tokens=0, error_times=TURNS // 20)
    first = [asyncio.create_task(one(number)) for number in range(TURNS // 2)]
    await whole.until(lambda seen: seen["state"]["counters"].get("placed", 0) > 0 and turns_in(seen) > 0)
    await asyncio.gather(*first)
    await whole.order(1, refuse_status=500, refuse_times=TURNS // 20, stall_after_tokens=2, stall_seconds=0.5, stall_times=TURNS // 20)
    second = [asyncio.create_task(one(number)) for number in range(TURNS // 2, TURNS)]
    await whole.until(lambda seen: turns_in(seen) >= 8)
    whole.scheduler.kill()
    await whole.scheduler.ended()
    await whole.start_scheduler()
    await asyncio.gather(*second)
    seen = await whole.quiet()
    engine = await whole.engine_at_rest(1)
    assert engine["turns"] - before["turns"] >= TURNS // 4
    ended = Counter({name: engine[name] - before[name] for name in ("finished", "aborted", "failed", "refused")})
    assert ended["aborted"] > 0
    assert ended["failed"] > TURNS // 10
    assert ended.total() == engine["turns"] - before["turns"], "each turn that an engine got has ended there in one way"
    print(f"{TURNS} turns: at the engine {dict(ended)}; counters since the restart {seen['state']['counters']}")
    last = Agent(whole.http, "Last. [calls=0 answer=2]", model="vllm")
    turn = await last.turn(whole.url())
    assert not turn.error
    assert turn.held_ms < 5000
