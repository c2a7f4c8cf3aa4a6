"""How does a fake serve its HTTP app until it is told to stop?"""

import asyncio
import contextlib
import socket
from collections.abc import Generator, Sequence
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
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


class _ByPort:
    """One app for each port that is listened on; the lifespan is the first one's."""

    def __init__(self, apps: dict[int, ASGIApp]) -> None:
        self._apps = apps
        self._first = next(iter(apps.values()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._first if scope["type"] == "lifespan" else self._apps[scope["server"][1]]
        await app(scope, receive, send)


async def serve_app(app: ASGIApp, *, host: str, port: int, option: str, announced: Path | None, mcp: bool = False) -> None:
    """As `serve_apps`, announced with the address of its MCP."""
    sock = listen(host, port, option=option)
    url = url_of(sock)
    await _serve(app, [sock], announced, {"http": url, "mcp": url + "/mcp"} if mcp else {"http": url})


async def serve_apps(apps: Sequence[ASGIApp], *, host: str, ports: Sequence[int], option: str, announced: Path | None) -> None:
    """
    Serves until SIGTERM or SIGINT; open connections are cut. The first one is announced as `http`, further ones as `http-1`, `http-2` …

    Raises LuftpauseError if a port can't be had.
    """
    with contextlib.ExitStack() as bound:
        sockets = [bound.enter_context(contextlib.closing(listen(host, port, option=option))) for port in ports]
        by_port = _ByPort({sock.getsockname()[1]: app for sock, app in zip(sockets, apps, strict=True)})
        names = ["http", *(f"http-{number}" for number in range(1, len(sockets)))]
        await _serve(by_port, sockets, announced, {name: url_of(sock) for name, sock in zip(names, sockets, strict=True)})


async def _serve(app: ASGIApp, sockets: list[socket.socket], announced: Path | None, addresses: dict[str, str]) -> None:
    # A cut connection is what a fake is for, so uvicorn's complaints about it are not worth a line.
    config = uvicorn.Config(
        app, http=_Protocol, lifespan="on", access_log=False, log_config=None, log_level="critical", timeout_graceful_shutdown=0
    )
    server = _Server(config)
    async with stop_signals() as stop:
        serving = asyncio.create_task(server.serve(sockets=sockets))
        while not server.started and not serving.done():  # noqa: ASYNC110 (uvicorn has no event for it)
            await asyncio.sleep(0.005)
        if server.started:
            announce(announced, addresses)
        asked = asyncio.create_task(stop.asked.wait())
        await asyncio.wait({serving, asked}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        server.should_exit = True
        await serving
