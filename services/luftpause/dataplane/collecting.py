"""When may the garbage collector take its time?

A full collection stops everything, for tens of milliseconds where much lives: it waits for a moment in which no turn runs, as long as it
can.
"""

from collections.abc import Callable
from typing import Final

from luftpause.dataplane.sweep import Sweep
from luftpause.kit.garbage import Garbage

LOOK_SECONDS: Final = 5.0
YOUNG: Final = (20_000, 20)  # a turn makes more that lives as long as it does than an event of the scheduler


class Collecting:
    """Watched by the sweep. What exists when it is made is here to stay: it is never looked at again."""

    def __init__(self, sweep: Sweep, is_idle: Callable[[], bool]) -> None:
        self._is_idle = is_idle
        self._garbage = Garbage(young=YOUNG)
        self.deadline = sweep.now + LOOK_SECONDS

    def expire(self, now: float) -> None:
        self.deadline = now + LOOK_SECONDS
        if self._is_idle():
            self._garbage.idle()
        else:
            self._garbage.busy()
