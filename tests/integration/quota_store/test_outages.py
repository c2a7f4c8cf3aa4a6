"""What nodes do while the store hangs, is away, or comes back empty: never more grants than the quota and its slack, and no storm after."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest

from luftpause.scheduler.governor.store.link import SharingSettings
from luftpause.scheduler.governor.store.redis_store import RedisStore
from luftpause.scheduler.quota.specs import ScopeSpec, TargetSpec
from tests.support.quota_node import TARGET, Node, eventually, node, one_window
from tests.support.redis_server import RedisServer

LEARNING = SharingSettings(learning_seconds=2.0)
ANSWER_SECONDS, DOWN_SECONDS = 0.3, 1.5  # so that only what a test does is an outage on a busy machine
LOST_SLACK = 0.2  # of the limit: what nodes granted since they were told last, if the store loses it


def store(redis: RedisServer, prefix: str) -> RedisStore:
    return RedisStore(redis.url, prefix=prefix, answer_seconds=ANSWER_SECONDS, down_seconds=DOWN_SECONDS)


@dataclass
class Load:
    """Callers on several nodes that call as fast as they may. `times`: of each grant."""

    nodes: list[Node]
    priority: int = 0
    times: list[float] = field(default_factory=list)
    ends: bool = False

    async def caller(self, own: Node) -> None:
        while not self.ends:
            grant = await own.reserve(self.priority, within_seconds=600)
            self.times.append(time.monotonic())
            await asyncio.sleep(0.005)
            own.report(grant)

    def within(self, begin: float, end: float) -> int:
        return sum(begin <= at < end for at in self.times)


@asynccontextmanager
async def cluster(
    redis: RedisServer, count: int, spec: TargetSpec, settings: SharingSettings = LEARNING
) -> AsyncIterator[list[Node]]:  # fmt: skip
    prefix = secrets.token_hex(4)
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(node(f"n{at}", store(redis, prefix), spec, settings=settings)) for at in range(count)]


@asynccontextmanager
async def loaded(nodes: list[Node], callers: int = 3, priority: int = 0) -> AsyncIterator[Load]:
    load = Load(nodes, priority)
    tasks = [asyncio.create_task(load.caller(one)) for one in nodes for _ in range(callers)]
    try:
        yield load
    finally:
        load.ends = True
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def all_are(nodes: list[Node], mode: str) -> Callable[[], bool]:
    return lambda: all(one.sharing.mode == mode for one in nodes)


async def outage(redis: RedisServer, count: int, seconds: float, limit: float) -> None:
    """A hung store under load: what all nodes grant stays within the quota; what happened meanwhile is in the ledger afterwards."""
    async with cluster(redis, count, one_window(limit)) as nodes:
        for one in nodes:
            one.report(await one.reserve())
        async with loaded(nodes) as load:
            await eventually("grants flow", lambda: len(load.times) > 20)
            redis.pause()
            try:
                await eventually("all have noticed", all_are(nodes, "down"))
                began = len(load.times)
                low = nodes[0].ask(priority=2)
                await asyncio.sleep(seconds)
                await eventually("P0 goes on within the safe share", lambda: len(load.times) > began)
                assert not low.done(), "P2 waits"
            finally:
                redis.resume()
            await eventually("all are back", lambda: all(one.sharing.mode != "down" for one in nodes), 30)
            await eventually("learning is over", all_are(nodes, "up"), 30)
            await eventually(
                "the quota is used up", lambda: len(load.times) >= limit - count - 1 or all(one.left() < 1 for one in nodes), 60
            )
            await asyncio.sleep(0.6)
        total = sum(len(one.granted) for one in nodes)
        assert total <= limit
        await eventually("all is told", lambda: all(not len(one.sharing.link.journal) for one in nodes))
        assert all(one.sharing.link.outages >= 1 for one in nodes)


async def test_a_store_that_hangs(own_redis: RedisServer) -> None:
    await outage(own_redis, 3, 1.0, 400)


@pytest.mark.chaos
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("seconds", [10.0, 30.0])
async def test_a_store_that_hangs_for_long(own_redis: RedisServer, count: int, seconds: float) -> None:
    await outage(own_redis, count, seconds, 6_000)


async def test_no_storm_comes_after_an_outage(own_redis: RedisServer) -> None:
    """Of a bucket any stretch of time sees what it holds and what flows in; the outage and the return are no exception."""
    rate, burst = 50.0, 0.2
    spec = TargetSpec(
        TARGET, (ScopeSpec("core", "bucket", rate * 60, 60, burst=burst / 60, green=0.0, red=0.0, protect=(0, 0, 0), floor=0),)
    )
    async with cluster(own_redis, 2, spec) as nodes, loaded(nodes, 3) as load:
        await eventually("grants flow", lambda: len(load.times) > 50)
        own_redis.pause()
        await eventually("all have noticed", all_are(nodes, "down"))
        own_redis.resume()
        await eventually("all are back", lambda: all(one.sharing.mode != "down" for one in nodes), 30)
        back = time.monotonic()
        await asyncio.sleep(1.5)
        first, last = load.times[0], time.monotonic()
        assert len(load.times) <= rate * (last - first) + 2 * rate * burst + 10
        assert load.within(back, back + 1.0) <= rate * 1.0 + 2 * rate * burst + 10


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.chaos)])
async def test_a_failover_to_an_empty_store(own_redis: RedisServer, count: int) -> None:
    limit = 400.0
    async with cluster(own_redis, count, one_window(limit)) as nodes:
        held = [await one.reserve() for one in nodes for _ in range(5)]
        async with loaded(nodes) as load:
            await eventually("grants flow", lambda: len(load.times) > 100)
            own_redis.replace()
            low = nodes[0].ask(priority=2)
            await eventually("all know that writes were lost", lambda: all(one.sharing.link.losses >= 1 for one in nodes), 30)
            assert not low.done(), "P2 waits until it is known what is out"
            await eventually("the quota is used up", lambda: all(one.left() < 1 for one in nodes), 60)
            await asyncio.sleep(0.6)
        total = sum(len(one.granted) for one in nodes)
        assert total <= limit * (1 + LOST_SLACK)
        after = [grant.fence for one in nodes for grant in one.granted if grant.fence > 2**20]
        assert after, "fences go on far above those that may have been lost"
        for one, grant in zip([one for one in nodes for _ in range(5)], held, strict=True):
            one.renew(grant)
        await asyncio.sleep(0.6)
        assert all(grant.want in one.sharing.link.of(TARGET).held for one in nodes[:1] for grant in held[:5]), "leases outlive the failover"


async def test_closed_grants_nothing_and_open_everything(own_redis: RedisServer) -> None:
    closed, open_ = SharingSettings(failure_mode="closed"), SharingSettings(failure_mode="open")
    spec = one_window(100)
    prefix = secrets.token_hex(4)
    async with (
        node("c", store(own_redis, prefix), spec, settings=closed) as shut,
        node("o", store(own_redis, prefix), spec, settings=open_) as wide,
    ):
        shut.report(await shut.reserve())
        await wide.reserve()
        own_redis.pause()
        try:
            refused = shut.ask()
            await wide.reserve(priority=2)
            await eventually("both have noticed", all_are([shut, wide], "down"))
            await asyncio.sleep(0.3)
            assert not refused.done()
        finally:
            own_redis.resume()
        await eventually("it waited, no more", lambda: shut.sharing.mode == "up" and wide.sharing.mode == "up")
