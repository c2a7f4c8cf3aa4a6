"""Which clients are there that know nothing of each other, and how is each set up?

Real packages with the settings that they come with, or that their documentation shows. None is changed: only what carries their requests
is, in virtual time.
"""

import asyncio
import importlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

import httpx
import httpx2
import openai
import tenacity
from starlette.types import ASGIApp

from luftpause_bench.quota.crew import Call, Client
from luftpause_bench.quota.workload import Scene

BASE: Final = "http://provider"
ATTEMPTS: Final = 6
WAIT_SECONDS_MAX: Final = 60
PROMPT: Final = "Go on."
PROMPT_TOKENS: Final = 2
LITELLM_PLACE: Final = "LUFTPAUSE_BENCH_LITELLM"  # a folder of site-packages that has LiteLLM, if this environment has not


class Way:
    """How requests reach the provider: over its app in this process, or over HTTP to `url`."""

    def __init__(self, scene: Scene, app: ASGIApp | None = None, url: str = BASE) -> None:
        self.scene = scene
        self.app = app
        self.url = url

    def http(self) -> httpx.AsyncClient:
        transport = None if self.app is None else httpx.ASGITransport(app=self.app)
        limits = httpx.Limits(max_connections=200, max_keepalive_connections=200)
        return httpx.AsyncClient(transport=transport, base_url=self.url, trust_env=False, timeout=60, limits=limits)

    def http2(self) -> httpx2.AsyncClient | None:
        """None: the SDK makes its own."""
        return None if self.app is None else httpx2.AsyncClient(transport=httpx2.ASGITransport(app=self.app))

    async def send(self, http: httpx.AsyncClient, call: Call) -> httpx.Response:
        """One try of a call."""
        if self.scene.api == "rest":
            return await http.get(f"/repos/acme/app/issues/{call.number}")
        return await http.post("/v1/chat/completions", json=chat(call))


def chat(call: Call) -> dict[str, Any]:
    """The body of a chat completion that costs the call's tokens."""
    most = max(1, call.tokens - PROMPT_TOKENS)
    return {"model": "fake-model", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": most}


def told_wait(response: httpx.Response) -> float | None:
    """As a careful client reads it: Retry-After, else the reset of what is used up."""
    headers = response.headers
    if "retry-after" in headers:
        return float(headers["retry-after"])
    if headers.get("x-ratelimit-remaining") == "0":
        return max(0.0, float(headers["x-ratelimit-reset"]) - time.time())
    return None


class FullJitter:
    """httpx, and AWS' full jitter until it works: a wait drawn evenly up to 2^n s, at most 60; `heeds`: after what the refusal says."""

    def __init__(self, way: Way, seed: int, *, heeds: bool) -> None:
        self._way, self._http, self._random, self._heeds = way, way.http(), Random(seed), heeds

    async def call(self, call: Call) -> bool:
        attempt = 0
        while True:
            response = await self._way.send(self._http, call)
            if response.is_success:
                return True
            attempt += 1
            told = told_wait(response) if self._heeds else None
            await asyncio.sleep((told or 0.0) + self._random.uniform(0, min(WAIT_SECONDS_MAX, 2.0**attempt)))

    async def close(self) -> None:
        await self._http.aclose()


class Tenacity:
    """httpx and the recipe of OpenAI's cookbook: `wait_random_exponential(min=1, max=60)`, `stop_after_attempt(6)`."""

    def __init__(self, way: Way) -> None:
        self._way, self._http = way, way.http()

    async def call(self, call: Call) -> bool:
        tries = tenacity.AsyncRetrying(
            wait=tenacity.wait_random_exponential(min=1, max=WAIT_SECONDS_MAX),
            stop=tenacity.stop_after_attempt(ATTEMPTS),
            retry=tenacity.retry_if_exception_type(httpx.HTTPStatusError),
        )
        try:
            async for attempt in tries:
                with attempt:
                    (await self._way.send(self._http, call)).raise_for_status()
        except tenacity.RetryError:
            return False
        return True

    async def close(self) -> None:
        await self._http.aclose()


class OpenAi:
    """The openai SDK as it comes: two retries."""

    def __init__(self, way: Way) -> None:
        self._client = openai.AsyncOpenAI(api_key="none", base_url=way.url + "/v1", http_client=way.http2())

    async def call(self, call: Call) -> bool:
        try:
            await self._client.chat.completions.create(**chat(call))
        except (openai.RateLimitError, openai.APIConnectionError):
            return False
        return True

    async def close(self) -> None:
        await self._client.close()


class LiteLlm:
    """One LiteLLM Router as it comes, which all agents share: what one of them learns of a refusal all know."""

    def __init__(self, way: Way) -> None:
        self._litellm = litellm_package()
        self._litellm.suppress_debug_info = True
        self._litellm.telemetry = False
        self._http = way.http2()
        self._litellm.aclient_session = self._http
        params = {"model": "openai/fake-model", "api_base": way.url + "/v1", "api_key": "none"}
        self._router = self._litellm.Router(model_list=[{"model_name": "fake-model", "litellm_params": params}])

    async def call(self, call: Call) -> bool:
        try:
            await self._router.acompletion(**chat(call))
        except (self._litellm.RateLimitError, self._litellm.APIConnectionError, self._litellm.InternalServerError):
            return False  # the last two: a connection that the provider had closed
        except Exception as error:
            if "No deployments available" in str(error):
                return False
            raise
        return True

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()


def litellm_package() -> Any:
    """Raises ImportError that says what to do."""
    place = os.environ.get(LITELLM_PLACE)
    if place and place not in sys.path:
        sys.path.append(place)  # behind this environment's own packages
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # asks no server for prices
    try:
        return importlib.import_module("litellm")
    except ImportError as error:
        raise ImportError(f"no LiteLLM: pip install litellm, or name a folder of site-packages that has it in {LITELLM_PLACE}") from error


CLIENTS: Final[Mapping[str, Callable[[Way, int], Client]]] = {
    "full jitter": lambda way, seed: FullJitter(way, seed, heeds=False),
    "full jitter, Retry-After": lambda way, seed: FullJitter(way, seed, heeds=True),
    "tenacity": lambda way, _: Tenacity(way),
    "openai SDK": lambda way, _: OpenAi(way),
    "LiteLLM Router": lambda way, _: LiteLlm(way),
}
