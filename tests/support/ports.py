"""Which port does a test take that nobody listens on, or that it wants to have again?"""

import atexit
import contextlib
import fcntl
import random
import socket
import tempfile
from pathlib import Path
from typing import Final

_TAKEN: Final = Path(tempfile.gettempdir()) / "luftpause-test-ports"


def a_refusing_port() -> int:
    """A port of 127.0.0.1 that refuses connections, and that nobody else gets while the tests run: it is bound and not listened on."""
    held = socket.socket()
    atexit.register(held.close)
    held.bind(("127.0.0.1", 0))
    return held.getsockname()[1]


def a_quiet_port() -> int:
    """A free port outside the range that outgoing connections take, so that it is still free after a restart; no other test gets it."""
    while True:
        port = random.randint(20_000, 30_000)
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            if _is_mine_now(port):
                return port


def _is_mine_now(port: int) -> bool:
    """Taken until this process ends, from the other processes that run tests too."""
    _TAKEN.mkdir(exist_ok=True)
    lock = (_TAKEN / str(port)).open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        return False
    atexit.register(lock.close)
    return True
