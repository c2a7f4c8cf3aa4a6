"""Does a test that wants the machine alone get it, and does nobody overtake it?"""

import contextlib
import fcntl
import threading
from pathlib import Path

from tests.support.alone import machine

SECONDS = 20.0


def free(file: Path, how: int) -> bool:
    with file.open("w") as tried, contextlib.suppress(BlockingIOError):
        fcntl.flock(tried, how | fcntl.LOCK_NB)
        return True
    return False


def test_who_wants_it_alone_waits_for_those_inside_and_keeps_later_ones_out(tmp_path: Path) -> None:
    inside, leave = threading.Event(), threading.Event()

    def lone() -> None:
        with machine(tmp_path, alone=True):
            inside.set()
            leave.wait(SECONDS)

    thread = threading.Thread(target=lone)
    with machine(tmp_path, alone=False), machine(tmp_path, alone=False):
        thread.start()
        polls = threading.Event()
        while free(tmp_path / "door", fcntl.LOCK_EX):
            polls.wait(0.005)  # until it is at the door; nothing tells
        assert not inside.is_set()
        assert free(tmp_path / "room", fcntl.LOCK_SH), "those inside go on"
    assert inside.wait(SECONDS)
    assert not free(tmp_path / "room", fcntl.LOCK_SH)
    leave.set()
    thread.join(SECONDS)
    assert free(tmp_path / "room", fcntl.LOCK_EX)
