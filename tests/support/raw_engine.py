"""An engine of raw bytes: it answers exactly what a test tells it to, well-formed or not."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field

Behave = Callable[["Talk"], Awaitable[None]]


@dataclass
class Talk:
    """One request on one connection. `gone` is set when the other side has closed or reset the connection."""

    head: bytes
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    gone: asyncio.Event
    again: bool = False  # the connection was used before

    def header(self, name: str) -> str | None:
        for line in self.head.decode("latin-1").split("\r\n")[1:]:
            key, _, value = line.partition(":")
            if key.lower() == name:
                return value.strip()
        return None

    async def send(self, *parts: bytes) -> None:
        """Each part in a write of its own."""
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()
            if len(parts) > 1:
                await asyncio.sleep(0.002)  # so that they arrive in reads of their own; nothing depends on it

    async def stream(self, *events: bytes, end: bool = True) -> None:
        await self.send(STREAM_HEAD + b"".join(chunked(event) for event in events) + (b"0\r\n\r\n" if end else b""))

    def reset(self) -> None:
        self.writer.transport.abort()


STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"


def chunked(payload: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def json_answer(body: bytes, status: str = "200 OK", more: bytes = b"") -> bytes:
    return b"HTTP/1.1 %b\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n%b" % (status.encode(), more, len(body), body)


@dataclass
class RawEngine:
    behave: Behave
    url: str = ""
    talks: list[Talk] = field(default_factory=list)
    connections: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        gone, again = asyncio.Event(), False
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                talk = Talk(head, b"", reader, writer, gone, again)
                talk.body = await reader.readexactly(int(talk.header("content-length") or 0))
                self.talks.append(talk)
                again = True
                watch = asyncio.create_task(self._watch(talk))
                try:
                    await self.behave(talk)
                finally:
                    watch.cancel()
                if writer.is_closing():
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            gone.set()
        finally:
            writer.close()

    @staticmethod
    async def _watch(talk: Talk) -> None:
        """Learn that the other side left, although nobody reads: a closed socket ends the reader's wait."""
        while not talk.reader.at_eof() and talk.reader.exception() is None and not talk.writer.is_closing():
            await asyncio.sleep(0.005)  # polling: StreamReader tells nobody
        talk.gone.set()


@contextlib.asynccontextmanager
async def raw_engine(behave: Behave, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> AsyncGenerator[RawEngine]:
    """Serve on a free port while the block lasts."""
    engine = RawEngine(behave)
    writers: set[asyncio.StreamWriter] = set()
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(asyncio.CancelledError):
            await engine._connected(reader, writer)

    server = await asyncio.start_server(connected, host, 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    engine.url = f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
    try:
        yield engine
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
