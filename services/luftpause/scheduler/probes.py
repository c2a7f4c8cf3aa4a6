"""How do the replicas fare: does each answer, how loaded is it, and what does it serve?"""

import asyncio
import os
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from luftpause.kit.clock import Clock, monotonic
from luftpause.kit.config import ReplicaConfig
from luftpause.kit.logs import Log
from luftpause.scheduler.core.events import ProbeOutcome, ReplicaProbed
from luftpause.scheduler.engine_http import client
from luftpause.scheduler.probe import Limits, Probe

GAP_SECONDS: Final = 0.1  # between two probes of one replica, however often it is suspected

log = Log("scheduler")


class Prober:
    """One loop per replica. What it finds goes to `post`, one event per probe."""

    def __init__(
        self,
        post: Callable[[ReplicaProbed], None],
        *,
        period_seconds: float,
        bytes_max: int,
        clock: Clock = monotonic,
        env: Mapping[str, str] = os.environ,
    ) -> None:
        self._post = post
        self._limits = Limits(period_seconds, bytes_max)
        self._clock = clock
        self._env = env
        self._http = client()
        self._loops: dict[str, tuple[ReplicaConfig, Probe, asyncio.Task[None]]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def watch(self, configs: Iterable[ReplicaConfig]) -> None:
        """Probe these replicas from now on and no others; one that stays as it was keeps its loop."""
        wanted = {config.name: config for config in configs}
        for name, (config, _probe, task) in tuple(self._loops.items()):
            if wanted.get(name) != config:
                task.cancel()
                self._ending.add(task)
                task.add_done_callback(self._ending.discard)
                del self._loops[name]
        for name, config in wanted.items():
            if name not in self._loops:
                probe = Probe(config, self._http, self._limits, self._clock, self._env)
                task = asyncio.create_task(self._loop(name, probe), name=f"probe {name}")
                self._loops[name] = (config, probe, task)

    def now(self, replica: str) -> None:
        """Probe it at once: what a probe finds that is under way was asked before."""
        if replica in self._loops:
            self._loops[replica][1].wanted.set()

    def doubt(self, replica: str = "") -> None:
        """Ask what it serves, or what all do."""
        for name, (_config, probe, _task) in self._loops.items():
            if replica in {"", name}:
                probe.doubt()

    async def close(self) -> None:
        tasks = [*self._ending, *(task for _config, _probe, task in self._loops.values())]
        self._loops.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._http.aclose()

    async def _loop(self, name: str, probe: Probe) -> None:
        try:
            while True:
                started = self._clock()
                probe.wanted.clear()
                try:
                    event = await probe.once()
                except Exception as error:  # noqa: BLE001 - an answer that nobody thought of must not end a replica's probes for good
                    event = self._failed(name, error)
                self._post(event)
                await self._pause(probe, started)
        finally:
            await probe.close()

    def _failed(self, name: str, error: Exception) -> ReplicaProbed:
        log.error("a probe failed", replica=name, error=repr(error), traceback="".join(traceback.format_exception(error)))
        return ReplicaProbed(self._clock(), name, ProbeOutcome.MISSED)

    async def _pause(self, probe: Probe, started: float) -> None:
        """Until the next period, or until the probe is wanted."""
        await asyncio.sleep(max(0.0, started + GAP_SECONDS - self._clock()))
        try:
            async with asyncio.timeout(max(0.0, started + self._limits.period_seconds - self._clock())):
                await probe.wanted.wait()
        except TimeoutError:
            pass
