"""What is compared in a flood?"""

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from luftpause.scheduler.core.settings import Settings
from luftpause_bench.flood.routers import Direct, LeastLoaded, Residency
from luftpause_bench.flood.scheduled import Gauges, Scheduled
from luftpause_bench.flood.world import Front


class Variant(Struct, frozen=True):
    """
    `make` gets the probe's period. `priority`: the engines have a priority queue, and each request says its class there, without a
    scheduler. `scheduled`: it is the scheduler's core.
    """

    name: str
    what: str
    make: Callable[[float], Front]
    priority: bool = False
    scheduled: bool = True


def core(
    policy: str,
    *,
    priority: bool = False,
    gauges: Gauges = Gauges(),  # noqa: B008
    seconds: float | None = None,
    router: bool = False,
    **settings: Any,
) -> Callable[[float], Front]:
    """The scheduler with these settings. `seconds`: its own probe period. `router`: all engines behind one."""

    def make(probe_seconds: float) -> Front:
        made = Settings(policy=policy, start_grace_seconds=0.0, probe_seconds=seconds or probe_seconds, **settings)
        return Scheduled(made, gauges, priority=priority, router=router)

    return make


ALL: Final = (
    Variant("direct", "cache-aware router, engines first come first served", lambda _: Direct(), scheduled=False),
    Variant("least_loaded", "router by turns in flight alone, engines first come first served", lambda _: LeastLoaded(), scheduled=False),
    Variant("engine_priority", "cache-aware router, engines serve interactive first", lambda _: Direct(), priority=True, scheduled=False),
    Variant("original_plain", "original to the letter: caps lifted at once, bursts unlimited", core(
        "original", cap_release="at_once", burst_turns_max=0)),
    Variant("original_moves", "original, runs may move", core("original", stickiness="off")),
    Variant("original", "original", core("original")),
    Variant("original_fast", "original, probes each 0.25 s", core("original", seconds=0.25)),
    Variant("residency", "pure run-level residency: knows how many turns each run will have", lambda _: Residency(), scheduled=False),
    Variant("guard", "guard, engines serve interactive first", core("guard", priority=True)),
    Variant("guard_fast", "guard, probes each 0.25 s", core("guard", priority=True, seconds=0.25)),
    Variant("guard_fifo", "guard, engines without priority queues", core("guard")),
    Variant("guard_0.9", "guard, batch_kv_share 0.9", core("guard", priority=True, batch_kv_share=0.9)),
    Variant("guard_k_unknown", "guard, engines don't tell K", core("guard", priority=True, gauges=Gauges(kv_factor=0))),
    Variant("guard_k_over", "guard, engines tell 1.3 K", core("guard", priority=True, gauges=Gauges(kv_factor=1.3))),
    Variant("guard_late", "guard, gauges 2 s old", core("guard", priority=True, gauges=Gauges(late_seconds=2.0))),
    Variant("guard_blind", "guard, usage tells no cached tokens", core("guard", priority=True, gauges=Gauges(cached=False))),
    Variant("original_router", "original, all engines behind one cache-aware router", core("original", router=True)),
    Variant("guard_router", "guard, all engines behind one cache-aware router", core("guard", router=True)),
)  # fmt: skip
BY_NAME: Final = {variant.name: variant for variant in ALL}
