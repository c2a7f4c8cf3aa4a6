"""When may the garbage collector take its time?

A full collection stops everything for tens of milliseconds, so it is off while turns run and done when none does.
"""

import gc
from collections.abc import Callable
from typing import Final

from luftpause.dataplane.sweep import Sweep

EVERY_SECONDS: Final = 30.0
BUSY_SECONDS_MAX: Final = 600.0  # then it is done all the same
THRESHOLDS: Final = (20_000, 20, 1_000_000)  # the last one: generation 2 is never collected by itself


class IdleCollector:
    """Watched by the sweep."""

    def __init__(self, sweep: Sweep, is_idle: Callable[[], bool]) -> None:
        self._is_idle = is_idle
        self._busy_until = sweep.now + BUSY_SECONDS_MAX
        self.deadline = sweep.now + EVERY_SECONDS

    def start(self) -> None:
        """What exists now is here to stay: it is never looked at again."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(*THRESHOLDS)

    def expire(self, now: float) -> None:
        self.deadline = now + EVERY_SECONDS
        if self._is_idle() or now >= self._busy_until:
            gc.collect()
            self._busy_until = now + BUSY_SECONDS_MAX
