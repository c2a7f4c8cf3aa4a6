"""How does the runtime reach an MCP server over streamable HTTP?"""

import contextlib
from collections.abc import AsyncGenerator

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client

from luftpause.kit.config import UpstreamConfig

CONNECT_SECONDS = 10.0


class Refusals:
    """The status with which the server refused the last message, which the SDK's errors don't say; 0: it took it."""

    def __init__(self) -> None:
        self.status = 0

    async def __call__(self, response: httpx2.Response) -> None:
        if response.request.method == "POST":  # not having a GET stream is no refusal
            self.status = response.status_code if response.status_code >= 400 else 0


@contextlib.asynccontextmanager
async def connect(url: str, config: UpstreamConfig, refusals: Refusals) -> AsyncGenerator[TransportStreams]:
    """Streams to the server. Nothing is sent yet. Redirects are followed within the configured origin only."""
    client = httpx2.AsyncClient(
        headers=dict(config.headers),
        timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),  # calls have their own time-out, streams may be silent
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
        trust_env=False,  # proxies of the environment are not for local services
        event_hooks={"response": [refusals]},
    )
    async with client, streamable_http_client(url, http_client=client, max_sse_event_size=None) as streams:
        yield streams
