"""A server that answers with exactly these bytes, and remembers what it was asked."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field


@dataclass
class RawServer:
    """Answers the n-th request with the n-th of `answers` (the last one again and again), then closes the connection."""

    answers: list[bytes]
    hang: bool = False  # stay connected after the answer
    url: str = ""
    heads: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    closed: asyncio.Event = field(default_factory=asyncio.Event)  # a client went away
    serving: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self.serve(reader, writer))
        self.serving.add(task)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            lengths = [line.split(":")[1] for line in head.splitlines() if line.lower().startswith("content-length:")]
            self.bodies.append(await reader.readexactly(int(lengths[0])) if lengths else b"")
            self.heads.append(head)
            writer.write(self.answers[min(len(self.heads), len(self.answers)) - 1])
            await writer.drain()
            if self.hang:
                await reader.read()
        if self.hang:  # also if it left with a reset, as one does that had not read all
            self.closed.set()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def answering(*answers: bytes, hang: bool = False) -> AsyncGenerator[RawServer]:
    raw = RawServer(list(answers), hang)
    server = await asyncio.start_server(raw.accept, "127.0.0.1", 0)
    raw.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield raw
    finally:
        server.close()
        await asyncio.wait_for(asyncio.gather(*raw.serving), 60)


def head(status: str, **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def stream(*events: str, status: str = "200 OK") -> bytes:
    """A close-delimited event stream."""
    return head(status, content_type="text/event-stream", connection="close") + "".join(f"data: {event}\n\n" for event in events).encode()


def chunked(*events: str, end: bool) -> bytes:
    """A chunked event stream; without its end it is seen to be cut."""
    data = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (f"data: {event}\n\n".encode() for event in events))
    return head("200 OK", content_type="text/event-stream", transfer_encoding="chunked") + data + (b"0\r\n\r\n" if end else b"")
