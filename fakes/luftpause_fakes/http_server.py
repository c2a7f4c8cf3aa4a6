"""How does a fake serve its HTTP app until it is told to stop?"""

import asyncio
import contextlib
from collections.abc import Generator
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp, Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from luftpause.kit.serve import announce, listen, stop_signals, url_of

HANG_UP = "luftpause.hang_up"  # the ASGI extension: close the connection, whatever was sent


def hang_up(scope: Scope) -> None:
    """Close the connection of this request without another byte, as an engine that dies."""
    scope["extensions"][HANG_UP]["close"]()


class _Protocol(HttpToolsProtocol):
    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {HANG_UP: {"close": self.transport.close}}


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Signals are ours (kit.serve)."""
        yield


async def serve_app(app: ASGIApp, *, host: str, port: int, option: str, announced: Path | None, mcp: bool = False) -> None:
    """Serves until SIGTERM or SIGINT; open connections are cut. Raises LuftpauseError if the port can't be had."""
    sock = listen(host, port, option=option)
    url = url_of(sock)
    # A cut connection is what a fake is for, so uvicorn's complaints about it are not worth a line.
    config = uvicorn.Config(
        app, http=_Protocol, lifespan="on", access_log=False, log_config=None, log_level="critical", timeout_graceful_shutdown=0
    )
    server = _Server(config)
    async with stop_signals() as stop:
        serving = asyncio.create_task(server.serve(sockets=[sock]))
        while not server.started and not serving.done():  # noqa: ASYNC110 (uvicorn has no event for it)
            await asyncio.sleep(0.005)
        if server.started:
            announce(announced, {"http": url, "mcp": url + "/mcp"} if mcp else {"http": url})
        asked = asyncio.create_task(stop.asked.wait())
        await asyncio.wait({serving, asked}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        server.should_exit = True
        await serving
