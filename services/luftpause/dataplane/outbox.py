"""When do facts leave, and in which batches?"""

import asyncio
from collections.abc import Callable
from typing import Final

from luftpause.kit.protocol import BATCH_BYTES
from luftpause.kit.wire.v1 import scheduler_pb2 as pb

SOON_SECONDS: Final = 0.005  # a report without hurry waits this long for company
BATCH_FACTS_MAX: Final = 1_000


class Outbox:
    """Facts in order. What `put` adds leaves with everything of the same loop tick; `put_soon` waits a little for company.

    Beyond `facts_max` it calls `overflow`, once: the peer does not keep up, and only a new Hello mends that.
    """

    def __init__(self, facts_max: int, overflow: Callable[[], None]) -> None:
        self._facts: list[pb.Fact] = []
        self._facts_max = facts_max
        self._overflow = overflow
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._facts)

    def put(self, fact: pb.Fact) -> None:
        self._append(fact)
        self._wake.set()

    def put_soon(self, fact: pb.Fact) -> None:
        self._append(fact)
        if self._timer is None and not self._wake.is_set():
            self._timer = asyncio.get_running_loop().call_later(SOON_SECONDS, self._wake.set)

    def wake(self) -> None:
        """Let `take` return although there is nothing."""
        self._wake.set()

    async def take(self) -> list[pb.Fact]:
        """Wait for facts; returns all that there are, in order (none after `wake`)."""
        await self._wake.wait()
        self._wake.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        facts, self._facts = self._facts, []
        return facts

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _append(self, fact: pb.Fact) -> None:
        self._facts.append(fact)
        if len(self._facts) == self._facts_max:
            self._overflow()


def batches(facts: list[pb.Fact]) -> list[pb.FactBatch]:
    """In order, each about `BATCH_BYTES` at most (one fact may be longer)."""
    if len(facts) == 1:
        return [pb.FactBatch(facts=facts)]
    result: list[pb.FactBatch] = []
    batch, size = pb.FactBatch(), 0
    for fact in facts:
        length = fact.ByteSize()
        if size and (size + length > BATCH_BYTES or len(batch.facts) == BATCH_FACTS_MAX):
            result.append(batch)
            batch, size = pb.FactBatch(), 0
        batch.facts.append(fact)
        size += length
    if size:
        result.append(batch)
    return result
