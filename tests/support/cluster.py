"""How does a test run a scheduler with several dataplanes and engines, each a process, and take single ones down and up again?"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.support.ports import a_quiet_port
from tests.support.processes import Process, start, stop_all

READY_SECONDS = 60.0
Json = dict[str, Any]
PATIENT: Json = {"connect_seconds": 30, "failover_seconds": 30}  # a busy machine is no engine that is away


class Cluster:
    """
    Rules are those of `original`, whose places kept for paused runs tests can count, unless `scheduler` says otherwise. A scheduler
    places when all planes are here: a busy machine may need longer than the usual grace to bring them back.

    `engines` are named engine-0, engine-1 …, `planes` dp-0, dp-1 …; a service that is started again has the port of its earlier life.
    """

    def __init__(
        self, folder: Path, engines: list[Process], planes: int, scheduler: Json, dataplane: Json, replicas: Sequence[Json]
    ) -> None:
        self.folder = folder
        self.engines = engines
        self.planes: dict[str, Process] = {}
        self.scheduler: Process
        self.http = httpx.AsyncClient(trust_env=False, timeout=60, limits=httpx.Limits(max_connections=None))
        self._names = [f"dp-{i}" for i in range(planes)]
        self.scheduler_settings: Json = {
            "grpc_port": a_quiet_port(), "http_port": a_quiet_port(), "probe_seconds": 1, "dataplanes_expected": self._names,
            "start_grace_seconds": READY_SECONDS, "policy": "original", **scheduler,
        }  # fmt: skip
        self._dataplane = dataplane
        self._ports = {name: a_quiet_port() for name in self._names}
        self._replicas: list[Json] = [
            {"name": f"engine-{i}", "url": engine.at["http"], **(replicas[i] if i < len(replicas) else {})}
            for i, engine in enumerate(engines)
        ] + list(replicas[len(engines) :])

    # ---- processes

    async def start_all(self) -> None:
        await self.start_scheduler()
        await asyncio.gather(*(self.start_plane(name) for name in self._names))
        await self.until(lambda seen: len(seen["sessions"]) == len(self._names) and self.health_of(seen) == {"healthy"})

    async def start_scheduler(self) -> None:
        self.scheduler = await self._start("scheduler", "scheduler", {"replicas": self._replicas, "scheduler": self.scheduler_settings})

    async def start_plane(self, name: str, **dataplane: Any) -> None:
        """`dataplane`: configuration of this one alone."""
        own = {
            **PATIENT,
            **self._dataplane,
            **dataplane,
            "name": name,
            "port": self._ports.get(name, 0),
            "scheduler": self.scheduler.at["grpc"],
        }
        self.planes[name] = await self._start("dataplane", name, {"dataplane": own})

    async def _start(self, command: str, name: str, config: Json) -> Process:
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(config))
        return await start(command, "--config", str(path), folder=self.folder)

    async def start_engine(self, index: int) -> None:
        """The same engine again, on its port, with nothing in its cache."""
        old = self.engines[index]
        self.engines[index] = await start(*old.command, folder=self.folder)

    async def stop(self) -> None:
        await self.http.aclose()
        services = [*self.planes.values(), *([self.scheduler] if hasattr(self, "scheduler") else [])]
        for each in services:
            if each.process.returncode is None:
                each.process.send_signal(signal.SIGCONT)
        await stop_all(services)

    # ---- what they show

    def url(self, plane: int = 0) -> str:
        return self.planes[self._names[plane]].at["http"] + "/v1"

    async def status(self) -> Json:
        return (await self.http.get(self.scheduler.at["http"] + "/status")).raise_for_status().json()

    async def until(self, condition: Callable[[Json], bool], seconds: float = READY_SECONDS) -> Json:
        """The first status that fulfils the condition."""
        seen: Json = {}
        try:
            async with asyncio.timeout(seconds):
                while not condition(seen := await self.status()):
                    await asyncio.sleep(0.02)  # another process's state; nothing tells when it changes
        except TimeoutError:
            raise AssertionError(f"not within {seconds:g} s; the last status was {seen}") from None
        return seen

    @staticmethod
    def replica(seen: Json, index: int) -> Json:
        return seen["state"]["replicas"][index]

    @staticmethod
    def health_of(seen: Json) -> set[str]:
        return {replica["health"] for replica in seen["state"]["replicas"]}

    async def quiet(self, seconds: float = READY_SECONDS) -> Json:
        """The status once nothing is in flight or held any more; neither may take longer."""
        return await self.until(lambda seen: not turns_in(seen), seconds)

    async def engine(self, index: int) -> Json:
        """What the fake engine has counted."""
        return (await self.http.get(self.engines[index].at["http"] + "/_fake")).raise_for_status().json()

    async def engine_at_rest(self, index: int, seconds: float = READY_SECONDS) -> Json:
        """What it has counted once it neither runs nor queues anything: it learns later than the scheduler that a client left."""
        seen: Json = {}
        try:
            async with asyncio.timeout(seconds):
                while (seen := await self.engine(index))["running"] or seen["waiting"]:
                    await asyncio.sleep(0.02)  # another process's counter
        except TimeoutError:
            raise AssertionError(f"engine-{index} is at work after {seconds:g} s: {seen}") from None
        return seen

    async def order(self, index: int, **faults: Any) -> None:
        """Faults of a fake engine from now on."""
        (await self.http.post(self.engines[index].at["http"] + "/_fake", json=faults)).raise_for_status()


def turns_in(seen: Json) -> int:
    """How many turns the scheduler counts, held or in flight, wherever it counts them."""
    state = seen["state"]
    per_replica = sum(replica["in_flight"] + replica["passes"] for replica in state["replicas"])
    per_class = sum(each["held"] for each in state["held_by_class"])
    return per_replica + per_class + state["held"] + len(state["held_by_caller"]) + sum(state["runs"]["generating"].values())


def reserve(seen: Json) -> dict[str, int]:
    """How many places are kept for paused interactive runs, by replica."""
    return {replica["name"]: replica["paused_interactive"] for replica in seen["state"]["replicas"]}


@contextlib.asynccontextmanager
async def cluster(
    folder: Path,
    *,
    engines: Sequence[Sequence[str]] = ((), ()),
    planes: int = 2,
    scheduler: Json | None = None,
    dataplane: Json | None = None,
    replicas: Sequence[Json] = (),
) -> AsyncGenerator[Cluster]:
    """`engines`: options of each fake engine; `replicas`: further configuration of each, and then replicas of the test's own.

    All are ready when the block begins.
    """
    started = await asyncio.gather(
        *(start("fake-engine", "--port", str(a_quiet_port()), *options, folder=folder) for options in engines), return_exceptions=True
    )
    running = [each for each in started if isinstance(each, Process)]
    try:
        assert len(running) == len(engines), started
        whole = Cluster(folder, running, planes, scheduler or {}, dataplane or {}, replicas)
        try:
            await whole.start_all()
            yield whole
        finally:
            await whole.stop()
    finally:
        for each in running:
            if each.process.returncode is None:
                each.process.send_signal(signal.SIGCONT)
        await stop_all(running)
