"""Can an agent over MCP ask for quota of an API, and tell what became of its call?"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from luftpause.kit.auth import Tokens
from luftpause.kit.config import RuntimeConfig
from luftpause.kit.quota_port import Granted, NotNow, QuotaUnavailableError, Refused
from luftpause.runtime.quota_client import DataplaneQuotas
from tests.support.ports import a_refusing_port
from tests.support.proxied_calls import proxying
from tests.support.quota_double import QuotaDouble
from tests.support.runtime_fakes import served

TOKEN = "right-" + "r" * 30


@contextlib.asynccontextmanager
async def asked(quota: QuotaDouble, mode: str = "auto", **config: Any) -> AsyncGenerator[Client]:
    """A client of a runtime whose quotas are those of a real dataplane."""
    async with proxying(quota, targets={"github": None}, tokens=Tokens(TOKEN)) as plane:
        own = RuntimeConfig(port=0, dataplane=plane.url, **config)
        async with (
            DataplaneQuotas(own, token=TOKEN) as quotas,
            served(own, quotas=quotas) as at,
            httpx2.AsyncClient(headers={"x-luftpause-caller": "worf"}, timeout=30, trust_env=False) as http,
            Client(streamable_http_client(at.mcp, http_client=http), mode=mode) as client,
        ):
            yield client


def text(result: Any) -> str:
    return "\n".join(part.text for part in result.content)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_reserve_call_and_report(mode: str) -> None:
    quota = QuotaDouble()
    async with asked(quota, mode) as c:
        granted = await c.call_tool("quota_reserve", {"target": "github", "cost": '{"points": 5}', "wait": 0})
        assert not granted.is_error
        lease = granted.structured_content
        assert (lease["granted"], lease["level"]) == (True, 0)
        assert lease["lease"] in text(granted)
        headers = {"X-RateLimit-Remaining": 7, "Set-Cookie": "secret=1", "Authorization": "secret"}
        reported = await c.call_tool(
            "quota_report", {"target": "github", "lease": lease["lease"], "fence": lease["fence"], "status": "200", "headers": headers}
        )
        assert reported.structured_content == {"settled": True, "limited": False}
    (wish,) = quota.wishes
    assert (wish["target"], wish["caller"], wish["priority"], wish["cost"]) == ("github", "worf", 1, {"points": 5})
    assert quota.told[0][0] == "report"
    assert quota.told[0][2] | {"body": ""} == {
        "fence": lease["fence"],
        "status": 200,
        "headers": {"x-ratelimit-remaining": "7"},
        "body": "",
    }


async def test_a_refusal_says_when_to_try_again_and_an_answer_that_never_came_counts() -> None:
    quota = QuotaDouble(retry_seconds=12.5)
    async with asked(quota) as c:
        lease = (await c.call_tool("quota_reserve", {"target": "github"})).structured_content
        told = {"target": "github", "lease": lease["lease"], "fence": lease["fence"]}
        limited = await c.call_tool("quota_report", told | {"status": 429, "headers": {"retry-after": "9"}, "body": "slow down"})
        assert limited.structured_content == {"settled": True, "limited": True, "kind": "primary", "retryMs": 12500}
        assert "in 13 s" in text(limited)
        await c.call_tool("quota_report", told)
        await c.call_tool("quota_report", told | {"sent": False})
    assert [(what, facts.get("status")) for what, _, facts in quota.told] == [("report", 429), ("report", None), ("release", None)]


async def test_not_now_is_an_answer_and_no_error() -> None:
    async def decide(wish: dict[str, Any]) -> NotNow:
        return NotNow(42.0, "blocked")

    quota = QuotaDouble(decide)
    async with asked(quota) as c:
        denied = await c.call_tool("quota_reserve", {"target": "github", "wait": 0.2, "lease": "mine"})
        assert not denied.is_error
        assert denied.structured_content == {"granted": False, "lease": "mine", "retryMs": 42000, "reason": "blocked"}
        assert "in 42 s, with lease mine" in text(denied)


async def test_it_asks_again_while_there_is_time_and_tells_that_it_waits() -> None:
    async def decide(wish: dict[str, Any]) -> Granted | NotNow:
        await enough.wait()
        return NotNow(0.01, "paced") if len(quota.wishes) < 3 else await quota.grant(wish)

    seen: list[str | None] = []
    enough = asyncio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append(message)
        enough.set()

    quota = QuotaDouble(decide)
    async with asked(quota, progress_seconds=0.05) as c:
        granted = await c.call_tool("quota_reserve", {"target": "github", "wait": 30}, progress_callback=on_progress)
    assert granted.structured_content["granted"]
    assert len({wish["want"] for wish in quota.wishes}) == 1
    assert seen[0] == "waiting for quota of github"


async def test_what_is_wrong_is_named_with_its_mend() -> None:
    async def nowhere(wish: dict[str, Any]) -> Refused:
        return Refused("unknown_target", "no target is called 'gitlab'; known: github")

    lease = {"target": "github", "lease": "l", "fence": 1}
    quota = QuotaDouble(nowhere)
    async with asked(quota) as c:
        for tool, arguments, words in (
            ("quota_reserve", {"target": "gitlab"}, "known: github"),
            ("quota_reserve", {}, "`target` is missing: the name of one of governor.targets"),
            ("quota_reserve", {"target": "../../v1"}, "`target` can't be"),
            ("quota_reserve", {"target": "github", "cost": -1}, "`cost` can't be -1"),
            ("quota_reserve", {"target": "github", "priority": 3}, "`priority` can't be 3; allowed: 0, 1 or 2"),
            ("quota_reserve", {"target": "github", "priority": 0}, "may_claim"),
            ("quota_reserve", {"target": "github", "wiat": 1}, "did you mean `wait`?"),
            ("quota_report", lease | {"status": 42}, "an HTTP status, 100 to 599"),
            ("quota_report", lease | {"headers": "x"}, "an object of header names and values"),
            ("quota_report", {"target": "github", "fence": 1}, "`lease` is missing"),
        ):
            refused = await c.call_tool(tool, arguments)
            assert refused.is_error, (tool, arguments)
            assert words in text(refused)
        quota.failure = QuotaUnavailableError("the scheduler can't be reached")
        assert "the scheduler can't be reached" in text(await c.call_tool("quota_report", lease | {"status": 200}))


async def test_without_a_dataplane_it_says_so() -> None:
    config = RuntimeConfig(port=0, dataplane=f"http://127.0.0.1:{a_refusing_port()}")
    async with (
        DataplaneQuotas(config) as quotas,
        served(config, quotas=quotas) as at,
        httpx2.AsyncClient(timeout=30, trust_env=False) as http,
        Client(streamable_http_client(at.mcp, http_client=http)) as c,
    ):
        refused = await c.call_tool("quota_reserve", {"target": "github"})
        assert refused.is_error
        assert "can't be asked for quotas" in text(refused)
