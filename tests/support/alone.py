"""How does a test have the machine to itself while the others run in a second process?"""

import contextlib
import fcntl
from collections.abc import Generator
from pathlib import Path


@contextlib.contextmanager
def machine(folder: Path, *, alone: bool) -> Generator[None]:
    """Wait until no test that shares this folder wants the machine alone; with `alone` until none of them runs, and keep them waiting.

    Who waits for the room holds the door, so that nobody comes in before it.
    """
    with (folder / "door").open("w") as door, (folder / "room").open("w") as room:
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        yield
