"""Does a check that outlives its period still count when it answers?"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from luftpause.scheduler.core.events import ProbeOutcome
from luftpause.scheduler.engine_http import Answer
from luftpause.scheduler.health import PATIENCE_PERIODS, Health
from tests.support.virtual_time import virtual_time

OK, MISSED, REFUSED = ProbeOutcome.OK, ProbeOutcome.MISSED, ProbeOutcome.REFUSED
GOOD = Answer(OK, 200)
BAD = Answer(MISSED, 503, problem="answers 503")
CLOSED = Answer(REFUSED, problem="nobody listens there")
PERIOD = 0.05


class Checks:
    """The checks that were begun, each answered when the test says so."""

    def __init__(self) -> None:
        self.begun: list[asyncio.Future[Answer]] = []
        self.patience: list[float] = []

    async def check(self, seconds: float) -> Answer:
        self.patience.append(seconds)
        answer = asyncio.get_running_loop().create_future()
        self.begun.append(answer)
        return await answer


@asynccontextmanager
async def health(period: float = PERIOD) -> AsyncGenerator[tuple[Checks, Health]]:
    checks = Checks()
    made = Health(checks.check, period)
    try:
        yield checks, made
    finally:
        await made.close()
        assert all(check.done() for check in checks.begun)  # answered or cancelled


async def begun(checks: Checks, health: Health) -> asyncio.Task[Answer]:
    """One more `ask`, whose check has begun."""
    count = len(checks.begun)
    asking = asyncio.create_task(health.ask())
    while len(checks.begun) == count:
        await asyncio.sleep(0)
    return asking


@virtual_time
async def test_an_answer_in_time_is_the_answer_whatever_it_is():
    async with health(30) as (checks, made):
        for answer in (GOOD, BAD, CLOSED):
            asking = await begun(checks, made)
            checks.begun[-1].set_result(answer)
            assert await asking == answer
        assert checks.patience == [30 * PATIENCE_PERIODS] * 3


@virtual_time
async def test_a_late_good_answer_counts_in_the_period_in_which_it_comes():
    async with health() as (checks, made):
        assert (await made.ask()) == Answer(MISSED, problem="no answer within 0.05 s")
        asking = await begun(checks, made)
        checks.begun[0].set_result(GOOD)
        answer = await asking
        assert (answer.outcome, answer.status, answer.problem) == (OK, 200, "no answer within 0.05 s")  # one line of log for both
        assert not checks.begun[1].done()  # it is still asked


@virtual_time
async def test_a_late_bad_answer_says_nothing_of_now():
    async with health() as (checks, made):
        await made.ask()
        asking = await begun(checks, made)
        checks.begun[0].set_result(BAD)
        assert (await asking).problem == "no answer within 0.05 s"
        asking = await begun(checks, made)
        checks.begun[1].set_result(GOOD)
        assert (await asking).outcome is OK


@virtual_time
async def test_the_newest_answer_wins_and_ends_the_older_checks():
    async with health() as (checks, made):
        await made.ask()
        asking = await begun(checks, made)
        checks.begun[1].set_result(CLOSED)
        checks.begun[0].set_result(GOOD)  # of an engine that is gone
        assert await asking == CLOSED
        await made.ask()
        asking = await begun(checks, made)
        checks.begun[-1].set_result(GOOD)
        assert await asking == GOOD
        assert checks.begun[-2].cancelled()


@virtual_time
async def test_one_that_hangs_is_missed_each_time():
    async with health() as (checks, made):
        assert [(await made.ask()).outcome for _ in range(5)] == [MISSED] * 5
        assert len(checks.begun) == 5
