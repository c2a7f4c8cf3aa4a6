"""How do the replicas fare: does each answer, how loaded is it, and what does it serve?"""

import asyncio
import os
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal

import httpx
import msgspec
from msgspec import Struct

from luftpause.kit.clock import Clock, monotonic
from luftpause.kit.config import ReplicaConfig
from luftpause.kit.logs import Log
from luftpause.kit.urls import base_url
from luftpause.scheduler import metrics_text
from luftpause.scheduler.core.events import Load, ProbeOutcome, ReplicaProbed
from luftpause.scheduler.engine_http import Answer, ask, client, reach

MODELS_SECONDS: Final = 60.0  # a healthy replica's models are asked this often
MODELS_MAX: Final = 1000
MODEL_CHARS_MAX: Final = 512
GAP_SECONDS: Final = 0.1  # between two probes of one replica, however often it is suspected
FRESH_SECONDS: Final = 0.1  # a load that is older when the probe ends is asked again

log = Log("scheduler")


_FLAVOURS: Final[dict[str, metrics_text.Flavour]] = {"sglang": "sglang", "vllm": "vllm", "llamacpp": "llamacpp"}


class _Model(Struct):
    id: str


class _Models(Struct):
    data: list[_Model]


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
        self._period_seconds = period_seconds
        self._bytes_max = bytes_max
        self._clock = clock
        self._env = env
        self._http = client()
        self._loops: dict[str, tuple[ReplicaConfig, _Probe, asyncio.Task[None]]] = {}

    def watch(self, configs: Iterable[ReplicaConfig]) -> None:
        """Probe these replicas from now on and no others; one that stays as it was keeps its loop."""
        wanted = {config.name: config for config in configs}
        for name, (config, _probe, task) in tuple(self._loops.items()):
            if wanted.get(name) != config:
                task.cancel()
                del self._loops[name]
        for name, config in wanted.items():
            if name not in self._loops:
                probe = _Probe(config, self._http, self._period_seconds, self._bytes_max, self._clock, self._env)
                task = asyncio.create_task(self._loop(name, probe), name=f"probe {name}")
                self._loops[name] = (config, probe, task)

    def now(self, replica: str) -> None:
        """Probe it at once: what a probe finds that is under way was asked before."""
        if replica in self._loops:
            self._loops[replica][1].wanted.set()

    async def close(self) -> None:
        tasks = [task for _config, _probe, task in self._loops.values()]
        self._loops.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._http.aclose()

    async def _loop(self, name: str, probe: "_Probe") -> None:
        while True:
            started = self._clock()
            probe.wanted.clear()
            try:
                event = await probe.once()
            except Exception as error:  # noqa: BLE001 - an answer that nobody thought of must not end a replica's probes for good
                event = self._failed(name, error)
            self._post(event)
            await self._pause(probe, started)

    def _failed(self, name: str, error: Exception) -> ReplicaProbed:
        log.error("a probe failed", replica=name, error=repr(error), traceback="".join(traceback.format_exception(error)))
        return ReplicaProbed(self._clock(), name, ProbeOutcome.MISSED)

    async def _pause(self, probe: "_Probe", started: float) -> None:
        """Until the next period, or until the probe is wanted."""
        await asyncio.sleep(max(0.0, started + GAP_SECONDS - self._clock()))
        try:
            async with asyncio.timeout(max(0.0, started + self._period_seconds - self._clock())):
                await probe.wanted.wait()
        except TimeoutError:
            pass


class _Probe:
    """The questions to one replica, and what is remembered between them."""

    def __init__(
        self, config: ReplicaConfig, http: httpx.AsyncClient, seconds: float, bytes_max: int, clock: Clock, env: Mapping[str, str]
    ) -> None:
        self.wanted = asyncio.Event()
        self._config = config
        self._base = base_url(config.url)
        self._http = http
        self._seconds = seconds
        self._bytes_max = bytes_max
        self._clock = clock
        self._key = _key(config, env)
        self._flavour: metrics_text.Flavour | None = _FLAVOURS.get(config.load)
        self._models: tuple[str, ...] = config.models or ()
        self._models_at = float("-inf")
        self._healthy = False
        self._said: dict[str, str] = {}  # what a person was told last, by topic

    async def once(self) -> ReplicaProbed:
        """Ask health, load and models at the same time: a slow one of them doesn't delay the others."""
        started = self._clock()
        async with asyncio.TaskGroup() as group:
            health_task = group.create_task(self._health())
            load_task = group.create_task(self._load())
            models_task = group.create_task(self._ask_models())
        health, (load, answered), models = health_task.result(), load_task.result(), models_task.result()
        if answered and self._clock() - started > FRESH_SECONDS:
            # The report must not be older than the turns that were placed while it waited for the others.
            load, _answered = await self._load()
        self._healthy = health.outcome is ProbeOutcome.OK
        if not self._healthy:
            self._models_at = float("-inf")  # it may come back with others
        self._tell("health", health.problem)
        return ReplicaProbed(self._clock(), self._config.name, health.outcome, load, models)

    # ---- health

    async def _health(self) -> Answer:
        if self._config.health is None:
            return await reach(self._base, seconds=self._seconds)
        answer = await self._get("/" + self._config.health.lstrip("/"))
        if answer.outcome is ProbeOutcome.OK and answer.status >= 300:
            mend = f"{answer.problem}; taken as alive, but name its health path in replicas[].health (null: it has none)"
            return msgspec.structs.replace(answer, problem=mend)
        return answer

    # ---- load

    async def _load(self) -> tuple[Load | None, bool]:
        """The load, and whether the replica answered at all."""
        if self._config.load == "none":
            return None, False
        answer = await self._get("/metrics")
        if answer.status != 200:
            return self._no_load(answer.problem), answer.status > 0
        page = answer.body.decode(errors="replace")
        self._flavour = self._flavour or metrics_text.recognise(page)
        load = metrics_text.load(page, self._flavour, self._models) if self._flavour else None
        if load is None:
            return self._no_load(answer.problem or "its gauges are missing or hold no numbers"), True
        self._tell("load", "")
        return load, True

    def _no_load(self, problem: str) -> None:
        """An engine whose gauges were never seen isn't capped, and whoever reads the log should know."""
        if self._flavour is None:
            problem += "; until it shows gauges of SGLang, vLLM or llama.cpp its turns are not capped (load: none says so on purpose)"
        if self._healthy:
            self._tell("load", f"GET {self._base}/metrics: {problem}")

    # ---- models

    async def _ask_models(self) -> tuple[str, ...] | None:
        due = not self._healthy or self._clock() - self._models_at >= MODELS_SECONDS
        if self._config.models is not None or not due:
            return None
        answer = await self._get("/v1/models")
        if answer.status != 200:
            return self._no_models(answer.problem)
        try:
            listed = msgspec.json.decode(answer.body, type=_Models)
        except msgspec.DecodeError as error:  # ValidationError is one too
            return self._no_models(answer.problem or f"not a list of models: {error}")
        self._tell("models", "")
        self._models_at = self._clock()
        names = dict.fromkeys(model.id for model in listed.data if 0 < len(model.id) <= MODEL_CHARS_MAX)
        self._models = tuple(names)[:MODELS_MAX]
        return self._models

    def _no_models(self, problem: str) -> None:
        if self._healthy:
            self._tell("models", f"GET {self._base}/v1/models: {problem}; name them in replicas[].models")

    # ---- helpers

    async def _get(self, path: str) -> Answer:
        return await ask(self._http, self._base + path, key=self._key, seconds=self._seconds, bytes_max=self._bytes_max)

    def _tell(self, topic: Literal["health", "load", "models"], problem: str) -> None:
        """Each change once."""
        if self._said.get(topic, "") == problem:
            return
        self._said[topic] = problem
        if problem:
            log.warning(f"replica's {topic}: {problem}", replica=self._config.name)
        else:
            log.info(f"replica's {topic} is well again", replica=self._config.name)


def _key(config: ReplicaConfig, env: Mapping[str, str]) -> str:
    """The replica's key; one that can't stand in a header is treated as missing, and never shown."""
    if not config.api_key_env:
        return ""
    key = env.get(config.api_key_env, "").strip()
    if key and key.isascii() and key.isprintable():
        return key
    wrong = "holds characters that no header may hold" if key else "is not set"
    log.warning(f"the variable with the replica's key {wrong}", replica=config.name, api_key_env=config.api_key_env)
    return ""
