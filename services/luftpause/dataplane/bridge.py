"""How does a request that isn't relayed reach the ASGI app, and the app's answer the client?"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote_to_bytes

from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.responses import CHUNKED, CLOSE, HOP_BY_HOP, LAST_CHUNK, chunk, refusal, status_line
from luftpause.kit.logs import Log

if TYPE_CHECKING:
    from luftpause.dataplane.exchange import Request
    from luftpause.dataplane.http import Conn

Application = Callable[[Any, Any, Any], Awaitable[None]]  # ASGI's messages are plain dicts

log = Log("dataplane")


class Bridge:
    """One request through the app, as a task of its own; a HEAD request is a GET whose body stays here."""

    def __init__(self, conn: "Conn", request: "Request") -> None:
        self._conn = conn
        self._request = request
        self._bodiless = request.head.method == "HEAD"
        self._asked = False
        self._left = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._chunked = False
        self._done = False

    def start(self) -> None:
        conn = self._conn
        conn.handler = self
        task = conn.loop.create_task(self._run())
        conn.server_state.tasks.add(task)
        task.add_done_callback(conn.server_state.tasks.discard)

    def client_left(self) -> None:
        self._left.set()
        self._writable.set()

    def pause(self) -> None:
        self._writable.clear()

    def resume(self) -> None:
        self._writable.set()

    def last_sign(self) -> float:
        return self._conn.loop.time()

    async def _run(self) -> None:
        try:
            await cast("Application", self._conn.app)(self._scope(), self._receive, self._send)
        except Exception as error:  # noqa: BLE001 - whatever an endpoint raises must not end the connection without an answer
            log.error("request_failed", path=self._request.head.path, error=repr(error))  # noqa: TRY400 - one line per event
        if self._left.is_set() or self._done:
            return
        if self._conn.headed:
            self._conn.break_off(reset=not self._chunked)
        else:
            rejection = Rejection(500, "internal", "the dataplane failed to answer; its log says why")
            self._conn.answer(refusal(rejection, more=self._conn.more, close=not self._conn.keeps, bodiless=self._bodiless))

    def _scope(self) -> dict[str, Any]:
        request = self._request
        head = request.head
        raw_path, _, query = head.target.partition(b"?")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": head.version,
            "method": "GET" if self._bodiless else head.method,
            "scheme": "http",
            "path": unquote_to_bytes(head.path.encode("latin-1")).decode(errors="replace"),
            "raw_path": raw_path,
            "query_string": query,
            "root_path": "",
            "headers": head.with_length(request.digits),
            "client": self._conn.peer,
            "server": None,
            "state": self._conn.app_state | {"principal": request.principal},
        }

    async def _receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": self._request.body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if self._left.is_set() or self._done:
            return
        if message["type"] == "http.response.start":
            self._start(message["status"], message.get("headers", ()))
            return
        body: bytes = b"" if self._bodiless else message.get("body", b"")
        if body:
            self._conn.write(chunk(body) if self._chunked else body)
        if message.get("more_body", False):
            await self._writable.wait()
            return
        if self._chunked and not self._bodiless:
            self._conn.write(LAST_CHUNK)
        self._done = True
        self._conn.finish()
        self._left.set()  # whoever still waits for the client's end need not

    def _start(self, status: int, headers: Any) -> None:
        conn = self._conn
        kept = [(name.lower(), value) for name, value in headers if name.lower() not in HOP_BY_HOP]
        sized = status in {204, 304} or any(name == b"content-length" for name, _ in kept)
        self._chunked = not sized and self._request.head.version == "1.1"
        if not sized and not self._chunked:
            conn.keeps = False  # an HTTP/1.0 client: the end of the connection is the end of the answer
        lines = [b"%b: %b\r\n" % pair for pair in (*conn.server_state.default_headers, *kept)]
        framing = (CHUNKED if self._chunked else b"") + (b"" if conn.keeps else CLOSE)
        conn.write_head(b"".join((status_line(status), *lines, conn.more, framing, b"\r\n")))
