"""How does a process keep others of its kind away from its files?"""

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from luftpause.kit.errors import LuftpauseError

HELD: Final = frozenset({errno.EWOULDBLOCK, errno.EAGAIN})
NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})


class FileLock:
    """Held as long as this process has it open; freed by the kernel when it dies."""

    def __init__(self, path: Path, in_use: Callable[[str], LuftpauseError]) -> None:
        """Raises OSError, or what `in_use` makes of the other holder: ` (pid 7)`, empty where that is not known."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._take(path, in_use)
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        except BaseException:
            os.close(self._fd)
            raise

    def _take(self, path: Path, in_use: Callable[[str], LuftpauseError]) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in NO_LOCKS:
                why = f"{error.strerror}: its file system keeps no locks; choose a folder on a disk of this machine"
                raise OSError(error.errno, why, str(path)) from error
            if error.errno not in HELD:
                raise
            other = os.pread(self._fd, 20, 0).decode(errors="replace").strip()
            raise in_use(f" (pid {other})" if other.isdigit() else "") from error

    def release(self) -> None:
        os.close(self._fd)
