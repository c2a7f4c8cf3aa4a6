"""How does one log get to the disk, whole or cleanly cut?"""

import contextlib
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from luftpause.scheduler.record_log import Ends, end_line

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700


class LogFile:
    """An open log. What was written is on its way to the disk; nothing waits for the disk itself (no fsync)."""

    def __init__(self, path: Path) -> None:
        """Raises OSError; a log that exists is never written to."""
        self.path = path
        self.events = 0
        self.bytes = 0  # of whole lines
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, FILE_MODE)

    def write(self, lines: bytes, events: int) -> None:
        """Append whole lines. Raises OSError; then the log still ends with the last whole line that `close` can leave."""
        left = memoryview(lines)
        while left:
            left = left[os.write(self._file, left) :]
        self.bytes += len(lines)
        self.events += events

    def still_there(self) -> None:
        """Raises OSError where the log was deleted or moved, or another file has its name: nobody would find what is written."""
        found, mine = self.path.stat(), os.fstat(self._file)
        if (found.st_dev, found.st_ino) != (mine.st_dev, mine.st_ino):
            raise FileNotFoundError(f"another file is now at {self.path}")

    def close(self, why: Ends) -> None:
        """End the log, at its last whole line if a write was cut short. Never raises: a full disk just leaves the end out."""
        with contextlib.suppress(OSError):
            if self.bytes == 0:  # not even its first line
                self.path.unlink()
            os.ftruncate(self._file, self.bytes)
            line = end_line(why, self.events)
            if os.write(self._file, line) < len(line):
                os.ftruncate(self._file, self.bytes)
        with contextlib.suppress(OSError):
            os.close(self._file)


def file_name(at: datetime, epoch: str, part: int) -> str:
    """Sorted by name the logs of a directory are in the order of their beginning."""
    return f"scheduler-{at.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}-{epoch}-{part:04}.jsonl"
