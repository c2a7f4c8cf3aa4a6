"""Which place in the order does a wish keep while nobody asks about it, between one poll and the next?

Nothing is granted to it meanwhile: only its arrival is remembered, for a time, and of so many wishes at most.
"""

from collections import OrderedDict
from typing import Final

from luftpause.scheduler.quota.events import Standing
from luftpause.scheduler.quota.model import State

KEPT_MAX: Final = 20_000
KEPT_SECONDS_MAX: Final = 120.0
SLACK_SECONDS: Final = 5.0  # a client comes later than it was told

Key = tuple[str, str]  # target, want


class Places:
    """Of one governor. Times are on its clock."""

    def __init__(self, *, kept_max: int = KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._kept: OrderedDict[Key, tuple[Standing, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, key: Key, standing: Standing, now: float, seconds: float) -> None:
        """Until it can be expected to have been asked again: whoever polls comes back within `seconds`. The oldest make way."""
        self._kept.pop(key, None)
        self._kept[key] = (standing, now + min(seconds + SLACK_SECONDS, KEPT_SECONDS_MAX))
        while self._kept and (len(self._kept) > self._kept_max or next(iter(self._kept.values()))[1] <= now):
            self._kept.popitem(last=False)

    def take(self, key: Key, now: float) -> Standing | None:
        """It is asked again; None: it is new, or too late."""
        standing, until = self._kept.pop(key, (None, now))
        return standing if until > now else None


def standing_of(state: State, key: Key) -> Standing | None:
    """Where it stands now; None: it does not wait."""
    target = state.targets.get(key[0])
    if target is None:
        return None
    waiter = target.waiters.get(key[1])
    if waiter is None and (lease := target.leases.get(key[1])) is not None:
        waiter = lease.waiter  # granted as far as this node goes
    return Standing(waiter.number, waiter.since, waiter.unblocked_at) if waiter is not None else None
