"""How does a test of waiting wait no time, and never too long on a busy machine?"""

import asyncio
import functools
import selectors
from collections.abc import Awaitable, Callable
from typing import Any


class _Selector(selectors.DefaultSelector):
    """Instead of waiting for the next timer it moves the clock there."""

    seconds = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select(None)  # there is no timer: only another thread can wake this one
        ready = super().select(0)
        if not ready:
            self.seconds += max(0.0, timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its clock stands still while anything is to be done, and then jumps to the next timer. Not for sockets, processes and threads."""

    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.seconds


def virtual_time(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """The asynchronous test, on such a loop of its own."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        async def whole() -> None:
            await test(*arguments, **named)

        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(whole())

    return run
