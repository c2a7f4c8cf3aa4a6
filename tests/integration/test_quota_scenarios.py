"""What do agents see of a shared quota when a provider says odd things, and when agents and dataplanes vanish? With real processes."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from luftpause.scheduler.governor.ledger_file import LedgerFile
from luftpause.scheduler.quota import core
from luftpause.scheduler.quota.model import Settings
from tests.support.ports import a_quiet_port
from tests.support.processes import Process, running

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(240)]
Json = dict[str, Any]
SECONDS = 60


@contextlib.asynccontextmanager
async def stack(folder: Path, governor: Json, planes: int = 1) -> AsyncGenerator[tuple[Process, list[Process]]]:
    """A scheduler and its dataplanes."""
    config: Json = {
        "scheduler": {"grpc_port": a_quiet_port(), "http_port": 0, "start_grace_seconds": 0},
        "dataplane": {"port": 0, "half_close_seconds": 0.2, "connect_seconds": 30},
        "governor": governor,
    }
    async with contextlib.AsyncExitStack() as entered:
        path = folder / "scheduler.yaml"
        path.write_text(yaml.safe_dump(config))
        scheduler = await entered.enter_async_context(running("scheduler", "--config", str(path), folder=folder))
        found: list[Process] = []
        for number in range(planes):
            path = folder / f"dataplane-{number}.yaml"
            path.write_text(
                yaml.safe_dump({**config, "dataplane": {**config["dataplane"], "name": f"dp-{number}", "scheduler": scheduler.at["grpc"]}})
            )
            found.append(await entered.enter_async_context(running("dataplane", "--config", str(path), folder=folder)))
        client = await entered.enter_async_context(a_client())
        for plane in found:
            await until(lambda url=plane.at["http"]: _is_back(client, url))
        yield scheduler, found


async def until(holds: Callable[[], Any], seconds: float = SECONDS) -> None:
    async with asyncio.timeout(seconds):
        while not await holds():
            await asyncio.sleep(0.02)  # another process's state; nothing tells when it changes


def a_client(**more: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(trust_env=False, timeout=SECONDS, limits=httpx.Limits(max_connections=None), **more)


# ---- O18: Retry-After at its extremes


USUAL = 20  # calls that went well before: how fast calls may go again is learned from how fast they went
TAKEN = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Upstream:
    """Refuses the call after USUAL of each path's first part as `refusals` says, takes all others, and notes when who came after that."""

    def __init__(self, refusals: dict[str, dict[str, str]]) -> None:
        self.refusals = refusals
        self.usual = dict.fromkeys(refusals, USUAL)
        self.refused_at: dict[str, float] = {}
        self.arrivals: dict[str, list[tuple[float, int]]] = {name: [] for name in refusals}
        self.url = ""

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncGenerator["Upstream"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                line = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
                _, name, priority = line.split("/")
                writer.write(self._answer(name, int(priority)))
                await writer.drain()
        writer.close()

    def _answer(self, name: str, priority: int) -> bytes:
        if self.usual[name]:
            self.usual[name] -= 1
            return TAKEN
        if name not in self.refused_at:
            self.refused_at[name] = time.monotonic()
            lines = "".join(f"{key}: {value}\r\n" for key, value in self.refusals[name].items())
            return f"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n{lines}\r\n".encode()
        self.arrivals[name].append((time.monotonic() - self.refused_at[name], priority))
        return TAKEN


def cases() -> dict[str, tuple[dict[str, str], float]]:
    """The headers of a refusal, and how long nobody may call after it."""
    now = time.time()
    return {
        "zero": ({"retry-after": "0"}, 0.0),
        "negative": ({"retry-after": "-1"}, 1.0),  # says nothing: the first back-off
        "fraction": ({"retry-after": "1.5"}, 1.5),
        "date": ({"retry-after": formatdate(now + 3, usegmt=True), "date": formatdate(now, usegmt=True)}, 2.0),
        "past": ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        "words": ({"retry-after": "soon"}, 1.0),
        "no-milliseconds": ({"retry-after-ms": "0"}, 0.0),
        "milliseconds": ({"retry-after-ms": "250"}, 0.25),
        "both": ({"retry-after-ms": "700", "retry-after": "30"}, 0.7),
        ORDERED: ({"retry-after": "4"}, 4.0),
    }


CALLERS = [2, 1, 1, 0, 0]  # priorities of those who come while it is refused
WINDOWS_SECONDS = (0.0, 0.5, 3.5)  # after the end of a block, by priority
ORDERED = "long"


class Crowd:
    """Agents that call through the governed proxy."""

    def __init__(self, client: httpx.AsyncClient, plane: Process, upstream: Upstream) -> None:
        self._client = client
        self._url = plane.at["http"]
        self._upstream = upstream

    async def call(self, name: str, priority: int = 1) -> httpx.Response:
        return await self._client.get(f"{self._url}/proxy/{name}/{priority}", headers={"x-luftpause-priority": str(priority)})

    async def usual(self, name: str) -> None:
        answers = await asyncio.gather(*(self.call(name) for _ in range(USUAL)))
        assert {answer.status_code for answer in answers} == {200}

    async def refused(self, name: str) -> list[httpx.Response]:
        """The one that is refused first, and those who come once that is known."""
        await self.usual(name)
        first = asyncio.create_task(self.call(name))
        await until(lambda: self._shows(name, lambda target: target["breaker"]["strikes"] >= 1))
        others = [asyncio.create_task(self.call(name, priority)) for priority in CALLERS]
        return await asyncio.gather(first, *others)

    async def are_in_line(self, name: str) -> bool:
        """All that come to it wait: its block must be long enough for that."""
        return await self._shows(name, lambda target: sum(target["shared_pool"]["waiting"]) == len(CALLERS) + 1)

    async def _shows(self, name: str, holds: Callable[[Json], bool]) -> bool:
        targets = (await self._client.get(f"{self._url}/v1/quota")).json()["targets"]
        return holds(next(target for target in targets if target["name"] == name))


async def test_whatever_retry_after_says_nobody_calls_too_early_and_the_urgent_go_first(tmp_path: Path) -> None:
    said = cases()
    refusals = {name: headers for name, (headers, _) in said.items()} | {"days": {"retry-after": "411234"}}
    async with Upstream(refusals).serving() as upstream, a_client() as client:
        targets = {name: {"proxy": f"{upstream.url}/{name}"} for name in refusals}
        governor = {"targets": targets, "proxy": {"open": True}, "callers": {"*": {"may_claim": True}}, "quota_hold_seconds_max": 60}
        async with stack(tmp_path, governor) as (_, (plane,)):
            crowd = Crowd(client, plane, upstream)
            ordered = asyncio.create_task(crowd.refused(ORDERED))
            await until(lambda: crowd.are_in_line(ORDERED))  # before the others, who make the machine busy
            answers = {name: asyncio.create_task(crowd.refused(name)) for name in said if name != ORDERED} | {ORDERED: ordered}
            await asyncio.gather(*answers.values())
            await crowd.usual("days")
            days = await crowd.call("days")
    for name, (_, least) in said.items():
        assert {answer.status_code for answer in answers[name].result()} == {200}, name
        arrivals = upstream.arrivals[name]
        assert len(arrivals) == len(CALLERS) + 1, name  # each of them once: nobody tries in between
        assert all(at >= least + WINDOWS_SECONDS[priority] for at, priority in arrivals), (name, arrivals)
    assert [priority for _, priority in upstream.arrivals[ORDERED]][:3] == [0, 0, 1]
    assert days.status_code == 429  # longer than anybody is held
    assert int(days.headers["retry-after"]) >= 411_234
    assert upstream.arrivals["days"] == []


async def _truth(value: bool) -> bool:
    return value


# ---- O33: slots of a limiter that are stuck for ever

LEASE_SECONDS = 1.5
CAPACITY = 4


class Slots:
    """When each was used, as those know it whose lease still held when they reported."""

    def __init__(self) -> None:
        self.uses: list[tuple[float, float]] = []

    def most(self) -> int:
        """How many were in use at the same time."""
        return max(sum(begin <= moment < end for begin, end in self.uses) for moment, _ in self.uses)


class Agents:
    """They ask one of two dataplanes, whichever is there. The body of a reservation is the same for all."""

    def __init__(self, client: httpx.AsyncClient, planes: list[Process]) -> None:
        self.slots = Slots()
        self._client = client
        self._planes = planes

    async def ask(self, what: str, number: int = 0, **body: Any) -> httpx.Response | None:
        """None: its dataplane is gone."""
        there = [plane for plane in self._planes if plane.process.returncode is None]
        with contextlib.suppress(httpx.TransportError):
            return await self._client.post(f"{there[number % len(there)].at['http']}/v1/quota/api/{what}", json=body)
        return None

    async def reserve(self, number: int = 0, wait_ms: int = 20_000, lease_seconds: float = LEASE_SECONDS) -> httpx.Response | None:
        return await self.ask("reserve", number, leaseMs=lease_seconds * 1000, waitMs=wait_ms)

    async def work(self, number: int) -> None:
        answer = await self.reserve(number)
        if answer is None or answer.status_code != 200:
            return
        if number % 10 == 3:
            return  # vanishes with its lease
        begin = time.monotonic()
        await asyncio.sleep(0.02)
        end = time.monotonic()
        lease = {"lease": answer.json()["lease"], "fence": answer.json()["fence"]}
        for what, more in (("report", {"status": 200}), ("report", {"status": 200}), ("release", {})):  # as if it had not heard the answer
            told = await self.ask(what, number, **lease, **more)
            if told is not None and told.json().get("settled"):
                self.slots.uses.append((begin, end))

    async def leave(self) -> None:
        """Stops waiting, as its process was killed."""
        waiting = asyncio.create_task(self.reserve())
        await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_slots_of_agents_that_vanish_come_back_while_traffic_goes_on(tmp_path: Path) -> None:
    scope = {"name": "at_once", "kind": "concurrent", "limit": CAPACITY, "counts": ["requests"]}
    async with stack(tmp_path, {"targets": {"api": {"scopes": [scope]}}}, planes=2) as (scheduler, planes), a_client() as client:
        agents = Agents(client, planes)
        traffic: list[asyncio.Task[None]] = []
        for number in range(120):
            traffic.append(asyncio.create_task(agents.work(number)))
            if number % 20 == 7:
                traffic.append(asyncio.create_task(agents.leave()))
            if number == 60:
                planes[1].kill()
                await planes[1].ended()
            await asyncio.sleep(0.02)
        await asyncio.wait_for(asyncio.gather(*traffic), SECONDS)
        assert agents.slots.most() <= CAPACITY
        assert len(agents.slots.uses) >= 60  # traffic never stopped
        await until(lambda: _is_free(client, scheduler))  # what vanished was freed by its lease, not by a restart
        for _ in range(CAPACITY):
            answer = await agents.reserve(wait_ms=60_000, lease_seconds=600)
            assert answer is not None
            assert answer.status_code == 200
        fifth = await agents.reserve(wait_ms=0)
        assert fifth is not None
        assert fifth.status_code == 429  # no double release made a fifth
        page = (await client.get(scheduler.at["http"] + "/metrics")).text
        (line,) = [each for each in page.splitlines() if each.startswith("luftpause_scheduler_quota_expired_leases_total")]
        assert float(line.rpartition(" ")[2]) >= 6  # the sweep shows what it freed


async def _is_free(client: httpx.AsyncClient, scheduler: Process) -> bool:
    return (await target(client, scheduler))["leases"]["out"] == 0


async def target(client: httpx.AsyncClient, scheduler: Process) -> Json:
    (found,) = (await client.get(scheduler.at["http"] + "/status")).json()["quota"]["targets"]
    return found


# ---- the scheduler goes and comes back


async def test_what_was_used_is_known_after_the_scheduler_was_killed(tmp_path: Path) -> None:
    scope = {"name": "requests", "limit": 3, "window_seconds": 3600, "protect": [0, 0, 0]}
    governor = {"targets": {"api": {"scopes": [scope]}}, "state": str(tmp_path / "quota.bin"), "state_seconds": 0.05}
    async with stack(tmp_path, governor) as (scheduler, (plane,)), a_client() as client:

        async def ask(what: str, **body: Any) -> httpx.Response:
            return await client.post(f"{plane.at['http']}/v1/quota/api/{what}", json=body)

        for number in range(3):
            assert (await ask("reserve", lease=f"call-{number}")).status_code == 200
        waiting = asyncio.create_task(ask("reserve", waitMs=60_000))
        await until(lambda: _is_waiting(client, plane))
        await until(lambda: _truth(leases_in(tmp_path / "quota.bin") == 3))
        scheduler.kill()
        answer = await asyncio.wait_for(waiting, SECONDS)
        assert (answer.status_code, answer.json()["error"]["code"], answer.headers["retry-after"]) == (503, "governor_unavailable", "1")
        assert (await ask("reserve")).status_code == 503
        async with running("scheduler", "--config", str(tmp_path / "scheduler.yaml"), folder=tmp_path):
            await until(lambda: _is_back(client, plane.at["http"]))
            assert (await ask("reserve")).status_code == 429
            view = json.loads((await client.get(plane.at["http"] + "/v1/quota")).content)["targets"][0]
            assert view["leases"]["out"] == 3


def leases_in(path: Path) -> int:
    """How many leases the ledger file has."""
    targets = LedgerFile(path).read(core.initial(Settings(), 0.0)).state.targets
    return len(targets["api"].leases) if "api" in targets else 0


async def _is_waiting(client: httpx.AsyncClient, plane: Process) -> bool:
    view = (await client.get(plane.at["http"] + "/v1/quota")).json()
    return sum(view["targets"][0]["shared_pool"]["waiting"]) == 1


async def _is_back(client: httpx.AsyncClient, url: str) -> bool:
    """It has a way to the governor."""
    return (await client.get(url + "/v1/quota")).status_code == 200
