"""Which port does a test take that nobody listens on, or that it wants to have again?"""

import atexit
import contextlib
import random
import socket


def a_refusing_port() -> int:
    """A port of 127.0.0.1 that refuses connections, and that nobody else gets while the tests run: it is bound and not listened on."""
    held = socket.socket()
    atexit.register(held.close)
    held.bind(("127.0.0.1", 0))
    return held.getsockname()[1]


def a_quiet_port() -> int:
    """A free port outside the range that outgoing connections take, so that it is still free after a restart."""
    while True:
        port = random.randint(20_000, 30_000)
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
