"""Which facts leave together, and when?"""

import asyncio

from luftpause.dataplane import wire
from luftpause.dataplane.outbox import BATCH_FACTS_MAX, Outbox, batches
from luftpause.kit.protocol import BATCH_BYTES


def facts(count: int, size: int = 10) -> list[wire.pb.Fact]:
    return [wire.first_token(f"{number:0{size}}") for number in range(count)]


async def test_facts_of_one_tick_leave_together_in_their_order() -> None:
    outbox = Outbox(1_000, lambda: None)
    for fact in facts(3):
        outbox.put(fact)
    assert [fact.first_token.turn for fact in await outbox.take()] == ["0000000000", "0000000001", "0000000002"]


async def test_a_report_without_hurry_leaves_with_the_next_that_has() -> None:
    outbox = Outbox(1_000, lambda: None)
    first, second = facts(2)
    outbox.put_soon(first)
    taking = asyncio.ensure_future(outbox.take())
    await asyncio.sleep(0)
    assert not taking.done()
    outbox.put(second)
    assert await asyncio.wait_for(taking, 60) == [first, second]
    outbox.close()


async def test_a_report_without_hurry_leaves_alone_when_no_other_comes() -> None:
    outbox = Outbox(1_000, lambda: None)
    (fact,) = facts(1)
    outbox.put_soon(fact)
    assert await asyncio.wait_for(outbox.take(), 60) == [fact]


async def test_too_many_facts_call_for_a_new_session_once() -> None:
    called: list[int] = []
    outbox = Outbox(3, lambda: called.append(1))
    for fact in facts(10):
        outbox.put(fact)
    assert called == [1]


def test_batches_keep_the_order_and_are_small_enough() -> None:
    given = facts(3_000, size=100)
    result = batches(given)
    assert [fact for batch in result for fact in batch.facts] == given
    assert all(batch.ByteSize() <= BATCH_BYTES * 1.1 and len(batch.facts) <= BATCH_FACTS_MAX for batch in result)
    assert len(result) < 10


def test_no_facts_make_no_batch() -> None:
    assert batches([]) == []
