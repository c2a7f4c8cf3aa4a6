"""Does a run that was ended stay ended, and a stored response found, over dataplanes and a killed scheduler?"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

from luftpause.dataplane.link import SessionLink
from luftpause.kit import clock as clocks
from luftpause.kit.config import DataplaneConfig
from tests.integration.test_link_scheduler import a_scheduler, an_engine
from tests.support.ports import a_quiet_port
from tests.support.processes import Process
from tests.support.waiters import Recorder, an_ask


class Clock:
    """The dataplanes' time. Ages are as exact as links are fast, and a starting scheduler reads late: time passes between events."""

    def __init__(self) -> None:
        self.ahead_seconds = 0.0

    def __call__(self) -> float:
        return clocks.monotonic() + self.ahead_seconds


@contextlib.asynccontextmanager
async def a_dataplane(name: str, scheduler: Process, clock: Clock | None = None) -> AsyncGenerator[SessionLink]:
    config = DataplaneConfig(name=name, scheduler=scheduler.at["grpc"], reconnect_seconds=0.1)
    link = SessionLink(config, clock=clock or clocks.monotonic, environ={})
    running = asyncio.ensure_future(link.run())
    try:
        yield link
    finally:
        await link.close()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def a_turn(link: SessionLink, turn: str, run: str, *, response: str = "") -> None:
    waiter = Recorder()
    link.ask(an_ask(turn, run=run), waiter)
    await waiter.placement()
    link.started(turn)
    if response:
        link.response_seen(turn, response)
    link.finished(turn, "stop", None, paused=False)


async def forgets(link: SessionLink, run: str) -> None:
    async with asyncio.timeout(60):
        while run in link.ledger.memory.runs:
            await asyncio.sleep(0.01)


async def found(link: SessionLink, response: str) -> str:
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    link.locate(response, "", answer.set_result)
    async with asyncio.timeout(60):
        return await answer


async def test_a_run_ended_here_is_forgotten_there_also_by_a_scheduler_that_starts_anew(tmp_path: Path) -> None:
    async with an_engine() as engine:
        ports = a_quiet_port(), a_quiet_port()
        scheduler = await a_scheduler(tmp_path, engine, *ports)
        try:
            clock = Clock()
            async with a_dataplane("one", scheduler, clock) as one, a_dataplane("two", scheduler, clock) as two:
                await a_turn(two, "t1", "ended")
                await a_turn(two, "t2", "kept")
                one.end_run("ended")
                await forgets(two, "ended")
                assert set(two.ledger.memory.runs) == {"kept"}

                await a_turn(two, "t3", "gone")
                scheduler.kill()
                await scheduler.ended()
                clock.ahead_seconds = 10.0
                one.end_run("gone")  # nobody hears it now
                assert "gone" in two.ledger.memory.runs
                scheduler = await a_scheduler(tmp_path, engine, *ports)
                await forgets(two, "gone")
                assert set(two.ledger.memory.runs) == {"kept"}

                await a_turn(two, "t4", "gone")  # it is a run again
                assert set(two.ledger.memory.runs) == {"kept", "gone"}
        finally:
            scheduler.kill()
            await scheduler.ended()


async def test_a_stored_response_is_located_by_every_dataplane_also_after_a_restart(tmp_path: Path) -> None:
    async with an_engine() as engine:
        ports = a_quiet_port(), a_quiet_port()
        scheduler = await a_scheduler(tmp_path, engine, *ports)
        try:
            async with a_dataplane("one", scheduler) as one, a_dataplane("two", scheduler) as two:
                await a_turn(one, "t1", "r", response="resp_1")
                await a_turn(two, "t2", "other")
                assert [await found(link, "resp_1") for link in (one, two)] == ["a", "a"]
                assert await found(two, "resp_2") == ""
                scheduler.kill()
                await scheduler.ended()
                scheduler = await a_scheduler(tmp_path, engine, *ports)
                await a_turn(two, "t3", "other")
                await a_turn(one, "t4", "another")
                assert await found(two, "resp_1") == "a"
        finally:
            scheduler.kill()
            await scheduler.ended()
