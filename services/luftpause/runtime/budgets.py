"""When does a budget in seconds run out, and what happens to the runs below a budget that is used up?"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from luftpause.kit.clock import Clock
from luftpause.kit.logs import Log
from luftpause.runtime.core.budgets import Passed, passed
from luftpause.runtime.core.events import BudgetUsed
from luftpause.runtime.entries import Entry, subtree
from luftpause.runtime.ports import RunState
from luftpause.runtime.recorder import Recorder

NOTED_SECONDS_MIN: Final = 2.0  # what a kill can make a budget forget, at most; or the next, where that is more
NOTED_SHARE: Final = 20  # of the limit

log = Log("runtime")


class Timer(Protocol):
    def cancel(self) -> None: ...


Later = Callable[[float, Callable[[], None]], Timer]


def later(seconds: float, call: Callable[[], None]) -> Timer:
    return asyncio.get_running_loop().call_later(seconds, call)


class Budgets:
    """`end` ends an unfinished run from outside its loop."""

    def __init__(self, recorder: Recorder, end: Callable[[Entry, str], None], clock: Clock, later: Later) -> None:
        self._recorder = recorder
        self._end = end
        self._clock = clock
        self._later = later
        self._timers: dict[str, Timer] = {}

    def start(self, entry: Entry) -> None:
        """Count the seconds of its budget from now on, if it has one that still counts."""
        if entry.limits is None or entry.limits.seconds is None or entry.run.exceeded is not None:
            return
        if entry.run.state is RunState.CANCELLED:
            return
        if entry.counting_since is None:
            entry.counting_since = self._clock()
        self._arm(entry, entry.limits.seconds)

    def check(self, entries: Iterable[Entry]) -> None:
        """After a restart: what had been passed when the last process ended, before it could write so down."""
        for entry in entries:
            limit = passed(entry.limits, entry.subtree, entry.run.budget_seconds)
            if limit is not None and entry.run.exceeded is None:
                self._note(entry, limit)

    def exceeded(self, entry: Entry, limit: Passed) -> None:
        """Cancel the whole subtree of this run, whose budget was passed, and write down that it was."""
        log.info("budget exceeded", run=entry.handle, which=limit.kind.value, used=limit.used, limit=limit.limit)
        if entry.run.exceeded is None:
            self._note(entry, limit)
        self._drop(entry)
        for below in subtree(entry):
            self._end(below, limit.message)

    def stop(self, entries: Iterable[Entry]) -> None:
        """Write down how far the seconds of each have come; the clock stands until the next start."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for entry in entries:
            if entry.counting_since is not None and entry.run.exceeded is None and entry.shown is not None:
                self._put(entry, BudgetUsed(entry.budget_seconds(self._clock())))

    # ---- parts of the above ---------------------------------------------------------------------------------------

    def _arm(self, entry: Entry, limit_seconds: float) -> None:
        left = limit_seconds - entry.budget_seconds(self._clock())
        wait = min(left, max(NOTED_SECONDS_MIN, limit_seconds / NOTED_SHARE))
        self._timers[entry.handle] = self._later(max(0.0, wait), lambda: self._ring(entry, limit_seconds))

    def _ring(self, entry: Entry, limit_seconds: float) -> None:
        self._timers.pop(entry.handle, None)
        if entry.run.exceeded is not None or entry.shown is None:
            return
        if entry.run.state is RunState.CANCELLED:
            return  # its subtree was cancelled with it, and nothing can ever run under it again
        limit = passed(entry.limits, entry.subtree, entry.budget_seconds(self._clock()))
        if limit is not None:
            self.exceeded(entry, limit)
            return
        self._put(entry, BudgetUsed(entry.budget_seconds(self._clock())))
        self._arm(entry, limit_seconds)

    def _note(self, entry: Entry, limit: Passed) -> None:
        self._put(entry, limit.event(entry.budget_seconds(self._clock())))

    def _put(self, entry: Entry, event: BudgetUsed) -> None:
        _, done = self._recorder.put(entry, entry.run, event)
        done.add_done_callback(_heard)

    def _drop(self, entry: Entry) -> None:
        timer = self._timers.pop(entry.handle, None)
        if timer is not None:
            timer.cancel()


def _heard(done: asyncio.Future[None]) -> None:
    """If it could not be written the journal stops, and everybody who awaits it hears of it."""
    if not done.cancelled():
        done.exception()
