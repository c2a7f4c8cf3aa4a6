"""When does a service with much long-lived state collect its garbage?"""

import gc
from time import perf_counter
from typing import Final

from luftpause.kit.clock import Clock, monotonic

# Allocations until the first generation is collected, and its collections until the second is. Python's own 700 and 10 cost the scheduler
# more: with these, at 10,000 runs, the slowest of a thousand events takes 0.2 instead of 0.6 ms, and 1 % take 80 instead of 91 us.
YOUNG: Final = (5_000, 20)
NEVER: Final = 2**31 - 1  # collections of the second generation until the third is collected

# A full collection walks all that lives (38 ms at 10,000 runs), so it waits for a quiet moment; but not for ever, and where little lives
# not for long: what garbage has taken by then stays part of the process.
QUIET_SECONDS: Final = 30.0
BUSY_SECONDS: Final = 600.0
BUSY_SHARE: Final = 1e-4  # of busy time, while that is less often


class Garbage:
    """The third generation: never collected by itself from now on, but when `idle` or `busy` says that it is time.

    `young`: thresholds of the first two generations. `timer` measures what a collection takes.
    """

    def __init__(self, clock: Clock = monotonic, young: tuple[int, int] = YOUNG, timer: Clock = perf_counter) -> None:
        self._clock = clock
        self._timer = timer
        self._before = gc.get_threshold()
        gc.set_threshold(*young, NEVER)
        gc.collect()
        gc.freeze()  # what the start has made lives as long as the process
        self._last = clock()
        self._took = 0.0

    def stop(self) -> None:
        """Collect as Python does by itself again."""
        gc.unfreeze()
        gc.set_threshold(*self._before)

    def idle(self) -> bool:
        """Nothing waits: collect, if that was not done lately. True if it did."""
        return self._collect_after(QUIET_SECONDS)

    def busy(self) -> bool:
        """Something waits: collect only if that was not done for long, as measured by what it takes. True if it did."""
        return self._collect_after(min(BUSY_SECONDS, max(QUIET_SECONDS, self._took / BUSY_SHARE)))

    def _collect_after(self, seconds: float) -> bool:
        if self._clock() - self._last < seconds:
            return False
        began = self._timer()
        gc.collect()
        self._took = self._timer() - began
        self._last = self._clock()
        return True
