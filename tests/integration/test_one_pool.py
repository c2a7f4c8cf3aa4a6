"""Are a plain curl through `/proxy/` and an httpx client with `QuotaTransport` governed by one pool? With real processes (O18)."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import yaml

from luftpause.client import QuotaTransport
from tests.conftest import missing
from tests.support.processes import Process, running

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(240)]
TOKEN = "right-" + "r" * 30
QUOTA = 12
CALLS = 16  # beside each other, of either kind


class Said(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


async def curl(url: str, *options: str, key: str = "ghp_own") -> Said:
    program = shutil.which("curl")
    if program is None:
        missing("curl", "install it with the system's package manager")
    process = await asyncio.create_subprocess_exec(
        program, "--silent", "--include", "--max-time", "60", "-H", f"x-luftpause-token: {TOKEN}",
        "-H", f"Authorization: Bearer {key}", *options, url, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate()
    head, _, body = out.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    return Said(int(first.split()[1]), {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}, body)


def configured(folder: Path, provider: Process, scheduler: Process | None) -> Path:
    config: dict[str, Any] = {
        "scheduler": {"grpc_port": 0, "http_port": 0, "start_grace_seconds": 0},
        "dataplane": {"port": 0, **({"scheduler": scheduler.at["grpc"]} if scheduler else {})},
        "governor": {
            "callers": {"*": {"priority": 0}},  # the critical ones get all that is left
            "targets": {"github": {"profile": "github", "limits": {"core": QUOTA}, "proxy": provider.at["http"]}},
        },
    }
    path = folder / "luftpause.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


async def counted(provider: Process) -> dict[str, Any]:
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        return (await client.get(provider.at["http"] + "/_fake")).json()


async def test_one_pool_serves_both_and_is_never_overdrawn(tmp_path: Path) -> None:
    env = {"LUFTPAUSE_TOKEN": TOKEN}
    async with (
        running("fake-provider", "--port", "0", "--quota", str(QUOTA), "--latency-seconds", "0.01", folder=tmp_path) as provider,
        running("scheduler", "--config", str(configured(tmp_path, provider, None)), folder=tmp_path, env=env) as scheduler,
        running("dataplane", "--config", str(configured(tmp_path, provider, scheduler)), folder=tmp_path, env=env) as plane,
    ):
        transport = QuotaTransport("github", url=plane.at["http"], token=TOKEN, wait_seconds=0)
        async with httpx.AsyncClient(transport=transport, headers={"authorization": "Bearer ghp_own"}, timeout=60) as client:

            async def by_client(number: int) -> Said:
                answer = await client.get(f"{provider.at['http']}/repos/httpx/{number}")
                return Said(answer.status_code, dict(answer.headers), answer.content)

            async def by_curl(number: int) -> Said:
                return await curl(f"{plane.at['http']}/proxy/github/repos/curl/{number}?q=1", "-H", "x-luftpause-wait-ms: 0")

            for number in range(QUOTA // 4):  # one after the other, then all at once
                assert (await by_curl(number)).status == 200
                assert (await by_client(number)).status == 200
            answers = await asyncio.gather(*(by(number) for number in range(CALLS // 2) for by in (by_curl, by_client)))
        seen = await counted(provider)
        view = await curl(plane.at["http"] + "/v1/quota", key=TOKEN)
        assert TOKEN not in scheduler.logged() + plane.logged()
        assert "ghp_own" not in scheduler.logged() + plane.logged()
    good = [answer for answer in answers if answer.status == 200]
    refused = [answer for answer in answers if answer.status != 200]
    assert (seen["taken"], seen["refused"]) == (QUOTA, {}), "the provider never had to refuse"
    assert len(good) == QUOTA - 2 * (QUOTA // 4)
    assert all(json.loads(answer.body)["url"].startswith("/repos/") for answer in good)
    assert {answer.status for answer in refused} == {429}
    assert all(int(answer.headers["retry-after"]) > 60 and answer.headers["x-should-retry"] == "false" for answer in refused)
    assert {"x-luftpause-refused" in answer.headers for answer in refused} == {True, False}
    assert view.status == 200


async def test_whoever_waits_goes_on_when_the_quota_renews(tmp_path: Path) -> None:
    env = {"LUFTPAUSE_TOKEN": TOKEN}
    options = ("--quota", "4", "--per-minute", "0", "--speed", "1200", "--latency-seconds", "0.01")  # an hour takes three seconds
    async with (
        running("fake-provider", "--port", "0", *options, folder=tmp_path) as provider,
        running("dataplane", "--with-scheduler", "--config", str(configured(tmp_path, provider, None)), folder=tmp_path, env=env) as plane,
        httpx.AsyncClient(transport=QuotaTransport("github", url=plane.at["http"], token=TOKEN, wait_seconds=60), timeout=60) as client,
    ):
        proxied, own = f"{plane.at['http']}/proxy/github/a", provider.at["http"] + "/b"
        answers = await asyncio.gather(*(curl(proxied) for _ in range(6)), *(client.get(own) for _ in range(6)))
        seen = await counted(provider)
    statuses = [answer.status if isinstance(answer, Said) else answer.status_code for answer in answers]
    assert statuses == [200] * 12
    assert seen["taken"] == 12
