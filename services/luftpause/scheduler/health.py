"""Is a replica alive, also where its health check takes longer than the time between two of them?

SGLang's generates a token, which takes a second and more under load. A check that got no answer within its period is a miss, but it goes on
beside the next one: an answer that comes late still says that the engine lives. An engine that hangs answers none of them.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from luftpause.scheduler.core.events import ProbeOutcome
from luftpause.scheduler.engine_http import Answer

PATIENCE_PERIODS: Final = 3  # so long one check may take


class Health:
    """The checks of one replica. `check` makes one within the given seconds; it raises nothing."""

    def __init__(self, check: Callable[[float], Awaitable[Answer]], period_seconds: float) -> None:
        self._check = check
        self._seconds = period_seconds
        self._under_way: list[asyncio.Task[Answer]] = []  # oldest first

    async def ask(self) -> Answer:
        """The answer of this period: the first good one of any check, else that of the newest, else none."""
        newest = asyncio.ensure_future(self._check(self._seconds * PATIENCE_PERIODS))
        self._under_way.append(newest)
        try:
            async with asyncio.timeout(self._seconds):
                return await self._first(newest)
        except TimeoutError:
            return Answer(ProbeOutcome.MISSED, problem=_late(self._seconds))

    async def close(self) -> None:
        tasks, self._under_way = self._under_way, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _first(self, newest: asyncio.Task[Answer]) -> Answer:
        while True:
            await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
            done = [task for task in self._under_way if task.done()]
            self._under_way = [task for task in self._under_way if not task.done()]
            for task in reversed(done):  # of two that are in at once the newer one knows more
                answer = task.result()
                if task is newest:
                    await self.close()
                    return answer
                if answer.outcome is ProbeOutcome.OK:
                    return msgspec.structs.replace(answer, problem=answer.problem or _late(self._seconds))


def _late(seconds: float) -> str:
    return f"no answer within {seconds:g} s"
