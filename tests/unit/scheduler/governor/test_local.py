"""Does a governor in this process answer by its port as the port says?"""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from luftpause.kit.config import ReplicaConfig
from luftpause.kit.config_governor import GovernorConfig
from luftpause.kit.errors import ConfigError
from luftpause.kit.quota_port import Gone, Granted, NotNow, Refused, Released, Renewed, Reported
from luftpause.scheduler.governor.host import Governor
from luftpause.scheduler.governor.local import LocalPort
from luftpause.scheduler.governor.targets import initial_state, specs_of
from luftpause.scheduler.quota.events import TargetConfigured

CONFIG = GovernorConfig.model_validate({
    "targets": {
        "one": {"scopes": [{"name": "at_once", "kind": "concurrent", "limit": 1, "counts": ["requests"]}]},
        "github": {"profile": "github"},
        "few": {"scopes": [{"name": "requests", "limit": 2, "window_seconds": 3600}]},
    }
})
SECONDARY = {"retry-after": "60"}


def governor() -> Governor:
    host = Governor(initial_state(CONFIG, asyncio.get_running_loop().time()), clock=asyncio.get_running_loop().time)
    for spec in specs_of(CONFIG, ()):
        host.post(TargetConfigured(host.now, spec))
    return host


@pytest.fixture
async def port() -> AsyncIterator[LocalPort]:
    host = governor()
    running = asyncio.create_task(host.run())
    yield LocalPort(host, lease_seconds=60.0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def reserve(port: LocalPort, want: str, target: str = "one", wait_seconds: float = 0.0) -> Granted | NotNow | Refused:
    return await port.reserve(target, want, caller="picard", priority=1, wait_seconds=wait_seconds)


async def granted(port: LocalPort, want: str, target: str = "one", wait_seconds: float = 0.0) -> Granted:
    answer = await reserve(port, want, target, wait_seconds)
    assert isinstance(answer, Granted), answer
    return answer


def leases(port: LocalPort, target: str = "one") -> set[str]:
    return set(port._governor.state.targets[target].leases)


def waiters(port: LocalPort, target: str = "one") -> set[str]:
    return set(port._governor.state.targets[target].waiters)


async def test_what_is_free_is_granted_for_the_configured_time(port: LocalPort) -> None:
    answer = await granted(port, "a")
    assert answer.want == "a"
    assert 59 < answer.expires_seconds <= 60
    assert answer.level == 0


async def test_whoever_does_not_wait_is_told_at_once_when_to_ask_again(port: LocalPort) -> None:
    await granted(port, "a")
    answer = await reserve(port, "b")
    assert isinstance(answer, NotNow)
    assert answer.reason == "waiting"
    assert 0.5 <= answer.retry_seconds <= 3.5
    assert waiters(port) == set()


async def test_whoever_waits_gets_it_when_it_is_free(port: LocalPort) -> None:
    first = await granted(port, "a")
    waiting = asyncio.create_task(granted(port, "b", wait_seconds=30))
    await asyncio.sleep(0)
    assert await port.release("one", "a", first.fence) == Released()
    assert (await asyncio.wait_for(waiting, 60)).fence > first.fence


async def test_whoever_leaves_while_waiting_has_asked_for_nothing(port: LocalPort) -> None:
    first = await granted(port, "a")
    waiting = asyncio.create_task(reserve(port, "b", wait_seconds=30))
    await asyncio.sleep(0)
    assert waiters(port) == {"b"}
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert waiters(port) == set()
    await port.release("one", "a", first.fence)
    assert leases(port) == set()


async def test_whoever_leaves_in_the_moment_of_the_grant_gives_it_back(port: LocalPort) -> None:
    first = await granted(port, "a")
    waiting = asyncio.create_task(reserve(port, "b", wait_seconds=30))
    await asyncio.sleep(0)
    await port.release("one", "a", first.fence)
    assert leases(port) == {"b"}
    waiting.cancel()  # before its task has heard of the grant
    await asyncio.gather(waiting, return_exceptions=True)
    assert leases(port) == set()


async def test_of_two_that_wait_for_one_wish_one_may_leave(port: LocalPort) -> None:
    first = await granted(port, "a")
    leaves, stays = (asyncio.create_task(reserve(port, "b", wait_seconds=30)) for _ in range(2))
    await asyncio.sleep(0)
    leaves.cancel()
    await asyncio.gather(leaves, return_exceptions=True)
    await port.release("one", "a", first.fence)
    assert isinstance(await asyncio.wait_for(stays, 60), Granted)


async def test_asked_again_a_lease_stays_the_same(port: LocalPort) -> None:
    assert (await granted(port, "a")).fence == (await granted(port, "a")).fence


async def test_an_unknown_target_is_named_beside_the_known_ones(port: LocalPort) -> None:
    refused = Refused("unknown_target", "no target is called 'gihub'; known: few, github, one")
    assert await reserve(port, "a", "gihub") == refused
    assert await port.report("gihub", "a", 1, status=200, headers={}) == refused
    assert await port.renew("gihub", "a", 1) == refused
    assert await port.release("gihub", "a", 1) == refused
    assert await port.observe("gihub", status=200, headers={}) == refused


async def test_a_refusal_says_why_and_what_would_do(port: LocalPort) -> None:
    answer = await port.reserve("few", "a", caller="x", priority=1, cost={"requests": 3})
    assert isinstance(answer, Refused)
    assert (answer.code, "whole limit is 2" in answer.message) == ("too_large", True)


async def test_an_answer_settles_its_lease_once(port: LocalPort) -> None:
    first = await granted(port, "a")
    assert await port.report("one", "a", first.fence, status=200, headers={}) == Reported(settled=True)
    assert await port.report("one", "a", first.fence, status=200, headers={}) == Reported(settled=False)
    assert leases(port) == set()


async def test_only_the_newest_grant_of_a_wish_is_its_lease(port: LocalPort) -> None:
    old = await granted(port, "a")
    await port.release("one", "a", old.fence)
    new = await granted(port, "a")
    assert await port.renew("one", "a", old.fence) == Gone()
    assert await port.release("one", "a", old.fence) == Gone()
    assert await port.report("one", "a", old.fence, status=200, headers={}) == Reported(settled=False)
    assert isinstance(await port.renew("one", "a", new.fence), Renewed)


async def test_a_refusal_by_the_provider_tells_the_callers_window(port: LocalPort) -> None:
    first = await granted(port, "a", "github")
    reported = await port.report(
        "github", "a", first.fence, status=403, headers=SECONDARY, body_excerpt="You have exceeded a secondary rate limit"
    )
    assert (reported.settled, reported.limited, reported.kind) == (True, True, "secondary")
    assert reported.retry_seconds is not None
    assert 60 < reported.retry_seconds < 60 + 0.25 + 3.5 + 0.1
    for priority, (least, most) in enumerate(((0.0, 0.5), (0.5, 3.5), (3.5, 9.5))):
        answer = await port.reserve("github", f"b{priority}", caller="x", priority=priority)
        assert isinstance(answer, NotNow)
        assert answer.reason == "blocked"
        assert 59 + least < answer.retry_seconds <= 60.25 + most


async def test_a_request_that_is_too_large_needs_no_retry(port: LocalPort) -> None:
    first = await granted(port, "a", "github")
    reported = await port.report(
        "github", "a", first.fence, status=413, headers={}, body_excerpt='{"error":{"code":"rate_limit_exceeded"}}'
    )
    assert reported == Reported(settled=True, limited=True, kind="too_large", retry_seconds=None)


@pytest.mark.parametrize(("status", "remaining"), [(200, 41.0), (500, 41.0)])
async def test_what_an_answer_tells_of_limits_counts_without_a_lease(port: LocalPort, status: int, remaining: float) -> None:
    headers = {"X-RateLimit-Limit": "5000", "X-RateLimit-Remaining": "41", "X-RateLimit-Resource": "core"}
    assert await port.observe("github", status=status, headers=headers) == Reported(settled=False)
    assert port._governor.state.targets["github"].scopes["core"].remaining == remaining


async def test_a_refusal_that_somebody_tells_of_blocks_without_a_lease(port: LocalPort) -> None:
    told = await port.observe("github", status=429, headers={"Retry-After": "100"})
    assert (told.settled, told.limited, told.kind) == (False, True, "primary")  # type: ignore[union-attr]
    answer = await port.reserve("github", "a", caller="x", priority=0)
    assert isinstance(answer, NotNow)
    assert answer.reason == "blocked"
    assert 99 < answer.retry_seconds < 101


async def test_a_call_that_failed_counts_as_used(port: LocalPort) -> None:
    first = await granted(port, "a", "few")
    await port.report("few", "a", first.fence, status=None, headers={})
    assert port._governor.state.targets["few"].scopes["requests"].remaining == 1


async def test_those_who_look_on_hear_decisions_as_json(port: LocalPort) -> None:
    events = port.events()
    heard = asyncio.create_task(anext(events))
    await asyncio.sleep(0)
    await granted(port, "a")
    told = msgspec.json.decode(await asyncio.wait_for(heard, 60))
    assert (told["event"], told["target"], told["level"]) == ("grant", "one", 0)
    assert 59 < told["expiresSeconds"] <= 60
    assert not told.keys() & {"want", "fence"}  # whoever has both can end the lease
    await events.aclose()


@pytest.mark.parametrize(
    ("governor", "said"),
    [
        ({"targets": {"a": {"profile": "github", "limits": {"corr": 1}}}}, "target 'a': "),
        ({"cascade": {"workflows": {"w": {"a": ["b"], "b": ["a"]}}}}, "governor.cascade.workflows: the workflows go in a circle"),
    ],
)
def test_a_mistake_of_the_configuration_is_named(governor: dict[str, object], said: str) -> None:
    config = GovernorConfig.model_validate(governor)

    def start() -> None:
        initial_state(config, 0.0)
        specs_of(config, [ReplicaConfig(name="x", url="http://x")])

    with pytest.raises(ConfigError, match=said):
        start()


@pytest.mark.parametrize("step", [-86_400.0, -1.0, 3_600.0, 1e9])
async def test_a_calendar_that_is_set_moves_no_block_no_lease_and_no_window(step: float) -> None:
    now, epoch = 1_000.0, 1_800_000_000.0
    host = Governor(initial_state(CONFIG, now), clock=lambda: now)
    for spec in specs_of(CONFIG, ()):
        host.post(TargetConfigured(host.now, spec))
    port = LocalPort(host, lease_seconds=60.0, epoch=lambda: epoch)
    first, lasts = await granted(port, "a", "github"), await granted(port, "b", "few")
    await port.report("github", "a", first.fence, status=429, headers={"retry-after": "30"})
    epoch += step
    for seconds, is_blocked in ((29.0, True), (3.0, False)):
        now += seconds
        host.advance()
        assert (host.state.targets["github"].breaker.mode.value == "open") is is_blocked
    assert isinstance(await port.renew("few", "b", lasts.fence), Renewed)
    (scope,) = host.state.targets["few"].scopes.values()
    assert scope.out == 1
    now += 61.0
    host.advance()
    assert leases(port, "few") == set()
    assert await port.renew("few", "b", lasts.fence) == Gone()
