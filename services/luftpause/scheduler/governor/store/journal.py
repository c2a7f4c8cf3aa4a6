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
FOLD_SECONDS: Final = 1.0
FAULTS_MAX: Final = 5


class Entry(Struct, gc=False):
    """`at`: when it happened; `number`: of the entry; `granted`: when the call's lease was, if the store did not know it (`numbered`)."""

    target: str
    at: float
    number: int
    question: Report | Release
    granted: float = 0.0
    numbered: bool = False
    faults: int = 0  # while it was told

    def aged(self, now: float) -> Report | Release:
        if isinstance(self.question, Release):
            return self.question
        age = max(0.0, now - self.at)
        if not self.numbered:
            return replace(self.question, age_seconds=age)
        return replace(self.question, age_seconds=age, number=self.number, granted_seconds=max(age, now - self.granted))


class Journal:
    """Nothing is left out: beyond the limit the oldest calls of a target are summed up."""

    def __init__(self, node: str, *, entries_max: int = ENTRIES_MAX) -> None:
        self._node = node
        self._entries_max = entries_max
        self._entries: deque[Entry] = deque()
        self._number = 0

    def __len__(self) -> int:
        return len(self._entries)

    def report(self, target: str, holding: Holding | None, report: Report, at: float) -> None:
        """`holding`: of a call that had a lease on this node; None: of another node, or without one."""
        if holding is not None and holding.alone:
            self._add(target, at, replace(report, cost=named(holding.cost)), granted=holding.granted, numbered=True)
        else:
            self._add(target, at, report)

    def release(self, target: str, holding: Holding, at: float) -> None:
        """Of a lease that the store does not know nothing has to be said."""
        if not holding.alone:
            self.give_up(target, holding.want, holding.fence, at)

    def give_up(self, target: str, want: str, fence: int, at: float) -> None:
        self._add(target, at, Release(node=self._node, want=want, fence=fence))

    def _add(self, target: str, at: float, question: Report | Release, *, granted: float = 0.0, numbered: bool = False) -> None:
        self._number += 1
        self._entries.append(Entry(target, at, self._number, question, granted, numbered))
        if len(self._entries) > self._entries_max:
            self._sum_up()

    def _sum_up(self) -> None:
        """What was used counts; what providers said then is long out of date, and a lease that nobody ends is over by itself."""
        oldest = self._entries.popleft()
        if isinstance(oldest.question, Release) or not oldest.question.actual:
            return
        for at, other in enumerate(self._entries):
            if other.target == oldest.target and isinstance(other.question, Report):
                self._entries[at] = _summed(self._node, oldest.question, other, other.question)
                return
        self._entries.appendleft(oldest)

    def fold(self) -> None:
        """What went well within a second is told as one: after an outage there may be thousands."""
        folded: deque[Entry] = deque()
        first = 0.0
        for entry in self._entries:
            last = folded[-1] if folded and folded[-1].target == entry.target and entry.at - first <= FOLD_SECONDS else None
            before, report = _plain(last), _plain(entry)
            if before is not None and report is not None:
                folded[-1] = _summed(self._node, before, entry, report)
            else:
                folded.append(entry)
                first = entry.at
        self._entries = folded

    def failed(self) -> bool:
        """Telling the first entry met a fault. True: so often that it is left out, as no other could be told any more."""
        if not self._entries:
            return False
        first = self._entries[0]
        first.faults += 1
        if first.faults < FAULTS_MAX:
            return False
        self._entries.popleft()
        return True

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


def _summed(node: str, first: Report, entry: Entry, last: Report) -> Entry:
    total: dict[str, float] = {}
    for one in (*first.actual, *(last.actual or last.cost)):
        total[one.name] = total.get(one.name, 0.0) + one.units
    used = named(tuple(total.items()))
    report = Report(node=node, cost=used, actual=used, samples=last.samples or first.samples)
    return Entry(entry.target, entry.at, entry.number, report, entry.at, numbered=True)


def _plain(entry: Entry | None) -> Report | None:
    """Of a call that went well, and that the store did not know."""
    if entry is None or not entry.numbered or isinstance(entry.question, Release) or entry.question.outcome != "ok":
        return None
    return entry.question
