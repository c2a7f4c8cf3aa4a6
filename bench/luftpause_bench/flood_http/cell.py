"""How is one flood played over HTTP, and what is measured?"""

import asyncio
import contextlib
import json
import os
import sys
import time
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import httpx
from msgspec import Struct

from luftpause.cli.load_trace import write_plans
from luftpause.kit.errors import LuftpauseError
from luftpause_bench.flood.workload import Workload
from luftpause_bench.flood_http.fronts import BY_NAME, Front, Place, Variant
from luftpause_bench.flood_http.plans import plans
from luftpause_bench.live.world import MODEL, World
from luftpause_bench.proc import processor_seconds

STREAM_INTERVAL: Final = 16  # tokens whose chunks an engine sends together: a single one each would keep this machine busy
SAMPLE_SECONDS: Final = 1.0
STALLED: Final = ("ConnectTimeout",)  # on loopback that is nobody's fault but the machine's: nothing was measured
LOAD_GRACE_SECONDS: Final = 60.0  # of the load generator, to start and to clean up


class Cell(Struct, frozen=True):
    """`kv`: memory of the engines as a multiple of the testbed's. `speed` 8: everything takes an eighth of the time."""

    kv: float
    variant: str
    seed: int
    workload: Workload
    speed: float = 1.0

    @property
    def name(self) -> str:
        return f"KV x{self.kv:g}, {self.variant}, seed {self.seed}"


class Figures(Struct, frozen=True):
    """Of one class, in the engines' time."""

    runs_per_minute: float
    turns_per_minute: float
    run_seconds_p50: float
    first_token_seconds_p50: float
    runs: int
    failed: int


class Machine(Struct, frozen=True):
    """How loaded the machine was: share of its processor time that was used, load average; how late the engines were, in seconds."""

    busy: float
    load: float
    late_seconds_mean: float
    late_seconds_max: float


class Measured(Struct, frozen=True):
    """`waiting`, `running`: means over time, sums over engines. `held`: in luftpause. `hit`: prompt tokens found cached, as a share."""

    kv: float
    variant: str
    seed: int
    classes: dict[str, Figures]
    hit: float
    waiting: float
    running: float
    held: float
    errors: dict[str, int]
    machine: Machine
    ended_at: str


async def play(world: World, cell: Cell, port: int) -> Measured:
    """Raises LuftpauseError. The world must be this cell's own."""
    variant = BY_NAME[cell.variant]
    engines = await world.engines(cell.workload.engines, *_engine_options(cell, variant))
    front = await variant.start(Place(world, engines, port, cell.speed, cell.workload))
    trace = world.folder / "runs.jsonl"
    write_plans(trace, plans(cell.workload, cell.seed))
    watched = _Watched(engines, front, cell)
    load = asyncio.create_task(_loadgen(cell, variant, front, trace))
    try:
        await watched.watch(load)
        found = await load
    finally:
        load.cancel()
        await asyncio.gather(load, return_exceptions=True)
    measured = _measured(cell, found, watched)
    if lost := sum(count for error, count in measured.errors.items() if error in STALLED):
        raise LuftpauseError(f"{cell.name}: the machine stood still: {lost} connections to it timed out", code="stalled")
    return measured


def _engine_options(cell: Cell, variant: Variant) -> list[str]:
    engine = cell.workload.engine
    options: dict[str, Any] = {
        "--flavour": variant.flavour, "--kv-tokens": engine.kv_tokens, "--speed": cell.speed, "--chunk-tokens": engine.chunk_tokens,
        "--prefill-speed": engine.prefill_tokens_per_second, "--decode-seconds": engine.decode_step_seconds,
        "--priority": variant.flavour if variant.priority else "off", "--stream-interval": STREAM_INTERVAL,
    }  # fmt: skip
    return [str(word) for pair in options.items() for word in pair]


async def _loadgen(cell: Cell, variant: Variant, front: Front, trace: Path) -> dict[str, Any]:
    """What it printed. Raises LuftpauseError (`load_failed`)."""
    workload, speed = cell.workload, cell.speed
    crowds = ",".join(f"{crowd.turn_class.name.lower()}={crowd.agents}" for crowd in workload.crowds)
    words = [
        sys.executable, "-m", "luftpause", "loadgen", "--base-url", front.base_url, "--model", MODEL, "--trace", str(trace),
        "--mix", crowds, "--callers", str(max(crowd.callers for crowd in workload.crowds)),
        "--duration-s", f"{workload.seconds / speed:g}", "--warm-up-s", f"{workload.warm_up_seconds / speed:g}",
        "--speed", f"{speed:g}", "--seed", str(cell.seed), "--json",
        *(("--run-field", variant.run_field) if variant.run_field else ()),
        *(("--run-end", front.run_end) if front.run_end else ()),
        *(("--engine-priority", variant.flavour) if variant.client_priority else ()),
    ]  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        said, complained = await asyncio.wait_for(process.communicate(), workload.seconds / speed + LOAD_GRACE_SECONDS)
    except TimeoutError:
        raise LuftpauseError(f"{cell.name}: the load generator did not end in time", code="load_failed") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    try:
        return json.loads(said)
    except ValueError:
        raise LuftpauseError(f"{cell.name}: the load generator failed: {complained.decode()[-1000:]}", code="load_failed") from None


class _Watched:
    """What engines and machine were like after the warm-up."""

    def __init__(self, engines: list[str], front: Front, cell: Cell) -> None:
        self.samples: list[tuple[float, float, float]] = []
        self.machine = Machine(0.0, 0.0, 0.0, 0.0)
        self._engines = engines
        self._front = front
        self._warm_up = cell.workload.warm_up_seconds / cell.speed

    async def watch(self, load: asyncio.Task[Any]) -> None:
        """Until the load has ended."""
        async with httpx.AsyncClient(trust_env=False, timeout=5) as http:
            await asyncio.wait({load}, timeout=self._warm_up)
            late, busy = await self._late(http), processor_seconds()
            while not load.done():
                with contextlib.suppress(httpx.HTTPError, ValueError, KeyError):
                    self.samples.append(await self._sample(http))
                await asyncio.wait({load}, timeout=SAMPLE_SECONDS)
            after, busy_after = await self._late(http), processor_seconds()
        used, whole = (new - old for new, old in zip(busy_after, busy, strict=True))
        timers = max(1, after["timers"] - late["timers"])
        self.machine = Machine(
            used / whole if whole else 0.0, os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0,
            (after["seconds"] - late["seconds"]) / timers, after["seconds_max"],
        )  # fmt: skip

    async def _late(self, http: httpx.AsyncClient) -> dict[str, float]:
        """Of the GPU, which all engines share."""
        return (await http.get(f"{self._engines[0]}/_fake")).json()["late"]

    async def _sample(self, http: httpx.AsyncClient) -> tuple[float, float, float]:
        shown = [(await http.get(f"{url}/_fake")).json() for url in self._engines]
        held = 0.0
        if self._front.status:
            state = (await http.get(f"{self._front.status}/status", params={"held": 0, "callers": 0})).json()["state"]
            held = sum(each["held"] for each in state["held_by_class"])
        return sum(each["waiting"] for each in shown), sum(each["running"] for each in shown), held


def _measured(cell: Cell, found: dict[str, Any], watched: _Watched) -> Measured:
    classes: dict[str, Any] = found["classes"]
    waiting, running, held = (fmean(values) for values in zip(*watched.samples, strict=True)) if watched.samples else (0.0, 0.0, 0.0)
    prompt = sum(each["prompt_tokens"] for each in classes.values())
    errors: dict[str, int] = {}
    for each in classes.values():
        for error, count in each["errors"].items():
            errors[error] = errors.get(error, 0) + count
    return Measured(
        cell.kv, cell.variant, cell.seed, {name: _figures(each, cell.speed) for name, each in classes.items()},
        sum(each["cached_tokens"] for each in classes.values()) / max(1, prompt), waiting, running, held, errors, watched.machine,
        time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
    )  # fmt: skip


def _figures(found: dict[str, Any], speed: float) -> Figures:
    def p50(name: str) -> float:
        return found[name]["p50"] * speed if found[name] else 0.0

    return Figures(
        found["runs_per_min"] / speed, found["turns_per_min"] / speed, p50("run_s"), p50("first_token_s"),
        found["completed"], found["failed"],
    )  # fmt: skip
