"""What has a node still to tell the shared ledger: in order, after an outage too?"""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from luftpause.scheduler.governor.store.port import Asked, Named, Release, Report
from luftpause.scheduler.governor.store.shared_target import Holding
from luftpause.scheduler.quota.model import Cost

ENTRIES_MAX: Final = 10_000


class Entry(Struct, gc=False):
    """`at`: when it happened. `numbered`: of a lease that the store did not know."""

    target: str
    at: float
    question: Report | Release
    granted: float = 0.0
    numbered: bool = False

    def aged(self, now: float) -> Report | Release:
        if isinstance(self.question, Release):
            return self.question
        age = max(0.0, now - self.at)
        return replace(self.question, age_seconds=age, granted_seconds=max(age, now - self.granted) if self.numbered else 0.0)


class Journal:
    """Nothing is left out: beyond the limit the oldest calls are summed up."""

    def __init__(self, node: str, *, entries_max: int = ENTRIES_MAX) -> None:
        self._node = node
        self._entries_max = entries_max
        self._entries: deque[Entry] = deque()
        self._number = 0

    def __len__(self) -> int:
        return len(self._entries)

    def report(self, target: str, holding: Holding | None, report: Report, at: float) -> None:
        """`holding`: of a call that had a lease on this node; None: of another node, or without one."""
        entry = Entry(target, at, report)
        if holding is not None and holding.alone:
            self._number += 1
            numbered = replace(report, number=self._number, cost=named(holding.cost))
            entry = Entry(target, at, numbered, granted=holding.granted, numbered=True)
        self._add(entry)

    def release(self, target: str, holding: Holding, at: float) -> None:
        """Of a lease that the store does not know nothing has to be said."""
        if not holding.alone:
            self._add(Entry(target, at, Release(node=self._node, want=holding.want, fence=holding.fence)))

    def _add(self, entry: Entry) -> None:
        self._entries.append(entry)
        if len(self._entries) > self._entries_max:
            self._sum_up()

    def _sum_up(self) -> None:
        """Of the two oldest calls of one target one: what they used counts, what providers said then is long out of date."""
        oldest = self._entries.popleft()
        if not isinstance(oldest.question, Report) or not oldest.question.actual:
            return  # a lease that nobody releases ends by itself, and is charged
        for at, other in enumerate(self._entries):
            if other.target == oldest.target and isinstance(other.question, Report):
                total = {one.name: one.units for one in other.question.actual}
                for one in oldest.question.actual:
                    total[one.name] = total.get(one.name, 0.0) + one.units
                self._entries[at] = replace(other, question=replace(other.question, actual=named(tuple(total.items()))))
                return
        self._entries.appendleft(oldest)

    async def send(self, ask: Callable[[str, Asked], Awaitable[object]], clock: Callable[[], float]) -> None:
        """Until it is empty. Whatever `ask` raises ends it; what it was asked then is asked again, which changes nothing."""
        while self._entries:
            now = clock()
            entry = self._entries[0]
            await ask(entry.target, entry.aged(now))
            if self._entries and self._entries[0] is entry:
                self._entries.popleft()


def named(cost: Cost) -> tuple[Named, ...]:
    return tuple(Named(name, units) for name, units in cost)
