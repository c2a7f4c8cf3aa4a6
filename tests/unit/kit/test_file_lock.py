"""Is a file that another process has locked told from one that can't be locked?"""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from luftpause.kit.errors import LuftpauseError
from luftpause.kit.file_lock import FileLock


def taken(who: str) -> LuftpauseError:
    return LuftpauseError(f"taken{who}", code="taken")


def test_who_has_it_is_named_and_a_released_one_is_free(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = FileLock(path, taken)
    with pytest.raises(LuftpauseError, match=rf"^taken \(pid {os.getpid()}\)$"):
        FileLock(path, taken)
    first.release()
    FileLock(path, taken).release()


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EIO, errno.EROFS])
def test_a_lock_that_nobody_can_have_is_nobody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    opened = len(list(Path("/proc/self/fd").iterdir()))

    def refuse(*_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match=os.strerror(code)) as raised:
        FileLock(tmp_path / "lock", taken)
    assert raised.value.errno == code
    assert len(list(Path("/proc/self/fd").iterdir())) == opened


def test_a_full_disk_leaves_nothing_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:

        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patched.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space left"):
            FileLock(tmp_path / "lock", taken)
    FileLock(tmp_path / "lock", taken).release()
