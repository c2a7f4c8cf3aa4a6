"""How do events of a thousand runs reach the disk in order, in groups, and also when it is full?

One thread writes. What came while it waited for the disk is its next group, so a slow disk means larger groups. While space is short:
spawns are refused; other events use the reserve; tool calls wait once less than a quarter of it is left, so that the results of those
under way still fit; when nothing is left, everything waits for room.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final

from luftpause.kit.errors import LuftpauseError
from luftpause.kit.logs import Log
from luftpause.runtime.journal_disk import FULL, JournalFile, Reserve
from luftpause.runtime.refusals import stopping

RETRY_SECONDS: Final = 1.0
RELEASE_BYTES: Final = 1 << 16  # a filesystem gives space in blocks
CALLS_NEED_SHARE: Final = 4

log = Log("runtime")


class Need(Enum):
    """How much a write matters when the disk is full."""

    SPAWN = "spawn"
    CALL = "call"
    RUNNING = "running"


class Write:
    """Lines of one run, and the future that is done when they are on disk."""

    def __init__(self, run: str, data: bytes, need: Need) -> None:
        self.run = run
        self.data = data
        self.need = need
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Job:
    """Something else that must not run beside a write: `work` in the writer's thread."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.work = work
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


Outcome = tuple[asyncio.Future[None], Exception | None]


class Writer:
    def __init__(self, file: JournalFile, reserve: Reserve) -> None:
        self._file = file
        self._reserve = reserve
        self._queue: list[Write | Job] = []
        self._parked: list[Write] = []  # tool calls that wait for room
        self._wake = threading.Condition()
        self._closing = False
        self._loop = asyncio.get_running_loop()
        self._trouble: OSError | None = None
        self._filled_at = 0.0
        self._full = reserve.fill()
        self._thread = threading.Thread(target=self._run, name="luftpause-journal", daemon=True)
        self._thread.start()

    @property
    def short(self) -> bool:
        """Is space short, so that spawns are refused?"""
        return not self._full or self._trouble is not None

    @property
    def waiting(self) -> bool:
        """Do runs wait for room?"""
        return bool(self._parked) or self._trouble is not None

    def put(self, item: Write | Job) -> asyncio.Future[None]:
        with self._wake:
            if self._closing:
                raise stopping()
            self._queue.append(item)
            self._wake.notify()
        return item.done

    async def close(self) -> None:
        """Writes what is there; what finds no room is given up (nobody was told that it is on disk)."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        await asyncio.to_thread(self._thread.join)

    # ---- in the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except Exception as error:  # noqa: BLE001  (whatever it is, those who wait must hear of it)
            log.error("the journal's writer has a fault", error=repr(error))  # noqa: TRY400  (Log has no exception())
            with self._wake:
                self._closing = True
                items = [*self._parked, *self._queue]
            self._tell((item.done, error) for item in items)

    def _turn(self) -> bool:
        """One group; False when there is nothing left to do for ever."""
        with self._wake:
            if not self._queue and not self._closing:
                self._wake.wait(RETRY_SECONDS if self.short or self._parked else None)
            items, self._queue = self._queue, []
            closing = self._closing
        self._refill()
        jobs = [item for item in items if isinstance(item, Job)]
        self._write(self._may_go([item for item in items if isinstance(item, Write)], closing=closing))
        for job in jobs:
            self._do(job, closing=closing)
        return not closing or bool(self._queue)

    def _refill(self) -> None:
        if self.short and (now := time.monotonic()) - self._filled_at >= RETRY_SECONDS:
            self._filled_at = now
            self._full = self._reserve.fill()

    def _may_go(self, writes: list[Write], *, closing: bool) -> list[Write]:
        """Refuses spawns and parks tool calls while space is short; a later write of a parked run takes the parked one along, before it."""
        calls_wait = self.short and self._reserve.left * CALLS_NEED_SHARE < max(1, self._reserve.size)
        ready: list[Write] = [] if calls_wait else self._parked
        parked: list[Write] = self._parked if calls_wait else []
        for write in writes:
            if write.need is Need.SPAWN and self.short:
                self._tell([(write.done, self.refusal())])
            elif write.need is Need.CALL and calls_wait:
                parked.append(write)
            else:
                ready.extend(each for each in parked if each.run == write.run)
                parked = [each for each in parked if each.run != write.run]
                ready.append(write)
        if closing:
            self._tell((write.done, self.refusal()) for write in parked)
        self._parked = [] if closing else parked
        return ready

    def _write(self, writes: list[Write]) -> None:
        while writes:
            try:
                self._file.append(b"".join(write.data for write in writes))
            except OSError as error:
                writes = self._after_failure(writes, error)
            else:
                self._trouble = None
                self._tell((write.done, None) for write in writes)
                return

    def _after_failure(self, writes: list[Write], error: OSError) -> list[Write]:
        """What is to be tried again, once there is a chance."""
        self._full = False
        refused = [write for write in writes if write.need is Need.SPAWN]
        writes = [write for write in writes if write.need is not Need.SPAWN]
        needed = sum(len(write.data) for write in writes) + RELEASE_BYTES
        given = bool(writes) and error.errno in FULL and self._reserve.release(needed)
        if writes and not given:
            self._wait_for_room(error)
            if self._closing:
                refused, writes = [*refused, *writes], []
        self._tell((write.done, self.refusal(error)) for write in refused)
        return writes

    def _wait_for_room(self, error: OSError) -> None:
        if self._trouble is None:
            log.error("the journal can't be written; runs wait", path=str(self._file.path), error=error.strerror or repr(error))
        self._trouble = error
        with self._wake:
            refused = [item for item in self._queue if isinstance(item, Write) and item.need is Need.SPAWN]
            self._queue = [item for item in self._queue if item not in refused]
        self._tell((item.done, self.refusal(error)) for item in refused)
        with self._wake:
            if not self._closing:
                self._wake.wait(RETRY_SECONDS)

    def _do(self, job: Job, *, closing: bool) -> None:
        if closing:
            self._tell([(job.done, stopping())])
            return
        try:
            job.work()
        except OSError as error:
            self._tell([(job.done, error)])
        else:
            self._tell([(job.done, None)])

    def refusal(self, error: OSError | None = None) -> LuftpauseError:
        error = error or self._trouble
        if error is not None and error.errno not in FULL:
            return LuftpauseError(
                f"the journal {self._file.path} can't be written: {error.strerror or error}; mend that, then spawn again",
                code="disk_full",
                status=507,
            )
        return LuftpauseError(
            f"the disk that holds {self._file.path.parent} is full: runs that are under way go on, new ones are refused; "
            "make room, then spawn again",
            code="disk_full",
            status=507,
        )

    def _tell(self, outcomes: Iterable[Outcome]) -> None:
        told = list(outcomes)
        if told and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_settle, told)


def _settle(outcomes: list[Outcome]) -> None:
    for future, error in outcomes:
        if future.done():  # whoever waited has left
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
