"""Which orders wait for one dataplane, and which go into its next message?"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from luftpause.kit.wire.v1 import scheduler_pb2 as pb
from luftpause.scheduler import translate
from luftpause.scheduler.translate import Order


class Orders(Protocol):
    """Where a dataplane's orders go."""

    def put(self, order: Order) -> None:
        """Never blocks and never raises."""
        ...


class Outbox:
    """Bounded. The host puts, the session's writer takes; beyond `orders_max` it closes for good and calls `overflowed` once."""

    def __init__(self, orders_max: int, overflowed: Callable[[], None]) -> None:
        self._orders: deque[Order] = deque()
        self._orders_max = orders_max
        self._overflowed = overflowed
        self._filled = asyncio.Event()
        self._left_over: pb.Order | None = None  # translated, but did not fit into the last batch
        self.closed = False

    def __len__(self) -> int:
        return len(self._orders) + (self._left_over is not None)

    def put(self, order: Order) -> None:
        """Never blocks. Does nothing when closed: whoever reads it is gone, and resyncs."""
        if self.closed:
            return
        if len(self._orders) >= self._orders_max:
            self.close()
            self._overflowed()
            return
        self._orders.append(order)
        self._filled.set()

    def close(self) -> None:
        """Drop what waits and take nothing more."""
        self.closed = True
        self._orders.clear()
        self._left_over = None
        self._filled.clear()

    async def filled(self) -> None:
        """Wait until there is something to take."""
        await self._filled.wait()

    def take(self, bytes_max: int) -> pb.OrderBatch:
        """As many orders as fit into `bytes_max`, in order; a single larger one goes alone. Empty: nothing waits."""
        batch: list[pb.Order] = []
        size = 0
        while order := self._next():
            size += order.ByteSize()
            if batch and size > bytes_max:
                self._left_over = order
                break
            batch.append(order)
        if not len(self):
            self._filled.clear()
        return pb.OrderBatch(orders=batch)

    def _next(self) -> pb.Order | None:
        if self._left_over is not None:
            order, self._left_over = self._left_over, None
            return order
        return translate.order(self._orders.popleft()) if self._orders else None
