"""What the scripts promise one by one: same question, same answer; fences; order of classes; lost writes are noticed."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator

import pytest
from msgspec import msgpack
from msgspec.structs import replace
from redis.asyncio import Redis

from luftpause.scheduler.governor.store.port import (
    Answer,
    Asked,
    Enable,
    Hint,
    Kept,
    Left,
    Named,
    Release,
    Renew,
    Renewed,
    Report,
    Reserve,
    Restore,
    SampleTold,
    ScopeAsked,
    StoreDownError,
    Waiting,
)  # fmt: skip
from luftpause.scheduler.governor.store.redis_store import RedisStore, keys_of
from tests.support.redis_server import RedisServer

CORE = ScopeAsked("core", "fixed", 10, 3_600)
ONE = replace(CORE, cost=1.0)


class Asker:
    """One node, at the scripts themselves."""

    def __init__(self, store: RedisStore, node: str = "n") -> None:
        self.store, self.node = store, node
        self.known: Answer | None = None
        self.numbers = 0

    async def ask(self, question: Asked, *, remember: bool = True) -> Answer:
        known = self.known
        if known is not None:
            question = replace(question, epoch=known.epoch, seq=known.seq, fence_max=known.fence_max)
        answer = await self.store.ask("t", replace(question, node=self.node, scopes=question.scopes or (CORE,)))
        if remember:
            self.known = answer
        return answer

    async def reserve(self, want: str = "", rank: int = 0, scope: ScopeAsked = ONE, seconds: float = 60.0, **more: object) -> Answer:
        self.numbers += 1
        want = want or f"{self.node}{self.numbers}"
        question = Reserve(node=self.node, want=want, caller="c", rank=rank, lease_seconds=seconds, scopes=(scope,))
        return await self.ask(replace(question, **more))


@pytest.fixture
async def store(redis: RedisServer) -> AsyncIterator[RedisStore]:
    made = RedisStore(redis.url, prefix=secrets.token_hex(4), answer_seconds=5, down_seconds=10)
    yield made
    await made.close()


@pytest.fixture
def node(store: RedisStore) -> Asker:
    return Asker(store)


async def test_asked_again_the_answer_is_the_same(node: Asker) -> None:
    first, second = await node.reserve("w"), await node.reserve("w")
    assert (first.ok, first.fence) == (second.ok, second.fence) == (True, 1)
    assert second.scopes[0].out == 1


async def test_a_report_settles_once_and_a_stale_one_only_tells_what_the_provider_said(node: Asker) -> None:
    grant = await node.reserve("w")
    assert (await node.ask(Report(node="", want="w", fence=grant.fence, actual=(Named("core", 1.0),)))).ok
    again = await node.ask(Report(node="", want="w", fence=grant.fence, actual=(Named("core", 1.0),)))
    assert not again.ok
    assert again.scopes[0].remaining == 9
    stale = Report(node="", want="w", fence=99, outcome="limited", wait_seconds=60.0, samples=(SampleTold("core", 10, 3.0, True, 100),))
    answer = await node.ask(stale)
    assert (answer.ok, answer.why, answer.blocked_seconds) == (False, "stale", 0)
    assert answer.scopes[0].remaining == 3


async def test_a_lease_of_a_dead_holder_is_charged(node: Asker) -> None:
    grant = await node.reserve("w", seconds=0.05)
    assert grant.scopes[0].out == 1
    await asyncio.sleep(0.1)
    renewed = await node.ask(Renew(node="", leases=(Renewed("w", grant.fence, 60.0),)))
    assert renewed.gone == ("w",)
    answer = await node.ask(Waiting(node=""))
    assert (answer.scopes[0].out, answer.scopes[0].remaining) == (0, 9)


async def test_a_release_gives_all_back(node: Asker) -> None:
    grant = await node.reserve("w")
    assert not (await node.ask(Release(node="", want="w", fence=grant.fence + 1))).ok
    answer = await node.ask(Release(node="", want="w", fence=grant.fence))
    assert answer.ok
    assert (answer.scopes[0].out, answer.scopes[0].remaining) == (0, 10)


async def answers_after_a_block(node: Asker) -> list[Answer]:
    """To the second of two refusals, one more while it lasts, then a P1 and two P0 within half a second; empty: it was too slow."""
    grants = [await node.reserve(f"w{at}") for at in range(2)]
    reports = [Report(node="", want=f"w{at}", fence=grants[at].fence, outcome="limited", wait_seconds=0.0) for at in range(2)]
    began = time.monotonic()
    await node.ask(reports[0])
    answers = [await node.ask(reports[1]), await node.reserve("early")]
    if time.monotonic() - began > 0.25:
        return []
    await asyncio.sleep(answers[0].blocked_seconds + 0.01)
    answers += [await node.reserve("p1", rank=1), await node.reserve("p0"), await node.reserve("p0 again")]
    return answers if time.monotonic() - began < 0.25 + 0.5 else []


async def test_after_a_block_the_classes_have_windows_of_their_own(redis: RedisServer) -> None:
    async with asyncio.timeout(60):
        answers = list[Answer]()
        while not answers:
            store = RedisStore(redis.url, prefix=secrets.token_hex(4), answer_seconds=5, down_seconds=10)
            answers = await answers_after_a_block(Asker(store))
            await store.close()
    second, early, p1, p0, again = answers
    assert 0 < second.blocked_seconds <= 0.25, "sent before the block: no second strike"
    assert (early.why, p1.why, p0.ok, again.why) == ("open", "exclusive", True, "window")


async def test_a_worse_class_yields_to_a_better_one_that_waits_elsewhere(node: Asker, store: RedisStore) -> None:
    other = Asker(store, "other")
    await node.reserve("all", scope=replace(ONE, cost=10.0))
    assert (await other.reserve("p0", waiting=(1, 0, 0))).why == "room"
    await node.ask(Release(node="", want="all", fence=1))
    assert (await node.reserve("p1", rank=1)).why == "better"
    assert (await node.reserve("mine", rank=0)).ok
    await other.ask(Waiting(node="", waiting=(0, 0, 0)))
    assert (await node.reserve("p1", rank=1)).ok


async def test_out_of_credit_stays_until_it_is_enabled(node: Asker) -> None:
    grant = await node.reserve("w")
    answer = await node.ask(Report(node="", want="w", fence=grant.fence, outcome="limited", kind="credit"))
    assert answer.disabled
    assert (await node.reserve()).why == "open"
    await node.ask(Enable(node=""))
    assert (await node.reserve()).ok


async def test_what_was_granted_without_the_store_is_charged_once(node: Asker) -> None:
    await node.reserve("first")
    told = Report(node="", want="x", fence=7, number=1, cost=(Named("core", 2.0),), actual=(Named("core", 2.0),))
    assert (await node.ask(told)).scopes[0].remaining == 8
    again = await node.ask(told)
    assert not again.ok
    assert again.scopes[0].remaining == 8
    assert (await node.ask(replace(told, number=2))).scopes[0].remaining == 6


async def test_a_part_of_a_chunk_is_settled_once(node: Asker) -> None:
    chunk = await node.reserve("chunk", scope=replace(ONE, cost=5.0))
    part = Report(node="", want="chunk", fence=chunk.fence, part_number=1, part=(Named("core", 2.0),), actual=(Named("core", 2.0),))
    for _ in range(2):
        answer = await node.ask(part)
        assert (answer.scopes[0].out, answer.scopes[0].remaining) == (3, 8)
    await node.ask(Release(node="", want="chunk", fence=chunk.fence))
    assert (await node.ask(Waiting(node=""))).scopes[0].remaining == 8


async def test_an_old_report_is_not_charged_to_the_new_window(node: Asker) -> None:
    short = ScopeAsked("core", "fixed", 10, 60.0)
    await node.ask(Report(node="", samples=(SampleTold("core", 10, 10.0, True, 59.0),), scopes=(short,)))  # the window began a second ago
    late = Report(node="", want="x", fence=1, number=1, cost=(Named("core", 4.0),), age_seconds=5.0, granted_seconds=6.0, scopes=(short,))
    assert (await node.ask(late)).scopes[0].remaining == 10
    assert (await node.ask(replace(late, number=2, age_seconds=0.5))).scopes[0].remaining == 6


async def test_an_empty_store_is_noticed_and_gets_the_leases_again(node: Asker, redis: RedisServer) -> None:
    grants = [await node.reserve(f"w{at}") for at in range(4)]
    await node.ask(Report(node="", want="w3", fence=grants[3].fence, actual=(Named("core", 1.0),)))
    empty = Asker(RedisStore(redis.url, prefix=secrets.token_hex(4), answer_seconds=5, down_seconds=10))
    try:
        empty.known = node.known
        refused = await empty.ask(replace(_reserve("w9"), learning_seconds=30.0), remember=False)
        assert (refused.ok, refused.lost, refused.why) == (False, True, "lost")
        assert refused.fence_max >= 2**20
        second = await empty.ask(_reserve("w9"), remember=False)
        assert (second.ok, second.lost, second.behind) == (False, False, True)
        kept = tuple(Kept(f"w{at}", grants[at].fence, "c", 1.0, 60.0, (Named("core", 1.0),)) for at in range(3))
        answer = await empty.ask(Restore(node="", leases=kept, lost=True, left=(Left("core", 6.0, 900.0),)))
        assert (answer.scopes[0].remaining, answer.scopes[0].out) == (9, 3)
        assert 880 < answer.scopes[0].reset_seconds <= 900
        assert answer.learning_seconds > 20
        granted = await empty.reserve("w9")
        assert granted.ok
        assert granted.fence > 2**20
    finally:
        await empty.store.close()


async def test_a_store_that_lost_its_last_writes_is_noticed(node: Asker) -> None:
    await node.reserve("w")
    assert node.known is not None
    node.known = replace(node.known, seq=node.known.seq + 3)  # as if three more had been acknowledged
    assert (await node.ask(_reserve("x"), remember=False)).lost


async def test_no_answer_is_an_error_that_says_so() -> None:
    gone = RedisStore("unix:///nowhere/redis.sock", down_seconds=0.25)
    try:
        with pytest.raises(StoreDownError):
            await gone.ask("t", Waiting(node="n", scopes=(CORE,)))
    finally:
        await gone.close()


def test_a_target_is_in_one_slot_of_a_cluster() -> None:
    assert len({key[key.index("{") : key.index("}") + 1] for key in keys_of("p", "t", "n")}) == 1


async def test_others_hear_of_a_block(store: RedisStore, node: Asker, redis: RedisServer) -> None:
    grant = await node.reserve("w")
    hints = store.hints()
    heard = asyncio.ensure_future(anext(hints))
    client = Redis.from_url(redis.url)
    try:
        while not await client.pubsub_numpat():
            await asyncio.sleep(0.02)
        for garbage in (b"", b"\xff\xfe", b"hello", msgpack.encode({"what": 5}), msgpack.encode([1])):
            await client.publish(f"{store._prefix}:{{t}}:ledger:events", garbage)
            assert await asyncio.wait_for(heard, 60) == Hint("t"), "what nobody can read is a hint to look"
            heard = asyncio.ensure_future(anext(hints))
        await node.ask(Report(node="", want="w", fence=grant.fence, outcome="limited", wait_seconds=5.0))
        hint = await asyncio.wait_for(heard, 60)
        assert (hint.target, hint.what, hint.node) == ("t", "blocked", "n")
        assert hint.seconds == pytest.approx(5.25, abs=0.01)
    finally:
        heard.cancel()
        await asyncio.gather(heard, return_exceptions=True)
        await client.aclose()


def _reserve(want: str) -> Reserve:
    return Reserve(node="n", want=want, caller="c", rank=0, lease_seconds=60.0, scopes=(ONE,))
