"""What does a node do when something goes wrong on the way to the store that nobody foresaw: in the store's client, or in its own code?"""

import secrets
from collections.abc import AsyncIterator, Callable

import pytest

from luftpause.scheduler.governor.store import chunking, claims, link
from luftpause.scheduler.governor.store.link import SharingSettings
from luftpause.scheduler.governor.store.port import Answer, Asked, Hint, Report, Reserve
from luftpause.scheduler.governor.store.redis_store import RedisStore
from tests.support.quota_node import Node, eventually, node, one_window
from tests.support.redis_server import RedisServer

QUICK = SharingSettings(learning_seconds=0.2)
LINE = "a fault in the background; please report it with this line"


class Flawed:
    """A store whose client raises what `flaw` says, as if it had a fault; `deaf`: its hints do."""

    def __init__(self, redis: RedisServer, *, deaf: bool = False) -> None:
        self.flaw: Callable[[Asked], Exception | None] = lambda _: None
        self._deaf = deaf
        self._store = RedisStore(redis.url, prefix=secrets.token_hex(4), answer_seconds=2.0, down_seconds=10.0)

    async def ask(self, target: str, question: Asked) -> Answer:
        if (error := self.flaw(question)) is not None:
            raise error
        return await self._store.ask(target, question)

    async def hints(self) -> AsyncIterator[Hint]:
        if self._deaf:
            raise AttributeError("'NoneType' object has no attribute 'read_response'")
        async for hint in self._store.hints():
            yield hint

    async def close(self) -> None:
        await self._store.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries follow each other soon."""
    for name, seconds in (("RETRY_SECONDS", 0.02), ("RETRY_SECONDS_MAX", 0.05), ("FAULT_SECONDS_MAX", 0.05)):
        monkeypatch.setattr(link, name, seconds)


def faults(one: Node, work: str = "store") -> float:
    return one.governor.faults.counter.value((work,))


async def test_a_fault_of_the_client_takes_the_store_for_down_and_is_logged_once(
    redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    store = Flawed(redis)
    async with node("n", store, one_window(100), settings=QUICK) as one:
        one.report(await one.reserve())
        store.flaw = lambda _: IndexError("pop from an empty deque")
        one.report(await one.reserve())  # within the safe share
        await eventually("it was tried again and again", lambda: faults(one) > 3)
        assert one.sharing.mode == "down"
        background = one.ask(priority=2)
        store.flaw = lambda _: None
        await eventually("the store is back", lambda: one.sharing.mode == "up")
        await eventually("whoever waited is served", background.done)
        await eventually("all is told", lambda: not len(one.sharing.link.journal) and one.left() == 97)
    (line,) = [record for record in caplog.records if record.message == LINE]
    assert line.exc_info is not None
    assert "the shared ledger is taken for down" in str(getattr(line, "fields", ""))


async def test_one_end_of_a_call_that_the_store_can_not_be_told_keeps_no_other_from_being_told(redis: RedisServer) -> None:
    store = Flawed(redis)
    async with node("n", store, one_window(100), settings=QUICK) as one:
        bad, good = await one.reserve(lease_seconds=30), await one.reserve()
        store.flaw = lambda asked: OverflowError("int too big") if isinstance(asked, Report) and asked.want == bad.want else None
        one.report(bad)
        one.report(good)
        await eventually("the store is back", lambda: one.sharing.mode == "up" and not len(one.sharing.link.journal))
        assert faults(one) == 5
        await one.reserve()


async def test_a_fault_of_its_own_while_it_asks_sends_the_call_back_into_the_order(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    store = Flawed(redis)
    async with node("n", store, one_window(100), settings=QUICK) as one:
        with monkeypatch.context() as patched:
            patched.setattr(claims, "waiting_of", lambda *_: 1 / 0)
            asked = one.ask(priority=2)
            await eventually("it was noticed", lambda: faults(one) > 0)
            assert not asked.done()
        await eventually("it is granted in the end", asked.done)
        assert asked.result() == one.granted[0]


async def test_a_fault_of_its_own_behind_an_answer_costs_neither_the_governor_nor_the_next_call(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    store = Flawed(redis)
    async with node("n", store, one_window(100), settings=QUICK) as one:
        first = await one.reserve()
        with monkeypatch.context() as patched:
            patched.setattr(claims, "used", lambda *_: 1 / 0)
            one.report(first)
        assert faults(one) == 1
        await eventually("the store is back", lambda: one.sharing.mode == "up")
        one.report(await one.reserve())


async def test_a_grant_that_can_not_be_asked_about_is_none(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Flawed(redis)
    async with node("n", store, one_window(100), settings=QUICK) as one:
        with monkeypatch.context() as patched:
            patched.setattr(one.sharing.link, "start", lambda _: 1 / 0)
            patched.setattr(one.sharing, "_reserve", lambda *_: None)
            asked = one.ask()
            assert faults(one) == 1
            assert not asked.done()
        await eventually("it is granted in the end", asked.done)


async def test_who_waits_for_a_chunk_does_not_wait_for_a_fault(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Flawed(redis)
    async with node("n", store, one_window(100), settings=SharingSettings(chunk_calls=20, learning_seconds=0.2)) as one:
        with monkeypatch.context() as patched:
            patched.setattr(chunking, "chunk_of", lambda *_: 1 / 0)
            asked = one.ask(priority=1)
            await eventually("it was noticed", lambda: faults(one) > 0)
        await eventually("it is granted in the end", asked.done)


async def test_hints_that_fail_leave_the_store_up(redis: RedisServer) -> None:
    async with node("n", Flawed(redis, deaf=True), one_window(100), settings=QUICK) as one:
        await eventually("it listened again and again", lambda: faults(one, "store_hints") > 3)
        await one.reserve()
        assert one.sharing.mode == "up"
        assert faults(one) == 0


async def test_faults_again_and_again_are_tried_less_and_less_often(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "FAULT_SECONDS_MAX", 30.0)
    store = Flawed(redis)
    async with node("n", store, one_window(100), settings=QUICK) as one:
        store.flaw = lambda asked: KeyError("fence") if isinstance(asked, Reserve) else None  # whatever else is asked goes well
        one.ask(priority=2)
        found = one.sharing.link
        await eventually("the store was lost some times", lambda: found.outages >= 4)
        assert found._wait == pytest.approx(0.02 * 2 ** (found.outages - 1))
