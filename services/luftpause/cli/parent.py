"""What does a child process get from the process that started it: word of its end, and a configuration that is written later?

Its standard input is a pipe that only the parent holds: when the parent is gone, even by kill -9, the pipe ends.
"""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Final

VARIABLE: Final = "LUFTPAUSE_STOP_WITH_STDIN"
GRACE_SECONDS: Final = 35.0  # the longest `stop_grace_seconds` by default, and a little

POLL_SECONDS: Final = 0.01


def watch() -> None:
    """Where the environment asks for it (it is removed there): stop this process when standard input ends."""
    if os.environ.pop(VARIABLE, "") == "1":
        threading.Thread(target=_stop_at_end, name="parent", daemon=True).start()


def wait_for(file: Path) -> None:
    """Returns when the file is there; whoever started this process writes it, or ends the process."""
    while not file.exists():
        time.sleep(POLL_SECONDS)


def _stop_at_end() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os._exit(1)
