"""Which time limits have run out? One timer per process looks, instead of one timer per wait."""

import asyncio
from math import inf
from typing import Final, Protocol

NEVER: Final = inf
NEXT_LOOK: Final = 0.0  # a deadline that has always passed


class Timed(Protocol):
    """Something that may take too long. `deadline` is compared with `Sweep.now`; NEVER: no limit now."""

    deadline: float

    def expire(self, now: float) -> None:
        """The deadline has passed. Must move it, or leave the sweep."""
        ...


class Sweep:
    """Looks at all watched objects every `every_seconds`; limits are kept to that precision.

    `now` is the loop's time at the last look: cheap enough to be read per chunk.
    """

    __slots__ = ("_every_seconds", "_loop", "_timer", "_watched", "now")

    def __init__(self, every_seconds: float = 0.25) -> None:
        self._loop = asyncio.get_running_loop()
        self._every_seconds = every_seconds
        self._watched: set[Timed] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.now = self._loop.time()

    def start(self) -> None:
        self._timer = self._loop.call_later(self._every_seconds, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def watch(self, timed: Timed) -> None:
        self._watched.add(timed)

    def forget(self, timed: Timed) -> None:
        self._watched.discard(timed)

    def look(self, now: float) -> None:
        """Expire what is due at `now`."""
        self.now = now
        for timed in tuple(self._watched):
            if timed.deadline <= now:
                timed.expire(now)

    def _tick(self) -> None:
        self._timer = self._loop.call_later(self._every_seconds, self._tick)
        self.look(self._loop.time())
