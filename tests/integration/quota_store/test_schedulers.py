"""Real schedulers on one Redis: one pool, and what a killed one had is over after its leases."""

import asyncio
import secrets
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import yaml

from luftpause.kit.quota_client import RemotePort
from luftpause.kit.quota_port import Granted, NotNow
from tests.support.processes import Process, running
from tests.support.redis_server import RedisServer

LEASE_SECONDS = 3.0
SECONDS_MAX = 60


async def connected(stack: AsyncExitStack, scheduler: Process) -> RemotePort:
    port = RemotePort(scheduler.at["grpc"], environ={}, answer_seconds=SECONDS_MAX, reconnect_seconds=0.05, connect_seconds=5)
    work = asyncio.create_task(port.run())
    stack.push_async_callback(asyncio.gather, work, return_exceptions=True)
    stack.callback(work.cancel)
    async with asyncio.timeout(SECONDS_MAX):
        while port._stream is None:
            await asyncio.sleep(0.01)
    return port


async def reserve(port: RemotePort, target: str, want: str, wait_seconds: float = 0.0) -> Granted | NotNow:
    answer = await port.reserve(target, want, caller="c", priority=0, wait_seconds=wait_seconds)
    assert isinstance(answer, Granted | NotNow), answer
    return answer


@pytest.mark.slow
async def test_two_schedulers_one_is_killed(redis: RedisServer, tmp_path: Path) -> None:
    target = f"t{secrets.token_hex(4)}"
    scopes = [{"name": "at_once", "kind": "concurrent", "limit": 2, "counts": ["requests"]}]
    written = {
        "scheduler": {"grpc_port": 0, "http_port": 0},
        "governor": {"store": redis.url, "lease_seconds": LEASE_SECONDS, "targets": {target: {"scopes": scopes}}},
    }
    path = tmp_path / "luftpause.yaml"
    path.write_text(yaml.safe_dump(written))
    async with AsyncExitStack() as stack:
        first, second = [await stack.enter_async_context(running("scheduler", "--config", str(path), folder=tmp_path)) for _ in range(2)]
        a, b = await connected(stack, first), await connected(stack, second)
        mine, kept = await reserve(a, target, "a", wait_seconds=20), await reserve(b, target, "b", wait_seconds=20)
        assert isinstance(mine, Granted)
        assert isinstance(kept, Granted)
        assert isinstance(await reserve(a, target, "too many"), NotNow)
        assert isinstance(await reserve(b, target, "too many"), NotNow)
        waiting = asyncio.create_task(reserve(b, target, "next", wait_seconds=40))
        first.kill()
        while not waiting.done():
            await b.renew(target, "b", kept.fence)
            await asyncio.wait({waiting}, timeout=0.5)
        assert isinstance(await waiting, Granted), "the dead one's lease is over"
