"""How does the runtime start, serve and stop?"""

import asyncio
import os
from pathlib import Path
from typing import Final

from prometheus_client.process_collector import ProcessCollector

from luftpause.kit import auth, tracing
from luftpause.kit import serve as kit
from luftpause.kit.config import Config
from luftpause.kit.errors import ConfigError
from luftpause.kit.logs import Log
from luftpause.runtime.gate import Gate
from luftpause.runtime.journal import Journal
from luftpause.runtime.mcp_tools.sessions import LiveSessions
from luftpause.runtime.metrics import RuntimeMetrics
from luftpause.runtime.model_client import DataplaneClient
from luftpause.runtime.quota_client import DataplaneQuotas
from luftpause.runtime.runs import RunService
from luftpause.runtime.seal import request_state_key
from luftpause.runtime.service import serving
from luftpause.runtime.tools.toolbox import Tools
from luftpause.runtime.traces import Traces

NOW_SECONDS: Final = 0.8

_log = Log("runtime")


async def serve(config: Config, *, announce: Path | None = None) -> None:
    """Run the runtime until SIGTERM or SIGINT; writes where it listens to `announce`."""
    async with kit.stop_signals() as stop:
        work = asyncio.create_task(_serve(config, announce, stop.asked))
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


async def _serve(config: Config, announce: Path | None, asked: asyncio.Event) -> None:
    own = config.runtime
    tokens, token = auth.tokens(config.auth.tokens_file), _token(config)
    sock = kit.listen(own.host, own.port, option="runtime.port")
    auth.warn_if_open(_log, own.host, tokens)
    sessions = LiveSessions(own.session_idle_seconds)
    tracer = tracing.from_environment("runtime")
    traces = Traces(tracer) if tracer is not None else None
    async with (
        tracing.stopped(tracer),
        await Journal.open(own) as journal,
        DataplaneClient(own, token=token) as model,
        DataplaneQuotas(own, token=token) as quotas,
        Tools(own) as tools,
        RunService(own, model, tools, journal, owner_lives=sessions.lives, traces=traces) as runs,
        serving(
            own, runs, runs.everything, tools, sessions, sock, _gate(config, tokens), request_state_key(own.state), model, quotas,
            collectors=(RuntimeMetrics(runs.tally, tools, journal), ProcessCollector(registry=None)),
        ) as http,
    ):  # fmt: skip
        url = kit.url_of(sock)
        kit.announce(announce, {"http": url, "mcp": f"{url}/mcp"})
        _log.info("listening", mcp=f"{url}/mcp")
        stop = asyncio.create_task(asked.wait())
        await asyncio.wait({http, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if http.done():
            http.result()  # serving broke
        _log.info("stopping")


def _gate(config: Config, tokens: auth.Tokens) -> Gate:
    own = config.runtime.status_origins
    page = config.scheduler.http_port
    origins = (f"http://127.0.0.1:{page}", f"http://localhost:{page}") if own is None else own
    return Gate(config.runtime, tokens, status_origins=origins, metrics_open=config.auth.metrics_open)


def _token(config: Config) -> str:
    """What the dataplane is shown. Raises ConfigError."""
    token = auth.from_environment(auth.TOKEN)
    if config.auth.tokens_file is not None and not token:
        raise ConfigError(f"auth.tokens_file needs {auth.TOKEN} too: it is what the runtime shows the dataplane")
    return token
