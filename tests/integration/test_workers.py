"""Do several processes that serve one port behave as one, and does one that dies take nothing with it but its own streams?"""

import asyncio
import contextlib
import json
import os
import re
import signal
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.support.pids import alive, descendants, gone
from tests.support.processes import Process, port_of, running
from tests.support.promtool import Page
from tests.support.tool_agents import Agent, errors_of

ENGINE = ("fake-engine", "--port", "0", "--health-seconds", "0")
LONG = {"model": "fake-1b", "stream": True, "messages": [{"role": "user", "content": "[calls=0 answer=120]"}]}
ENDLESS = {**LONG, "messages": [{"role": "user", "content": "[calls=0 answer=4000]"}]}

pytestmark = pytest.mark.timeout(300)


@dataclass
class Workers:
    parent: Process
    scheduler: Process
    http: httpx.AsyncClient  # a connection for each request, so that any worker may get it

    @property
    def url(self) -> str:
        return self.parent.at["http"]

    def logged(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.parent.logged().splitlines() if line.startswith("{")]

    def lives(self, worker: int) -> list[dict[str, Any]]:
        """What the parent said of each life of this worker: pid and its own address."""
        return [line for line in self.logged() if line["event"] == "worker is ready" and line["worker"] == worker]

    async def life(self, worker: int, number: int) -> dict[str, Any]:
        async with asyncio.timeout(60):
            while len(self.lives(worker)) < number:
                await asyncio.sleep(0.05)
        return self.lives(worker)[number - 1]

    def own(self, worker: int) -> str:
        return self.lives(worker)[-1]["own"]

    async def page(self, url: str, **headers: str) -> Page:
        answer = (await self.http.get(url + "/metrics", headers=headers)).raise_for_status()
        return Page(answer.text, openmetrics="openmetrics" in answer.headers["content-type"])

    async def sessions(self) -> set[str]:
        return {each["dataplane"] for each in (await self.http.get(self.scheduler.at["http"] + "/status")).json()["sessions"]}


@contextlib.asynccontextmanager
async def two_workers(folder: Path, **dataplane: Any) -> AsyncGenerator[Workers]:
    async with running(*ENGINE, folder=folder) as engine, httpx.AsyncClient(
        trust_env=False, timeout=30, limits=httpx.Limits(max_keepalive_connections=0)
    ) as http:  # fmt: skip
        expected = ["plane-0", "plane-1"]
        at_scheduler = {"grpc_port": 0, "http_port": 0, "dataplanes_expected": expected}
        (folder / "s.yaml").write_text(yaml.safe_dump({"replicas": [{"name": "e", "url": engine.at["http"]}], "scheduler": at_scheduler}))
        async with running("scheduler", "--config", str(folder / "s.yaml"), folder=folder) as scheduler:
            own = {"port": 0, "name": "plane", "scheduler": scheduler.at["grpc"], **dataplane}
            (folder / "d.yaml").write_text(yaml.safe_dump({"dataplane": own}))
            async with running("dataplane", "--workers", "2", "--config", str(folder / "d.yaml"), folder=folder) as parent:
                workers = Workers(parent, scheduler, http)
                async with asyncio.timeout(60):
                    for worker in (0, 1):
                        while not (await http.get(workers.own(worker) + "/v1/models")).json()["data"]:
                            await asyncio.sleep(0.05)
                yield workers


async def test_one_run_comes_through_any_worker_and_one_that_is_killed_comes_back(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as workers:
        assert await workers.sessions() == {"plane-0", "plane-1"}
        agents = [Agent(workers.http, f"Task {number}. [calls=4 answer=8]") for number in range(6)]
        await asyncio.gather(
            *(each.loop(lambda n, at=number: workers.own((at + n) % 2) + "/v1", 0.01) for number, each in enumerate(agents))
        )
        assert errors_of(agents) == []
        assert [(len(each.turns), len(each.runs), len(each.homes)) for each in agents] == [(5, 1, 1)] * 6
        assert len({run for each in agents for run in each.runs}) == 6

        name = "luftpause_dataplane_turns_total"
        pages = [await workers.page(url) for url in (workers.url, workers.own(0), workers.own(1))]
        for page in pages:
            assert [page.sum(name, worker=each) for each in ("0", "1")] == [15, 15]
            assert page.sum("luftpause_dataplane_worker_up") == 2
        assert (await workers.page(workers.url, accept="application/openmetrics-text")).sum(name) == 30

        first = workers.lives(0)[0]
        os.kill(first["pid"], signal.SIGKILL)
        await gone({first["pid"]})
        kept = Agent(workers.http, "Another. [calls=2 answer=8]")
        await kept.loop(lambda _: workers.own(1) + "/v1", 0.01)
        assert errors_of([kept]) == []
        again = await workers.life(0, 2)
        assert again["pid"] != first["pid"]
        ended = next(line for line in workers.logged() if line["event"].startswith("a worker ended"))
        assert (ended["worker"], ended["how"]) == (0, "killed by SIGKILL")
        agent = Agent(workers.http, "One more. [calls=2 answer=8]")
        async with asyncio.timeout(60):
            while not (await workers.http.get(again["own"] + "/v1/models")).json()["data"]:
                await asyncio.sleep(0.05)
        await agent.loop(lambda n: workers.own(n % 2) + "/v1", 0.01)
        assert errors_of([agent]) == []
        assert len(agent.runs) == 1
        after = await workers.page(workers.url)
        assert after.sum("luftpause_dataplane_worker_up") == 2
        assert after.sum(name, worker="1") == 15 + 3 + 1
        assert after.sum(name, worker="0") == 2  # counts of a life are gone with it

        services = {(line["service"], line.get("worker")) for line in workers.logged() if line["event"] == "listening"}
        assert services == {("dataplane", 0), ("dataplane", 1)}

        pids = descendants(workers.parent.process.pid)
        assert len(pids) == 2
        async with workers.http.stream("POST", workers.own(1) + "/v1/chat/completions", json=LONG) as answer:
            workers.parent.terminate()
            text = (await answer.aread()).decode()  # what runs may end
        assert text.rstrip().endswith("data: [DONE]")
        assert await workers.parent.ended() == 0
        assert not any(map(alive, pids))


async def test_a_second_signal_does_not_wait_for_a_stream(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as workers:
        async with workers.http.stream("POST", workers.own(0) + "/v1/chat/completions", json=ENDLESS) as answer:
            workers.parent.terminate()
            async with asyncio.timeout(60):
                while sum(line["event"] == "stopping" for line in workers.logged()) < 2:
                    await asyncio.sleep(0.02)
            workers.parent.terminate()
            with pytest.raises(httpx.RemoteProtocolError):
                await answer.aread()
        assert await workers.parent.ended() == 0


async def test_when_the_parent_is_killed_its_workers_stop(tmp_path: Path) -> None:
    (tmp_path / "d.yaml").write_text("dataplane: {port: 0}")
    async with running("dataplane", "--workers", "2", "--config", str(tmp_path / "d.yaml"), folder=tmp_path) as parent:
        pids = descendants(parent.process.pid)
        assert len(pids) == 2
        parent.kill()
        await gone(pids)


async def test_a_taken_port_and_a_worker_that_can_not_start_end_it_with_the_reason(tmp_path: Path) -> None:
    async def ends(text: str, *options: str, **dataplane: Any) -> str:
        path = tmp_path / "e.yaml"
        path.write_text(yaml.safe_dump({"dataplane": dataplane}))
        with pytest.raises(AssertionError, match=r"ended with 2") as failed:
            async with running("dataplane", "--workers", "2", *options, "--config", str(path), folder=tmp_path):
                pass
        assert re.search(text, str(failed.value)), failed.value
        return str(failed.value)

    async with running(*ENGINE, folder=tmp_path) as engine:
        await ends(r"port \d+ on 127.0.0.1 is in use; choose another with dataplane.port", port=port_of(engine.at["http"]))
    said = await ends(r"worker [01] did not start \(exit status 2\)", port=0, identity_key_env="NO_SUCH_VARIABLE")
    assert "dataplane.identity_key_env" in said
    await ends(r"--with-scheduler is one process; with --workers", "--with-scheduler", port=0)
