"""Where do the journal's bytes go, and what happens when the disk is full?"""

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Protocol

from luftpause.kit.logs import Log

READ_BYTES: Final = 1 << 20
GONE: Final = "somebody deleted it, or put another in its place, while the runtime runs; put it back, or start the runtime again"
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

log = Log("runtime")


class Files(Protocol):
    """What the journal asks of the operating system; a test puts a full disk behind it. All raise OSError."""

    def write(self, fd: int, data: bytes) -> int: ...

    def sync(self, fd: int) -> None: ...

    def allocate(self, fd: int, size: int) -> None:
        """Make the file `size` bytes long, with the space for them really taken."""
        ...


class OsFiles:
    def write(self, fd: int, data: bytes) -> int:
        return os.write(fd, data)

    def sync(self, fd: int) -> None:
        os.fsync(fd)

    def allocate(self, fd: int, size: int) -> None:
        if hasattr(os, "posix_fallocate"):
            if size:
                os.posix_fallocate(fd, 0, size)
            return
        have = os.fstat(fd).st_size
        while have < size:  # macOS has no posix_fallocate; zeros take the space too
            have += os.pwrite(fd, bytes(min(READ_BYTES, size - have)), have)


class Reserve:
    """Disk space that is taken while there is plenty and given back, piece by piece, when there is none."""

    def __init__(self, path: Path, size: int, files: Files) -> None:
        self.size = size
        self._files = files
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if os.fstat(self._fd).st_size > size:
            os.ftruncate(self._fd, size)

    @property
    def left(self) -> int:
        return os.fstat(self._fd).st_size

    def fill(self) -> bool:
        """Take what is missing; False when the disk hasn't got it. What was left stays reserved."""
        had = self.left
        if had >= self.size:
            return True
        try:
            self._files.allocate(self._fd, self.size)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, had)
            if error.errno in FULL:
                return False
            log.warning("no disk space can be reserved here; when the disk is full, runs wait", error=error.strerror or repr(error))
            self.size = 0
        return True

    def release(self, count: int) -> bool:
        """Give at least `count` bytes back to the disk; False when nothing is left to give."""
        left = self.left
        if not left:
            return False
        os.ftruncate(self._fd, max(0, left - count))
        return True

    def close(self) -> None:
        os.close(self._fd)


class JournalFile:
    """An append-only file that never keeps half of a write."""

    def __init__(self, path: Path, files: Files) -> None:
        self.path = path.resolve()  # one that leads elsewhere must still do so after `replace`
        self._files = files
        self._fd = _open(path)
        self.end = os.fstat(self._fd).st_size
        sync_directory(path.parent)

    def append(self, data: bytes) -> None:
        """On disk when this returns. Raises OSError; the file is then as it was.

        A file that somebody deleted or put another in the place of is one that no later process finds.
        """
        if not self._there():
            raise FileNotFoundError(errno.ENOENT, GONE)
        try:
            self._write(self._fd, data)
            self._files.sync(self._fd)
        except OSError:
            self.truncate(self.end)
            raise
        self.end += len(data)

    def truncate(self, end: int) -> None:
        os.ftruncate(self._fd, end)
        os.lseek(self._fd, end, os.SEEK_SET)
        self.end = end

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Every complete line without its newline, with the offset behind it."""
        offset, rest = 0, b""
        with self.path.open("rb") as file:
            while chunk := file.read(READ_BYTES):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    offset += len(line) + 1
                    yield offset, line

    def rest(self) -> bytes:
        """What stands behind the last newline."""
        data = b""
        while b"\n" not in data and len(data) < self.end:
            size = min(self.end, max(READ_BYTES, 2 * len(data)))
            data = os.pread(self._fd, size, self.end - size)
        return data.rpartition(b"\n")[2]

    def replace(self, lines: Iterable[bytes]) -> None:
        """The file with these bytes instead, atomically. Raises OSError; the file is then as it was."""
        part = self.path.with_suffix(".part")
        part.unlink(missing_ok=True)
        fd = _open(part)
        try:
            end = 0
            for data in _chunks(lines):
                self._write(fd, data)
                end += len(data)
            self._files.sync(fd)
            part.replace(self.path)
        except OSError:
            os.close(fd)
            part.unlink(missing_ok=True)
            raise
        os.close(self._fd)
        self._fd, self.end = fd, end
        sync_directory(self.path.parent)

    def close(self) -> None:
        os.close(self._fd)

    def _there(self) -> bool:
        try:
            return os.path.samestat(self.path.stat(), os.fstat(self._fd))
        except FileNotFoundError:
            return False

    def _write(self, fd: int, data: bytes) -> None:
        while data:
            data = data[self._files.write(fd, data) :]


def _chunks(lines: Iterable[bytes]) -> Iterator[bytes]:
    chunk = bytearray()
    for line in lines:
        chunk += line
        if len(chunk) >= READ_BYTES:
            yield bytes(chunk)
            chunk.clear()
    yield bytes(chunk)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def sync_directory(path: Path) -> None:
    """A new or renamed name survives a power cut only after this."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
