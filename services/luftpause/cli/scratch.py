"""Where does a command keep files for its children, and who clears up after one that was killed?"""

import contextlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Final

from luftpause.kit.errors import LuftpauseError
from luftpause.kit.file_lock import FileLock

PREFIX: Final = "luftpause-"
LOCK: Final = "in-use"
KEPT_SECONDS: Final = 3600.0  # a folder whose command died a moment ago is still looked at by its children


@contextlib.contextmanager
def scratch() -> Generator[Path]:
    """A folder of one's own that is gone afterwards; those that killed commands of this user left behind go first."""
    sweep(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX) as made, contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):  # where there are no locks, a folder that is left behind stays
            held.callback(FileLock(Path(made) / LOCK, _in_use).release)
        yield Path(made)


def sweep(folder: Path, *, kept_seconds: float = KEPT_SECONDS) -> None:
    """Remove in `folder` what `scratch` made for this user, whose command is gone and which has not changed for `kept_seconds`."""
    for each in folder.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError, LuftpauseError):
            about = each.lstat()
            old = time.time() - about.st_mtime > kept_seconds
            if stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and old and (each / LOCK).is_file():
                FileLock(each / LOCK, _in_use).release()
                shutil.rmtree(each, ignore_errors=True)


def _in_use(by: str) -> LuftpauseError:
    return LuftpauseError(f"the folder is in use{by}", code="in_use")
