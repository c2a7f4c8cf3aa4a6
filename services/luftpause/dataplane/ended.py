"""Which runs were ended here, for a scheduler that starts anew and may hear of them from another dataplane's memory?"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

ENDED_RUNS_MAX: Final = 1_000


class EndedRuns:
    """Times are seconds on the caller's clock. A run that has had a turn since goes on: `resumed` drops it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ended: OrderedDict[tuple[str, str], float] = OrderedDict()

    def add(self, now: float, run: str, principal: str) -> None:
        self._ended.pop((run, principal), None)
        self._ended[run, principal] = now
        if len(self._ended) > ENDED_RUNS_MAX:
            self._ended.popitem(last=False)

    def resumed(self, run: str, principal: str) -> None:
        if self._ended:
            self._ended.pop((run, principal), None)

    def sweep(self, now: float) -> None:
        """Forget those ended more than `seconds` ago: so have all memories."""
        while self._ended and now - next(iter(self._ended.values())) >= self._seconds:
            self._ended.popitem(last=False)

    def since(self, now: float) -> Iterator[tuple[str, str, float]]:
        """(run, principal, when), oldest first, of those ended in the last `seconds`."""
        self.sweep(now)
        for (run, principal), when in self._ended.items():
            yield run, principal, when
