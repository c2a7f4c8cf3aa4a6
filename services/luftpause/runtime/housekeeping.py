"""What is done once a run has ended: is the dataplane told, and is the journal made smaller?"""

import asyncio
from collections.abc import Callable
from typing import Final

from luftpause.kit.clock import Clock
from luftpause.kit.errors import LuftpauseError
from luftpause.kit.logs import Log
from luftpause.runtime.entries import Entry, subtree
from luftpause.runtime.journal import Journal
from luftpause.runtime.ports import ModelClient

END_RUN_SECONDS: Final = 10.0
END_RUNS_AT_ONCE: Final = 32
EXPIRY_SECONDS: Final = 60.0  # how often the end of a run makes us look for those that are too old

log = Log("runtime")


class Housekeeping:
    def __init__(
        self,
        model: ModelClient,
        journal: Journal,
        entries: dict[str, Entry],
        forget: Callable[[str], None],
        *,
        retention_seconds: float,
        clock: Clock,
        wall: Callable[[], float],
    ) -> None:
        self._model = model
        self._journal = journal
        self._entries = entries
        self._forget = forget
        self._retention_seconds = retention_seconds
        self._clock = clock
        self._wall = wall
        self._slots = asyncio.Semaphore(END_RUNS_AT_ONCE)
        self._look_at = clock()
        self._expired: list[str] = []
        self._compacting = False

    async def after_end(self, handle: str) -> None:
        async with self._slots:
            try:
                async with asyncio.timeout(END_RUN_SECONDS):
                    await self._model.end_run(handle)
            except TimeoutError:
                log.warning("the dataplane was not told that a run is over", run=handle)
        await self.tidy()

    async def tidy(self) -> None:
        """Compact the journal if that is worth it, and forget the runs that are older than the retention."""
        if self._clock() >= self._look_at:
            self._look_at = self._clock() + EXPIRY_SECONDS
            self._expired = self._too_old()
        if self._compacting or not self._journal.worth_compacting(self._expired):
            return
        self._compacting = True
        drop, self._expired = self._expired, []
        try:
            await self._journal.compact(drop)
        except (OSError, LuftpauseError) as error:
            log.warning("the journal could not be compacted", error=str(error))
        else:
            for handle in drop:
                self._forget(handle)
        finally:
            self._compacting = False

    def _too_old(self) -> list[str]:
        """The runs of trees that have ended altogether: what a subtree has used counts for as long as one of its runs is kept."""
        oldest = self._wall() - self._retention_seconds
        roots = (entry for entry in self._entries.values() if entry.parent is None)
        trees = ([*subtree(root)] for root in roots if root.ended)
        return [entry.handle for tree in trees if all(each.ended and (each.run.ended_at or 0) < oldest for each in tree) for entry in tree]
