"""How do agents call that ask the governor first, and what is noted of its decisions?

The host, the core and the parser of headers are those of the product, in this process; only their clock is the bench's.
"""

import asyncio
import time
from collections.abc import Mapping
from random import Random
from typing import Any, Final

from luftpause.kit.config_governor import GovernorConfig
from luftpause.kit.quota_port import Granted, NotNow, QuotaPort, Refused
from luftpause.scheduler.governor.host import Governor
from luftpause.scheduler.governor.local import LocalPort
from luftpause.scheduler.governor.targets import initial_state, specs_of
from luftpause.scheduler.quota.decisions import Decision, Grant, HalfOpened
from luftpause.scheduler.quota.events import TargetConfigured
from luftpause.scheduler.quota.profiles import call_cost, turn_cost
from luftpause_bench.quota.clients import PROMPT_TOKENS, Way
from luftpause_bench.quota.crew import Call
from luftpause_bench.quota.workload import GITHUB, Scene

TARGET: Final = "provider"
LEASE_SECONDS: Final = 120.0
WAIT_SECONDS: Final = 100_000.0  # whoever waits, waits in the governor's queue
EXCERPT_CHARACTERS: Final = 2_000
FAMILY_PROFILES: Final = {"github": "github", "copilot": "copilot", "openai": "openai"}


def config(scene: Scene, *, profile: bool, policy: str = "governor") -> dict[str, Any]:
    """The `governor:` section of a configuration file."""
    target: dict[str, Any] = {"profile": FAMILY_PROFILES[scene.provider.family] if profile else "auto"}
    if scene.p0_per_second:
        target["declared_demand"] = scene.p0_per_second
    if profile and scene.goods == "core" and scene.quota != GITHUB.quota:  # a smaller account: `workload.smaller`
        part = scene.quota / GITHUB.quota
        target["limits"] = {"core": scene.quota, "points": 300 * part, "content": max(1.0, 40 * part)}
    return {"policy": policy, "targets": {TARGET: target}}


class Watched:
    """A governor in this process. `probes`: calls that it let out to see whether a block is over."""

    def __init__(self, section: Mapping[str, Any], seed: int) -> None:
        settings = GovernorConfig.model_validate(section)
        clock = asyncio.get_running_loop().time
        self.governor = Governor(initial_state(settings, clock()), clock=clock)
        for spec in specs_of(settings, []):
            self.governor.post(TargetConfigured(clock(), spec))
        self.port: QuotaPort = LocalPort(
            self.governor, lease_seconds=LEASE_SECONDS, wait_seconds_max=WAIT_SECONDS, epoch=time.time, random=Random(seed)
        )
        self.probes = 0
        self.blocks = 0
        self._stop_listening = self.governor.listen(self._heard)
        self._running = asyncio.ensure_future(self.governor.run())

    def _heard(self, decision: Decision) -> None:
        match decision:
            case Grant(target=target, want=want):
                lease = self.governor.state.targets[target].leases.get(want)
                self.probes += lease is not None and lease.probe
            case HalfOpened():
                self.blocks += 1
            case _:
                pass

    async def close(self) -> None:
        self._stop_listening()
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)


class Governed:
    """httpx, and before each try the governor. `holds`: seconds that calls waited there, per grant."""

    def __init__(self, way: Way, port: QuotaPort, profile: str) -> None:
        self._way, self._http, self._port, self._profile = way, way.http(), port, profile
        self.holds: list[float] = []

    async def call(self, call: Call) -> bool:
        attempt = 0
        while True:
            granted = await self._granted(call, attempt)
            if granted is None:
                return False
            response = await self._way.send(self._http, call)
            excerpt = "" if response.is_success else response.text[:EXCERPT_CHARACTERS]
            headers = dict(response.headers)
            await self._port.report(TARGET, granted.want, granted.fence, status=response.status_code, headers=headers, body_excerpt=excerpt)
            if response.is_success:
                return True
            attempt += 1

    async def _granted(self, call: Call, attempt: int) -> Granted | None:
        """None: refused for good."""
        loop = asyncio.get_running_loop()
        asked, want, cost = loop.time(), f"{call.number}.{attempt}", self._cost(call)
        while True:
            answer = await self._port.reserve(
                TARGET,
                want,
                caller=call.agent,
                priority=call.priority,
                cost=cost,
                lease_seconds=LEASE_SECONDS,
                wait_seconds=WAIT_SECONDS,
                retry=attempt > 0,
            )
            match answer:
                case Granted():
                    self.holds.append(loop.time() - asked)
                    return answer
                case NotNow(retry_seconds=seconds):
                    await asyncio.sleep(seconds)
                case Refused():
                    return None

    def _cost(self, call: Call) -> dict[str, float]:
        if self._way.scene.goods == "tokens":
            return dict(turn_cost(PROMPT_TOKENS, call.tokens - PROMPT_TOKENS))
        return dict(call_cost(self._profile))

    async def close(self) -> None:
        await self._http.aclose()
