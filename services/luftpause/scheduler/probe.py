"""What is one replica asked, and what does its answers come to?"""

import asyncio
import os
from collections.abc import Mapping
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import httpx
import msgspec
from msgspec import Struct

from luftpause.kit.clock import Clock
from luftpause.kit.config import ReplicaConfig
from luftpause.kit.logs import Log
from luftpause.kit.urls import api_at, base_url
from luftpause.scheduler.core.events import Load, ProbeOutcome, ReplicaProbed
from luftpause.scheduler.engine_http import Answer, ask, reach
from luftpause.scheduler.formats import Formats
from luftpause.scheduler.health import Health
from luftpause.scheduler.loads import Loads

MODELS_PATH: Final = "/v1/models"
MODELS_SECONDS: Final = 60.0  # a healthy replica's models are asked this often
DOUBT_SECONDS: Final = 2.0  # and once more not sooner than this, where they are in doubt
DOUBT_SECONDS_HOSTED: Final = 30.0  # there each question may count
HANDSHAKE_SECONDS: Final = 60.0  # a replica without health check is asked for its certificate this often
MODELS_MAX: Final = 1000
MODEL_CHARS_MAX: Final = 512
BOM: Final = b"\xef\xbb\xbf"
FRESH_SECONDS: Final = 0.1  # a load that is older when the probe ends is asked again
FORMATS_PART: Final = 0.25  # of a period is left for them, however long health took

log = Log("scheduler")


class Limits(Struct, frozen=True):
    """How often it is asked, which is the time-out too, and how long an answer may be."""

    period_seconds: float
    bytes_max: int


class _Model(Struct):
    id: Any = None


class _Models(Struct):
    data: list[_Model]


_models: Final = msgspec.json.Decoder(_Models | list[_Model])


class Probe:
    """The questions to one replica, and what is remembered between them."""

    def __init__(
        self, config: ReplicaConfig, http: httpx.AsyncClient, limits: Limits, clock: Clock, env: Mapping[str, str] = os.environ
    ) -> None:
        self.wanted = asyncio.Event()
        self._config = config
        self._base = base_url(config.url)
        self._http = http
        self._limits = limits
        self._clock = clock
        self._key = _key(config, env)
        self._health = Health(self._check, limits.period_seconds)
        self._loads = Loads(config, self._base, self._get_url, clock)
        self._formats = Formats(config.kind, self._ask_for, clock) if config.apis is None else None
        self._models_at = self._doubted_at = self._handshake_at = float("-inf")
        self._healthy = False
        self._said: dict[str, str] = {}  # what a person was told last, by topic

    async def once(self) -> ReplicaProbed:
        """Ask health, load and models at the same time: a slow one of them doesn't delay the others."""
        started = self._clock()
        async with asyncio.TaskGroup() as group:
            health_task = group.create_task(self._health.ask())
            load_task = group.create_task(self._load())
            models_task = group.create_task(self._ask_models())
        health, (load, answered), models = health_task.result(), load_task.result(), models_task.result()
        self._healthy = health.outcome is ProbeOutcome.OK
        self._tell("health", health.problem)
        apis = await self._ask_formats(started)
        if answered and self._clock() - started > FRESH_SECONDS:
            # The report must not be older than the turns that were placed while it waited for the others.
            load, _answered = await self._load()
        if not self._healthy:
            self._anew()
        return ReplicaProbed(self._clock(), self._config.name, health.outcome, load, models, apis)

    def doubt(self) -> None:
        """It may serve other models by now: they are asked at once, unless that was just done."""
        seconds = DOUBT_SECONDS if self._config.quota is None else DOUBT_SECONDS_HOSTED
        if self._healthy and self._config.models is None and self._clock() - max(self._models_at, self._doubted_at) >= seconds:
            self._models_at, self._doubted_at = float("-inf"), self._clock()
            self.wanted.set()

    async def close(self) -> None:
        await self._health.close()

    def _anew(self) -> None:
        """It may come back as another."""
        self._models_at = self._handshake_at = float("-inf")
        self._loads.anew()
        if self._formats is not None:
            self._formats.anew()

    # ---- health

    async def _check(self, seconds: float) -> Answer:
        if self._config.health is None:
            return await self._reach(seconds)
        answer = await self._get(self._config.health, seconds)
        if answer.outcome is ProbeOutcome.OK and answer.status >= 300:
            mend = f"{answer.problem}; taken as alive, but name its health path in replicas[].health (null: it has none)"
            return msgspec.structs.replace(answer, problem=mend)
        return answer

    async def _reach(self, seconds: float) -> Answer:
        due = self._clock() - self._handshake_at >= HANDSHAKE_SECONDS
        answer = await reach(self._base, seconds=seconds, handshake=due)
        if due and answer.outcome is ProbeOutcome.OK:
            self._handshake_at = self._clock()
        return answer

    # ---- load

    async def _load(self) -> tuple[Load | None, bool]:
        """The load, and whether its pages were there at all."""
        found = await self._loads.ask()
        if found is None:
            return None, False
        problem = found.problem
        if problem and not found.recognised:  # an engine whose gauges were never seen isn't capped: whoever reads the log should know
            problem += "; until it shows gauges of SGLang, vLLM or llama.cpp its turns are not capped (load: none says so on purpose)"
        if self._healthy or not problem:
            self._tell("load", problem)
        return found.load, found.answered

    # ---- models

    async def _ask_models(self) -> tuple[str, ...] | None:
        due = not self._healthy or self._clock() - self._models_at >= MODELS_SECONDS
        if self._config.models is not None or not due:
            return None
        answer = await self._get(MODELS_PATH, self._limits.period_seconds)
        if answer.status != 200:
            return self._no_models(answer.problem)
        try:
            found = _models.decode(answer.body.removeprefix(BOM))
        except msgspec.DecodeError as error:  # ValidationError is one too
            return self._no_models(answer.problem or f"not a list of models: {error}")
        listed = found if isinstance(found, list) else found.data
        ids = [each.id for each in listed if isinstance(each.id, str)]
        if not ids and (listed or isinstance(found, list)):
            return self._no_models("not a list of models: none has an id")
        self._tell("models", "")
        self._models_at = self._clock()
        names = tuple(dict.fromkeys(each for each in ids if 0 < len(each) <= MODEL_CHARS_MAX))[:MODELS_MAX]
        self._loads.models = names
        return names

    def _no_models(self, problem: str) -> None:
        if self._healthy:
            self._tell("models", f"GET {api_at(self._base, MODELS_PATH)}: {problem}; name them in replicas[].models")

    # ---- formats

    async def _ask_formats(self, started: float) -> tuple[str, ...] | None:
        if self._formats is None or not self._healthy or not self._formats.due:
            return None
        period = self._limits.period_seconds
        served = await self._formats.find(max(period * FORMATS_PART, started + period - self._clock()))
        self._tell("formats", served.problem)
        return served.apis

    # ---- helpers

    async def _get(self, path: str, seconds: float) -> Answer:
        limits = self._limits
        return await ask(
            self._http, api_at(self._base, path), key=self._key, seconds=seconds, bytes_max=limits.bytes_max,
            connect_seconds=limits.period_seconds,
        )  # fmt: skip

    async def _get_url(self, url: str) -> Answer:
        """A page that may lie elsewhere: the key goes to the replica only."""
        key = self._key if _origin(url) == _origin(self._base) else ""
        return await ask(self._http, url, key=key, seconds=self._limits.period_seconds, bytes_max=self._limits.bytes_max)

    async def _ask_for(self, method: Literal["GET", "POST"], path: str, seconds: float) -> Answer:
        return await ask(
            self._http, api_at(self._base, path), key=self._key, seconds=seconds, bytes_max=self._limits.bytes_max, method=method
        )  # fmt: skip

    def _tell(self, topic: Literal["health", "load", "models", "formats"], problem: str) -> None:
        """Each change once."""
        if self._said.get(topic, "") == problem:
            return
        self._said[topic] = problem
        if problem:
            log.warning(f"replica's {topic}: {problem}", replica=self._config.name)
        else:
            log.info(f"replica's {topic} is well again", replica=self._config.name)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


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
