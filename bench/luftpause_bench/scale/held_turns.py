"""What does a held turn take of memory, what an open stream, and does every one of thousands get its answer?"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

import httpx
from msgspec import Struct

from luftpause.kit.errors import LuftpauseError
from luftpause_bench.live.world import Plane, World
from luftpause_bench.proc import memory_bytes
from luftpause_bench.scale.raw_turns import Turn, head, leave, open_all, whole

CHARACTERS: Final = 2_000
SLOTS: Final = 64  # turns that the engine may have at once
SETTLE_SECONDS_MAX: Final = 90.0
LOOK_SECONDS: Final = 0.1
STILL_SECONDS: Final = 1.0
STILL_BYTES: Final = 200_000
WARM_UP: Final = 50  # what a first turn loads and keeps is not theirs
BIG: Final = ("--kv-tokens", "8000000", "--prefill-speed", "100000000")


class Taken(Struct, frozen=True):
    """Bytes that each of `count` takes of each service, and seconds until the last one was answered (0: none was to be)."""

    count: int
    bytes_each: dict[str, float]
    answered: int
    seconds: float


async def held(world: World, count: int) -> Taken:
    """`count` turns before an engine that may take none; then it may take some, and all are answered."""
    engine = await world.engine("engine", "--speed", "50", *BIG)
    plane = await world.luftpause([engine], replica={"load": "none", "max_in_flight": SLOTS})
    await _answered(await open_all(plane.http, WARM_UP, characters=CHARACTERS, answer_tokens=2))
    world.change_replicas(max_in_flight=0)
    await _until(plane, lambda state: state["replicas"][0]["max_in_flight"] == 0)
    before = await _memory(plane)
    turns = await open_all(plane.http, count, characters=CHARACTERS, answer_tokens=2, first=WARM_UP)
    await _until(plane, lambda state: state["held"] == count)
    during = await _memory(plane)
    began = time.monotonic()
    world.change_replicas(max_in_flight=SLOTS)
    await _answered(turns)
    return Taken(count, {name: (during[name] - before[name]) / count for name in before}, len(turns), time.monotonic() - began)


async def streams(world: World, count: int) -> Taken:
    """`count` streams that have begun and say nothing for now."""
    engine = await world.engine("engine", *BIG)
    plane = await world.luftpause([engine], replica={"load": "none"})
    await _answered(await open_all(plane.http, WARM_UP, characters=CHARACTERS, answer_tokens=2))
    await _order(engine, stall_after_tokens=2)
    before = await _memory(plane)
    turns = await open_all(plane.http, count, characters=CHARACTERS, answer_tokens=100, first=WARM_UP)
    await asyncio.gather(*(head(turn) for turn in turns))
    during = await _memory(plane)
    await leave(turns)
    await _until(plane, lambda state: state["replicas"][0]["in_flight"] == 0)
    return Taken(count, {name: (during[name] - before[name]) / count for name in before}, 0, 0.0)


async def _order(engine: str, **faults: object) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        (await client.post(f"{engine}/_fake", json=faults)).raise_for_status()


async def _answered(turns: list[Turn]) -> None:
    await asyncio.gather(*(whole(turn) for turn in turns))


async def _until(plane: Plane, true: Callable[[dict[str, Any]], bool]) -> None:
    """Raises LuftpauseError (`not_ready`) if the scheduler's state does not become so."""
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        try:
            async with asyncio.timeout(SETTLE_SECONDS_MAX):
                while not true((await client.get(f"{plane.status}/status")).json()["state"]):  # noqa: ASYNC110 - the page has no stream
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            raise LuftpauseError(
                f"the scheduler's state is not as it should be after {SETTLE_SECONDS_MAX:.0f} s", code="not_ready"
            ) from None


async def _memory(plane: Plane) -> dict[str, int]:
    """Bytes of each service, once they don't change any more."""
    found = {name: memory_bytes(pid) for name, pid in plane.pids.items()}
    until = time.monotonic() + SETTLE_SECONDS_MAX
    while time.monotonic() < until:
        await asyncio.sleep(STILL_SECONDS)
        now = {name: memory_bytes(pid) for name, pid in plane.pids.items()}
        if all(abs(now[name] - found[name]) < STILL_BYTES for name in now):
            return now
        found = now
    return found
