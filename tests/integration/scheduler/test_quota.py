"""Do other processes reach the governor by gRPC, and what do they see of its outages?"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from math import inf, nan

import msgspec
import pytest

from luftpause.kit.config import AuthConfig, Config
from luftpause.kit.quota_client import RemotePort
from luftpause.kit.quota_port import Enabled, Gone, Granted, NotNow, QuotaUnavailableError, Refused, Released, Renewed, Reported
from luftpause.scheduler.app import Running, running
from tests.support.ports import a_quiet_port

ONE = {"scopes": [{"name": "at_once", "kind": "concurrent", "limit": 1, "counts": ["requests"]}]}
SECONDS = 60


def config(port: int = 0) -> Config:
    return Config.model_validate({
        "scheduler": {"grpc_port": port, "http_port": 0},
        "governor": {"targets": {"one": ONE, "github": {"profile": "github"}}, "lease_seconds": 30},
    })


@contextlib.asynccontextmanager
async def connected(address: str, environ: dict[str, str] | None = None, *, ready: bool = True) -> AsyncGenerator[RemotePort]:
    port = RemotePort(address, environ=environ or {}, answer_seconds=SECONDS, reconnect_seconds=0.05, connect_seconds=5)
    work = asyncio.create_task(port.run())
    try:
        if ready:
            await until(lambda: port._stream is not None)
        yield port
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not holds():
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def both() -> AsyncGenerator[tuple[Running, RemotePort]]:
    async with running(config()) as scheduler, connected(scheduler.grpc) as port:
        yield scheduler, port


def waiters(scheduler: Running) -> set[str]:
    return set(scheduler.governing.governor.state.targets["one"].waiters)


def leases(scheduler: Running) -> set[str]:
    return set(scheduler.governing.governor.state.targets["one"].leases)


def reserve(port: RemotePort, want: str, wait_seconds: float = 0.0) -> asyncio.Task[Granted | NotNow | Refused]:
    return asyncio.create_task(port.reserve("one", want, caller="picard", priority=1, wait_seconds=wait_seconds))


async def test_all_questions_have_their_answers() -> None:
    async with both() as (_, port):
        first = await reserve(port, "a")
        assert isinstance(first, Granted)
        assert first.want == "a"
        assert 29 < first.expires_seconds <= 30
        assert isinstance(await reserve(port, "b"), NotNow)
        assert isinstance(await port.renew("one", "a", first.fence), Renewed)
        assert await port.renew("one", "a", first.fence + 7) == Gone()
        assert await port.release("one", "a", first.fence) == Released()
        second = await port.reserve("github", "c", caller="x", priority=0, cost={"points": 5, "requests": 1}, lease_seconds=7)
        assert isinstance(second, Granted)
        assert 6 < second.expires_seconds <= 7
        limited = await port.report("github", "c", second.fence, status=429, headers={"Retry-After": "9"}, actual={"points": 5})
        assert isinstance(limited, Reported)
        assert (limited.settled, limited.limited, limited.kind) == (True, True, "primary")
        assert limited.retry_seconds is not None
        assert 9 < limited.retry_seconds < 10
        assert await port.observe("github", status=200, headers={}) == Reported(settled=False)
        assert await port.enable("github") == Enabled()
        assert isinstance(await port.enable("gihub"), Refused)
        refused = await port.reserve("gihub", "d", caller="x", priority=1)
        assert refused == Refused("unknown_target", "no target is called 'gihub'; known: github, one")
        assert isinstance(msgspec.json.decode(await port.view()), dict)


async def test_a_dataplane_that_breaks_the_rules_is_told_which_and_gets_nothing() -> None:
    async with both() as (scheduler, port):
        before = scheduler.governing.governor.state.targets
        forever = await port.reserve("one", "a", caller="x", priority=1, lease_seconds=1e9)
        assert forever == Refused(
            "bad_request", "`lease_seconds` is 1e+09; give seconds from 0.001 to 3600, or 0 for those that are configured"
        )
        never = await port.reserve("one", "a", caller="x", priority=1, wait_seconds=nan)
        assert never == Refused("bad_request", "`wait_seconds` is nan; give seconds from 0 to 2592000")
        told = await port.report("one", "a", 1, status=200, headers={}, actual={"requests": inf})
        assert told == Refused("bad_request", "`actual` of 'requests' is inf; give a number from 0 up to 1e+15")
        assert isinstance(await port.renew("one", "a", 2**64 - 1), Refused)
        assert scheduler.governing.governor.state.targets == before
        assert isinstance(await reserve(port, "b"), Granted)


async def test_whoever_waits_is_answered_when_it_is_free() -> None:
    async with both() as (scheduler, port):
        first = await reserve(port, "a")
        assert isinstance(first, Granted)
        waiting = reserve(port, "b", 30)
        await until(lambda: "b" in waiters(scheduler))
        await port.release("one", "a", first.fence)
        assert isinstance(await asyncio.wait_for(waiting, SECONDS), Granted)


async def test_whoever_stops_waiting_has_asked_for_nothing() -> None:
    async with both() as (scheduler, port):
        await reserve(port, "a")
        waiting = reserve(port, "b", 30)
        await until(lambda: "b" in waiters(scheduler))
        waiting.cancel()
        await until(lambda: not waiters(scheduler))
        assert leases(scheduler) == {"a"}


async def test_a_grant_that_comes_too_late_is_given_back() -> None:
    """The question is forgotten before it was sent, and its grant comes all the same."""
    async with both() as (scheduler, port):
        waiting = reserve(port, "a", 30)
        await asyncio.sleep(0)  # it is in the outbox
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await until(lambda: scheduler.governing.governor.state.fence == 1 and not leases(scheduler))
        stream = port._stream
        assert stream is not None
        await until(lambda: not stream._forgotten)


async def test_a_grant_that_comes_too_late_is_kept_by_whoever_asked_again() -> None:
    """A client's connection is cut in the moment of the grant, and it asks again for the same lease."""
    async with both() as (scheduler, port):
        cut = reserve(port, "a", 30)
        await asyncio.sleep(0)  # it is in the outbox
        cut.cancel()
        again = await reserve(port, "a", 30)
        assert isinstance(again, Granted)
        assert isinstance(await port.renew("one", "a", again.fence), Renewed)
        assert leases(scheduler) == {"a"}


async def test_a_stream_that_ends_withdraws_what_waits_on_it() -> None:
    async with running(config()) as scheduler:
        async with connected(scheduler.grpc) as port:
            await reserve(port, "a")
            waiting = reserve(port, "b", 30)
            await until(lambda: "b" in waiters(scheduler))
        with pytest.raises(QuotaUnavailableError):
            await waiting
        await until(lambda: not waiters(scheduler))
        assert leases(scheduler) == {"a"}  # it may have been used: that counts until it expires


async def test_without_a_scheduler_nothing_is_granted_and_nobody_waits() -> None:
    async with connected("127.0.0.1:9", ready=False) as port:
        with pytest.raises(QuotaUnavailableError, match="nothing was granted") as raised:
            await reserve(port, "a", 30)
        assert (raised.value.status, raised.value.retry_after_s) == (503, 1)
        with pytest.raises(QuotaUnavailableError):
            await port.report("one", "a", 1, status=200, headers={})


async def test_a_scheduler_that_goes_ends_all_waiting_and_one_that_returns_serves_again() -> None:
    async with running(config(a_quiet_port())) as scheduler:
        address = scheduler.grpc
        stack = contextlib.AsyncExitStack()
        port = await stack.enter_async_context(connected(address))
        await reserve(port, "a")
        waiting = reserve(port, "b", 30)
        await until(lambda: "b" in waiters(scheduler))
    async with stack:
        with pytest.raises(QuotaUnavailableError):
            await asyncio.wait_for(waiting, SECONDS)
        async with running(config(int(address.rpartition(":")[2]))):
            await until(lambda: port._stream is not None)
            assert isinstance(await reserve(port, "c"), Granted)


async def test_a_scheduler_that_does_not_answer_in_time_grants_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with both() as (scheduler, port):
        never = asyncio.Event()

        async def silent(*_: object, **__: object) -> None:
            await never.wait()

        monkeypatch.setattr(scheduler.governing.port, "reserve", silent)
        monkeypatch.setattr(port, "_answer_seconds", 0.05)
        with pytest.raises(QuotaUnavailableError):
            await reserve(port, "a")


async def test_those_who_look_on_hear_what_is_decided() -> None:
    async with both() as (scheduler, port):
        listeners = scheduler.governing.governor._listeners
        own = len(listeners)
        events = port.events()
        heard = asyncio.create_task(anext(events))
        await until(lambda: len(listeners) > own)
        await reserve(port, "a")
        assert msgspec.json.decode(await asyncio.wait_for(heard, SECONDS))["event"] == "grant"
        await events.aclose()
        await until(lambda: len(listeners) == own)


async def test_a_stream_that_breaks_off_by_a_fault_is_told_and_the_next_one_serves(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with both() as (_, port):
        broken = port._stream
        with monkeypatch.context() as patched:
            patched.setattr("luftpause.scheduler.governor.server._Stream._take", lambda *_: 1 / 0)
            with pytest.raises(QuotaUnavailableError):
                await reserve(port, "a")
        await until(lambda: port._stream not in {None, broken})
        assert isinstance(await reserve(port, "b"), Granted)
    (line,) = [record for record in caplog.records if record.message.startswith("a stream of questions about quotas broke off")]
    assert vars(line)["fields"]["problem"] == "ZeroDivisionError: division by zero"


async def test_the_control_planes_token_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUFTPAUSE_TOKEN", "a-token-of-some-length")
    async with running(config()) as scheduler:
        async with connected(scheduler.grpc, {"LUFTPAUSE_TOKEN": "a-token-of-some-length"}) as port:
            assert isinstance(await reserve(port, "a"), Granted)
        stranger = RemotePort(scheduler.grpc, AuthConfig(), environ={})
        reason = await asyncio.wait_for(stranger._connect(), SECONDS)
        assert "unauthenticated" in reason
        assert "a token is needed here" in reason


async def test_a_broken_answer_is_said_to_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async with both() as (scheduler, port):

        async def broken(*_: object, **__: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(scheduler.governing.port, "view", broken)
        with pytest.raises(QuotaUnavailableError, match=r"failed to answer \(ZeroDivisionError\)"):
            await port.view()
        assert isinstance(await reserve(port, "a"), Granted)  # the stream goes on
