"""What do all turns that go through this dataplane share, and how do they end when it stops?"""

import asyncio
import functools

from luftpause.dataplane.deciding import decide
from luftpause.dataplane.door import Serve
from luftpause.dataplane.exchange import Request, Stopped
from luftpause.dataplane.formats import CLASSIFY, FORMATS, Format
from luftpause.dataplane.http import Conn
from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.stored import COUNT_TOKENS, StoredRoutes, count_tokens
from luftpause.dataplane.sweep import Sweep
from luftpause.dataplane.turn import Turn
from luftpause.dataplane.turns import Scheduler
from luftpause.dataplane.upstream import Upstreams
from luftpause.kit.config import DataplaneConfig
from luftpause.kit.tracing import Tracer

STOPPING = Rejection(503, "stopping", "this dataplane is being stopped; send the turn again", retry_after_s=1)


class Relay:
    """`key` is that of head digests."""

    def __init__(self, config: DataplaneConfig, scheduler: Scheduler, sweep: Sweep, key: bytes) -> None:
        self.config = config
        self.scheduler = scheduler
        self.tracer: Tracer | None = None  # of turns; None: none is traced
        self.sweep = sweep
        self.key = key
        self.asks_usage = None if config.usage is None else config.usage == "ask"  # None: where the scheduler wants it
        self.holds_busy = config.on_busy == "hold"
        self.upstreams = Upstreams(config, sweep)
        self.forwarded = frozenset(name.lower().encode() for name in config.forward_headers)
        self.turns: set[Stopped] = set()
        self.stored = StoredRoutes(self)
        self.deadline = 0.0  # always due: the sweep passes on which replicas delivered
        self.stopping: Rejection | None = None  # why turns get no place any more
        self._rotation = 0
        self._empty = asyncio.Event()  # looked at only when it stops
        sweep.watch(self)

    def routes(self) -> dict[str, Serve]:
        """By path; all take POST only."""
        turns = {each.route: self._serve(each) for each in FORMATS}
        return turns | {CLASSIFY.route: functools.partial(decide, self), COUNT_TOKENS: functools.partial(count_tokens, self)}

    def rotate(self, count: int) -> int:
        """Which of so many is first this time."""
        self._rotation += 1
        return self._rotation % count

    def _serve(self, api: Format) -> Serve:
        def serve(conn: Conn, request: Request) -> None:
            self.take(Turn(self, conn, request, api), request)

        return serve

    def take(self, turn: Turn, request: Request) -> None:
        if self.stopping is not None:
            turn.reject(self.stopping)
        else:
            turn.begin(request)

    def enter(self, turn: Stopped) -> None:
        self.turns.add(turn)

    def leave(self, turn: Stopped) -> None:
        self.turns.discard(turn)
        if self.stopping is not None and not self.turns:
            self._empty.set()

    def expire(self, now: float) -> None:
        for name in self.upstreams.take_delivered():
            self.scheduler.delivering(name)

    def stop(self) -> None:
        """Held turns, and those that come from now on, are answered with 503; the others go on."""
        self.stopping = STOPPING
        for turn in tuple(self.turns):
            turn.stop_waiting(STOPPING)

    async def emptied(self) -> None:
        """Returns when no turn is left; asked after `stop`."""
        while self.turns:
            self._empty.clear()
            await self._empty.wait()

    def kill(self) -> None:
        """End what still runs."""
        for turn in tuple(self.turns):
            turn.kill(STOPPING)
        self.sweep.forget(self)
        self.upstreams.close()
