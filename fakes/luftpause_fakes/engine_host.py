"""How do engine models run in real time, and who hears what they do?"""

import asyncio
from collections.abc import Sequence

from msgspec import Struct

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


class Lateness(Struct):
    """How much later than the model says its events came, in seconds of this machine: a busy machine falsifies what is measured."""

    timers: int = 0
    seconds: float = 0.0
    seconds_max: float = 0.0

    def note(self, seconds: float) -> None:
        self.timers += 1
        self.seconds += seconds
        self.seconds_max = max(self.seconds_max, seconds)


class Gpu:
    """
    What engines run on: while n of them have work, each is n times slower.

    Model time is real time times `speed`. Late timers are caught up with, event by event, so nothing is lost to a busy loop.
    """

    def __init__(self, speed: float, clock: Clock = monotonic) -> None:
        self.late = Lateness()
        self._speed = speed
        self._clock = clock
        self._start = clock()
        self._hosts: list[EngineHost] = []
        self._timer: asyncio.TimerHandle | None = None
        self._due: float | None = None

    def add(self, host: "EngineHost") -> None:
        self._hosts.append(host)

    def catch_up(self) -> float:
        """Everything that happened until now has been told; the model's time."""
        now = (self._clock() - self._start) * self._speed
        while True:
            first = min(self._hosts, key=_next_event)
            due = _next_event(first)
            if due > now:
                break
            self.share(first)
            first.advance(due)
        for host in self._hosts:
            host.advance(now)
        return now

    def share(self, host: "EngineHost") -> None:
        """How fast the next step of this engine is."""
        host.engine.slowdown = 1.0 + sum(other is not host and _next_event(other) != _NEVER for other in self._hosts)

    def arm(self) -> None:
        """Wake up for the next event of any engine."""
        self.stop()
        due = min(map(_next_event, self._hosts))
        if due == _NEVER:
            return
        self._due = self._start + due / self._speed
        self._timer = asyncio.get_running_loop().call_later(max(0.0, self._due - self._clock()), self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        if self._due is not None:
            self.late.note(max(0.0, self._clock() - self._due))
        self.catch_up()
        self.arm()


class EngineHost:
    """One engine on a GPU."""

    def __init__(self, params: EngineParams, gpu: Gpu) -> None:
        self.engine = Engine(params)
        self.gpu = gpu
        self._feeds: dict[str, Feed] = {}
        gpu.add(self)

    def submit(self, request: EngineRequest) -> Feed | Refused:
        now = self.gpu.catch_up()
        self.gpu.share(self)
        feed = Feed(request.id)
        self._feeds[request.id] = feed
        refused = self.engine.submit(now, request)
        mine = next((each for each in refused if each.id == request.id), None)
        if mine is not None:
            del self._feeds[request.id]
        self._deliver([each for each in refused if each is not mine])
        self.gpu.arm()
        return mine or feed

    def cancel(self, request_id: str) -> bool:
        """True if it was still waiting or running."""
        now = self.gpu.catch_up()
        self._feeds.pop(request_id, None)
        cancelled = self.engine.cancel(now, request_id)
        self.gpu.arm()
        return cancelled

    def advance(self, now: float) -> None:
        """To this time of the model."""
        self._deliver(self.engine.advance(now))

    def _deliver(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            feed = self._feeds.get(output.id)
            if feed is not None:
                feed.put(output)


_NEVER = float("inf")


def _next_event(host: EngineHost) -> float:
    due = host.engine.next_event()
    return _NEVER if due is None else due
