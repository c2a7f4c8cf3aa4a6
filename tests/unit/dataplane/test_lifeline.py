"""Is the kernel told when to give a machine up that says nothing any more?"""

import asyncio
import socket
from collections.abc import Callable

import pytest
import uvloop

from luftpause.dataplane import lifeline

LINUX = hasattr(socket, "TCP_USER_TIMEOUT") and hasattr(socket, "TCP_KEEPIDLE")


async def options(seconds: float) -> tuple[int, int, int, int, int]:
    """Of a watched connection: keep-alive, then silence, pauses and number of its probes, then the time for what was sent, in ms."""
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, *server.sockets[0].getsockname()[:2])
        lifeline.watch(transport, seconds)
        sock: socket.socket = transport.get_extra_info("socket")
        names = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
        read = [sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in names]
        alive = sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        transport.close()
    return (alive, read[0], read[1], read[2], read[3])


@pytest.mark.skipif(not LINUX, reason="Linux's names")
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize(("seconds", "set_to"), [(15, (1, 5, 5, 2, 15_000)), (0.5, (1, 1, 1, 2, 500)), (61, (1, 20, 20, 2, 61_000))])
def test_probes_and_what_was_sent_have_so_long(
    loop: Callable[[], asyncio.AbstractEventLoop], seconds: float, set_to: tuple[int, ...]
) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(options(seconds)) == set_to


@pytest.mark.skipif(not LINUX, reason="Linux's names")
def test_none_leaves_it_to_the_system() -> None:
    with asyncio.Runner() as runner:
        assert runner.run(options(0))[0] == 0


def test_what_is_no_tcp_connection_is_left_alone() -> None:
    near, far = socket.socketpair()

    class Transport(asyncio.BaseTransport):
        def get_extra_info(self, name: str, default: object = None) -> object:
            return near if name == "socket" else default

    with near, far:
        lifeline.watch(Transport(), 15)
        assert near.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0
