"""How do clients that wait for hours run in seconds, unchanged?

An event loop whose clock stands still while anything is to be done and then jumps to the next timer. Within `virtual(...)` the clocks of
the module `time` are that loop's, and work that packages send to threads is done at once, in order: else its time would be real.
"""

import asyncio
import contextlib
import random
import selectors
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeVar

import anyio.to_thread

Result = TypeVar("Result")
EPOCH = 1_780_000_000.0  # the time of day at which it begins


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
    """For everything that waits by timers alone: no sockets, no processes."""

    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.seconds

    def pass_by(self, seconds: float) -> None:
        """As a call that blocks the loop for so long."""
        self._clock.seconds += max(0.0, seconds)

    def run_in_executor(self, executor: Any, func: Callable[..., Result], *args: Any) -> asyncio.Future[Result]:
        """At once, in this thread: LiteLLM calls its providers so."""
        done: asyncio.Future[Result] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it belongs to whoever awaits
            done.set_exception(error)
        return done


def run(main: Coroutine[Any, Any, Result], seed: int) -> Result:
    """The result of `main`, in virtual time; whatever draws from the module `random` has this seed."""
    loop = VirtualLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner, virtual(loop, seed):
        return runner.run(main)


@contextlib.contextmanager
def virtual(loop: VirtualLoop, seed: int) -> Generator[None]:
    """Other threads get virtual times too, but wait in real time."""
    own = threading.get_ident()
    real_sleep = time.sleep

    def sleep(seconds: float) -> None:
        if threading.get_ident() == own:
            loop.pass_by(seconds)
        else:
            real_sleep(seconds)

    async def at_once(func: Callable[..., Result], *args: Any, **_: Any) -> Result:
        return func(*args)

    state = random.getstate()
    random.seed(seed)
    patches: list[tuple[Any, str, Any]] = [
        (time, "time", lambda: EPOCH + loop.time()),
        (time, "time_ns", lambda: int((EPOCH + loop.time()) * 1e9)),
        (time, "monotonic", loop.time),
        (time, "monotonic_ns", lambda: int(loop.time() * 1e9)),
        (time, "perf_counter", loop.time),
        (time, "sleep", sleep),
        (anyio.to_thread, "run_sync", at_once),
    ]
    kept = [(where, name, getattr(where, name)) for where, name, _ in patches]
    try:
        for where, name, value in patches:
            setattr(where, name, value)
        yield
    finally:
        for where, name, value in kept:
            setattr(where, name, value)
        random.setstate(state)


async def at(moment: float) -> None:
    """Returns at this moment on the loop's clock, or at once if it is over."""
    await asyncio.sleep(max(0.0, moment - asyncio.get_running_loop().time()))


async def until(moment: float, *tasks: Awaitable[Any]) -> None:
    """Let these run until that moment, then end them. An error of one of them is raised at once."""
    running = [asyncio.ensure_future(task) for task in tasks]
    ends = asyncio.ensure_future(at(moment))
    try:
        waiting = {ends, *running}
        while not ends.done():
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {ends}:
                task.result()
    finally:
        for task in (*running, ends):
            task.cancel()
        await asyncio.gather(*running, ends, return_exceptions=True)
