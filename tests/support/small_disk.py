"""What does the journal meet on a disk of a few kilobytes?"""

import errno
import os
from pathlib import Path

from luftpause.runtime.journal_disk import OsFiles


class SmallDisk(OsFiles):
    """A directory that holds `capacity` bytes; a write that doesn't fit leaves a part of itself, as real ones do."""

    def __init__(self, directory: Path, capacity: int) -> None:
        self.directory = directory
        self.capacity = capacity
        self.syncs = 0

    @property
    def free(self) -> int:
        used = sum(file.stat().st_size for file in self.directory.iterdir() if file.suffix != ".lock")
        return max(0, self.capacity - used)

    def write(self, fd: int, data: bytes) -> int:
        fits = min(len(data), self.free)
        if not fits:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(fd, data[:fits])

    def sync(self, fd: int) -> None:
        self.syncs += 1

    def allocate(self, fd: int, size: int) -> None:
        if size - os.fstat(fd).st_size > self.free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.ftruncate(fd, size)
