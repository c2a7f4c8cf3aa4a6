"""What does the runtime remember of its runs, whatever happens to the process?

The journal stands behind four operations, so that another store can take the place of the file: `claim` (here: the lock on the state
directory), `load`, `append` and `compact`.
"""

import asyncio
import contextlib
import errno
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from luftpause.kit.config import RuntimeConfig
from luftpause.kit.errors import LuftpauseError
from luftpause.kit.file_lock import FileLock
from luftpause.kit.logs import Log
from luftpause.runtime.core.events import CallStarted, Created, Event, Finished
from luftpause.runtime.journal_disk import Files, JournalFile, OsFiles, Reserve
from luftpause.runtime.journal_lines import Entry, decode, encode
from luftpause.runtime.journal_load import Lines, Loaded, lasting, load
from luftpause.runtime.journal_writer import Job, Need, Write, Writer

FILE: Final = "runs.jsonl"
TO_MEND: Final = "set runtime.state (`luftpause up`: --state) to another directory"
LOCK: Final = "runs.lock"
RESERVE: Final = "runs.reserve"
DAMAGED_LOGGED_MAX: Final = 20

log = Log("runtime")


class Journal:
    """`open`, then `load` once, then `append` and `compact`, then `close` (which leaving `async with` does)."""

    def __init__(self, state: Path, config: RuntimeConfig, files: Files, lock: FileLock) -> None:
        self._config = config
        self._lock = lock
        self._file = JournalFile(state / FILE, files)
        self._reserve = Reserve(state / RESERVE, config.journal_reserve_bytes, files)
        self._lines: dict[str, Lines] = {}
        self._spare = 0  # bytes of finished runs that compaction would drop
        self._writer: Writer | None = None
        self._closed = False

    @classmethod
    async def open(cls, config: RuntimeConfig, *, files: Files | None = None) -> Self:
        """Claim the state directory `config.state`. Raises LuftpauseError (`state_in_use`, `state_unusable`)."""
        return await asyncio.to_thread(cls._open, config, files or OsFiles())

    @classmethod
    def _open(cls, config: RuntimeConfig, files: Files) -> Self:
        state = config.state
        try:
            if state.exists() and not state.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, "it is not a directory")
            state.mkdir(mode=0o700, parents=True, exist_ok=True)
            return cls(state, config, files, cls.claim(state))
        except OSError as error:
            raise LuftpauseError(
                f"the state directory {state} can't be used: {error.strerror or error}; mend that, or {TO_MEND}",
                code="state_unusable",
            ) from error

    @staticmethod
    def claim(state: Path) -> FileLock:
        """Raises LuftpauseError (`state_in_use`) if another runtime has it."""

        def in_use(who: str) -> LuftpauseError:
            return LuftpauseError(
                f"another runtime{who} uses the state directory {state}; stop it, or {TO_MEND}",
                code="state_in_use",
            )

        return FileLock(state / LOCK, in_use)

    @property
    def short(self) -> bool:
        """Is the disk full, so that spawns are refused?"""
        return self._writer is not None and self._writer.short

    @property
    def size_bytes(self) -> int:
        return self._file.end

    @property
    def waiting(self) -> bool:
        """Do runs wait for room on the disk?"""
        return self._writer is not None and self._writer.waiting

    async def load(self) -> Loaded:
        """All runs. Cuts a torn last line off; reports it, and each damaged line by its number. Raises LuftpauseError (`journal_newer`)."""
        found = await asyncio.to_thread(self._load)
        if torn := self._file.end - found.end:
            log.warning("cut a torn line off the journal's end", bytes=torn, path=str(self._file.path))
            self._file.truncate(found.end)
        for number, why in found.damaged[:DAMAGED_LOGGED_MAX]:
            log.error("a line of the journal is damaged", line=number, why=why, path=str(self._file.path))
        if len(found.damaged) > DAMAGED_LOGGED_MAX:
            log.error("lines of the journal are damaged", count=len(found.damaged), path=str(self._file.path))
        self._lines = found.lines
        self._spare = sum(each.bytes_all - each.bytes_kept for each in found.lines.values() if each.finished)
        self._writer = Writer(self._file, self._reserve)
        return found

    def seq(self, run: str) -> int:
        """The number of the run's next event; 0: the journal doesn't know it."""
        return self._lines[run].seq if run in self._lines else 0

    def append(self, run: str, expected_seq: int, events: Sequence[Event]) -> asyncio.Future[None]:
        """Queue these events at once, in order; the future is done when they are on disk.

        Its errors: LuftpauseError `disk_full` for a `Created` (nothing was written), `stopping`. Raises ValueError if the run's events
        don't go on at `expected_seq`: somebody else writes for this run.
        """
        if self._writer is None:
            raise RuntimeError("load the journal before writing to it")
        lines = self._lines.setdefault(run, Lines())
        if lines.seq != expected_seq:
            raise ValueError(f"{run}: the journal is at event {lines.seq}, not {expected_seq}")
        finished = lines.finished
        data: list[bytes] = []
        for seq, event in enumerate(events, expected_seq):
            line = encode(run, seq, event)
            lines.add(seq, len(line), event)
            data.append(line)
        if lines.finished and not finished:
            self._spare += lines.bytes_all - lines.bytes_kept
        done = self._writer.put(Write(run, b"".join(data), _need(events)))
        if expected_seq == 0:
            done.add_done_callback(lambda future: self._forget_refused(run, future))
        return done

    def worth_compacting(self, drop: Sequence[str]) -> bool:
        """Is most of a large journal of no use any more? `drop`: finished runs that nobody needs."""
        if self._file.end <= self._config.journal_compact_bytes:
            return False
        dropped = sum(self._lines[run].bytes_kept for run in drop if run in self._lines)
        return 2 * (self._spare + dropped) > self._file.end

    async def compact(self, drop: Sequence[str]) -> None:
        """Rewrite the file without the runs `drop`, and of other finished runs with their first and last event only.

        Raises OSError; the file is then as it was.
        """
        if self._writer is None:
            raise RuntimeError("load the journal before compacting it")
        began, before, gone = time.monotonic(), self._file.end, frozenset(drop)
        finished: set[str] = set()

        def rewrite() -> None:
            finished.update(entry.run for entry in self._ends())
            self._file.replace(self._kept(gone, finished))

        await self._writer.put(Job(rewrite))
        for run in gone:
            self._lines.pop(run, None)
        for run in (finished - gone) & self._lines.keys():
            self._lines[run].bytes_all = self._lines[run].bytes_kept
        self._spare = sum(each.bytes_all - each.bytes_kept for each in self._lines.values() if each.finished)
        log.info("compacted the journal", before=before, after=self._file.end, seconds=round(time.monotonic() - began, 3))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Write what is queued and let the next runtime in. A second time: nothing."""
        if self._closed:
            return
        self._closed = True
        if self._writer is not None:
            await self._writer.close()
        self._file.close()
        self._reserve.close()
        self._lock.release()

    def _load(self) -> Loaded:
        if isinstance(decode(self._file.rest()), Entry):  # whole but for its newline: a copy or an editor lost that
            with contextlib.suppress(OSError):
                self._file.append(b"\n")
        return load(self._file.lines())

    def _kept(self, gone: frozenset[str], finished: set[str]) -> Iterator[bytes]:
        ended: set[str] = set()
        for _, line in self._file.lines():
            entry = decode(line)
            if not isinstance(entry, Entry) or entry.run in gone:
                continue
            if entry.run not in finished or entry.run in ended or lasting(entry.event):
                if isinstance(entry.event, Finished):
                    ended.add(entry.run)
                yield line.removesuffix(b"\r") + b"\n"

    def _ends(self) -> Iterator[Entry]:
        """The last events of the runs that have ended. Most lines needn't be decoded for that."""
        for _, line in self._file.lines():
            entry = decode(line) if b'"finished"' in line else None
            if isinstance(entry, Entry) and isinstance(entry.event, Finished):
                yield entry

    def _forget_refused(self, run: str, future: asyncio.Future[None]) -> None:
        if not future.cancelled() and future.exception() is not None:
            self._lines.pop(run, None)


def _need(events: Sequence[Event]) -> Need:
    if any(isinstance(event, Created) for event in events):
        return Need.SPAWN
    return Need.CALL if any(isinstance(event, CallStarted) for event in events) else Need.RUNNING
