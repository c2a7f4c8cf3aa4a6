"""Do orders leave in order, in bounded batches, and is a peer that does not take them cut off?"""

import asyncio

from luftpause.kit.wire.v1 import scheduler_pb2 as pb
from luftpause.scheduler.core.decisions import Held, HoldReason
from luftpause.scheduler.outbox import Outbox


def held(turn: str) -> Held:
    return Held("dp", turn, 1, "run", HoldReason.CAPPED)


def box(orders_max: int = 100) -> tuple[Outbox, list[str]]:
    calls: list[str] = []
    return Outbox(orders_max, lambda: calls.append("overflowed")), calls


def turns(batch: pb.OrderBatch) -> list[str]:
    return [order.held.turn for order in batch.orders]


def test_orders_leave_in_the_order_of_their_coming():
    outbox, _ = box()
    for n in range(5):
        outbox.put(held(str(n)))
    assert turns(outbox.take(64 * 1024)) == ["0", "1", "2", "3", "4"]
    assert not outbox.take(64 * 1024).orders


def test_a_batch_ends_before_it_gets_too_long_and_nothing_is_lost_between_batches():
    outbox, _ = box()
    size = len(pb.Order(held=pb.Held(turn="0", attempt=1, run="run", reason="capped")).SerializeToString())
    for n in range(5):
        outbox.put(held(str(n)))
    assert turns(outbox.take(2 * size)) == ["0", "1"]
    assert len(outbox) == 3
    outbox.put(held("5"))
    assert turns(outbox.take(2 * size)) == ["2", "3"]
    assert turns(outbox.take(2 * size)) == ["4", "5"]
    assert len(outbox) == 0


def test_an_order_longer_than_a_batch_goes_alone():
    outbox, _ = box()
    for turn in ("a", "b" * 1000, "c"):
        outbox.put(held(turn))
    assert turns(outbox.take(100)) == ["a"]
    assert turns(outbox.take(100)) == ["b" * 1000]
    assert turns(outbox.take(100)) == ["c"]


def test_one_order_too_many_closes_it_once_and_for_good():
    outbox, calls = box(orders_max=3)
    for n in range(3):
        outbox.put(held(str(n)))
    assert not calls
    for n in range(3):
        outbox.put(held(str(n)))
    assert calls == ["overflowed"]
    assert outbox.closed
    assert len(outbox) == 0
    assert not outbox.take(1000).orders


async def test_whoever_waits_wakes_when_an_order_comes_and_waits_again_when_all_are_taken():
    outbox, _ = box()
    waiting = asyncio.create_task(outbox.filled())
    await asyncio.sleep(0)
    assert not waiting.done()
    outbox.put(held("a"))
    await asyncio.wait_for(waiting, 60)
    outbox.take(1000)
    again = asyncio.create_task(outbox.filled())
    await asyncio.sleep(0)
    assert not again.done()
    again.cancel()


async def test_what_is_left_over_from_a_batch_keeps_the_waiter_awake():
    outbox, _ = box()
    outbox.put(held("a"))
    outbox.put(held("b"))
    outbox.take(1)
    await asyncio.wait_for(outbox.filled(), 60)
