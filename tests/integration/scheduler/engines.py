"""Small HTTP servers that behave like engines: well, slow, loading, lying or not at all."""

import asyncio
import contextlib
import gzip
import ssl
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable

from tests.support.ports import a_quiet_port

Reply = tuple[int, bytes] | tuple[int, bytes, dict[str, str]]
Page = Reply | Callable[[], Awaitable[Reply]]

VLLM = b'vllm:num_requests_running{engine="0",model_name="m"} 4.0\nvllm:num_requests_waiting{engine="0",model_name="m"} 1.0\n'
MODELS = b'{"object":"list","data":[{"id":"m","object":"model"}]}'


def after(seconds: float, reply: Reply) -> Page:
    """A reply that the engine itself takes this long for; that is the behaviour under test."""

    async def page() -> Reply:
        await asyncio.sleep(seconds)
        return reply

    return page


async def never() -> Reply:
    await asyncio.Event().wait()
    return 200, b""


def packed(body: bytes) -> Reply:
    return 200, gzip.compress(body), {"content-encoding": "gzip"}


class Engine:
    """Serves `pages` by path, or by method and path (`POST /x`); what is not there is 404.

    `hits` counts, `heads` keeps the last request head of each path.
    """

    def __init__(self) -> None:
        self.pages: dict[str, Page] = {
            "/health": (200, b"ok"), "/metrics": (200, VLLM), "/v1/models": (200, MODELS), "/v1/chat/completions": (405, b""),
        }  # fmt: skip
        self.hits: Counter[str] = Counter()
        self.heads: dict[str, str] = {}
        self.url = ""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", port or a_quiet_port(), ssl=tls)
        host = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self.url = f"https://{host}" if tls else f"http://{host}"

    async def stop(self) -> None:
        """Nobody listens on its port any more."""
        assert self._server is not None
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                while True:
                    head = (await reader.readuntil(b"\r\n\r\n")).decode()
                    await self._answer(head, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, head: str, writer: asyncio.StreamWriter) -> None:
        method, path = head.split(" ")[:2]
        self.hits[path] += 1
        self.heads[path] = head
        page = self.pages.get(f"{method} {path}") or self.pages.get(path, (404, b'{"detail":"Not Found"}'))
        reply = await page() if callable(page) else page
        headers = reply[2] if len(reply) == 3 else {}
        lines = [f"HTTP/1.1 {reply[0]} X", f"content-length: {len(reply[1])}", *(f"{k}: {v}" for k, v in headers.items())]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + reply[1])
        await writer.drain()


@contextlib.asynccontextmanager
async def engine(**pages: Page) -> AsyncGenerator[Engine]:
    """`health=`, `metrics=`, `models=` replace the pages of a healthy vLLM."""
    made = Engine()
    paths = {"health": "/health", "metrics": "/metrics", "models": "/v1/models"}
    made.pages.update({paths[name]: page for name, page in pages.items()})
    await made.start()
    try:
        yield made
    finally:
        await made.stop()
