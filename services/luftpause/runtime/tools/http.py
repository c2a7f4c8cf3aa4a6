"""How does the runtime reach an MCP server over streamable HTTP?"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, Final, cast

import httpx2
import orjson
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client

from luftpause.kit.config import UpstreamConfig
from luftpause.kit.json_object import json_object
from luftpause.runtime.core.json_types import is_object
from luftpause.runtime.core.text import excerpt
from luftpause.runtime.json_bytes import Mender

CONNECT_SECONDS: Final = 10.0
# Usual servers (uvicorn, Node) close what was idle for 5 s: a call that was just sent is lost, and nobody can tell whether it happened.
KEPT_SECONDS: Final = 2.0
END_SECONDS: Final = 0.25  # the end of an answer may take, whose result is here

# Codes of errors that no server sent: what became of one message.
UNREACHED: Final = -32090  # there is no connection to be had, so it did not happen
UNANSWERED: Final = -32091  # nor this time, but perhaps the server is only busy
BROKEN: Final = -32092  # it was sent, or part of it
REFUSED: Final = -32093  # with a status that is an error, and no MCP error
TOLD: Final = frozenset(range(400, 600)) - {401, 403, 404}  # those have a meaning of their own: our key, our session
REFUSAL_SECONDS: Final = 2.0
REFUSAL_BYTES_MAX: Final = 65_536
HANDSHAKE: Final = frozenset({"initialize", "server/discover"})
CUT: Final = "the connection broke in the middle of the answer"
MADE_HERE: Final = "luftpause.made_here"


class Refusals:
    """The status with which the server refused the last message, which the SDK's errors don't say; 0: it took it."""

    def __init__(self) -> None:
        self.status = 0

    async def __call__(self, response: httpx2.Response) -> None:
        if response.request.method == "POST":  # not having a GET stream is no refusal
            self.status = response.status_code if response.status_code >= 400 and MADE_HERE not in response.extensions else 0


class Alone(httpx2.AsyncBaseTransport):
    """The SDK would end a connection, with all calls on it, over one message that finds no server or whose socket breaks.

    Here that message alone is answered with an error. Before that, what may be sent twice is sent once more, by `fresh`: a server that lags
    closes all that it kept at once. A handshake that fails ends what it was to begin.
    """

    def __init__(
        self, transport: httpx2.AsyncBaseTransport, fresh: httpx2.AsyncBaseTransport, is_repeatable: Callable[[str], bool]
    ) -> None:
        self._transport = transport
        self._fresh = fresh
        self._is_repeatable = is_repeatable

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            return await self._transport.handle_async_request(request)
        except httpx2.TransportError as error:
            if request.method != "POST":
                raise
            message = cast("dict[str, Any]", orjson.loads(request.content))
            if message.get("method") in HANDSHAKE:
                raise
            broke = _what_broke(error)
        if broke[0] == BROKEN and self._may_repeat(message):
            with contextlib.suppress(httpx2.TransportError):
                return await self._fresh.handle_async_request(request)
        answer = {"jsonrpc": "2.0", "id": message.get("id"), "error": dict(zip(("code", "message"), broke, strict=True))}
        return httpx2.Response(502, json=answer, extensions={MADE_HERE: True})

    def _may_repeat(self, message: dict[str, Any]) -> bool:
        method = message.get("method")
        return method == "tools/list" or (method == "tools/call" and self._is_repeatable(message["params"]["name"]))

    async def aclose(self) -> None:
        await self._transport.aclose()
        await self._fresh.aclose()


def _what_broke(error: httpx2.TransportError) -> tuple[int, str]:
    if isinstance(error, httpx2.ConnectTimeout):
        return UNANSWERED, f"no connection within {CONNECT_SECONDS:g} s"
    return UNREACHED if isinstance(error, httpx2.ConnectError) else BROKEN, str(error) or type(error).__name__


class Mending(httpx2.AsyncBaseTransport):
    """The SDK would drop an answer with half a surrogate pair or another encoding in it, and its call would wait until the time-out.

    Of a call that is refused it would say no more than that: here its model reads the status and what the server wrote.
    """

    def __init__(self, transport: httpx2.AsyncBaseTransport) -> None:
        self._transport = transport

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._transport.handle_async_request(request)
        if response.status_code in TOLD and MADE_HERE not in response.extensions and _is_call(request):
            return await _told(response, request)
        if "content-encoding" in response.headers or not isinstance(response.stream, httpx2.AsyncByteStream):
            return response
        kept = [(name, value) for name, value in response.headers.raw if name.lower() != b"content-length"]
        return httpx2.Response(response.status_code, headers=kept, stream=_Mended(response.stream), extensions=response.extensions)

    async def aclose(self) -> None:
        await self._transport.aclose()


def _is_call(request: httpx2.Request) -> bool:
    return request.method == "POST" and cast("dict[str, Any]", orjson.loads(request.content)).get("method") == "tools/call"


async def _told(response: httpx2.Response, request: httpx2.Request) -> httpx2.Response:
    """The refusal with an MCP error for its body; its own if it has one that the SDK takes."""
    body = bytearray()
    with contextlib.suppress(httpx2.TransportError, TimeoutError):
        async with asyncio.timeout(REFUSAL_SECONDS):
            async for chunk in cast("httpx2.AsyncByteStream", response.stream):
                body += chunk
                if len(body) > REFUSAL_BYTES_MAX:
                    break
    await response.aclose()
    error = json_object(bytes(body)).get("error")
    if not _is_mcp(error):
        error = {"code": REFUSED, "message": f"status {response.status_code}: {excerpt(bytes(body))}"}
    answer = {"jsonrpc": "2.0", "id": orjson.loads(request.content).get("id"), "error": error}
    return httpx2.Response(response.status_code, json=answer, extensions=response.extensions)


def _is_mcp(error: Any) -> bool:
    """Errors of other kinds of APIs have a text for a code, or none."""
    return is_object(error) and type(error.get("code")) is int and isinstance(error.get("message"), str)


class _Mended(httpx2.AsyncByteStream):
    """The SDK closes an event stream at its result, while the end is on its way: once that is read, the connection can be kept."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream
        self._chunks = aiter(stream)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        mender = Mender()
        try:
            async for chunk in self._chunks:
                yield mender.feed(chunk)
        except httpx2.TransportError as error:  # which the SDK takes for the end of everything
            raise httpx2.StreamError(CUT) from error
        yield mender.end()

    async def aclose(self) -> None:
        with contextlib.suppress(Exception):  # as may be: it is closed then
            async with asyncio.timeout(END_SECONDS):
                async for _ in self._chunks:
                    pass
        await self._stream.aclose()


@contextlib.asynccontextmanager
async def connect(
    url: str, config: UpstreamConfig, refusals: Refusals, is_repeatable: Callable[[str], bool]
) -> AsyncGenerator[TransportStreams]:
    """Streams to the server. Nothing is sent yet. Redirects are followed within the configured origin only.

    A call of a tool that `is_repeatable` is sent once more if its connection broke before the answer began.
    """
    # As many stay open as there may be calls: else most calls of a crowd open a connection of their own.
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=config.calls_max, keepalive_expiry=KEPT_SECONDS)
    kept = httpx2.AsyncHTTPTransport(limits=limits, trust_env=False)
    fresh = httpx2.AsyncHTTPTransport(limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0), trust_env=False)
    client = httpx2.AsyncClient(
        headers={"accept-encoding": "identity", **config.headers},  # what is packed can't be mended
        timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),  # calls have their own time-out, streams may be silent
        trust_env=False,  # proxies of the environment are not for local services
        event_hooks={"response": [refusals]},
        transport=Mending(Alone(kept, fresh, is_repeatable)),
    )
    async with client, streamable_http_client(url, http_client=client, max_sse_event_size=None) as streams:
        yield streams
