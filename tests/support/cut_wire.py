"""A wire between a client and a server on which a test breaks single connections."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator


class Wire:
    """Leads to `to_port`. The next connection on which the client sends `cut_at` is reset there and then; the others go on.

    So is, but for one byte at its end, the next answer in which the server says `cut_answer`.
    """

    def __init__(self, to_port: int) -> None:
        self.cut_at = self.cut_answer = b""
        self.connections = 0  # so far
        self.sent = bytearray()  # by clients
        self.to_port = to_port
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._open: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, sock=self._socket)

    def refuse(self) -> None:
        """No new connections from here on."""
        if self._server is not None:
            self._server.close()

    async def stop(self) -> None:
        self.refuse()
        for each in self._open:
            each.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open.add(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with _aborted(writer):
            back, forth = await asyncio.open_connection("127.0.0.1", self.to_port)
            async with _aborted(forth):
                ways = [asyncio.create_task(each) for each in (self._up(reader, forth), self._down(back, writer))]
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)

    async def _up(self, reader: asyncio.StreamReader, forth: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            self.sent += data
            if self.cut_at and self.cut_at in data:
                self.cut_at = b""
                return
            forth.write(data)

    async def _down(self, back: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await back.read(65_536):
            if self.cut_answer and self.cut_answer in data:
                self.cut_answer = b""
                writer.write(data[: data.rindex(b"}")])
                return
            writer.write(data)


@contextlib.asynccontextmanager
async def _aborted(writer: asyncio.StreamWriter) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def wire(to_port: int) -> AsyncGenerator[Wire]:
    made = Wire(to_port)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()
