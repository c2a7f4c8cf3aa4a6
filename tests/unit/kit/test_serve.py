"""Does a service listen where it says, and without delaying small writes?"""

import asyncio
import os
import signal
import socket

import pytest

from luftpause.kit import serve
from luftpause.kit.errors import LuftpauseError


async def test_accepted_connections_send_small_writes_at_once() -> None:
    accepted = asyncio.get_running_loop().create_future()

    async def serve_one(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    sock = serve.listen("127.0.0.1", 0, option="-")
    server = await asyncio.start_server(serve_one, sock=sock)
    async with server:
        _, writer = await asyncio.open_connection(*sock.getsockname())
        assert await asyncio.wait_for(accepted, 60) != 0
        writer.close()
        await writer.wait_closed()


def test_a_port_in_use_is_named_with_its_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(LuftpauseError, match=f"port {port} on 127.0.0.1 is in use; choose another with runtime.port") as caught:
            serve.listen("127.0.0.1", port, option="runtime.port")
    assert caught.value.code == "port_in_use"


def test_the_address_of_every_interface_is_one_that_works_here() -> None:
    with serve.listen("0.0.0.0", 0, option="-") as sock:
        assert serve.url_of(sock) == f"http://127.0.0.1:{sock.getsockname()[1]}"


async def test_a_service_that_has_nothing_to_read_again_ignores_sighup() -> None:
    async with serve.stop_signals() as stop:
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(stop.asked.wait(), 60)
        assert not stop.now.is_set()  # the second of two that count would set it
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
