"""Several nodes on one Redis: each grants from one pool, in one order."""

import asyncio
import secrets
from math import inf, nan

import pytest
from msgspec.structs import replace

from luftpause.scheduler.governor.store.port import Waiting
from luftpause.scheduler.governor.store.redis_store import RedisStore
from luftpause.scheduler.quota.decisions import Grant
from luftpause.scheduler.quota.events import TargetEnabled
from luftpause.scheduler.quota.model import Share
from luftpause.scheduler.quota.samples import Sample
from luftpause.scheduler.quota.specs import TargetSpec
from tests.support.quota_node import TARGET, eventually, node, one_window
from tests.support.redis_server import RedisServer

SLOW_SECONDS = 20.0  # for an answer of the store: this machine is busy


def store(redis: RedisServer, prefix: str) -> RedisStore:
    return RedisStore(redis.url, prefix=prefix, answer_seconds=SLOW_SECONDS / 2, down_seconds=SLOW_SECONDS)


@pytest.fixture
def prefix() -> str:
    return secrets.token_hex(4)


async def test_three_nodes_grant_exactly_the_quota(redis: RedisServer, prefix: str) -> None:
    spec = one_window(90)
    async with (
        node("a", store(redis, prefix), spec) as a,
        node("b", store(redis, prefix), spec) as b,
        node("c", store(redis, prefix), spec) as c,
    ):
        nodes = [a, b, c]
        waiting = [one.ask() for one in nodes for _ in range(50)]
        await eventually("all are granted", lambda: sum(len(one.granted) for one in nodes) >= 90)
        await eventually("every node knows that nothing is left", lambda: all(one.left() < 1 for one in nodes))
        await asyncio.sleep(0.6)  # two more beats: nobody grants more
        assert sum(len(one.granted) for one in nodes) == 90
        fences = [grant.fence for one in nodes for grant in one.granted]
        assert len(set(fences)) == 90
        a.release(a.granted[0])
        await eventually("what is released is granted to whoever waits", lambda: sum(len(one.granted) for one in nodes) == 91)
        assert sum(one.done() for one in waiting) == 91


async def test_a_block_that_one_node_hears_of_holds_for_all(redis: RedisServer, prefix: str) -> None:
    spec = one_window(1_000)
    async with node("a", store(redis, prefix), spec) as a, node("b", store(redis, prefix), spec) as b:
        grant = await a.reserve()
        b.release(await b.reserve())
        a.report(grant, "limited", wait_seconds=30.0)
        breaker = lambda: b.governor.state.targets[TARGET].breaker  # noqa: E731
        await eventually("the other node is blocked", lambda: breaker().open_until > b.governor.now + 20)
        answer = b.ask()
        await asyncio.sleep(0.3)
        assert not answer.done()


async def test_what_an_operator_enables_on_one_node_is_enabled_on_all(redis: RedisServer, prefix: str) -> None:
    spec = one_window(1_000)
    async with node("a", store(redis, prefix), spec) as a, node("b", store(redis, prefix), spec) as b:
        grant = await a.reserve()
        b.release(await b.reserve())
        a.report(grant, "limited", wait_seconds=1e9, samples=(Sample("core", 1, 0.0, 1e9),))
        breaker = lambda: b.governor.state.targets[TARGET].breaker  # noqa: E731
        await eventually("the other node is blocked", lambda: breaker().open_until > b.governor.now + 80_000)
        answer = b.ask()
        await asyncio.sleep(0.3)  # its beats hear of the block
        assert not answer.done()
        a.governor.post(TargetEnabled(a.governor.now, TARGET))
        probe = await asyncio.wait_for(answer, SLOW_SECONDS)
        assert isinstance(probe, Grant)
        scope = b.governor.state.targets[TARGET].scopes["core"]
        assert (scope.limit, scope.blocked_until) == (1_000, -inf)
        b.report(probe)
        for one in (a, b, a):
            one.report(await one.reserve(within_seconds=SLOW_SECONDS))


async def test_an_operators_word_is_kept_while_the_store_is_down(redis: RedisServer, prefix: str) -> None:
    spec = one_window(1_000)
    quick = RedisStore(redis.url, prefix=prefix, answer_seconds=0.3, down_seconds=1.0)
    async with node("a", quick, spec) as a, node("b", store(redis, prefix), spec) as b:
        a.report(await a.reserve(), "limited", wait_seconds=1e9)
        breaker = lambda: b.governor.state.targets[TARGET].breaker  # noqa: E731
        waiting = b.ask()
        await eventually("the other node is blocked", lambda: breaker().open_until > b.governor.now + 80_000)
        redis.pause()
        try:
            await eventually("the store is missed", lambda: a.sharing.mode == "down")
            a.governor.post(TargetEnabled(a.governor.now, TARGET))
        finally:
            redis.resume()
        assert isinstance(await asyncio.wait_for(waiting, SLOW_SECONDS), Grant)


async def test_a_lower_class_waits_for_a_better_one_on_another_node(redis: RedisServer, prefix: str) -> None:
    spec = one_window(10)
    async with node("a", store(redis, prefix), spec) as a, node("b", store(redis, prefix), spec) as b:
        grants = [await a.reserve() for _ in range(10)]
        low, high = a.ask(priority=1), b.ask(priority=0)
        await eventually("the store knows who waits", lambda: b.sharing.link.of(TARGET).nodes == 2)
        await asyncio.sleep(0.4)
        b_waits = b.governor.state.targets[TARGET].waiters
        assert len(b_waits) == 1
        a.release(grants[0])
        await asyncio.wait_for(high, 60)
        assert not low.done()


async def test_background_leaves_what_p0_is_forecast_to_want_on_another_node(redis: RedisServer, prefix: str) -> None:
    spec = one_window(100)
    async with node("a", store(redis, prefix), spec) as a, node("b", store(redis, prefix), spec) as b:
        for _ in range(10):  # in ten minutes, so sixty in the hour
            b.release(await b.reserve())
        forecast = lambda: a.governor.state.targets[TARGET].scopes["core"].elsewhere[0]  # noqa: E731
        a.release(await a.reserve())
        await eventually("the other node knows", lambda: forecast() > 9)
        low = [a.ask(priority=1) for _ in range(60)]
        await eventually("what is left is P0's", lambda: 35 <= sum(one.done() for one in low) <= 42)
        await asyncio.sleep(0.6)  # two more beats: nobody grants more
        assert sum(one.done() for one in low) <= 42
        for _ in range(50):
            await b.reserve()


async def test_what_the_owner_of_a_reservation_wants_on_one_node_is_left_to_it_on_the_other(redis: RedisServer, prefix: str) -> None:
    """The owner calls on `b` alone, the others on `a` alone; a third node tells of it what it has heard itself: nothing."""
    spec = replace(one_window(100), reservations=(("b", 0.4),))
    async with (
        node("a", store(redis, prefix), spec) as a,
        node("b", store(redis, prefix), spec) as b,
        node("c", store(redis, prefix), spec) as c,
    ):
        for _ in range(20):  # in ten minutes, so 120 in the hour: more than its 40
            b.release(await b.reserve(1))
        b.report(await b.reserve(1))
        for one in (a, c):
            one.release(await one.reserve(1))
        share = lambda: a.governor.state.targets[TARGET].scopes["core"].shares.get("b", Share())  # noqa: E731
        await eventually("the other node knows", lambda: share().demand_elsewhere[1] > 19 and share().used_elsewhere == 1)
        low = [a.ask(1) for _ in range(80)]
        await eventually("what is left is the owner's", lambda: sum(one.done() for one in low) == 60)
        await asyncio.sleep(0.6)  # two more beats: nobody grants more
        assert sum(one.done() for one in low) == 60
        for _ in range(39):
            await b.reserve(1)


async def test_reports_of_all_nodes_count_in_one_ledger(redis: RedisServer, prefix: str) -> None:
    spec = one_window(100)
    async with node("a", store(redis, prefix), spec) as a, node("b", store(redis, prefix), spec) as b:
        for one in (a, b):
            for _ in range(5):
                one.report(await one.reserve())
        await asyncio.gather(a.ask(), a.ask(), b.ask())
        await eventually("both know of all", lambda: a.left() == b.left() == 87)
        b.report(await b.reserve(), samples=(Sample("core", 100, 40, 500),))
        waiting = a.ask(priority=2)
        await eventually("what the provider told one, the other knows", lambda: a.left() <= 37)
        waiting.cancel()


async def test_a_lease_that_one_node_granted_can_be_reported_to_another(redis: RedisServer, prefix: str) -> None:
    spec = one_window(10)
    async with node("a", store(redis, prefix), spec) as a, node("b", store(redis, prefix), spec) as b:
        grant = await a.reserve()
        b.report(grant)
        waiting = [b.ask() for _ in range(10)]
        await eventually("nine more fit", lambda: len(b.granted) == 9)
        await eventually("it is charged", lambda: b.governor.state.targets[TARGET].scopes["core"].remaining == 9)
        assert sum(one.done() for one in waiting) == 9


USED = [  # what the reporter says, and how much of a limit of 50 is charged to a call that reserved 2
    ((("core", 3.0),), 3.0),
    ((("requests", 3.0),), 3.0),
    ((("core", -7.0),), 0.0),
    ((("core", -inf),), 0.0),
    ((("core", 1e9),), 50.0),
    ((("core", inf),), 50.0),
    ((("core", nan),), 2.0),
    ((("elsewhere", 7.0),), 2.0),
    ((), 2.0),
]


@pytest.mark.parametrize("reporter", ["a", "b"])
async def test_what_a_call_used_is_believed_as_far_whichever_node_is_told(redis: RedisServer, prefix: str, reporter: str) -> None:
    spec = TargetSpec(TARGET, (replace(one_window(50).scopes[0], counts=("requests",)),))
    for at, (actual, charged) in enumerate(USED):
        one, other = store(redis, f"{prefix}{at}"), store(redis, f"{prefix}{at}")
        async with node("a", one, spec) as a, node("b", other, spec) as b:
            told = a if reporter == "a" else b
            told.report(await a.reserve(cost=2.0), actual=actual)
            await eventually("it is told", lambda link=told.sharing.link: not len(link.journal))
            answer = await told.sharing.link.ask(TARGET, Waiting(node=told.name))
            assert (50.0 - answer.scopes[0].remaining, answer.scopes[0].out) == (charged, 0.0), actual
