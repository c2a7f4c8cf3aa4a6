"""Does the incident look the same over HTTP, with real processes and in real time?

The provider's hour takes two minutes and its penalties are as much shorter, and it tells them so; so are the agents' rounds, and the limits
in the governor's configuration. Not shorter: answers, the clients' own back-offs, and the governor's constants. Quota and calls are a
tenth, so that two cores carry all policies at once.
"""

import argparse
import asyncio
import contextlib
import shutil
import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final

import httpx
import orjson
from msgspec.structs import replace

from luftpause.client import QuotaTransport
from luftpause.kit.errors import LuftpauseError
from luftpause_bench.live.programs import READY_SECONDS_MAX
from luftpause_bench.live.world import World, run
from luftpause_bench.quota.bounds import P0_SECONDS_MAX, p0_served
from luftpause_bench.quota.clients import CLIENTS, Way
from luftpause_bench.quota.crew import Call, Crew
from luftpause_bench.quota.governed import TARGET
from luftpause_bench.quota.play import ARTICLE, GOVERNED, GOVERNOR, Figures, figures_of
from luftpause_bench.quota.shown import drawing, tables
from luftpause_bench.quota.workload import GITHUB, Scene, smaller
from luftpause_bench.report import Bound, Report, at_least, at_most, describe_versions, finish

SPEED: Final = 30.0
MINUTES: Final = 5.0
LITELLM: Final = "LiteLLM Router"
TIMES: Final = 10  # smaller than the incident
WAIT_SECONDS: Final = 86_400.0
LIMITS: Final = httpx.Limits(max_connections=200, max_keepalive_connections=200, keepalive_expiry=2)
TRIES: Final = 5
NODES: Final = {"governor, 2 nodes on Redis": 2, "governor, 3 nodes on Redis": 3}
WORSE: Final = 3.0  # so many times P0's p99 with the governor, or half of P0's calls failed
SIMULATED: Final = "agents, and a provider whose hour takes two minutes; back-offs of clients are not shorter"


def scene_of(minutes: float) -> Scene:
    seconds, incident = minutes * 60, smaller(GITHUB, TIMES)
    agents = tuple(replace(agent, round_seconds=agent.round_seconds / SPEED) for agent in incident.agents)
    about = "A tenth of the incident over HTTP, an hour in two minutes."
    return replace(incident, name="github over HTTP", about=about, agents=agents, seconds=seconds, windows=seconds * SPEED / 3_600)


def section(policy: str) -> dict[str, Any]:
    """The `governor:` section: GitHub's limits, in windows that are as much shorter."""
    scopes = [
        {"name": "core", "kind": "fixed", "limit": GITHUB.quota / TIMES, "window_seconds": 3_600 / SPEED, "counts": ["requests"]},
        {
            "name": "points", "kind": "bucket", "limit": 300 / TIMES, "window_seconds": 60 / SPEED, "burst": 2, "protect": [0, 0, 0.05],
            "counts": ["points", "requests"],
        },
    ]  # fmt: skip
    target: dict[str, Any] = {"profile": "github", "scopes": scopes, "penalty_seconds": 60 / SPEED}
    if not GOVERNED[policy][0]:
        target = {"profile": "auto"}
    return {"policy": GOVERNED[policy][1], "targets": {TARGET: target}, "callers": {"*": {"may_claim": True}}}


class OverHttp(Way):
    """Connections that the provider closed while they were idle cost a try that nobody counts, as in the SDKs."""

    def http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=60, limits=LIMITS)

    async def send(self, http: httpx.AsyncClient, call: Call) -> httpx.Response:
        for _ in range(TRIES - 1):
            with contextlib.suppress(httpx.TransportError):
                return await super().send(http, call)
        return await super().send(http, call)


class OneLine:
    """Agents whose httpx clients have luftpause's transport: the one line that an agent changes. `url`: of the dataplane that they ask."""

    def __init__(self, way: OverHttp, url: str) -> None:
        self._way, self._url = way, url
        self._clients: dict[str, httpx.AsyncClient] = {}

    async def call(self, call: Call) -> bool:
        http = self._clients.get(call.agent)
        if http is None:
            inner = httpx.AsyncHTTPTransport(limits=LIMITS)
            own = QuotaTransport(TARGET, url=self._url, caller=call.agent, priority=call.priority, wait_seconds=WAIT_SECONDS, inner=inner)
            http = self._clients[call.agent] = httpx.AsyncClient(transport=own, base_url=self._way.url, timeout=60)
        while not (await self._way.send(http, call)).is_success:
            pass  # the transport has waited for the window of a refusal, three times
        return True

    async def close(self) -> None:
        for http in self._clients.values():
            await http.aclose()


@contextlib.asynccontextmanager
async def counting(url: str, seen: Counter[str]) -> AsyncGenerator[None]:
    """Adds what the governor behind this dataplane decides meanwhile, by kind."""
    listening = asyncio.ensure_future(_listen(url, seen))
    try:
        yield
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


async def _listen(url: str, seen: Counter[str]) -> None:
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=None) as http, http.stream("GET", "/v1/quota/events") as stream:  # noqa: S113
        async for line in stream.aiter_lines():
            if line.startswith("data: "):
                seen[str(orjson.loads(line[6:]).get("event"))] += 1


class Nodes:
    """Each agent asks one of several nodes."""

    def __init__(self, nodes: Sequence[OneLine]) -> None:
        self._nodes = nodes
        self._of: dict[str, OneLine] = {}

    async def call(self, call: Call) -> bool:
        node = self._of.setdefault(call.agent, self._nodes[len(self._of) % len(self._nodes)])
        return await node.call(call)

    async def close(self) -> None:
        for node in self._nodes:
            await node.close()


def main_real(options: argparse.Namespace, policies: Sequence[str]) -> int:
    """Exit status: 1 if a bound is missed."""
    began = time.monotonic()
    scene = scene_of(options.minutes)
    found = run(lambda world: measure(world, scene, policies, options.at_once))
    of = {(scene.name, policy): [figures] for policy, figures in found.items()}
    parameters = {"minutes": options.minutes, "speed": SPEED, "at_once": options.at_once, "governor": section(GOVERNOR)}
    versions = describe_versions("httpx", "tenacity", "openai", "litellm")
    part = options.quick or options.minutes < MINUTES or set(policies) < {GOVERNOR, ARTICLE, *CLIENTS} - {LITELLM}
    report = Report(
        "quota_http",
        SIMULATED,
        parameters,
        (1,),
        tables(scene, policies, of),
        judged(found),
        time.monotonic() - began,
        part,
        versions=versions,
    )
    return finish(report, options, drawing([scene], policies, of))


async def measure(world: World, scene: Scene, policies: Sequence[str], at_once: int) -> dict[str, Figures]:
    """One figure per policy; `at_once` of them are played beside each other, each with a provider and a governor of its own."""
    found: dict[str, Figures] = {}
    for first in range(0, len(policies), at_once):
        group = policies[first : first + at_once]
        found |= dict(zip(group, await asyncio.gather(*(_play(world, scene, policy) for policy in group)), strict=True))
    return found


async def _play(world: World, scene: Scene, policy: str) -> Figures:
    name = policy.replace(" ", "-").replace(",", "")
    limits = ("--quota", f"{scene.quota:g}", "--per-minute", str(scene.provider.per_minute))
    options = ("--family", "github", "--speed", f"{SPEED:g}", "--refusal-status", "429", "--seed", "1", *limits)
    way = OverHttp(scene, url=await world.provider(*options, name=f"provider-{name}"))
    async with contextlib.AsyncExitStack() as stack:
        seen: Counter[str] = Counter()
        client = CLIENTS[policy](way, 1) if policy in CLIENTS else Nodes(await _nodes(world, way, policy, name, stack, seen))
        stack.push_async_callback(client.close)
        calls = await Crew(scene, client, 1).play()
        async with httpx.AsyncClient(trust_env=False) as http:
            shown = (await http.get(f"{way.url}/_fake")).json()
    refused = sum(shown["refused"].values())
    return figures_of(
        scene, calls, client, sent=shown["taken"] + refused, refused=refused, in_flight_at_first=shown["inFlightAtFirstRefusal"],
        probes=seen["half_opened"], recovery=None,
    )  # fmt: skip


async def _nodes(
    world: World, way: OverHttp, policy: str, name: str, stack: contextlib.AsyncExitStack, seen: Counter[str]
) -> list[OneLine]:  # fmt: skip
    """One, or as many as the policy says, with a Redis that they share; what they decide is counted in `seen`."""
    settings = section(GOVERNOR if policy in NODES else policy)
    if policy in NODES:
        settings["store"] = await _redis(world, name)
    made: list[OneLine] = []
    for number in range(NODES.get(policy, 1)):
        plane = await world.governor(settings, name=f"{name}-{number}")
        await stack.enter_async_context(counting(plane.http, seen))
        made.append(OneLine(way, plane.http))
    return made


async def _redis(world: World, name: str) -> str:
    """A server of its own, in memory; the URL of the store."""
    server = shutil.which("redis-server")
    if server is None:
        raise LuftpauseError("several nodes need redis-server: apt-get install redis-server", code="no_redis")
    path = world.folder / f"{name}.sock"
    await world.program(f"redis-{name}", [server, "--port", "0", "--unixsocket", str(path), "--save", "", "--appendonly", "no"])
    async with asyncio.timeout(READY_SECONDS_MAX):
        while not path.exists():  # noqa: ASYNC110 - nothing else tells that it listens
            await asyncio.sleep(0.05)
    return f"unix://{path}"


def judged(found: Mapping[str, Figures]) -> tuple[Bound, ...]:
    """The order of policies must be that of virtual time."""
    ours = found.get(GOVERNOR)
    if ours is None:
        return ()
    bounds = [
        at_most("p99 of P0, s", ours.classes[0].p99, P0_SECONDS_MAX),
        at_least("P0 calls served, of those wanted", p0_served(ours), 1.0),
        at_most("refused, of those in flight at the first refusal and probes", ours.refused, ours.in_flight_at_first + ours.probes),
    ]
    bounds += [
        at_least(f"{policy}: p99 of P0 against the governor's / {WORSE:g}, or failed P0 calls / half of them", _worse(each, ours), 1.0)
        for policy, each in found.items()
        if policy in CLIENTS or policy == ARTICLE
    ]
    for policy in NODES:
        if policy in found:
            each = found[policy]
            bounds.append(at_most(f"{policy}: refused, as above", each.refused, each.in_flight_at_first + each.probes))
            bounds.append(at_most(f"{policy}: p99 of P0, s", each.classes[0].p99, P0_SECONDS_MAX))
    return tuple(bounds)


def _worse(figures: Figures, ours: Figures) -> float:
    p0 = figures.classes[0]
    failed = p0.failed / max(1, p0.served + p0.failed + p0.open)
    return max(p0.p99 / ours.classes[0].p99 / WORSE, failed / 0.5)
