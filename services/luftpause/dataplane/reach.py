"""Which of a host's addresses takes a connection first?

An address that swallows everything (IPv6 without a way out, a machine that is gone) must not use up the time of the others.
"""

import asyncio
import ipaddress
import socket
import ssl
from asyncio.staggered import staggered_race
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

HEAD_START_SECONDS: Final = 0.25  # of an address before the next one is tried beside it (RFC 8305, 5)

P = TypeVar("P", bound=asyncio.BaseProtocol)


async def connect(protocol: Callable[[], P], host: str, port: int, tls: ssl.SSLContext | None) -> tuple[asyncio.Transport, P]:
    """Raises OSError, that of the first address, where none takes it."""
    loop = asyncio.get_running_loop()
    if _is_address(host):
        return await loop.create_connection(protocol, host, port, ssl=tls)
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    sock = await _first(loop, found)
    try:
        return await loop.create_connection(protocol, sock=sock, ssl=tls, server_hostname=host if tls is not None else None)
    except BaseException:
        sock.close()
        raise


async def _first(loop: asyncio.AbstractEventLoop, found: list[Any]) -> socket.socket:
    connected: list[socket.socket] = []
    winner: socket.socket | None = None
    try:
        tries = [partial(_connected, loop, each, connected) for each in found]
        winner, _, errors = await staggered_race(tries, HEAD_START_SECONDS, loop=loop)
        if winner is None:
            raise next((error for error in errors if isinstance(error, OSError)), OSError("no address"))
        return winner
    finally:
        for sock in connected:
            if sock is not winner:
                sock.close()


async def _connected(loop: asyncio.AbstractEventLoop, address: Any, connected: list[socket.socket]) -> socket.socket:
    family, kind, protocol, _, where = address
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        await loop.sock_connect(sock, where)
    except BaseException:
        sock.close()
        raise
    connected.append(sock)
    return sock


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
