"""What carries batches between a dataplane and the scheduler, and how does it fail?

As TCP does: batches arrive in order or not at all. A link breaks (what was on its way is lost), goes dumb (nothing arrives any more and
nobody is told), or stalls (everything arrives, much later).
"""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from luftpause.kit.wire.v1 import scheduler_pb2 as pb
from luftpause.scheduler.session import Session
from luftpause_bench.sim.world import Process, World

LATENCY_SECONDS: Final = (0.0002, 0.03)

Batch = TypeVar("Batch", pb.FactBatch, pb.OrderBatch)


class Way(Generic[Batch]):
    """One direction: what is sent arrives at `receiver`, in order. `ended`: the other side closed it, or it broke; comes once."""

    def __init__(self, world: World, receiver: Process, arrived: Callable[[Batch], None], ended: Callable[[], None]) -> None:
        self.lost = False  # nothing arrives any more
        self._world = world
        self._receiver = receiver
        self._arrived = arrived
        self._ended = ended
        self._over = False
        self._busy_until = 0.0

    def send(self, batch: Batch) -> None:
        # Each batch is written out and read again, as gRPC does: nothing is shared between the two sides.
        text = batch.SerializeToString()
        kind = type(batch)
        self._later(lambda: self._arrived(kind.FromString(text)))

    @property
    def carries(self) -> bool:
        """Is a batch on its way, or lost on it?"""
        return self.lost or self._busy_until >= self._world.now

    def close(self) -> None:
        """The sending side ends it, behind what it has sent."""
        self._later(self._end)

    def break_off(self, seconds_max: float = 0.5) -> None:
        """The receiver learns sooner or later that it broke; what was on its way is lost."""
        self.lost = True
        self._world.at(self._world.between(0.0, seconds_max), lambda: self._receiver.do(self._end))

    def stall(self, seconds: float) -> None:
        """Nothing arrives for so long, then everything."""
        self._busy_until = max(self._busy_until, self._world.now + seconds)

    def _later(self, happening: Callable[[], None]) -> None:
        arrival = max(self._busy_until, self._world.now + self._world.between(*LATENCY_SECONDS))
        self._busy_until = arrival
        self._world.when(arrival, lambda: None if self.lost else self._receiver.do(happening))

    def _end(self) -> None:
        if not self._over:
            self._over = True
            self._ended()


class Link:
    """One stream. `session` is the scheduler's end of it."""

    def __init__(self, session: Session, up: Way[pb.FactBatch], down: Way[pb.OrderBatch]) -> None:
        self.session = session
        self.up = up
        self.down = down

    def break_off(self, seconds_max: float = 0.5) -> None:
        """Either side learns of it on its own, within so many seconds."""
        self.up.break_off(seconds_max)
        self.down.break_off(seconds_max)

    def go_dumb(self, *, up: bool = True, down: bool = True) -> None:
        """Half-open: the stream neither breaks nor delivers."""
        self.up.lost = self.up.lost or up
        self.down.lost = self.down.lost or down

    def stall(self, seconds: float) -> None:
        self.up.stall(seconds)
        self.down.stall(seconds)
