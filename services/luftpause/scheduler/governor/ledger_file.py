"""How does the ledger of quotas survive a restart of the scheduler?"""

import asyncio
import contextlib
import errno
import os
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final

from msgspec import Struct

from luftpause.kit.clock import uptime
from luftpause.kit.errors import ConfigError
from luftpause.kit.file_lock import FileLock
from luftpause.kit.logs import Log
from luftpause.scheduler.governor.host import Governor
from luftpause.scheduler.quota.model import State
from luftpause.scheduler.quota.snapshot import Moment, SnapshotError, from_snapshot, to_snapshot

BYTES_MAX: Final = 256 * 2**20
DAMAGED: Final = ".damaged"  # what can't be read is kept under this name
LOCK: Final = ".lock"
CHECK_BYTES: Final = 4096
TO_MEND: Final = {
    errno.EACCES: "is the folder yours?",
    errno.EPERM: "is the folder yours?",
    errno.EROFS: "name a place on a disk that is not mounted read-only",
    errno.ENOSPC: "make room on that disk, or name a place on another one",
    errno.EDQUOT: "make room on that disk, or name a place on another one",
}

log = Log("governor")


class Found(Struct, frozen=True):
    """`lost`: there was a ledger, but nothing could be learned from it: who has what is not known."""

    state: State
    lost: bool = False


class LedgerFile:
    """Raises ConfigError where the file can't be used at all. `epoch`: seconds since 1970; `boot`: as `clock.uptime`."""

    def __init__(
        self, path: Path, epoch: Callable[[], float] = time.time, boot: Callable[[], tuple[str, float]] = uptime
    ) -> None:  # fmt: skip
        self._path = path
        self._epoch = epoch
        self._boot = boot

    def read(self, state: State) -> Found:
        """`state`, which has just begun, with what the file says. No file: this is the first start."""
        try:
            data = self._bytes()
        except FileNotFoundError:
            return Found(state)
        except OSError as error:
            raise ConfigError(f"governor.state {self._path}: can't be read: {error.strerror or error}") from error
        try:
            return Found(from_snapshot(data, state, self._moment()))
        except SnapshotError as error:
            kept = self._put_aside()
            log.warning(
                "the ledger of quotas can't be read: what was used and reserved is lost. Background calls wait until the leases of before "
                "have ended",
                file=str(self._path), kept_as=kept, problem=str(error),
            )  # fmt: skip
            return Found(state, lost=True)

    def _bytes(self) -> bytes:
        with self._path.open("rb") as file:
            return file.read(BYTES_MAX)

    def _put_aside(self) -> str:
        aside = self._path.with_name(self._path.name + DAMAGED)
        try:
            self._path.replace(aside)
        except OSError as error:
            raise ConfigError(f"governor.state {self._path}: can't be moved away: {error.strerror or error}") from error
        return str(aside)

    def snapshot(self, governor: Governor) -> bytes:
        return to_snapshot(governor.state, governor.now, self._moment())

    def _moment(self) -> Moment:
        return Moment(self._epoch(), *self._boot())

    def write(self, data: bytes) -> None:
        """All of it or nothing: whoever reads meanwhile sees the old ledger. Raises OSError."""
        new = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        try:
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
        except OSError:
            with contextlib.suppress(OSError):
                new.unlink()
            raise

    def check(self) -> None:
        """Can it be written at all? Raises ConfigError: to be told at the start, not when the first ledger is lost."""
        probe = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        try:
            if self._path.is_dir():
                raise ConfigError(f"governor.state {self._path}: is a folder; name a file in it")
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with probe.open("wb") as file:
                file.write(b"\0" * CHECK_BYTES)  # a full disk takes an empty one
                file.flush()
                os.fsync(file.fileno())
            probe.unlink()
        except OSError as error:
            with contextlib.suppress(OSError):
                probe.unlink()
            mend = TO_MEND.get(error.errno or 0, "mend that, or name another place")
            raise ConfigError(f"governor.state {self._path}: can't be written: {error.strerror or error}; {mend}") from error


@contextlib.contextmanager
def kept(path: Path | None) -> Generator[None]:
    """
    Within the block no other scheduler keeps its ledger there: both would grant the whole quota. None: nobody keeps one.

    Raises ConfigError.
    """
    if path is None:
        yield
        return
    LedgerFile(path).check()

    def in_use(who: str) -> ConfigError:
        return ConfigError(f"governor.state {path}: another scheduler{who} keeps its ledger there; stop it, or share one by governor.store")

    try:
        lock = FileLock(path.with_name(path.name + LOCK), in_use)
    except OSError as error:
        mend = TO_MEND.get(error.errno or 0, "mend that, or name another place")
        raise ConfigError(
            f"governor.state {path}: {path.name}{LOCK} beside it can't be locked: {error.strerror or error}; {mend}"
        ) from error
    try:
        yield
    finally:
        lock.release()


class Keeper:
    """Writes the ledger every few seconds while it changes, and at the end."""

    def __init__(self, governor: Governor, file: LedgerFile, *, seconds: float) -> None:
        self._governor = governor
        self._file = file
        self._seconds = seconds
        self._written: State | None = None
        self._problem = ""

    async def run(self) -> None:
        """Until cancelled; then once more."""
        try:
            while True:
                await asyncio.sleep(self._seconds)
                with self._governor.faults.noted("ledger_file"):
                    await self._keep()
        finally:
            with self._governor.faults.noted("ledger_file"):
                if self._governor.state is not self._written:
                    self._told(self._try(self._file.snapshot(self._governor)))

    async def _keep(self) -> None:
        state = self._governor.state
        if state is self._written:
            return
        writing = asyncio.ensure_future(asyncio.to_thread(self._try, self._file.snapshot(self._governor)))
        try:
            problem = await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait({writing})  # else it would write over the last ledger
            raise
        self._told(problem)
        self._written = None if problem else state

    def _try(self, data: bytes) -> str:
        """Why it could not be written; empty: it was."""
        try:
            self._file.write(data)
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def _told(self, problem: str) -> None:
        """Each problem once, and its end; the next write may do."""
        if problem and problem != self._problem:
            log.warning("the ledger of quotas can't be written; a restart now would lose what is used and reserved", problem=problem)
        elif self._problem and not problem:
            log.info("the ledger of quotas is written again")
        self._problem = problem
