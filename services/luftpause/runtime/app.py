"""How does the runtime start, serve and stop?"""

import asyncio
import contextlib
import ipaddress
import os
from pathlib import Path
from typing import Final

from luftpause.kit import serve as kit
from luftpause.kit.config import Config, RuntimeConfig
from luftpause.kit.logs import Log
from luftpause.runtime.journal import Journal
from luftpause.runtime.mcp_tools.sessions import LiveSessions
from luftpause.runtime.model_client import DataplaneClient
from luftpause.runtime.runs import RunService
from luftpause.runtime.service import serving
from luftpause.runtime.tools.toolbox import Tools

NOW_SECONDS: Final = 0.8

_log = Log("runtime")


async def serve(config: Config, *, announce: Path | None = None) -> None:
    """Run the runtime until SIGTERM or SIGINT; writes where it listens to `announce`."""
    async with kit.stop_signals() as stop:
        work = asyncio.create_task(_serve(config.runtime, announce, stop.asked))
        limits = [
            asyncio.create_task(_leave_after(stop.asked, config.runtime.stop_grace_seconds)),
            asyncio.create_task(_leave_after(stop.now, NOW_SECONDS, work)),
        ]
        try:
            await asyncio.wait({work})
        finally:
            for limit in limits:
                limit.cancel()
        if not work.cancelled():
            work.result()


async def _leave_after(event: asyncio.Event, seconds: float, work: asyncio.Task[None] | None = None) -> None:
    """Once the event is set the process has this long. The journal holds whatever was shown, so leaving in the middle loses nothing."""
    await event.wait()
    if work is not None:
        work.cancel()
    await asyncio.sleep(seconds)
    _log.warning("left before everything was closed", seconds=seconds)
    os._exit(0)


async def _serve(config: RuntimeConfig, announce: Path | None, asked: asyncio.Event) -> None:
    sock = kit.listen(config.host, config.port, option="runtime.port")
    _warn_if_open(config.host)
    sessions = LiveSessions(config.session_idle_seconds)
    async with (
        await Journal.open(config) as journal,
        DataplaneClient(config) as model,
        Tools(config) as tools,
        RunService(config, model, tools, journal, owner_lives=sessions.lives) as runs,
        serving(config, runs, runs.everything, tools, sessions, sock) as http,
    ):
        url = kit.url_of(sock)
        kit.announce(announce, {"http": url, "mcp": f"{url}/mcp"})
        _log.info("listening", mcp=f"{url}/mcp")
        stop = asyncio.create_task(asked.wait())
        await asyncio.wait({http, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if http.done():
            http.result()  # serving broke
        _log.info("stopping")


def _warn_if_open(host: str) -> None:
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host.strip("[]")).is_loopback:
            return
    if host != "localhost":
        _log.warning("everybody who can reach this address may start sub-agents: there is no token yet", host=host)
