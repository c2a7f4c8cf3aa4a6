"""What does the shell keep of each run beside its events?"""

import asyncio
from collections.abc import Iterator, Mapping

from luftpause.runtime.core.model import Run


class Waiter:
    """Done when `count` of the runs it was put at have ended."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def one_ended(self) -> None:
        self._count -= 1
        if self._count <= 0 and not self.done.done():
            self.done.set_result(None)

    def stop(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class Entry:
    """`run` is the newest; `shown` the newest that is on disk, which is all that a client may see (None: not even created is)."""

    def __init__(self, run: Run, began: float | None = None) -> None:
        self.run = run
        self.shown: Run | None = None
        self.began = began  # monotonic, if it began in this process
        self.children: list[str] = []
        self.task: asyncio.Task[None] | None = None
        self.waiters: set[Waiter] = set()
        self.note = ""
        self.cancel_asked = False  # before it was created

    @property
    def handle(self) -> str:
        return self.run.handle

    @property
    def ended(self) -> bool:
        """As seen from outside."""
        return self.shown is not None and self.shown.state.ended

    def release(self) -> None:
        """Tell those who wait that the run has ended."""
        for waiter in self.waiters:
            waiter.one_ended()
        self.waiters.clear()


def subtree(entries: Mapping[str, Entry], root: Entry) -> Iterator[Entry]:
    """`root` and all its descendants, parents first."""
    pending = [root]
    while pending:
        entry = pending.pop()
        yield entry
        pending.extend(entries[handle] for handle in entry.children if handle in entries)


def ancestors(entries: Mapping[str, Entry], handle: str | None) -> Iterator[Entry]:
    """The run `handle`, its parent and so on upwards."""
    while handle is not None and (entry := entries.get(handle)) is not None:
        yield entry
        handle = entry.run.created.parent
