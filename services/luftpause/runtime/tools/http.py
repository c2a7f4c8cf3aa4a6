"""How does the runtime reach an MCP server over streamable HTTP?"""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client

from luftpause.kit.config import UpstreamConfig
from luftpause.runtime.json_bytes import SurrogateMender

CONNECT_SECONDS = 10.0


class Refusals:
    """The status with which the server refused the last message, which the SDK's errors don't say; 0: it took it."""

    def __init__(self) -> None:
        self.status = 0

    async def __call__(self, response: httpx2.Response) -> None:
        if response.request.method == "POST":  # not having a GET stream is no refusal
            self.status = response.status_code if response.status_code >= 400 else 0


class Mending(httpx2.AsyncBaseTransport):
    """The SDK would drop an answer with half a surrogate pair in it, and its call would wait until the time-out."""

    def __init__(self, transport: httpx2.AsyncBaseTransport) -> None:
        self._transport = transport

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._transport.handle_async_request(request)
        if "content-encoding" in response.headers or not isinstance(response.stream, httpx2.AsyncByteStream):
            return response
        kept = [(name, value) for name, value in response.headers.raw if name.lower() != b"content-length"]
        return httpx2.Response(response.status_code, headers=kept, stream=_Mended(response.stream), extensions=response.extensions)

    async def aclose(self) -> None:
        await self._transport.aclose()


class _Mended(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        mender = SurrogateMender()
        async for chunk in self._stream:
            yield mender.feed(chunk)
        yield mender.end()

    async def aclose(self) -> None:
        await self._stream.aclose()


@contextlib.asynccontextmanager
async def connect(url: str, config: UpstreamConfig, refusals: Refusals) -> AsyncGenerator[TransportStreams]:
    """Streams to the server. Nothing is sent yet. Redirects are followed within the configured origin only."""
    # As many stay open as there may be calls: else most calls of a crowd open a connection of their own.
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=config.calls_max)
    client = httpx2.AsyncClient(
        headers={"accept-encoding": "identity", **config.headers},  # what is packed can't be mended
        timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),  # calls have their own time-out, streams may be silent
        trust_env=False,  # proxies of the environment are not for local services
        event_hooks={"response": [refusals]},
        transport=Mending(httpx2.AsyncHTTPTransport(limits=limits, trust_env=False)),
    )
    async with client, streamable_http_client(url, http_client=client, max_sse_event_size=None) as streams:
        yield streams
