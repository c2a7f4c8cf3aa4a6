"""How soon do a run's turns leave a replica that died or hangs, and come to one that is back?

Time is counted in probes of the replica that is well: a busy machine makes both later.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from luftpause.kit.wire.v1 import scheduler_pb2 as pb
from tests.integration.scheduler.client import Peer, asks, peer
from tests.integration.scheduler.engines import Engine, Page, after, engine, never
from tests.integration.scheduler.test_process import IDLE, iter_now, started, status, told

PERIOD = 0.5


def finished(turn: str, *, paused: bool = False) -> pb.Fact:
    ids = [f"call_{turn}_0123456789"] if paused else []
    return pb.Fact(turn_finished=pb.TurnFinished(turn=turn, attempt=1, finish_reason="stop", paused=paused, tool_call_ids=ids))


@contextlib.asynccontextmanager
async def two_replicas(folder: Path, **pages: Page) -> AsyncGenerator[tuple[dict[str, Engine], Peer]]:
    """Each takes one turn at a time."""
    async with engine(metrics=(200, IDLE), **pages) as one, engine(metrics=(200, IDLE)) as two:
        entries = [{"name": name, "url": at.url, "max_in_flight": 1} for name, at in (("a", one), ("b", two))]
        async with started(folder, *entries, probe_seconds=PERIOD) as process, peer(process.at["grpc"]) as p:
            await p.hello()
            await p.send(pb.Fact(hello_end=pb.HelloEnd()))
            states: dict[str, str] = {}
            while states != {"a": "healthy", "b": "healthy"}:
                states = {each.name: each.state for each in (await p.next("replicas")).replicas.replicas}
            p.stay_alive(0.2)
            yield {"a": one, "b": two}, p


async def placed(p: Peer, turn: str) -> str:
    order = (await p.next("placed")).placed
    assert order.turn == turn
    return order.replica


async def waits_for_its_home(p: Peer) -> tuple[str, str]:
    """A run that came back from a tool call waits for its home, which is full; the other replica has room. Their names."""
    await p.send(asks("1", run="r1"))
    home = await placed(p, "1")
    await p.send(asks("2", run="r2"))
    other = await placed(p, "2")
    assert {home, other} == {"a", "b"}
    await p.send(finished("1", paused=True), asks("3", run="r3"))
    assert await placed(p, "3") == home
    await p.send(asks("4", run="r1"))
    assert (await p.next("held")).held.turn == "4"
    await p.send(finished("2"))
    return home, other


async def test_turns_leave_a_closed_port_within_a_period_and_come_back_within_two(tmp_path: Path):
    async with two_replicas(tmp_path) as (engines, p):
        home, other = await waits_for_its_home(p)
        port = int(engines[home].url.rpartition(":")[2])
        before = engines[other].hits["/health"]
        await engines[home].stop()
        assert await placed(p, "4") == other
        assert engines[other].hits["/health"] - before <= 2, "at the first probe that finds it closed"

        await p.send(pb.Fact(turn_failed=pb.TurnFailed(turn="3", attempt=1, reason="engine died")), asks("5"))
        assert (await p.next("held")).held.turn == "5"
        before = engines[other].hits["/health"]
        await engines[home].start(port)
        assert await placed(p, "5") == home
        assert engines[other].hits["/health"] - before <= 3


async def test_turns_leave_a_replica_that_hangs_three_periods_after_its_first_unanswered_check(tmp_path: Path):
    async with two_replicas(tmp_path) as (engines, p):
        home, other = await waits_for_its_home(p)
        before = engines[other].hits["/health"]
        engines[home].pages |= {"/health": never, "/metrics": never, "/v1/models": never}
        assert await placed(p, "4") == other
        assert 2 <= engines[other].hits["/health"] - before <= 3 + 2  # the first one begins within a period


@pytest.mark.slow
async def test_a_health_check_that_takes_a_period_and_a_half_never_flaps(tmp_path: Path):
    """SGLang's under load, with no byte of an answer that would speak for it."""
    async with two_replicas(tmp_path) as (engines, p):
        engines["a"].pages["/health"] = after(1.5 * PERIOD, (200, b"ok"))
        before = engines["b"].hits["/health"]
        async with asyncio.timeout(60):
            while engines["b"].hits["/health"] - before < 8:
                await asyncio.sleep(0.02)  # a counter tells nobody
        assert not [order for order in iter_now(p) if any(each.state == "unhealthy" for each in order.replicas.replicas)]


async def test_a_slow_metrics_page_of_one_replica_delays_no_report_of_another(tmp_path: Path):
    async with engine(metrics=never) as slow, engine(metrics=(200, IDLE)) as well:
        entries = [{"name": name, "url": at.url} for name, at in (("slow", slow), ("well", well))]
        async with started(tmp_path, *entries, probe_seconds=PERIOD) as process, peer(process.at["grpc"]) as p:
            await p.open()
            await told(p, lambda replica: replica.state == "healthy" and replica.name == "slow")
            shown: dict[str, tuple[str, str]] = {}
            async with asyncio.timeout(60):
                while shown.get("well") != ("healthy", "known"):  # a busy machine may take a period for its first one
                    shown = {each["name"]: (each["health"], each["load"]) for each in (await status(process))["state"]["replicas"]}
            assert shown["slow"] == ("healthy", "none")
