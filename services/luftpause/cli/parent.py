"""How does a child process notice that the process which started it is gone, however that ended?

Its standard input is a pipe that only the parent holds: when the parent is gone, even by kill -9, the pipe ends.
"""

import os
import signal
import threading
import time
from typing import Final

VARIABLE: Final = "LUFTPAUSE_STOP_WITH_STDIN"
GRACE_SECONDS: Final = 35.0  # the longest `stop_grace_seconds` by default, and a little


def watch() -> None:
    """Where the environment asks for it (it is removed there): stop this process when standard input ends."""
    if os.environ.pop(VARIABLE, "") == "1":
        threading.Thread(target=_stop_at_end, name="parent", daemon=True).start()


def _stop_at_end() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os._exit(1)
