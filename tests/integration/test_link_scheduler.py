"""Do turns survive a scheduler that is killed, with the real scheduler as a process?"""

import asyncio
import contextlib
import json
import time
import urllib.request
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from luftpause.dataplane.link import SessionLink
from luftpause.dataplane.turns import Kind, Placement, TurnClass
from luftpause.kit.config import DataplaneConfig
from tests.support.ports import a_quiet_port
from tests.support.processes import Process, start
from tests.support.waiters import Recorder, an_ask

CONFIG = """
replicas:
  - {{name: a, url: "http://127.0.0.1:{engine}", models: [m], load: none, max_in_flight: 2}}
scheduler:
  grpc_port: {grpc}
  http_port: {http}
  start_grace_seconds: 0.5
"""
WITH_A_CLASSIFIER = CONFIG.replace(
    "scheduler:", '  - {{name: j, url: "http://127.0.0.1:{engine}", kind: classifier, models: [judge]}}\nscheduler:'
)


@contextlib.asynccontextmanager
async def an_engine() -> AsyncGenerator[int]:
    """Something that says it is healthy; the port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_writers.add(writer)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")
                await writer.drain()
        finally:
            writer.close()
            open_writers.discard(writer)

    open_writers = set[asyncio.StreamWriter]()
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in tuple(open_writers):
            writer.transport.abort()
        await server.wait_closed()
        await asyncio.sleep(0)


async def a_scheduler(folder: Path, engine: int, grpc: int, http: int, config: str = CONFIG) -> Process:
    path = folder / "luftpause.yaml"
    path.write_text(config.format(engine=engine, grpc=grpc, http=http))
    return await start("scheduler", "--config", str(path), folder=folder)


async def status(scheduler: Process) -> dict[str, Any]:
    def get() -> bytes:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(scheduler.at["http"] + "/status", timeout=60) as answer:
            return answer.read()

    return json.loads(await asyncio.to_thread(get))


async def in_flight_is(scheduler: Process, count: int) -> dict[str, Any]:
    """Poll the status page until replica `a` has `count` turns in flight and nothing more is held than that allows."""
    async with asyncio.timeout(60):
        while True:
            seen = (await status(scheduler))["state"]
            if [each["in_flight"] for each in seen["replicas"]] == [count]:
                return seen
            await asyncio.sleep(0.05)


async def test_turns_in_flight_and_held_survive_kill_9_of_the_scheduler(tmp_path: Path) -> None:
    async with an_engine() as engine:
        ports = a_quiet_port(), a_quiet_port()
        scheduler = await a_scheduler(tmp_path, engine, *ports)
        link = SessionLink(DataplaneConfig(scheduler=scheduler.at["grpc"]), environ={})
        running = asyncio.ensure_future(link.run())
        try:
            waiters = {turn: Recorder() for turn in ("first", "second", "third", "left", "batch")}
            for turn, waiter in waiters.items():
                link.ask(an_ask(turn, run=f"run_{turn}", turn_class=TurnClass.BATCH if turn == "batch" else TurnClass.INTERACTIVE), waiter)
            placed = await asyncio.gather(waiters["first"].placement(), waiters["second"].placement())
            assert [(each.replica.url, each.run) for each in placed] == [
                (f"http://127.0.0.1:{engine}", f"run_{t}") for t in ("first", "second")
            ]
            await waiters["third"].until(1)
            assert waiters["third"].final == []  # two is all that the replica takes
            for turn in ("first", "second"):
                link.started(turn)
                link.first_token(turn)

            killed = time.monotonic()
            scheduler.kill()
            await scheduler.ended()
            link.finished("first", "tool_calls", None, paused=True, tool_call_ids=("call_of_first_0123456789",))  # during the outage
            link.abandon("left")
            continuation = Recorder()
            link.ask(an_ask("continuation", tool_call_ids=("call_of_first_0123456789",)), continuation)  # names no run

            scheduler = await a_scheduler(tmp_path, engine, *ports)
            outage_ms = (time.monotonic() - killed) * 1000
            placements = [waiters["third"], continuation]
            async with asyncio.timeout(20):
                while not any(each.final for each in placements):
                    await asyncio.sleep(0.01)
            await in_flight_is(scheduler, 2)  # the second, and one of the held ones
            assert len(waiters["second"].final) == 1  # nobody told it again
            link.finished("second", "stop", None, paused=False)
            third, continued = await asyncio.gather(waiters["third"].placement(), continuation.placement())
            assert third.run == "run_third"
            assert continued.run == "run_first"  # recognised by its tool call
            link.finished("third", "stop", None, paused=False)
            link.finished("continuation", "stop", None, paused=False)
            batch = await waiters["batch"].placement()
            assert batch.held_ms > 0.9 * outage_ms  # counted from its arrival
            assert waiters["left"].final == []
            link.finished("batch", "stop", None, paused=False)
            await in_flight_is(scheduler, 0)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            scheduler.kill()
            await scheduler.ended()


async def passes_are(scheduler: Process, count: int) -> None:
    """Poll the status page until classifier `j` has `count` turns in flight, each placed once."""
    async with asyncio.timeout(20):
        while [each["passes"] for each in (await status(scheduler))["state"]["replicas"] if each["name"] == "j"] != [count]:
            await asyncio.sleep(0.05)


async def until_unasked(link: SessionLink) -> None:
    async with asyncio.timeout(20):
        while not (link.connected and any(each.passes_unasked for each in link.replicas.values())):
            await asyncio.sleep(0.01)


async def test_passes_that_went_unasked_are_counted_and_survive_kill_9_of_the_scheduler(tmp_path: Path) -> None:
    def a_pass(turn: str) -> Recorder:
        waiter = Recorder()
        link.ask(an_ask(turn, model="judge", kind=Kind.CLASSIFIER), waiter)
        return waiter

    async with an_engine() as engine:
        ports = a_quiet_port(), a_quiet_port()
        scheduler = await a_scheduler(tmp_path, engine, *ports, config=WITH_A_CLASSIFIER)
        link = SessionLink(DataplaneConfig(scheduler=scheduler.at["grpc"], reconnect_seconds=0.1), environ={})
        running = asyncio.ensure_future(link.run())
        try:
            await until_unasked(link)
            first, second = a_pass("first"), a_pass("second")
            assert [(each.final[0].replica.name, len(each.told)) for each in (first, second) if isinstance(each.final[0], Placement)] == [
                ("j", 1), ("j", 1),
            ]  # fmt: skip
            await passes_are(scheduler, 2)
            scheduler.kill()
            await scheduler.ended()
            async with asyncio.timeout(20):
                while link.connected:
                    await asyncio.sleep(0.01)
            link.finished("first", "", None, paused=False)  # which nobody hears
            third = a_pass("third")
            assert third.told == []  # nothing goes to an engine while the scheduler is away
            scheduler = await a_scheduler(tmp_path, engine, *ports, config=WITH_A_CLASSIFIER)
            assert (await third.placement()).replica.name == "j"
            await passes_are(scheduler, 2)
            assert len(second.told) == 1
            await until_unasked(link)
            assert [type(word) for word in a_pass("fourth").told] == [Placement]
            for turn in ("second", "third", "fourth"):
                link.finished(turn, "", None, paused=False)
            await passes_are(scheduler, 0)
            assert link.ledger.counts["stale_attempt"] == 0
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            scheduler.kill()
            await scheduler.ended()


async def test_a_thousand_turns_that_each_end_in_another_way_leave_no_count(tmp_path: Path) -> None:
    """O15, with a scheduler killed in between."""
    async with an_engine() as engine:
        ports = a_quiet_port(), a_quiet_port()
        scheduler = await a_scheduler(tmp_path, engine, *ports)
        link = SessionLink(DataplaneConfig(scheduler=scheduler.at["grpc"], reconnect_seconds=0.1), environ={})
        running = asyncio.ensure_future(link.run())
        killed = asyncio.Event()

        async def one(number: int) -> None:
            turn, waiter = f"turn{number}", Recorder()
            link.ask(an_ask(turn), waiter)
            how = number % 7
            if how == 0:
                link.abandon(turn)  # before anything was said
                return
            if how == 1:
                await waiter.until(1, seconds=60)  # held or placed, whatever comes first
                link.abandon(turn)
                return
            await waiter.placement(seconds=60)
            if number == 402:
                scheduler.kill()
                killed.set()
            if how == 2:
                link.abandon(turn)
                return
            link.started(turn)
            if how == 3:
                link.failed(turn, "client_left")
                return
            link.first_token(turn)
            await asyncio.sleep(0)
            if how == 4:
                link.failed(turn, "engine_died")
                return
            link.finished(turn, "stop", None, paused=how == 5, tool_call_ids=(f"call_{number:020}",) if how == 5 else ())

        try:
            turns = [asyncio.ensure_future(one(number)) for number in range(1000)]
            await asyncio.wait_for(killed.wait(), 60)
            await scheduler.ended()
            scheduler = await a_scheduler(tmp_path, engine, *ports)
            await asyncio.wait_for(asyncio.gather(*turns), 60)
            seen = await in_flight_is(scheduler, 0)
            assert seen["held"] == 0, seen
            waiter = Recorder()
            link.ask(an_ask("afterwards"), waiter)
            await waiter.placement()
            link.finished("afterwards", "stop", None, paused=False)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            scheduler.kill()
            await scheduler.ended()
