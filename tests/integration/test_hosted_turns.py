"""Do turns to hosted APIs share their quota without anybody seeing a refusal, over real processes?"""

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.support.processes import Process, running

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(240)]
Json = dict[str, Any]
TEN_A_SECOND = ("--family", "copilot", "--quota", "10000", "--per-minute", "10", "--penalty-seconds", "15", "--speed", "60")
TWO_A_SECOND = ("--family", "copilot", "--quota", "10000", "--per-minute", "2", "--penalty-seconds", "15", "--speed", "60")
SCOPES = [{"name": "requests", "kind": "fixed", "limit": 10, "window_seconds": 1}]


@contextlib.asynccontextmanager
async def plane(folder: Path, replica: Json, *, one_process: bool = False, **more: Any) -> AsyncGenerator[str]:
    """A scheduler and a dataplane with one hosted replica; the base URL."""
    config: Json = {
        "replicas": [{"name": "hosted", "health": None, "load": "none", "models": ["fake-model"], **replica}],
        "scheduler": {"grpc_port": 0, "http_port": 0, "start_grace_seconds": 0, "probe_seconds": 0.5},
        "dataplane": {"port": 0, "name": "dp-0"},
        **more,
    }
    path = folder / "luftpause.yaml"
    path.write_text(yaml.safe_dump(config))
    async with contextlib.AsyncExitStack() as stack:
        if one_process:
            both = await stack.enter_async_context(running("dataplane", "--with-scheduler", "--config", str(path), folder=folder))
            yield both.at["http"]
            return
        scheduler = await stack.enter_async_context(running("scheduler", "--config", str(path), folder=folder))
        config["dataplane"]["scheduler"] = scheduler.at["grpc"]
        path.write_text(yaml.safe_dump(config))
        dataplane = await stack.enter_async_context(running("dataplane", "--config", str(path), folder=folder))
        yield dataplane.at["http"]


async def ask(client: httpx.AsyncClient, base: str, number: int, **headers: str) -> httpx.Response:
    body = {
        "model": "fake-model",
        "messages": [{"role": "user", "content": f"hello {number}"}],
        "max_tokens": 20,
        "stream": number % 2 == 0,
    }
    named = {f"x-luftpause-{name}": value for name, value in headers.items()}
    return await client.post(f"{base}/v1/chat/completions", json=body, headers=named)


async def arriving(asking: Awaitable[httpx.Response], began: float) -> tuple[httpx.Response, float]:
    """The answer, and how many seconds after `began` it was asked for at the latest."""
    answer = await asking
    return answer, time.monotonic() - began - int(answer.headers["x-luftpause-held-ms"]) / 1000


async def counted(client: httpx.AsyncClient, provider: Process) -> Json:
    return (await client.get(provider.at["http"] + "/_fake")).raise_for_status().json()


@pytest.mark.parametrize("one_process", [False, True])
async def test_thirty_turns_on_ten_requests_a_window_lose_nothing_and_see_no_refusal(tmp_path: Path, one_process: bool) -> None:
    async with running("fake-provider", "--port", "0", *TEN_A_SECOND, folder=tmp_path) as provider:
        replica = {"url": provider.at["http"], "quota": {"profile": "auto", "scopes": SCOPES}}
        async with plane(tmp_path, replica, one_process=one_process) as base, httpx.AsyncClient(trust_env=False, timeout=90) as client:
            began = time.monotonic()
            asked = [arriving(ask(client, base, number, caller=f"agent-{number % 4}"), began) for number in range(30)]
            answers, arrived = zip(*await asyncio.gather(*asked), strict=True)
            assert Counter(answer.status_code for answer in answers) == {200: 30}
            assert all(answer.text for answer in answers)
            seen = await counted(client, provider)
    assert seen["taken"] == 30
    held = [answer for answer in answers if answer.headers.get("x-luftpause-hold-reason") == "quota"]
    windows = 1 + int(max(arrived))  # that began while they came: one, unless the machine is very busy
    assert len(held) >= 30 - 10 * windows - 5, "only the first window's worth had quota at once"


async def test_a_limit_that_nobody_told_is_learned_from_refusals_that_no_client_sees(tmp_path: Path) -> None:
    async with running("fake-provider", "--port", "0", *TWO_A_SECOND, folder=tmp_path) as provider:
        replica = {"url": provider.at["http"], "quota": {"profile": "auto"}}
        async with plane(tmp_path, replica) as base, httpx.AsyncClient(trust_env=False, timeout=90) as client:
            answers = await asyncio.gather(*(ask(client, base, number, caller=f"agent-{number % 4}") for number in range(6)))
            seen = await counted(client, provider)
    assert Counter(answer.status_code for answer in answers) == {200: 6}
    assert sum(seen["refused"].values()) > 0, "the limit was met"
    assert seen["taken"] == 6


async def test_a_wait_that_is_too_long_gives_the_engines_refusal_at_once(tmp_path: Path) -> None:
    slow = ("--family", "copilot", "--quota", "10000", "--per-minute", "3", "--penalty-seconds", "600", "--refusal-status", "429")
    async with running("fake-provider", "--port", "0", *slow, folder=tmp_path) as provider:
        replica = {"url": provider.at["http"], "quota": {"profile": "auto"}}
        governor = {"quota_hold_seconds_max": 5}
        async with plane(tmp_path, replica, governor=governor) as base, httpx.AsyncClient(trust_env=False, timeout=90) as client:
            answers = [await ask(client, base, number) for number in range(5)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
    engines, ours = answers[3], answers[4]
    assert int(engines.headers["retry-after"]) > 5
    assert "quota_wait_too_long" not in engines.text
    assert int(ours.headers["retry-after"]) > 5
    assert json.loads(ours.text)["error"]["code"] == "quota_wait_too_long"


async def test_a_provider_that_is_killed_while_it_answers_settles_all_leases_and_trips_no_breaker(tmp_path: Path) -> None:
    """Turns and agents' own calls on one account. What was sent counts as used; nothing says that a limit was met."""
    async with running("fake-provider", "--port", "0", "--family", "openai", "--latency-seconds", "600", folder=tmp_path) as provider:
        target = {"proxy": provider.at["http"], "scopes": [{"name": "requests", "limit": 10, "window_seconds": 3600}]}
        governor = {"targets": {"api": target}, "proxy": {"open": True}}
        replica = {"url": provider.at["http"], "quota": "api"}
        async with (
            plane(tmp_path, replica, one_process=True, governor=governor) as base,
            httpx.AsyncClient(trust_env=False, timeout=90) as client,
        ):
            asked = [asyncio.create_task(ask(client, at, number)) for number in (2, 3) for at in (base, f"{base}/proxy/api")]
            async with asyncio.timeout(90):
                while (await target_of(client, base))["leases"]["out"] < 4 or (await counted(client, provider))["taken"] < 4:
                    await asyncio.sleep(0.05)
            provider.kill()
            streamed, broken, turn, own = await asyncio.gather(*asked, return_exceptions=True)
            async with asyncio.timeout(90):
                while (shown := await target_of(client, base))["leases"]["out"]:
                    await asyncio.sleep(0.05)
    assert isinstance(broken, httpx.RemoteProtocolError), "its head was out: a transfer that is seen to be broken"
    for answer in (streamed, turn, own):
        assert isinstance(answer, httpx.Response)
        assert answer.status_code == 502
    errors = [answer.json()["error"] for answer in (streamed, turn, own) if isinstance(answer, httpx.Response)]
    assert all(error["message"].startswith("engine hosted: ") for error in errors[:2])
    assert errors[2]["code"] == "target_failed"
    assert "it may have been carried out: look before sending it again" in errors[2]["message"]
    assert (shown["breaker"]["mode"], shown["breaker"]["strikes"]) == ("closed", 0)
    (scope,) = shown["traffic_light"]["scopes"]
    assert scope["free"] == 6


async def target_of(client: httpx.AsyncClient, base: str) -> Json:
    (found,) = (await client.get(base + "/v1/quota")).raise_for_status().json()["targets"]
    return found
