"""How is a queue kept so that an old version stays valid and a new one costs next to nothing?

Items stay in the order in which they came, in chunks; a new one copies the newest chunk. None is taken out of the middle, which would copy
as much as in a sorted set: whoever keeps a queue can tell which items count no more, and makes it anew when they are many.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")
CHUNK = 32  # most items of one


class Fifo(Struct, Generic[T], frozen=True, gc=False):
    """Items in the order in which they came. `full`: older chunks, none empty."""

    full: tuple[tuple[T, ...], ...] = ()
    newest: tuple[T, ...] = ()
    size: int = 0

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        return self.size > 0

    def __iter__(self) -> Iterator[T]:
        """Oldest first."""
        return chain(chain.from_iterable(self.full), self.newest) if self.full else iter(self.newest)

    def append(self, item: T) -> "Fifo[T]":
        if len(self.newest) < CHUNK:
            return Fifo(self.full, (*self.newest, item), self.size + 1)
        return Fifo((*self.full, self.newest), (item,), self.size + 1)

    def without_first(self, count: int) -> "Fifo[T]":
        """Without the oldest `count` items."""
        size = max(0, self.size - count)
        for number, chunk in enumerate(self.full):
            if count < len(chunk):
                return Fifo((chunk[count:], *self.full[number + 1 :]), self.newest, size)
            count -= len(chunk)
        return Fifo((), self.newest[count:], size)


def fifo(items: Sequence[T]) -> Fifo[T]:
    """These, oldest first."""
    whole = (len(items) - 1) // CHUNK * CHUNK  # the newest chunk is not empty if there is any
    full = tuple([tuple(items[at : at + CHUNK]) for at in range(0, whole, CHUNK)])
    return Fifo(full, tuple(items[max(0, whole) :]), len(items))
