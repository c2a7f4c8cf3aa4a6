"""Is a host reached by whichever of its addresses works?"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import uvloop

from luftpause.dataplane.reach import connect
from tests.support.ports import a_refusing_port

Where = tuple[str, int]


@contextlib.asynccontextmanager
async def listening() -> AsyncGenerator[Where]:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[:2]


SWALLOWING = ("192.0.2.1", 9)  # here: an address whose connections never come about


async def reached(*addresses: Where) -> Where:
    """Which one a connection to a name with these addresses led to."""
    loop = asyncio.get_running_loop()

    async def getaddrinfo(*_: object, **__: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", each) for each in addresses]

    async def sock_connect(sock: socket.socket, where: Where) -> None:
        if where == SWALLOWING:
            await asyncio.Event().wait()
        await loop.sock_connect(sock, where)

    class Loop:
        def __getattr__(self, name: str) -> Any:
            return {"getaddrinfo": getaddrinfo, "sock_connect": sock_connect}.get(name) or getattr(loop, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("luftpause.dataplane.reach.asyncio.get_running_loop", Loop)
        transport, _ = await connect(asyncio.Protocol, "engine.example", 1, None)
    try:
        return transport.get_extra_info("peername")[:2]
    finally:
        transport.abort()


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_an_address_that_swallows_or_refuses_hides_no_other(factory: Any) -> None:
    async def check() -> None:
        refusing = ("127.0.0.1", a_refusing_port())
        async with listening() as good:
            assert await reached(good) == good
            assert await reached(SWALLOWING, good) == good
            assert await reached(refusing, good) == good
            assert await reached(refusing, SWALLOWING, good) == good
            with pytest.raises(ConnectionRefusedError):
                await reached(refusing, refusing)
            task = asyncio.create_task(reached(SWALLOWING, SWALLOWING))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(check())
