"""What stands before the engines over HTTP, and how is it started?"""

import json
import os
import shutil
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Literal

from msgspec import Struct

from luftpause.kit.errors import LuftpauseError
from luftpause_bench.flood.workload import Workload
from luftpause_bench.live.world import World

PROGRAM_FIELD: Final = "vllm_xargs.agentic_context.program_id"  # by which vllm-router tells programs apart
PROGRAMS: Final[dict[str, str]] = {
    "sglang-router": "LUFTPAUSE_BENCH_SGLANG_ROUTER",
    "vllm-router": "LUFTPAUSE_BENCH_VLLM_ROUTER",
}
Flavour = Literal["sglang", "vllm"]


class Place(Struct, frozen=True):
    """Where a front is started: before these engines, on this port and the next one, at `speed` times the usual pace."""

    world: World
    engines: Sequence[str]
    port: int
    speed: float
    workload: Workload


class Front(Struct, frozen=True):
    """Where the load goes. `status`: luftpause's status page, else empty. `run_end`: where it is told that a run is over."""

    base_url: str
    status: str = ""
    run_end: str = ""


class Variant(Struct, frozen=True):
    """
    `flavour` of the engines. `priority`: they have a priority queue, and somebody says each turn's class in the body: the client
    (`client_priority`), or luftpause. `virtual`: the same in virtual time. `program`: what must be installed.
    """

    name: str
    what: str
    start: Callable[[Place], Awaitable[Front]]
    flavour: Flavour = "sglang"
    priority: bool = False
    client_priority: bool = False
    run_field: str = ""
    virtual: str = ""
    program: str = ""


def program_of(name: str) -> str | None:
    return os.environ.get(PROGRAMS[name]) or shutil.which(name)


def _found(name: str) -> str:
    program = program_of(name)
    if program is None:
        raise LuftpauseError(f"{name} is not here: pip install {name}, or name it in {PROGRAMS[name]}", code="missing_program")
    return program


# ---- luftpause ----------------------------------------------------------------------------------------------------


def _luftpause(policy: str, *, load: str = "auto", probe_seconds: float = 2.0, priority: bool = False, **settings: Any) -> Any:
    async def start(place: Place) -> Front:
        replica = {"load": load, **({"priority": "sglang"} if priority else {})}
        scheduler = {
            "policy": policy, "probe_seconds": probe_seconds / place.speed, "reserve_seconds_max": 120 / place.speed,
            "run_idle_seconds": 1800 / place.speed, "start_grace_seconds": 1.0, **settings,
        }  # fmt: skip
        plane = await place.world.luftpause(place.engines, replica=replica, scheduler=scheduler, dataplane={"usage": "observe"})
        return Front(plane.base_url, plane.status)

    return start


# ---- routers of others --------------------------------------------------------------------------------------------


async def _sglang_router(place: Place) -> Front:
    words = (
        _found("sglang-router"), "launch", "--host", "127.0.0.1", "--port", str(place.port), "--prometheus-port", str(place.port + 1),
        "--worker-urls", *place.engines, "--policy", "cache_aware", "--worker-startup-check-interval", "1",
        "--worker-startup-timeout-secs", "60", "--health-check-interval-secs", "2", "--log-level", "error",
    )  # fmt: skip
    return await _started(place, "sglang-router", words, "/readiness")


def _vllm_router(*more: Callable[[Workload], Sequence[str]]) -> Callable[[Place], Awaitable[Front]]:
    async def start(place: Place) -> Front:
        words = (
            _found("vllm-router"), "--host", "127.0.0.1", "--port", str(place.port), "--prometheus-port", str(place.port + 1),
            "--worker-urls", *place.engines, "--policy", "cache_aware", "--worker-startup-check-interval", "1",
            "--worker-startup-timeout-secs", "60", "--health-check-interval-secs", "2", "--log-level", "error",
            *(word for each in more for word in each(place.workload)),
        )  # fmt: skip
        return await _started(place, "vllm-router", words, "/readiness")

    return start


def _programs(workload: Workload) -> Sequence[str]:
    """Calibrated with what these engines really hold and take, both at work on one GPU: it could not know more."""
    engine, slower = workload.engine, workload.engines if workload.one_gpu else 1
    config = {
        "token_capacity_per_dp_rank": engine.kv_tokens,
        "prefill_cost_model": {
            "intercept_seconds": engine.prefill_step_seconds * slower,
            "linear_seconds_per_1k_tokens": 1000 / engine.prefill_tokens_per_second * slower,
            "quadratic_seconds_per_1k_tokens_squared": 0.0,
        },
        "decode_throughput_model": {
            "fixed_step_seconds": engine.decode_step_seconds * slower,
            "batch_step_seconds_per_request": engine.decode_sequence_seconds * slower,
            "context_step_seconds_per_token": engine.decode_kv_token_seconds * slower,
        },
    }
    return "--enable-program-scheduling", "--program-scheduling-config-json", json.dumps(config)


async def _started(place: Place, name: str, words: Sequence[str], ready: str) -> Front:
    program = await place.world.program(name, words)
    await program.ready(f"http://127.0.0.1:{place.port}{ready}")
    url = f"http://127.0.0.1:{place.port}"
    return Front(f"{url}/v1", run_end=f"{url}/finish_session?session_id={{run}}" if "--enable-program-scheduling" in words else "")


# ---- all ----------------------------------------------------------------------------------------------------------

ALL: Final = (
    Variant("sglang-router", "sglang-router, cache_aware", _sglang_router, virtual="direct", program="sglang-router"),
    Variant("vllm-router", "vllm-router, cache_aware", _vllm_router(), "vllm", virtual="direct", program="vllm-router"),
    Variant(
        "vllm-router priority", "vllm-router, cache_aware; engines serve interactive first", _vllm_router(), "vllm", priority=True,
        client_priority=True, virtual="engine_priority", program="vllm-router",
    ),
    Variant(
        "vllm-router programs", "vllm-router with program scheduling, calibrated", _vllm_router(_programs), "vllm",
        run_field=PROGRAM_FIELD, program="vllm-router",
    ),
    Variant(
        "vllm-router programs, priority", "the same; engines serve interactive first", _vllm_router(_programs), "vllm", priority=True,
        client_priority=True, run_field=PROGRAM_FIELD, program="vllm-router",
    ),
    Variant("direct", "luftpause that asks no load: it keeps runs where they are", _luftpause("original", load="none"), virtual="direct"),
    Variant("original", "luftpause, original", _luftpause("original"), virtual="original"),
    Variant(
        "guard", "luftpause, guard; engines serve interactive first", _luftpause("guard", priority=True), priority=True, virtual="guard"
    ),
)  # fmt: skip
BY_NAME: Final = {variant.name: variant for variant in ALL}
