"""How does the scheduler start, serve and stop?"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path
from typing import Final

import uvicorn
from msgspec import Struct
from prometheus_client.process_collector import ProcessCollector
from starlette.types import ASGIApp

from luftpause.kit import auth, config_watch, control, tracing
from luftpause.kit import serve as kit
from luftpause.kit.clock import monotonic
from luftpause.kit.config import Config, SchedulerConfig
from luftpause.kit.config_governor import GovernorConfig
from luftpause.kit.garbage import Garbage
from luftpause.kit.logs import Log
from luftpause.scheduler import replicas, status
from luftpause.scheduler.core.decide import decide, initial
from luftpause.scheduler.core.events import ConfigChanged
from luftpause.scheduler.core.settings import CallerPriority, Settings
from luftpause.scheduler.core.view import overview
from luftpause.scheduler.door import Door
from luftpause.scheduler.doubts import Doubts
from luftpause.scheduler.governor import ledger_file
from luftpause.scheduler.governor.app import Governing, governing
from luftpause.scheduler.governor.view import quotas as quotas_shown
from luftpause.scheduler.host import Host
from luftpause.scheduler.metrics import SchedulerMetrics
from luftpause.scheduler.probes import Prober
from luftpause.scheduler.quota_desk import QuotaDesk
from luftpause.scheduler.record import Recorder
from luftpause.scheduler.resting import tell_rests
from luftpause.scheduler.server import SessionServer
from luftpause.scheduler.tally import Tally
from luftpause.scheduler.timeline import Timeline
from luftpause.scheduler.traces import Admissions

LISTEN_BACKLOG: Final = 128

log = Log("scheduler")


class Running(Struct, frozen=True):
    """A scheduler. `work` ends only with the error that ended it; `configure` gives it the replicas of another configuration."""

    grpc: str  # host:port
    http: str  # URL
    host: Host
    sessions: SessionServer
    governing: Governing
    work: asyncio.Task[None]
    configure: Callable[[Config], None]


async def serve(config: Config, *, announce: Path | None = None, watcher: config_watch.Watcher | None = None) -> None:
    """Run the scheduler until SIGTERM or SIGINT; writes where it listens to `announce`. Raises LuftpauseError where it can't go on.

    With `watcher` the replicas of its file are read again when it changes and on SIGHUP.
    """
    async with kit.stop_signals() as stop, following(watcher, stop) as follow:
        work = asyncio.create_task(_until(stop.asked, config, announce, follow))
        hurry = asyncio.create_task(stop.now.wait())
        await asyncio.wait({work, hurry}, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if not work.done():
            work.cancel()  # the state is in the dataplanes: leaving in the middle loses nothing
        with contextlib.suppress(asyncio.CancelledError):
            await work


@contextlib.asynccontextmanager
async def following(watcher: config_watch.Watcher | None, stop: kit.Stop) -> AsyncGenerator[Callable[[Running], None]]:
    """Within the block: what lets a scheduler follow the file."""
    tasks: list[asyncio.Task[None]] = []
    asked = asyncio.Event()

    def follow(scheduler: Running) -> None:
        if watcher is not None:
            tasks.append(asyncio.create_task(config_watch.follow(watcher, scheduler.configure, asked=asked), name="configuration"))

    with config_watch.hangups(asked, stop.signal) if watcher is not None else contextlib.nullcontext():
        try:
            yield follow
        finally:
            for task in tasks:
                await _cancel(task)


async def _until(asked: asyncio.Event, config: Config, announce: Path | None, follow: Callable[[Running], None]) -> None:
    garbage = Garbage()
    try:
        async with running(config, garbage=garbage) as scheduler:
            follow(scheduler)
            kit.announce(announce, {"grpc": scheduler.grpc, "http": scheduler.http})
            log.info("listening", grpc=scheduler.grpc, http=scheduler.http, replicas=[replica.name for replica in config.replicas])
            stopping = asyncio.create_task(asked.wait())
            await asyncio.wait({stopping, scheduler.work}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if scheduler.work.done():
                scheduler.work.result()
            log.info("stopping")
    finally:
        garbage.stop()


@contextlib.asynccontextmanager
async def running(config: Config, *, garbage: Garbage | None = None) -> AsyncGenerator[Running]:
    """A scheduler on its two ports within the block. Raises LuftpauseError where it can't listen, or not as safely as it must."""
    with ledger_file.kept(config.governor.state):
        async with _running(config, garbage) as scheduler:
            yield scheduler


@contextlib.asynccontextmanager
async def _running(config: Config, garbage: Garbage | None) -> AsyncGenerator[Running]:
    own = config.scheduler
    specs = replicas.specs(config.replicas, config.governor)
    tokens = auth.cluster_tokens(config.auth.tokens_file)
    credentials = control.server_credentials(config.auth, own.host)
    auth.warn_if_open(log, own.host, tokens)
    grpc_address = _free(own.host, own.grpc_port)
    sock = kit.listen(own.host, own.http_port, option="scheduler.http_port")
    state = initial(_settings(own, config.governor), specs, monotonic())
    recorder = Recorder(own.record, clear=own.record_clear, bytes_max=own.record_bytes_max) if own.record else None
    tally = Tally()
    timeline = Timeline(tally, state.started_at)
    tracer = tracing.from_environment("scheduler")
    doubts = Doubts(lambda replica: prober.doubt(replica))  # noqa: PLW0108 - the prober comes later
    observers = [
        tally, timeline, doubts, tell_rests, *([recorder.observe] if recorder else []),
        *([Admissions(tracer)] if tracer is not None else []),
    ]  # fmt: skip
    host = Host(
        decide, state, replicas=replicas.announced, garbage=garbage, inbox_events_max=own.inbox_events_max, observers=observers
    )  # fmt: skip
    prober = Prober(host.post, period_seconds=own.probe_seconds, bytes_max=own.probe_bytes_max)
    host.probe = prober.now
    sessions = SessionServer(host, orders_max=own.orders_max, hello_bytes_max=own.hello_bytes_max, tokens=tokens, credentials=credentials)
    quotas = governing(config, tokens)
    sessions.services = (quotas.server.handlers(),)
    desk = QuotaDesk(
        quotas.governor, state=lambda: host.state, post=host.post, now=monotonic, lease_seconds=config.governor.lease_seconds
    )  # fmt: skip
    host.quotas = desk
    async with tracing.stopped(tracer), contextlib.AsyncExitStack() as stack:
        stack.callback(sock.close)
        stack.push_async_callback(prober.close)
        if recorder:
            recorder.start(sessions.epoch)
            stack.push_async_callback(asyncio.to_thread, recorder.close)
        port = await sessions.start(grpc_address)
        stack.push_async_callback(sessions.stop)
        app = status.create_app(
            status.Reporter(
                host,
                sessions,
                lambda state, now, shown: overview(state, now, tally.shares, shown),
                monotonic,
                lambda: quotas_shown(quotas.governor),
            ),
            (SchedulerMetrics(host, sessions, tally, monotonic, recorder), quotas.metrics, ProcessCollector(registry=None)),
            timeline,
        )
        http = await stack.enter_async_context(_http(Door(app, own, tokens, metrics_open=config.auth.metrics_open), sock))
        work = asyncio.create_task(_work(host, quotas, desk, http), name="scheduler host")
        stack.push_async_callback(_cancel, work)
        prober.watch(config.replicas)
        yield Running(
            _reachable(own.host, port), kit.url_of(sock), host, sessions, quotas, work, lambda new: _configure(host, prober, quotas, new)
        )


def _configure(host: Host, prober: Prober, quotas: Governing, config: Config) -> None:
    """The core hears of new replicas before anything is found out about them, and the governor of their quotas before that."""
    if not quotas.configure(config):  # a replica must not come to a quota that is none
        return
    host.post(ConfigChanged(monotonic(), replicas.specs(config.replicas, config.governor)))
    prober.watch(config.replicas)


async def _work(host: Host, quotas: Governing, desk: QuotaDesk, http: asyncio.Task[None]) -> None:
    """The first of them that ends ends the scheduler; HTTP is stopped by its own block."""
    governor = asyncio.create_task(quotas.run(), name="governor")
    renewals = asyncio.create_task(desk.run(), name="renew leases")
    try:
        await asyncio.gather(host.run(), governor, renewals, asyncio.shield(http))
    finally:
        governor.cancel()
        renewals.cancel()
        await asyncio.wait({governor, renewals})  # the governor writes its ledger


def _settings(config: SchedulerConfig, governor: GovernorConfig) -> Settings:
    """The core's settings that are configured; the others keep their defaults."""
    names = set(Settings.__struct_fields__) & set(SchedulerConfig.model_fields)
    return Settings(
        quota_hold_seconds_max=governor.quota_hold_seconds_max,
        callers=tuple(CallerPriority(name, caller.priority, caller.may_claim) for name, caller in governor.callers.items()),
        **{name: getattr(config, name) for name in names},
    )


# ---- listening --------------------------------------------------------------------------------------------------


def _free(host: str, port: int) -> str:
    """The address for gRPC, after a try: its own message on a taken port names neither the option nor the cause."""
    if port:
        kit.listen(host, port, option="scheduler.grpc_port").close()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reachable(host: str, port: int) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _Server(uvicorn.Server):
    """uvicorn that leaves signals to us."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


@contextlib.asynccontextmanager
async def _http(app: ASGIApp, sock: socket.socket) -> AsyncGenerator[asyncio.Task[None]]:
    """Serve `app` on the socket within the block; what is open at its end is cut off."""
    config = uvicorn.Config(app, http="httptools", ws="none", lifespan="off", log_config=None, access_log=False, server_header=False)
    server = _Server(config)
    sock.listen(LISTEN_BACKLOG)  # so that whoever reads the announced address can connect, however late uvicorn starts
    task = asyncio.create_task(server.serve(sockets=[sock]), name="scheduler http")
    try:
        yield task
    finally:
        server.should_exit = server.force_exit = True
        await asyncio.wait({task})


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})
