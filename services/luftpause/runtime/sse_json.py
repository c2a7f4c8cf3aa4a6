"""How does an answer of the MCP server reach a client that takes only JSON, or only an event stream?"""

import json
from typing import Any, Final, cast

from mcp.server.streamable_http import REQUEST_CANCELLED
from starlette.datastructures import Headers
from starlette.types import Message, Send

JSON: Final = b"application/json"
SSE: Final = b"text/event-stream"

_CANCELLED: Final = str(REQUEST_CANCELLED).encode()
_FRAMING: Final = frozenset({b"content-length", b"content-type"})


class WithoutCancelled:
    """Passes everything on but the SDK's answer to a request that its client cancelled: after a cancel no answer may follow."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def send(self, message: Message) -> None:
        body: bytes = message.get("body", b"")
        if _CANCELLED in body and _is_cancelled(_data(body)):
            message = {**message, "body": b""}
        await self._send(message)


class JsonOnly:
    """Turns an event stream into its one response; notifications are dropped, no answer becomes 202."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None
        self._rest = b""
        self._answer = b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and SSE in Headers(raw=message["headers"]).get("content-type", "").encode():
            self._start = message
        elif self._start is None:
            await self._send(message)
        else:
            self._collect(message.get("body", b""))
            if not message.get("more_body", False):
                await self._finish(self._start)

    def _collect(self, body: bytes) -> None:
        *events, self._rest = (self._rest + body.replace(b"\r\n", b"\n")).split(b"\n\n")
        for event in events:
            data = _data(event)
            if ("result" in data or "error" in data) and not _is_cancelled(data):
                self._answer = json.dumps(data, separators=(",", ":")).encode()

    async def _finish(self, start: Message) -> None:
        status = 200 if self._answer else 202
        await self._send({"type": "http.response.start", "status": status, "headers": _headers(start, JSON, len(self._answer))})
        await self._send({"type": "http.response.body", "body": self._answer, "more_body": False})


class SseOnly:
    """Turns a JSON answer with status 200 into an event stream of one event."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None
        self._body = b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_json_answer(message):
            self._start = message
        elif self._start is None:
            await self._send(message)
        else:
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                event = b"event: message\r\ndata: " + self._body + b"\r\n\r\n"
                await self._send({**self._start, "headers": _headers(self._start, SSE, len(event))})
                await self._send({"type": "http.response.body", "body": event, "more_body": False})


def _is_json_answer(start: Message) -> bool:
    return start["status"] == 200 and JSON in Headers(raw=start["headers"]).get("content-type", "").encode()


def _headers(start: Message, kind: bytes, length: int) -> list[tuple[bytes, bytes]]:
    kept: list[tuple[bytes, bytes]] = [(name, value) for name, value in start["headers"] if name.lower() not in _FRAMING]
    return [*kept, (b"content-type", kind), (b"content-length", str(length).encode())]


def _data(event: bytes) -> dict[str, Any]:
    """The JSON object that an event carries; empty where it carries none."""
    lines = [line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")]
    try:
        data: object = json.loads(b"\n".join(lines))
    except ValueError:
        return {}
    return cast("dict[str, Any]", data) if isinstance(data, dict) else {}


def _is_cancelled(data: dict[str, Any]) -> bool:
    error = data.get("error")
    return isinstance(error, dict) and cast("dict[str, Any]", error).get("code") == REQUEST_CANCELLED
