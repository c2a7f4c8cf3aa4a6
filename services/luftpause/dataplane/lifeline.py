"""When is the machine at the other end of a connection gone? Its kernel acknowledges nothing any more, however busy its engine is."""

import asyncio
import socket
from typing import Final

PROBES: Final = 2
PAUSES: Final = ("TCP_KEEPIDLE", "TCP_KEEPALIVE", "TCP_KEEPINTVL")  # before the first probe on Linux, on macOS; between probes


def watch(transport: asyncio.BaseTransport, seconds: float) -> None:
    """From now on the connection is lost (`ETIMEDOUT`) when nothing was acknowledged for about `seconds`; 0: as long as the system likes.

    While something is sent that is Linux's TCP_USER_TIMEOUT, while an answer is waited for probes of the kernel. The system counts whole
    seconds, at least one between probes.
    """
    sock: socket.socket | None = transport.get_extra_info("socket")
    if sock is None or not seconds or sock.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    pause = max(1, round(seconds / (PROBES + 1)))
    values = {**dict.fromkeys(PAUSES, pause), "TCP_KEEPCNT": PROBES, "TCP_USER_TIMEOUT": round(seconds * 1000)}
    for name, value in values.items():
        option = getattr(socket, name, None)  # each system has some of them
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
