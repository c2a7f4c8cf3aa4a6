"""Is a command's folder gone afterwards, and are those of killed commands cleared up, and no others?"""

import errno
import fcntl
import os
import tempfile
from pathlib import Path

import pytest

from luftpause.cli.scratch import LOCK, scratch, sweep
from luftpause.kit.errors import LuftpauseError
from luftpause.kit.file_lock import FileLock


def left_behind(folder: Path, name: str) -> Path:
    made = folder / name
    made.mkdir()
    (made / "dataplane.yaml").touch()
    (made / LOCK).touch()
    age(made)
    return made


def age(folder: Path) -> None:
    os.utime(folder, (1, 1))


def test_a_folder_is_there_for_a_while_and_gone_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    old = left_behind(tmp_path, "luftpause-killed")
    with scratch() as folder:
        assert folder.parent == tmp_path
        assert not old.exists()
        age(folder)
        sweep(tmp_path)
        assert folder.is_dir()  # it is locked
    assert list(tmp_path.iterdir()) == []


def test_where_there_are_no_locks_a_folder_is_made_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(fcntl, "flock", no_locks)
    with scratch() as folder:
        assert folder.is_dir()
    assert list(tmp_path.iterdir()) == []


def test_what_is_in_use_young_or_not_ours_stays(tmp_path: Path) -> None:
    used, young, other = (left_behind(tmp_path, name) for name in ("luftpause-used", "luftpause-young", "another"))
    os.utime(young)
    without_lock = tmp_path / "luftpause-of-a-person"
    without_lock.mkdir()
    age(without_lock)
    aim = left_behind(tmp_path, "aim")
    (tmp_path / "luftpause-link").symlink_to(aim)
    lock = FileLock(used / LOCK, lambda _: LuftpauseError("", code="x"))
    age(used)
    try:
        sweep(tmp_path)
    finally:
        lock.release()
    assert all(each.exists() for each in (used, young, other, without_lock, aim / LOCK))
    sweep(tmp_path)
    assert not used.exists()
