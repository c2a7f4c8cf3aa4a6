"""How do several dataplane processes serve one port, and what becomes of one that dies?

The parent starts them by exec (gRPC does not survive a fork), keeps the port, passes signals on and starts anew what ended; it serves
nothing itself. Their logs go straight to its standard error, each line with the worker's number.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import orjson
from pydantic import ValidationError

from luftpause.cli import parent, stack
from luftpause.cli.scratch import scratch
from luftpause.dataplane.room import usual_bytes_max
from luftpause.dataplane.workers import Worker
from luftpause.kit import serve
from luftpause.kit.clock import monotonic
from luftpause.kit.config import Config
from luftpause.kit.errors import ConfigError, LuftpauseError
from luftpause.kit.logs import Log

WORKERS_MAX: Final = 64
START_SECONDS_MAX: Final = 60.0
POLL_SECONDS: Final = 0.02
BACK_OFF_SECONDS: Final = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)  # before a start, by how many lives in a row were short
SHORT_SECONDS: Final = 30.0  # a life
LAST_SECONDS: Final = 2.0  # after the second signal, and beyond the grace

log = Log("dataplane")


async def run(config: Config, count: int, *, announce: Path | None = None, back_off_seconds: tuple[float, ...] = BACK_OFF_SECONDS) -> None:
    """Run `count` dataplanes until SIGTERM or SIGINT. Raises LuftpauseError where the first start of one fails."""
    own = config.dataplane
    with scratch() as folder, contextlib.closing(_port(own.host, own.port)) as kept:
        workers = [_Child(Worker(number, count, folder), back_off_seconds) for number in range(count)]
        port = int(kept.getsockname()[1])
        for each in workers:
            each.write(of_worker(config, each.worker, port))
        async with serve.stop_signals() as stop:
            tasks = [asyncio.create_task(each.live(), name=f"worker {each.worker.number}") for each in workers]
            asked = asyncio.create_task(stop.asked.wait())
            ready = asyncio.create_task(_ready(workers, announce, serve.url_of(kept)))
            try:
                # A worker whose first life came to nothing ends its task; all others only end when they are stopped.
                await asyncio.wait({asked, *tasks}, return_when=asyncio.FIRST_COMPLETED)
                for each in tasks:
                    if each.done():
                        each.result()
            finally:
                ready.cancel()
                asked.cancel()
                await _stop(workers, stop.now, own.stop_grace_seconds)
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)


async def _ready(workers: "list[_Child]", announce: Path | None, url: str) -> None:
    for each in workers:
        await each.started.wait()
    log.info("all workers are ready", workers=len(workers), url=url)
    serve.announce(announce, {"http": url})


def _port(host: str, port: int) -> socket.socket:
    """The port, kept so that it stays ours while no worker listens. It must be free: sharing goes on among our own workers only."""
    if port:
        serve.listen(host, port, option="dataplane.port").close()
    return serve.listen(host, port, option="dataplane.port", shared=True)


def of_worker(config: Config, worker: Worker, port: int) -> Config:
    """Its own name towards the scheduler, the port that is now known, and its part of the memory that one process would take."""
    own = config.dataplane
    held = own.held_bytes_max or usual_bytes_max() // worker.count
    changed = {"name": f"{own.name}-{worker.number}", "port": port, "held_bytes_max": held}
    try:
        return config.model_copy(update={"dataplane": type(own).model_validate({**own.model_dump(), **changed})})
    except ValidationError as error:
        raise ConfigError(f"dataplane.name {own.name!r}: with a worker's number at its end it is no name any more: {error}") from None


class _Child:
    """A worker's process, and the one after it."""

    def __init__(self, worker: Worker, back_off_seconds: tuple[float, ...]) -> None:
        self.worker = worker
        self.started = asyncio.Event()
        self._file = worker.folder / f"worker-{worker.number}.yaml"
        self._back_off_seconds = back_off_seconds
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False

    def write(self, config: Config) -> None:
        stack.write(config, self._file)

    async def live(self) -> None:
        """One life after the other, until stopped. Raises LuftpauseError where the first never got ready."""
        short = 0
        while not self._stopping:
            begun = monotonic()
            how = await self._life()
            if self._stopping:
                return
            if not self.started.is_set():
                message = f"worker {self.worker.number} did not start ({how}); the reason stands above"
                raise LuftpauseError(message, code="worker_failed")
            short = short + 1 if monotonic() - begun < SHORT_SECONDS else 0
            pause = self._back_off_seconds[min(short, len(self._back_off_seconds) - 1)]
            log.error("a worker ended; it is started again", worker=self.worker.number, how=how, pause_seconds=pause)
            await asyncio.sleep(pause)

    async def _life(self) -> str:
        """From start to end; how it ended."""
        at = self.worker.announced(self.worker.number)
        at.unlink(missing_ok=True)
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "luftpause", "dataplane", "--config", str(self._file), "--announce", str(at),
            "--worker", f"{self.worker.number}/{self.worker.count}",
            stdin=asyncio.subprocess.PIPE, env=_environment(os.environ), process_group=0,
        )  # fmt: skip
        ready = asyncio.create_task(self._ready(at))
        ended = asyncio.create_task(process.wait())
        try:
            await asyncio.wait({ready, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done() and not ready.result():
                self.send(signal.SIGKILL)
            await ended
        finally:
            ready.cancel()
            at.unlink(missing_ok=True)
        late = ready.done() and not ready.cancelled() and not ready.result()
        return f"not ready within {START_SECONDS_MAX:.0f} s" if late else _how(process)

    async def _ready(self, at: Path) -> bool:
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                while (addresses := _content(at)) is None:  # noqa: ASYNC110 - a file is the contract of kit.serve.announce
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            return False
        log.info("worker is ready", worker=self.worker.number, pid=self._process.pid if self._process else 0, **addresses)
        self.started.set()
        return True

    def send(self, which: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(which)

    def stop(self) -> None:
        self._stopping = True
        self.send(signal.SIGTERM)

    async def ended(self) -> None:
        if self._process is not None:
            await self._process.wait()


async def _stop(workers: list[_Child], now: asyncio.Event, grace_seconds: float) -> None:
    """All at the same time: SIGTERM, a second one once `now` is set, SIGKILL to what outlives its grace."""
    for each in workers:
        each.stop()
    ends = asyncio.gather(*(each.ended() for each in workers))
    hurry = asyncio.create_task(now.wait())
    await asyncio.wait({ends, hurry}, timeout=grace_seconds + LAST_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    hurry.cancel()
    if not ends.done():
        for each in workers:
            each.send(signal.SIGTERM)
        await asyncio.wait({ends}, timeout=LAST_SECONDS)
    if not ends.done():
        log.warning("a worker did not stop in time and is killed")
        for each in workers:
            each.send(signal.SIGKILL)
    await ends


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Settings from the environment are in the worker's file; its standard input tells it when this process is gone."""
    return {**{key: value for key, value in environ.items() if not _is_setting(key)}, parent.VARIABLE: "1"}


def _is_setting(name: str) -> bool:
    return name.startswith("LUFTPAUSE_") and "__" in name


def _how(process: asyncio.subprocess.Process) -> str:
    status = process.returncode
    if status is not None and status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"exit status {status}"


def _content(file: Path) -> dict[str, str] | None:
    try:
        return orjson.loads(file.read_bytes())
    except FileNotFoundError:
        return None
