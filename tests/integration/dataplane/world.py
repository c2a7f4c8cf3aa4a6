"""How does a test run a real dataplane before a real scheduler and engines, and see that nothing is left in it afterwards?

The engine `fake` counts what it has in work. `raw`, within the test, floods whoever asks for the model `flood`, sends 128 MiB to who asks
for `much` (in one event, or in many), and tells everybody else the digest of the body that it got.
"""

import asyncio
import contextlib
import hashlib
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.cluster import Cluster, cluster, turns_in
from tests.support.plane import Client, post
from tests.support.processes import port_of
from tests.support.raw_engine import STREAM_HEAD, RawEngine, Talk, chunked, json_answer, raw_engine

FAKE = "fake-1b"
COUNTED = ("luftpause_dataplane_in_flight_turns", "luftpause_dataplane_held_turns")
PLACES = 3  # of the fake engine
GONE_SECONDS = 60.0  # an engine's request is closed within this after its client left; within two on a machine with nothing else to do
CLOSED_STATES = {"06", "0A"}  # TIME_WAIT and LISTEN in /proc/net/tcp: neither belongs to a connection that somebody still has
LIMITS: dict[str, Any] = {
    "head_seconds_max": 2, "body_seconds_max": 3, "slow_reader_seconds": 2, "half_close_seconds": 3, "linger_seconds": 0.5,
}  # fmt: skip
EVENT_BYTES, MUCH_BYTES = 2**16, 2**27
EVENTS = chunked(b'data: {"choices":[{"index":0,"delta":{"content":"hello"}}]}\n\n' * (EVENT_BYTES // 62))
FLOOD = chunked(b"data: " + b"x" * 60_000 + b"\n\n")


async def raw_behaviour(talk: Talk) -> None:
    if talk.head.startswith(b"GET"):
        await talk.send(json_answer(b'{"data":[]}'))
    elif b'"flood"' in talk.body[:100]:
        await talk.send(STREAM_HEAD)
        while not talk.gone.is_set():
            await talk.send(FLOOD)
    elif b'"much"' in talk.body[:100]:
        piece = EVENTS if b'"events"' in talk.body else chunked(b"x" * EVENT_BYTES)
        await talk.send(STREAM_HEAD + chunked(b"data: "))
        for _ in range(MUCH_BYTES // EVENT_BYTES):
            await talk.send(piece)
        await talk.send(b"0\r\n\r\n")
    else:
        await talk.send(json_answer(json.dumps({"sha256": hashlib.sha256(talk.body).hexdigest(), "choices": []}).encode()))


def body_of(text: str = "Hello. [calls=0 answer=8]", model: str = FAKE, stream: bool = True) -> bytes:
    return json.dumps({"model": model, "stream": stream, "messages": [{"role": "user", "content": text}]}).encode()


LONG = body_of("Hello. [calls=0 answer=2000]")


@dataclass
class World:
    whole: Cluster
    raw: RawEngine
    name: str = "dp-0"  # of the dataplane that is asked and looked at

    @property
    def plane(self) -> str:
        return self.whole.planes[self.name].at["http"]

    async def client(self) -> Client:
        return await Client.to(self.plane)

    async def status(self) -> dict[str, Any]:
        return await self.whole.status()

    async def in_work(self, count: int) -> None:
        """Until the fake engine has so many requests."""
        await _until(lambda: self._engine_has(count), GONE_SECONDS)

    async def held(self, count: int) -> None:
        await self.whole.until(lambda seen: seen["state"]["held"] == count)

    async def _engine_has(self, count: int) -> bool:
        seen = await self.whole.engine(0)
        return seen["running"] + seen["waiting"] == count

    async def stalls(self, tokens: int) -> None:
        """The fake engine's next turn falls silent after so many tokens; 0: before its head."""
        await self.whole.order(0, stall_after_tokens=tokens, stall_times=1)

    @contextlib.asynccontextmanager
    async def full(self) -> AsyncGenerator[None]:
        """All places of the fake engine are taken while the block lasts."""
        clients = [await self.client() for _ in range(PLACES)]
        try:
            for each in clients:
                await each.send(post(LONG))
                await each.until(b"data: ")
            yield
        finally:
            for each in clients:
                each.reset()

    def rss_bytes_max(self) -> int:
        """The most memory that the dataplane ever had."""
        status = Path(f"/proc/{self.whole.planes['dp-0'].process.pid}/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))

    async def nothing_left(self) -> None:
        """Within GONE_SECONDS: no request in an engine, no turn in scheduler or dataplane, no client's connection in the latter."""
        began = time.monotonic()
        await _until(lambda: self._engine_has(0), GONE_SECONDS)
        await _until(self._raw_is_gone, GONE_SECONDS - (time.monotonic() - began))
        await self.whole.until(lambda seen: turns_in(seen) == 0, GONE_SECONDS)
        await _until(self._plane_counts_nothing, GONE_SECONDS)
        await _until(self._no_clients, GONE_SECONDS)

    async def _plane_counts_nothing(self) -> bool:
        page = (await self.whole.http.get(self.plane + "/metrics", headers={"connection": "close"})).raise_for_status().text
        counts = [line.rpartition(" ")[2] for line in page.splitlines() if line.startswith(COUNTED)]
        assert counts, page
        return {float(each) for each in counts} == {0.0}

    async def _raw_is_gone(self) -> bool:
        return all(talk.gone.is_set() or b'"flood"' not in talk.body[:100] for talk in self.raw.talks)

    async def _no_clients(self) -> bool:
        return connections_at(port_of(self.plane)) == 0


async def _until(condition: Callable[[], Awaitable[bool]], seconds: float) -> None:
    async with asyncio.timeout(max(0.05, seconds)):
        while not await condition():
            await asyncio.sleep(0.02)  # another process's state; nothing tells when it changes


def connections_at(port: int) -> int:
    """How many connections at this port of ours some process still has."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]
    return sum(each[1].endswith(f":{port:04X}") and each[3] not in CLOSED_STATES and each[9] != "0" for each in fields)


@contextlib.asynccontextmanager
async def world(folder: Path, scheduler: dict[str, Any] | None = None, **dataplane: Any) -> AsyncGenerator[World]:
    options = ("--decode-seconds", "0.01", "--kv-tokens", "2000000", "--health-seconds", "0")
    fake = {"load": "none", "max_in_flight": PLACES, "models": [FAKE]}
    async with raw_engine(raw_behaviour) as raw:
        other = {"name": "raw", "url": raw.url, "load": "none", "models": ["flood", "much", "digest"], "apis": ["chat"]}
        async with cluster(
            folder, engines=[options], planes=1, scheduler=scheduler, dataplane=LIMITS | dataplane, replicas=[fake, other]
        ) as whole:
            yield World(whole, raw)
