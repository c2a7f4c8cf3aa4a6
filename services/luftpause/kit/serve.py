"""How does a service listen, tell its starter where, and stop?"""

import asyncio
import contextlib
import errno
import os
import signal
import socket
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import orjson

from luftpause.kit.errors import LuftpauseError


def listen(host: str, port: int, *, option: str, shared: bool = False) -> socket.socket:
    """A bound TCP socket; port 0 takes a free one. `option` names what the user may change.

    `shared`: several processes may listen on the port, each gets some of its connections (SO_REUSEPORT).

    Raises LuftpauseError (`port_in_use`, `cannot_listen`) with a message that names host, port and option.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named by its protocol: asyncio sets TCP_NODELAY only then, and without it each small write waits 40 ms for an acknowledgement.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        taken = error.errno == errno.EADDRINUSE
        why = "is in use" if taken else f"can't be used: {error.strerror or error}"
        raise LuftpauseError(
            f"port {port} on {host} {why}; choose another with {option}",
            code="port_in_use" if taken else "cannot_listen",
        ) from error
    sock.setblocking(False)
    return sock


def url_of(sock: socket.socket, scheme: str = "http") -> str:
    """The address of a bound socket as a URL that works from this machine."""
    bound: tuple[str, int] = sock.getsockname()[:2]
    host, port = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bound[0], bound[0]), bound[1]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def announce(path: Path | None, addresses: dict[str, str]) -> None:
    """Write where this service listens, as JSON, for the process that started it; atomic. None: nobody asked."""
    if path is None:
        return
    part = path.with_suffix(path.suffix + ".part")
    part.write_bytes(orjson.dumps(addresses))
    part.replace(path)


class Stop:
    """Asked to stop? The first SIGTERM or SIGINT sets `asked`, a second one sets `now`."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.now = asyncio.Event()

    def signal(self) -> None:
        (self.now if self.asked.is_set() else self.asked).set()


@contextlib.asynccontextmanager
async def stop_signals() -> AsyncGenerator[Stop]:
    """Within the block SIGTERM and SIGINT go to the `Stop`; SIGHUP too if the terminal was closed, else it is ignored."""
    stop = Stop()
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)
    for each in signals:
        loop.add_signal_handler(each, stop.signal)
    loop.add_signal_handler(signal.SIGHUP, on_hangup(stop.signal, lambda: None))
    try:
        yield stop
    finally:
        for each in (*signals, signal.SIGHUP):
            loop.remove_signal_handler(each)


def on_hangup(gone: Callable[[], None], asked: Callable[[], None]) -> Callable[[], None]:
    """SIGHUP calls `gone` in a process whose terminal was closed since now, else `asked`: reload, as for any service."""
    terminals = [fd for fd in (0, 1, 2) if os.isatty(fd)]
    return lambda: gone() if terminals and not any(map(os.isatty, terminals)) else asked()
