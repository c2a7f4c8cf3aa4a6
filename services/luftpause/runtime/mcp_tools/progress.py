"""How does a waiting call keep its client patient?"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from luftpause.runtime.mcp_tools.views import progress_text
from luftpause.runtime.ports import RunView

T = TypeVar("T")
Send = Callable[[float, float, str], Awaitable[None]]


class Progress:
    """Values that rise with every message and stay close to how many runs are done."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._done = 0
        self._said = 0

    def next(self, done: int) -> float:
        if done > self._done:
            self._done, self._said = done, 0
        self._said += 1
        return self._done + 0.9 * self._said / (self._said + 20)


async def with_progress(
    waiting: Awaitable[T],
    views: Callable[[], Sequence[RunView]],
    send: Send,
    every_s: float,
    prefix: str = "",
    stop: asyncio.Event | None = None,
) -> T | None:
    """Awaits, sending progress every `every_s` and none afterwards; None if `stop` came first. Cancelling it cancels `waiting`."""
    task = asyncio.ensure_future(waiting)
    stopping = asyncio.ensure_future(stop.wait()) if stop is not None else None
    progress: Progress | None = None
    try:
        while True:
            done, _ = await asyncio.wait({task} | ({stopping} if stopping else set()), timeout=every_s, return_when=asyncio.FIRST_COMPLETED)
            if task in done:
                return task.result()
            if done:
                return None
            runs = views()
            progress = progress or Progress(len(runs))
            await send(progress.next(sum(run.state.ended for run in runs)), progress.total, prefix + progress_text(runs))
    finally:
        for each in (task, stopping):
            if each is not None:
                each.cancel()
        await asyncio.gather(task, return_exceptions=True)
