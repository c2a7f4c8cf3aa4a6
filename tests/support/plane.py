"""The dataplane in this process with a fake scheduler, and a client of raw bytes whose answers h11 checks."""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import h11

from luftpause.dataplane.app import Dataplane
from luftpause.dataplane.proxy.proxy import Governed
from luftpause.dataplane.turns import Scheduler
from luftpause.kit.auth import Tokens
from luftpause.kit.config import DataplaneConfig

BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]}).encode()
PATIENT: dict[str, Any] = {"port": 0, "connect_seconds": 30}  # a busy machine is no engine that is away
STREAM_BODY = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "hello"}]}).encode()


@contextlib.asynccontextmanager
async def running_plane(
    scheduler: Scheduler, *, tokens: Tokens | None = None, metrics_open: bool = False, governed: Governed | None = None, **config: Any
) -> AsyncGenerator[Dataplane]:
    plane = Dataplane(DataplaneConfig(**(PATIENT | config)), scheduler, tokens, metrics_open=metrics_open, governed=governed)
    await plane.start()
    try:
        yield plane
    finally:
        now = asyncio.Event()
        now.set()
        await plane.stop(now)


def post(body: bytes = BODY, *, path: str = "/v1/chat/completions", version: str = "1.1", **headers: str) -> bytes:
    """A complete POST; keyword names become header names with dashes."""
    lines = {"host": "127.0.0.1", "content-type": "application/json", "content-length": str(len(body))}
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {path} HTTP/{version}\r\n{head}\r\n".encode("latin-1") + body


def get(path: str, method: str = "GET", **headers: str) -> bytes:
    lines = {"host": "127.0.0.1"} | {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1")


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes
    complete: bool  # False: the transfer broke
    interim: list[int] = field(default_factory=list)

    @property
    def error(self) -> dict[str, Any]:
        return json.loads(self.body)["error"]


class Client:
    """One connection. `raw` is every byte that came."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.raw = bytearray()
        self._h11 = h11.Connection(h11.CLIENT)

    @classmethod
    async def to(cls, url: str) -> "Client":
        host, _, port = url.removeprefix("http://").rpartition(":")
        return cls(*await asyncio.open_connection(host.strip("[]"), int(port)))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def ask(self, data: bytes, seconds: float = 30.0) -> Answer:
        await self.send(data)
        return await self.answer(seconds=seconds)

    async def answer(self, method: str = "POST", seconds: float = 30.0) -> Answer:
        """The next answer, checked by h11."""
        async with asyncio.timeout(seconds):
            return await self._answer(method)

    async def _answer(self, method: str) -> Answer:
        if self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE:
            self._h11.start_next_cycle()
        self._h11.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
        self._h11.send(h11.EndOfMessage())
        answer, body = Answer(0, {}, b"", complete=False), bytearray()
        try:
            while await self._event(answer, body):
                pass
        except h11.RemoteProtocolError:
            if not self.reader.at_eof():
                raise
        answer.body = bytes(body)
        return answer

    async def _event(self, answer: Answer, body: bytearray) -> bool:
        """Take one event; False: it was the last."""
        match event := self._h11.next_event():
            case h11.NEED_DATA:
                try:
                    data = await self.reader.read(65_536)
                except ConnectionError:
                    return False
                self.raw += data
                self._h11.receive_data(data)
            case h11.InformationalResponse(status_code=status):
                answer.interim.append(status)
            case h11.Response():
                answer.status = event.status_code
                answer.headers = {name.decode(): value.decode("latin-1") for name, value in event.headers}
            case h11.Data(data=data):
                body += data
            case h11.EndOfMessage():
                answer.complete = True
                return False
            case _:
                return False
        return True

    async def until(self, text: bytes, seconds: float = 30.0) -> None:
        """Read until `text` has come."""
        async with asyncio.timeout(seconds):
            while text not in self.raw:
                data = await self.reader.read(65_536)
                assert data, f"closed before {text!r} came: {self.raw!r}"
                self.raw += data

    async def closed(self, seconds: float = 30.0) -> bytes:
        """What still comes until the other side closes."""
        rest = b""
        async with asyncio.timeout(seconds):
            with contextlib.suppress(ConnectionError):
                while data := await self.reader.read(65_536):
                    rest += data
        self.raw += rest
        return rest

    def close(self) -> None:
        self.writer.close()

    def half_close(self) -> None:
        self.writer.write_eof()

    def reset(self) -> None:
        sock: socket.socket = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


@contextlib.asynccontextmanager
async def client_of(plane: Dataplane) -> AsyncGenerator[Client]:
    client = await Client.to(plane.url)
    try:
        yield client
    finally:
        client.writer.transport.abort()
