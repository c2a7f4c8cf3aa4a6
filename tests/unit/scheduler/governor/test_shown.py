"""Does the governor show what happened: in metrics under bounded labels, in the log once per change?"""

from pathlib import Path

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import CollectorRegistry

from luftpause.kit.config import Config
from luftpause.kit.quota_port import Granted
from luftpause.scheduler.governor.app import Governing, governing
from luftpause.scheduler.governor.watch import QuotaWatch
from luftpause.scheduler.quota.decisions import CascadeBegan, CascadeOver, Closed, Disabled, HalfOpened, Levelled
from luftpause.scheduler.quota.events import QuotaWanted

ONE = {"scopes": [{"name": "requests", "limit": 4, "window_seconds": 3600, "protect": [0, 0, 0]}]}


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def start(time: Time) -> Governing:
    return governing(Config.model_validate({"governor": {"targets": {"api": ONE, "slow": {"profile": "github"}}}}), clock=time)


def page(quotas: Governing) -> list[str]:
    registry = CollectorRegistry()
    registry.register(quotas.metrics)
    lines = generate_latest(registry).decode().splitlines()
    return [line.removeprefix("luftpause_scheduler_quota_") for line in lines if not line.startswith("#")]


async def granted(quotas: Governing, want: str, target: str = "api", priority: int = 1) -> Granted:
    answer = await quotas.port.reserve(target, want, caller="picard", priority=priority)
    assert isinstance(answer, Granted), answer
    return answer


async def test_metrics_tell_what_was_decided_and_how_it_stands() -> None:
    time = Time()
    quotas = start(time)
    await granted(quotas, "b", priority=1)
    first = await granted(quotas, "a", priority=0)
    await quotas.port.reserve("api", "c", caller="picard", priority=1, cost={"requests": 9})
    await quotas.port.reserve("nobody-configured-this", "d", caller="picard", priority=1)
    quotas.governor.want(wish(quotas, "w", 4.0), lambda _: None)
    lines = page(quotas)
    assert 'grants_total{class="p0",target="api"} 1.0' in lines
    assert 'grants_total{class="p1",target="api"} 1.0' in lines
    assert 'refusals_total{code="too_large",target="api"} 1.0' in lines
    assert 'refusals_total{code="unknown_target",target=""} 0.0' not in lines
    assert 'leases{class="p0",target="api"} 1.0' in lines
    assert 'waiting{class="p1",target="api"} 1.0' in lines
    assert 'remaining_ratio{scope="requests",target="api"} 0.5' in lines
    assert 'light{light="green",scope="requests",target="api"} 1.0' in lines
    assert 'breaker{mode="closed",target="api"} 1.0' in lines
    assert 'breaker{mode="open",target="api"} 0.0' in lines
    assert 'level{target="api"} 0.0' in lines
    assert 'cascade{target="api"} 0.0' in lines
    assert not [line for line in lines if "picard" in line or "nobody-configured-this" in line]
    time.now += 3
    await quotas.port.report("api", "a", first.fence, status=429, headers={"retry-after": "9"})
    time.now += 200
    quotas.governor.advance()
    lines = page(quotas)
    assert 'blocks_total{target="api"} 1.0' in lines
    assert 'expired_leases_total{target="api"} 1.0' in lines


def test_every_metric_stands_in_the_documentation() -> None:
    text = (Path(__file__).parents[4] / "docs" / "operations.md").read_text(encoding="utf-8")
    for family in start(Time()).metrics.collect():
        shown = family.name.removeprefix("luftpause_scheduler_") + ("_total" if family.type == "counter" else "")
        assert f"`{shown}`" in text, f"{shown} is not documented in docs/operations.md"


async def test_metrics_tell_how_long_was_waited() -> None:
    time = Time()
    quotas = start(time)
    lease = await granted(quotas, "a")
    quotas.governor.want(wish(quotas, "w", 4.0), lambda _: None)
    time.now += 7
    await quotas.port.release("api", "a", lease.fence)
    lines = page(quotas)
    assert 'wait_seconds_bucket{class="p1",le="5.0",target="api"} 1.0' in lines
    assert 'wait_seconds_bucket{class="p1",le="10.0",target="api"} 2.0' in lines
    assert 'wait_seconds_sum{class="p1",target="api"} 7.0' in lines


def wish(quotas: Governing, want: str, units: float) -> QuotaWanted:
    return QuotaWanted(quotas.governor.now, "api", want, "picard", 1, (("requests", units),))


async def test_the_log_has_one_line_per_change(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "luftpause.governor")
    time = Time()
    quotas = start(time)
    watch = QuotaWatch(quotas.governor)
    quotas.governor._listeners = [watch._heard]
    leases = [await granted(quotas, name) for name in "abc"]
    watch.look()
    watch.look()
    for lease in leases:
        await quotas.port.report("api", lease.want, lease.fence, status=429, headers={"retry-after": "9"})
    time.now += 30
    quotas.governor.advance()
    for told in (
        Closed("api"), Levelled("api", 2), Levelled("api", 0), Disabled("api", float("inf")), HalfOpened("api"),
        CascadeBegan("api", ("data", "worf"), ("picard",), time.now + 30), CascadeOver("api"),
    ):  # fmt: skip
        watch._heard(told)
    lines = [f"{each.getMessage()} {getattr(each, 'fields', '')}" for each in caplog.records if each.name == "luftpause.governor"]
    assert [line.partition("{")[0].strip() for line in lines] == [
        "traffic light", "breaker open", "breaker half open", "breaker closed", "load is cut", "load is no longer cut", "out of credit",
        "breaker half open", "cascade: one call at a time", "cascade over",
    ]  # fmt: skip
