"""How does the engine model run in real time, and who hears what it does?"""

import asyncio
from collections.abc import Sequence

from luftpause.kit.clock import Clock, monotonic
from luftpause_fakes.engine_model import Engine, EngineParams, EngineRequest, Output, Refused


class Feed:
    """The outputs of one request, in order; `gone` ends it when the client has left."""

    def __init__(self, request_id: str) -> None:
        self.id = request_id
        self.left = asyncio.Event()
        self._queue: asyncio.Queue[Output | None] = asyncio.Queue()

    def put(self, output: Output) -> None:
        self._queue.put_nowait(output)

    def gone(self) -> None:
        self.left.set()
        self._queue.put_nowait(None)

    async def next(self) -> Output | None:
        """None: the client has left."""
        return await self._queue.get()


class EngineHost:
    """One engine; model time is real time times `speed`. Late timers are caught up with, so nothing is lost to a busy loop."""

    def __init__(self, params: EngineParams, speed: float, clock: Clock = monotonic) -> None:
        self.engine = Engine(params)
        self._speed = speed
        self._clock = clock
        self._start = clock()
        self._feeds: dict[str, Feed] = {}
        self._timer: asyncio.TimerHandle | None = None

    def submit(self, request: EngineRequest) -> Feed | Refused:
        now = self._catch_up()
        feed = Feed(request.id)
        self._feeds[request.id] = feed
        refused = self.engine.submit(now, request)
        mine = next((each for each in refused if each.id == request.id), None)
        if mine is not None:
            del self._feeds[request.id]
        self._deliver([each for each in refused if each is not mine])
        self._arm()
        return mine or feed

    def cancel(self, request_id: str) -> bool:
        """True if it was still waiting or running."""
        now = self._catch_up()
        self._feeds.pop(request_id, None)
        cancelled = self.engine.cancel(now, request_id)
        self._arm()
        return cancelled

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _catch_up(self) -> float:
        now = (self._clock() - self._start) * self._speed
        self._deliver(self.engine.advance(now))
        return now

    def _deliver(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            feed = self._feeds.get(output.id)
            if feed is not None:
                feed.put(output)

    def _tick(self) -> None:
        self._catch_up()
        self._arm()

    def _arm(self) -> None:
        self.stop()
        due = self.engine.next_event()
        if due is None:
            return
        wait = self._start + due / self._speed - self._clock()
        self._timer = asyncio.get_running_loop().call_later(max(0.0, wait), self._tick)
