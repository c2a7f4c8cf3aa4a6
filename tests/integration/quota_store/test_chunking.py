"""Sidecar mode: a node takes quota in advance, and grants out of it without asking."""

import asyncio
import secrets
from collections import Counter

from luftpause.scheduler.governor.store.link import SharingSettings
from luftpause.scheduler.governor.store.port import Answer, Asked, Reserve
from luftpause.scheduler.governor.store.redis_store import RedisStore
from tests.support.quota_node import TARGET, Node, eventually, node, one_window
from tests.support.redis_server import RedisServer

CHUNKS = SharingSettings(chunk_calls=20, learning_seconds=1.0)


class Counting(RedisStore):
    """Which questions it was asked."""

    def __init__(self, redis: RedisServer, prefix: str, down_seconds: float = 20.0) -> None:
        super().__init__(redis.url, prefix=prefix, answer_seconds=down_seconds / 2, down_seconds=down_seconds)
        self.asked: Counter[str] = Counter()

    async def ask(self, target: str, question: Asked) -> Answer:
        self.asked[type(question).__name__] += 1
        if isinstance(question, Reserve) and question.chunk:
            self.asked["chunk"] += 1
        return await super().ask(target, question)


def ledger(one: Node) -> tuple[float, float]:
    """Units that remain, and that are out, as the store said last."""
    known = one.sharing.link.of(TARGET).known
    assert known is not None
    return known.scopes[0].remaining, known.scopes[0].out


async def test_many_calls_need_few_questions(redis: RedisServer) -> None:
    store = Counting(redis, secrets.token_hex(4))
    async with node("a", store, one_window(4_000), settings=CHUNKS) as a:
        for _ in range(200):
            a.report(await a.reserve(priority=1))
        assert store.asked["Reserve"] <= 30
        await eventually("all is told, and what was left went back", lambda: ledger(a) == (3_800, 0))
        assert len(a.sharing.link.of(TARGET).chunks) == 0


async def test_two_nodes_with_chunks_grant_no_more_than_the_quota(redis: RedisServer) -> None:
    prefix, spec = secrets.token_hex(4), one_window(300)
    async with (
        node("a", Counting(redis, prefix), spec, settings=CHUNKS) as a,
        node("b", Counting(redis, prefix), spec, settings=CHUNKS) as b,
    ):
        waiting = [one.ask(priority=1) for _ in range(200) for one in (a, b)]
        await eventually("all is granted, also what was in chunks", lambda: len(a.granted) + len(b.granted) == 300, 40)
        await asyncio.sleep(0.6)
        assert sum(one.done() for one in waiting) == 300


async def test_p0_does_not_wait_for_a_chunk(redis: RedisServer) -> None:
    store = Counting(redis, secrets.token_hex(4))
    async with node("a", store, one_window(4_000), settings=CHUNKS) as a:
        await a.reserve(priority=0)
        assert store.asked["Reserve"] - store.asked["chunk"] == 1
        await eventually("the next ones have one", lambda: len(a.sharing.link.of(TARGET).chunks) == 1)
        before = store.asked["Reserve"]
        await a.reserve(priority=0)
        assert store.asked["Reserve"] == before


async def test_what_was_not_sent_and_what_nobody_takes_goes_back(redis: RedisServer) -> None:
    async with node("a", Counting(redis, secrets.token_hex(4)), one_window(4_000), settings=CHUNKS) as a:
        a.release(await a.reserve(priority=1))
        held = await a.reserve(priority=1)
        await eventually("only the call in flight is out", lambda: ledger(a) == (4_000, 1))
        a.report(held)
        await eventually("and then nothing", lambda: ledger(a) == (3_999, 0))


async def test_the_chunk_is_used_before_the_safe_share_while_the_store_is_away(own_redis: RedisServer) -> None:
    store = Counting(own_redis, secrets.token_hex(4), down_seconds=1.5)
    async with node("a", store, one_window(4_000), settings=CHUNKS) as a:
        a.report(await a.reserve(priority=1))
        await eventually("it is told", lambda: not len(a.sharing.link.journal))
        own_redis.pause()
        try:
            grants = [await a.reserve(priority=1) for _ in range(10)]
            held = a.sharing.link.of(TARGET).held
            assert all(held[grant.want].chunk is not None for grant in grants)
            for grant in grants:
                a.report(grant)
            await eventually("it is noticed", lambda: a.sharing.mode == "down")
        finally:
            own_redis.resume()
        await eventually("it is back", lambda: a.sharing.mode == "up")
        await eventually("all is charged once", lambda: ledger(a) == (3_989, 0))
