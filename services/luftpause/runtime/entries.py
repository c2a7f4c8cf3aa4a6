"""What does the shell keep of each run beside its events?"""

import asyncio
from collections.abc import Collection, Iterator

from luftpause.runtime.core.budgets import Passed, costs_of, limits_of, passed, plus, told
from luftpause.runtime.core.effects import AskModel, StartCall
from luftpause.runtime.core.model import Run
from luftpause.runtime.ports import Costs, RunState

Effects = tuple[AskModel | StartCall, ...]


class Waiter:
    """Done when `count` of the runs it was put at have ended, or one needs an approval that is not among `approvals_known`.

    `approvals_known` None: approvals don't matter.
    """

    def __init__(self, count: int, approvals_known: Collection[str] | None = None) -> None:
        self._count = count
        self._known = approvals_known
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def one_ended(self) -> None:
        self._count -= 1
        if self._count <= 0:
            self._wake()

    def look(self, entry: "Entry") -> None:
        """A run waits for approvals now."""
        if self._known is not None and any(key not in self._known for key in entry.approval_keys):
            self._wake()

    def stop(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)

    def _wake(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class Entry:
    """`run` is the newest; `shown` the newest that is on disk, which is all that a client may see (None: not even created is)."""

    def __init__(self, run: Run, parent: "Entry | None" = None, began: float | None = None) -> None:
        self.run = run
        self.shown: Run | None = None
        self.parent = parent
        self.began = began  # monotonic, if it began in this process
        self.children: list[Entry] = []
        self.task: asyncio.Task[None] | None = None
        self.waiters: set[Waiter] = set()
        self.watchers: set[asyncio.Future[None]] = set()  # of approvals: woken whenever one was decided, or the run has ended
        self.decided: asyncio.Queue[Effects] = asyncio.Queue()  # what follows from decisions, for the run's own task
        self.taken_up = asyncio.Event()  # after a restart: nothing is decided before
        self.note = ""
        self.cancel_asked = False  # before it was created
        self.limits = limits_of(run.created)
        self.subtree = Costs()
        self.counting_since: float | None = None  # monotonic; the budget's seconds run from here on top of those in `run`

    @property
    def handle(self) -> str:
        return self.run.handle

    @property
    def ended(self) -> bool:
        """As seen from outside."""
        return self.shown is not None and self.shown.state.ended

    @property
    def approval_keys(self) -> tuple[str, ...]:
        """As `PendingApproval.key`, of those that may be shown."""
        return tuple(f"{self.handle}/{call.approval}" for call in self.shown.waiting) if self.shown is not None else ()

    def release(self) -> None:
        """Tell those who wait that the run has ended."""
        for waiter in self.waiters:
            waiter.one_ended()
        self.waiters.clear()

    def wake(self) -> None:
        """Tell those who watch that approvals were asked for or decided."""
        for waiter in self.waiters:
            waiter.look(self)
        for watcher in self.watchers:
            if not watcher.done():
                watcher.set_result(None)
        self.watchers.clear()

    def stop(self, error: Exception) -> None:
        """Tell all of them that nothing will happen any more."""
        for waiter in self.waiters:
            waiter.stop(error)
        for watcher in self.watchers:
            if not watcher.done():
                watcher.set_exception(error)

    # ---- budgets ---------------------------------------------------------------------------------------------------

    def spent(self, before: Run | None, after: Run) -> None:
        """Count what the run did more between these two, here and in all runs above."""
        was, now = costs_of(before), costs_of(after)
        if was != now:
            for above in ancestors(self):
                above.subtree = plus(above.subtree, now, was)

    def budget_seconds(self, now: float) -> float:
        """`now`: monotonic."""
        ran = 0.0 if self.counting_since is None else now - self.counting_since
        return self.run.budget_seconds + max(0.0, ran)

    def over(self, before: Run | None, after: Run, now: float) -> list[tuple["Entry", Passed]]:
        """The runs from this one upwards whose budget is passed once this run is as `after`, and not before."""
        was, then = costs_of(before), costs_of(after)
        found: list[tuple[Entry, Passed]] = []
        for above in ancestors(self):
            told_already = (after if above is self else above.run).exceeded is not None
            if above.limits is None or told_already:
                continue
            if limit := passed(above.limits, plus(above.subtree, then, was), above.budget_seconds(now)):
                found.append((above, limit))
        return found


def subtree(root: Entry) -> Iterator[Entry]:
    """`root` and all its descendants, parents first."""
    pending = [root]
    while pending:
        entry = pending.pop()
        yield entry
        pending.extend(entry.children)


def ancestors(entry: Entry | None) -> Iterator[Entry]:
    """The run, its parent and so on upwards."""
    while entry is not None:
        yield entry
        entry = entry.parent


def barred(entry: Entry | None) -> tuple[Entry, str] | None:
    """A run from this one upwards under which nothing may run any more, and why. A budget explains more than a cancellation."""
    for above in ancestors(entry):
        if over := told(above.run):
            return above, over.message
    for above in ancestors(entry):
        if above.run.state is RunState.CANCELLED or above.cancel_asked:
            return above, "cancelled with its parent"
    return None
