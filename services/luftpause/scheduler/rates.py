"""How often did something happen lately?"""

from typing import Final

from luftpause.kit.clock import Clock

WINDOW_SECONDS: Final = 10


class Rate:
    """Counts per second over the last ten whole seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start = clock()
        self._second = int(self._start)
        self._counts = [0] * (WINDOW_SECONDS + 1)  # the running second and those before it

    def count(self) -> None:
        second = int(self._clock())
        if second != self._second:
            self._roll(second)
        self._counts[second % len(self._counts)] += 1

    def per_second(self) -> float:
        self._roll(int(self._clock()))
        running = self._counts[self._second % len(self._counts)]
        whole = min(WINDOW_SECONDS, max(1, self._second - int(self._start)))
        return (sum(self._counts) - running) / whole

    def _roll(self, second: int) -> None:
        for passed in range(self._second + 1, min(second, self._second + len(self._counts)) + 1):
            self._counts[passed % len(self._counts)] = 0
        self._second = second
