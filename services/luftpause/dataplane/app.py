"""How does the dataplane start, serve and stop?"""

import asyncio
import contextlib
import os
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from socket import socket
from typing import Final

import uvicorn
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from luftpause.dataplane.api import make_api, methods_of
from luftpause.dataplane.collecting import Collecting
from luftpause.dataplane.door import Door, Serve
from luftpause.dataplane.http import Conn, protocol_of
from luftpause.dataplane.link import SessionLink
from luftpause.dataplane.metrics import LinkMetrics, LoopLag, PlaneMetrics
from luftpause.dataplane.metrics_page import add_metrics
from luftpause.dataplane.proxy.proxy import Governed, Proxy
from luftpause.dataplane.quota_api import QuotaRoutes
from luftpause.dataplane.relay import Relay
from luftpause.dataplane.sweep import Sweep
from luftpause.dataplane.turns import Scheduler
from luftpause.dataplane.workers import OWN, Worker
from luftpause.kit import auth, tracing
from luftpause.kit.config import Config, DataplaneConfig
from luftpause.kit.errors import ConfigError
from luftpause.kit.faults import Faults
from luftpause.kit.logs import Log
from luftpause.kit.metrics import Counter
from luftpause.kit.quota_client import RemotePort
from luftpause.kit.quota_port import QuotaPort
from luftpause.kit.serve import announce as announce_to
from luftpause.kit.serve import listen, stop_signals, url_of

BACKLOG: Final = 4096
LAST_BYTES_SECONDS: Final = 0.5  # for answers that are written but not sent when everything has ended
DEFAULT_KEY: Final = b"luftpause"  # the same everywhere, so that dataplanes without a key of their own still agree
KEY_BYTES_MAX: Final = 64
FAULTS: Final = "luftpause_dataplane_faults"
MEANS: Final = {"telling": "the governor was not told what became of a proxied call; its lease ends by itself and counts as used"}

log = Log("dataplane")


async def serve(config: Config, *, announce: Path | None = None, worker: Worker | None = None) -> None:
    """Run the dataplane until SIGTERM or SIGINT; writes where it listens to `announce`. `worker`: it is one of several."""
    link = SessionLink(config.dataplane, config.auth)
    quotas = RemotePort(config.dataplane.scheduler, config.auth)
    plane = plane_of(config, link, LinkMetrics(link.ledger, lambda: link.facts_waiting), worker, quotas=quotas)
    tracer = plane.relay.tracer = tracing.from_environment("dataplane")
    async with stop_signals() as stop, tracing.stopped(tracer):
        session = asyncio.create_task(link.run())
        asking = asyncio.create_task(quotas.run())
        asked = asyncio.create_task(stop.asked.wait())
        try:
            await plane.start()
            plane.collect_when_idle()
            announce_to(announce, {"http": plane.url, **({OWN: plane.own_url} if worker is not None else {})})
            await asyncio.wait({session, asked, plane.serving}, return_when=asyncio.FIRST_COMPLETED)
            await plane.stop(stop.now)
        finally:
            asked.cancel()
            await link.close()
            for task in (session, asking):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task


def plane_of(
    config: Config, scheduler: Scheduler, metrics: Collector, worker: Worker | None = None, *, quotas: QuotaPort | None = None
) -> "Dataplane":
    """A dataplane as it is configured, which shows `metrics` too. Without `quotas` it has no `/v1/quota`. Raises ConfigError."""
    tokens = auth.tokens(config.auth.tokens_file)
    collectors = (metrics, ProcessCollector(registry=None))
    return Dataplane(
        config.dataplane,
        scheduler,
        tokens,
        metrics_open=config.auth.metrics_open,
        collectors=collectors,
        worker=worker,
        governed=Governed(config.governor, quotas) if quotas is not None else None,
    )


class Dataplane:
    """Everything but the way to the scheduler."""

    def __init__(
        self,
        config: DataplaneConfig,
        scheduler: Scheduler,
        tokens: auth.Tokens | None = None,
        *,
        metrics_open: bool = False,
        collectors: Sequence[Collector] = (),
        worker: Worker | None = None,
        governed: Governed | None = None,
    ) -> None:
        self._config = config
        self._tokens = tokens or auth.Tokens()
        self.sweep = Sweep()
        self.relay = Relay(config, scheduler, self.sweep, _key(config))
        self.faults = Faults(log, Counter(FAULTS, "Faults in work that goes on all the same, by the work.", ("work",)), MEANS)
        self.proxy = Proxy(self.relay, config, governed, self._tokens, self.faults) if governed is not None else None
        api = make_api(scheduler, lambda: self.door.stopping)
        self.quotas = QuotaRoutes(governed.config, governed.port) if governed is not None else None
        if self.quotas is not None:
            self.quotas.add_to(api)
        self.door = Door(
            config,
            self.sweep,
            self.relay.routes(),
            lambda path: methods_of(api, path),
            self._others_at,
            self._tokens,
            metrics_open=metrics_open,
            proxy=self.proxy,
        )
        self._server = Server(
            uvicorn.Config(
                api,
                http=protocol_of(self.door),
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                backlog=BACKLOG,
            )
        )
        self._lag = LoopLag()
        self._worker = worker
        state = self._server.server_state
        own = PlaneMetrics(self.door.answers, self.relay.upstreams.flows, self._lag, lambda: len(state.connections), self.faults.counter)
        add_metrics(api, (own, *collectors), worker)
        self.own_url = ""  # of this worker alone
        self.serving: asyncio.Task[None]  # since `start`; ends with the server
        self.url = ""

    def _others_at(self, path: str) -> Mapping[str, Serve]:
        """Who serves, by method, what is neither a turn nor the app's nor proxied."""
        asked: Mapping[str, Serve] = self.quotas.methods(path) if self.quotas is not None else {}
        return asked or self.relay.stored.methods(path)

    async def start(self) -> None:
        """Listen. Raises LuftpauseError if the address can't be used."""
        config = self._config
        socks = [listen(config.host, config.port, option="dataplane.port", shared=self._worker is not None)]
        self.url = url_of(socks[0])
        if self._worker is not None:
            socks.append(listen("127.0.0.1", 0, option="dataplane.host"))
            self.own_url = url_of(socks[1])
        auth.warn_if_open(log, config.host, self._tokens)
        self.sweep.start()
        self._lag.start()
        self.serving = asyncio.create_task(self._server.serve(sockets=socks), name="dataplane http")
        await self._server.listening.wait()
        log.info("listening", url=self.url)

    def collect_when_idle(self) -> None:
        """From now on garbage is collected when no turn runs; for a process of which this is the main part."""
        self.sweep.watch(Collecting(self.sweep, lambda: not self.relay.turns))

    async def stop(self, now: asyncio.Event) -> None:
        """Refuse what is held, let streams finish for `stop_grace_seconds` or until `now`, then end them."""
        self.door.stopping = True
        self.relay.stop()
        if self.quotas is not None:
            self.quotas.stop()
        log.info("stopping", running=len(self.relay.turns), grace_seconds=self._config.stop_grace_seconds)
        ends = {asyncio.create_task(self.relay.emptied()), asyncio.create_task(now.wait())}
        await asyncio.wait(ends, timeout=self._config.stop_grace_seconds, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        self.relay.kill()
        await self._end_server()
        if self.proxy is not None:
            await self.proxy.close()
        self.sweep.stop()
        self._lag.stop()

    async def _end_server(self) -> None:
        self._server.leave()
        done, _ = await asyncio.wait({self.serving}, timeout=LAST_BYTES_SECONDS)
        if not done:
            self._server.force_exit = True
            for conn in tuple(self._server.server_state.connections):
                if isinstance(conn, Conn):
                    conn.abort()
        await self.serving


class Server(uvicorn.Server):
    """uvicorn listens and runs the lifespan; signals are ours."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()
        self._leaving = asyncio.Event()

    def leave(self) -> None:
        self.should_exit = True
        self._leaving.set()

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    async def main_loop(self) -> None:
        """uvicorn's, but woken once a second instead of ten times, and at once when it is to leave."""
        tick = 0
        while not await self.on_tick(tick):
            tick += 10
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._leaving.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def _key(config: DataplaneConfig) -> bytes:
    """The key of digests, from the environment."""
    if config.identity_key_env is None:
        return DEFAULT_KEY
    value = os.environ.get(config.identity_key_env, "")
    if not value:
        raise ConfigError(f"dataplane.identity_key_env: the environment variable {config.identity_key_env} is not set")
    return value.encode()[:KEY_BYTES_MAX]
