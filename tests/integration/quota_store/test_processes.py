"""Real processes on one Redis: exactly the quota, and what a killed one had."""

import asyncio
import secrets
import subprocess
import sys
import time

from luftpause.scheduler.governor.store.port import Reserve, ScopeAsked, Waiting
from luftpause.scheduler.governor.store.redis_store import RedisStore
from tests.support.redis_server import RedisServer

PROCESSES, RESERVES, QUOTA = 4, 500, 1_000

CHILD = """
import asyncio, sys
from luftpause.scheduler.governor.store.port import Reserve, ScopeAsked
from luftpause.scheduler.governor.store.redis_store import RedisStore

url, prefix, name, count, quota, seconds, then = sys.argv[1:]

async def main():
    store = RedisStore(url, prefix=prefix, answer_seconds=20, down_seconds=40)
    scopes = (ScopeAsked("core", "fixed", float(quota), 3600.0, cost=1.0),)
    granted, room = 0, asyncio.Semaphore(8)

    async def one(number):
        want = f"{name}-{number}"
        async with room:
            return await store.ask("t", Reserve(node=name, want=want, caller=name, rank=0, lease_seconds=float(seconds), scopes=scopes))

    answers = await asyncio.gather(*(one(number) for number in range(int(count))))
    print(sum(answer.ok for answer in answers), flush=True)
    if then == "stay":
        await asyncio.sleep(600)
    await store.close()

asyncio.run(main())
"""


def child(redis: RedisServer, prefix: str, name: str, count: int, quota: int, lease_seconds: float, then: str) -> "subprocess.Popen[str]":
    arguments = [redis.url, prefix, name, str(count), str(quota), str(lease_seconds), then]
    return subprocess.Popen([sys.executable, "-c", CHILD, *arguments], stdout=subprocess.PIPE, text=True)


def test_four_processes_are_granted_exactly_the_quota(redis: RedisServer) -> None:
    prefix = secrets.token_hex(4)
    children = [child(redis, prefix, f"p{at}", RESERVES, QUOTA, 600, "end") for at in range(PROCESSES)]
    granted = [int(one.communicate(timeout=100)[0]) for one in children]
    assert sum(granted) == QUOTA
    assert all(one.returncode == 0 for one in children)


async def test_what_a_killed_process_had_is_over_after_its_leases_and_charged(redis: RedisServer) -> None:
    prefix, lease_seconds = secrets.token_hex(4), 1.0
    holder = child(redis, prefix, "dead", 10, 10, lease_seconds, "stay")
    store = RedisStore(redis.url, prefix=prefix, answer_seconds=5, down_seconds=10)
    scopes = (ScopeAsked("core", "fixed", 10, 3_600.0, cost=1.0),)
    try:
        assert holder.stdout is not None
        assert int(await asyncio.to_thread(holder.stdout.readline)) == 10
        holder.kill()
        holder.wait()
        killed = time.monotonic()
        question = Reserve(node="n", want="mine", caller="c", rank=0, lease_seconds=60.0, scopes=scopes)
        assert not (await store.ask("t", question)).ok
        answer = await store.ask("t", Waiting(node="n", scopes=scopes))
        while answer.scopes[0].out:
            await asyncio.sleep(0.05)
            assert time.monotonic() < killed + lease_seconds + 10
            answer = await store.ask("t", Waiting(node="n", scopes=scopes))
        assert answer.scopes[0].remaining == 0, "they may have been spent"
        assert not (await store.ask("t", question)).ok
    finally:
        holder.kill()
        holder.communicate()
        await store.close()
