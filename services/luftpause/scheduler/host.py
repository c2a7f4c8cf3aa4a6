"""How does the world reach `decide`, and how do its decisions reach the world?

One queue, one place that empties it. Events come in by `post`, are handled in the order of their coming, and what was decided is carried
out before the next one. Nothing is awaited between reading the state and writing it, and no peer is awaited: orders go into outboxes.
"""

import asyncio
import traceback
from collections import Counter, deque
from collections.abc import Callable, Sequence
from math import inf
from time import perf_counter
from typing import Final, Protocol, assert_never

from msgspec import Struct

from luftpause.kit.clock import Clock, monotonic
from luftpause.kit.errors import LuftpauseError
from luftpause.kit.garbage import Garbage
from luftpause.kit.logs import Log
from luftpause.kit.metrics import Histogram
from luftpause.scheduler.core.decisions import (
    BranchFollowed,
    CancelReserve,
    Decision,
    EndRun,
    Expire,
    Forget,
    Held,
    Located,
    Place,
    Probe,
    Refuse,
    ReplicasChanged,
    ReserveQuota,
    SettleQuota,
    Step,
)  # fmt: skip
from luftpause.scheduler.core.events import Continue, DataplaneAlive, DataplaneLost, Event, ReplicaProbed, Resync, Tick
from luftpause.scheduler.core.model import State
from luftpause.scheduler.outbox import Orders
from luftpause.scheduler.quota_told import AnswerTold, LeaseTold, Told
from luftpause.scheduler.rates import Rate
from luftpause.scheduler.translate import Replicas

TICK_SECONDS: Final = 1.0
TICK_SECONDS_MIN: Final = 0.001  # a `wake_at` in the past must not become a busy loop
SOON_SECONDS: Final = 0.005  # reports without hurry wait this long for company
EVENTS_PER_TURN: Final = 256  # then the loop gets to read and write again
IDLE_SECONDS: Final = 1.0  # without a fact about a turn
DECIDE_BOUNDS_SECONDS: Final = (1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 5e-2, 0.25, 1)

_ROUTINE: Final = frozenset({Tick, Continue, DataplaneAlive, ReplicaProbed})  # they come whether or not there is work

# Sees each event beside the state before it and the step that it gave, before anything is carried out. It must be quick and must not raise.
Observer = Callable[[State, Event, Step], None]

log = Log("scheduler")

Wish = ReserveQuota | CancelReserve | SettleQuota
TOLD: Final = (AnswerTold, LeaseTold)


class Attach(Struct, frozen=True, gc=False):
    """A session has said all of its Hello: from this event on the dataplane's orders go into its outbox."""

    resync: Resync
    outbox: Orders


class Quotas(Protocol):
    """Who asks for quota, and settles what was granted; its answers come as events."""

    def carry_out(self, decision: Wish) -> None: ...

    def told(self, told: Told) -> None: ...


class NoQuotas:
    """Nobody: who asks waits."""

    def carry_out(self, decision: Wish) -> None:
        pass

    def told(self, told: Told) -> None:
        pass


class CoreFailedError(LuftpauseError):
    """The core raised on an event. Its state can't be trusted to know that event: start anew and let dataplanes resync."""

    def __init__(self, event: str, error: Exception) -> None:
        super().__init__(
            f"the scheduler stopped: its core failed on {event} ({type(error).__name__}: {error}). "
            "Start it again; dataplanes reconnect and bring the state back. Please report this with the log line before it.",
            code="scheduler_failed",
        )


class Host:
    """Owns the state. `decide` is the core's; `replicas` reads from a state what dataplanes are told of replicas."""

    def __init__(
        self,
        decide: Callable[[State, Event], Step],
        state: State,
        *,
        replicas: Callable[[State], Replicas],
        probe: Callable[[str], None] = lambda _: None,
        clock: Clock = monotonic,
        garbage: Garbage | None = None,
        inbox_events_max: int = 20_000,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.state = state
        self.events: Counter[str] = Counter()  # by type, since the start
        self.decisions: Counter[str] = Counter()
        self.undeliverable = 0  # orders for dataplanes that had no session
        self.decide_seconds = Histogram("luftpause_scheduler_decide_seconds", "What one event costs the core.", DECIDE_BOUNDS_SECONDS)
        self.rate = Rate(clock)
        self.probe = probe
        self.quotas: Quotas = NoQuotas()
        self._decide = decide
        self._replicas = replicas
        self._clock = clock
        self._garbage = garbage
        self._inbox: deque[Event | Attach | Told] = deque()
        self._inbox_events_max = inbox_events_max
        self._observers = tuple(observers)
        self._loop: asyncio.AbstractEventLoop | None = None  # while it runs
        self._failed: asyncio.Future[None] | None = None
        self._soon: asyncio.Handle | None = None  # when `advance` is called next: at once, or at a time
        self._later: asyncio.Handle | None = None
        self._later_at = inf  # on the loop's clock; not every loop's timers tell it
        self._drained = asyncio.Event()
        self._outboxes: dict[str, tuple[str, Orders]] = {}  # by dataplane: its current session and where its orders go
        self._announced = replicas(state)
        self._tick_latest = self._tick_at = clock()
        self._tick_waits = False
        self._more = self._absorbing = self._continue_waits = False
        self._worked_at = clock()

    # ---- in

    def post(self, event: Event | Told) -> None:
        """Put an event behind the others. Its `now` must have been read just before, on the host's clock."""
        self._inbox.append(event)
        if self._soon is None and self._loop is not None:
            self._soon = self._loop.call_soon(self._work)

    def post_soon(self, event: Event | Told) -> None:
        """As `post`, but nobody waits for what it changes: it is handled with the next event or within SOON_SECONDS."""
        self._inbox.append(event)
        if self._soon is None:
            self._work_in(SOON_SECONDS)

    def attach(self, resync: Resync, outbox: Orders) -> None:
        """As `post`; the dataplane's orders go into `outbox` from then on, the replicas first."""
        self._inbox.append(Attach(resync, outbox))
        if self._soon is None and self._loop is not None:
            self._soon = self._loop.call_soon(self._work)

    @property
    def waiting(self) -> int:
        """Events in the inbox."""
        return len(self._inbox)

    async def room(self) -> None:
        """Wait while the inbox is full: for whoever brings events that nobody waits for."""
        while len(self._inbox) >= self._inbox_events_max:
            self._drained.clear()
            await self._drained.wait()

    # ---- the loop

    async def run(self) -> None:
        """Handle events until cancelled. Raises CoreFailedError."""
        self._loop = asyncio.get_running_loop()
        self._failed = self._loop.create_future()
        self._soon = self._loop.call_soon(self._work)
        try:
            await self._failed
        finally:
            self._loop = None
            for handle in (self._soon, self._later):
                if handle is not None:
                    handle.cancel()
            self._soon = self._later = None

    def _work(self) -> None:
        """What a task would do, without the cost of waking one for each event."""
        self._soon = None
        if self._loop is None or self._failed is None:
            return
        try:
            pause = self.advance()
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends `run`
            self._loop = None
            if not self._failed.done():
                self._failed.set_exception(error)
            return
        if pause <= 0:
            self._soon = self._soon or self._loop.call_soon(self._work)
        else:
            self._work_in(pause)

    def _work_in(self, seconds: float) -> None:
        """At the latest: a timer that comes earlier stays, and looks again."""
        if self._loop is None:
            return
        due = self._loop.time() + seconds
        if self._later is not None:
            if self._later_at <= due:
                return
            self._later.cancel()
        self._later, self._later_at = self._loop.call_at(due, self._on_time), due

    def _on_time(self) -> None:
        self._later = None
        self._work()

    def advance(self) -> float:
        """Handle what waits (at most EVENTS_PER_TURN) and a due tick; seconds until the next tick, 0.0 if more waits.

        Synchronous: a test or a simulator may drive the host with a clock of its own.
        """
        self._tick_if_due()
        for _ in range(min(len(self._inbox), EVENTS_PER_TURN)):
            self._take(self._inbox.popleft())
            if self._absorbing:  # the loop must get to say that this process is alive
                self._inbox.appendleft(Continue(self._clock()))
                self._continue_waits = True
                break
        if self._more and not self._continue_waits:
            self._continue_waits = True
            self.post(Continue(self._clock()))
        if len(self._inbox) < self._inbox_events_max:
            self._drained.set()
        self._collect()
        return 0.0 if self._inbox else max(TICK_SECONDS_MIN, self._tick_at - self._clock())

    def _tick_if_due(self) -> None:
        """Behind the events that wait: time never goes back between two events."""
        now = self._clock()
        if now >= self._tick_at and not self._tick_waits:
            self._tick_waits = True
            self.post(Tick(now))

    def _collect(self) -> None:
        if self._garbage is None:
            return
        idle = not self._inbox and self._clock() - self._worked_at >= IDLE_SECONDS
        if self._garbage.idle() if idle else self._garbage.busy():
            log.debug("garbage collected")

    def _take(self, item: Event | Attach | Told) -> None:
        if isinstance(item, Attach):
            self._outboxes[item.resync.dataplane] = (item.resync.session, item.outbox)
            item.outbox.put(self._announced)
            item = item.resync
        elif type(item) is DataplaneLost and self._outboxes.get(item.dataplane, ("",))[0] == item.session:
            del self._outboxes[item.dataplane]
        elif isinstance(item, TOLD):
            self.quotas.told(item)
            return
        self._handle(item)

    def _handle(self, event: Event) -> None:
        before = self.state
        begun = perf_counter()
        try:
            step = self._decide(before, event)
        except Exception as error:
            raise _failed(type(event).__name__, error) from error
        self.decide_seconds.observe(perf_counter() - begun)
        for observe in self._observers:
            observe(before, event, step)
        self.state = step.state
        self._more, self._absorbing = step.more, step.absorbing
        self._note(event)
        # The last step knows best when it wants to be woken.
        latest, wake_at = self._tick_latest, step.wake_at
        self._tick_at = latest if wake_at is None or wake_at >= latest else min(latest, max(wake_at, event.now + TICK_SECONDS_MIN))
        for decision in step.decisions:
            self._carry_out(decision)

    def _note(self, event: Event) -> None:
        kind = type(event)
        if kind not in _ROUTINE:
            self._worked_at = event.now
        elif kind is Tick:
            self._tick_waits = False
            self._tick_latest = event.now + TICK_SECONDS
        elif kind is Continue:
            self._continue_waits = False
        self.events[kind.__name__] += 1
        self.rate.count()

    # ---- out

    def _carry_out(self, decision: Decision) -> None:
        self.decisions[type(decision).__name__] += 1
        match decision:
            case Place() | Held() | Refuse() | BranchFollowed() | Located():
                self._send(decision)
            case ReserveQuota() | CancelReserve() | SettleQuota():
                self.quotas.carry_out(decision)
            case EndRun():
                self._spread(decision)
            case Probe(replica=replica):
                self.probe(replica)
            case ReplicasChanged():
                self._announce()
            case Forget(run=run):
                log.debug("run forgotten", run=run)
            case Expire(turn=turn, replica=replica):
                log.warning("turn expired: its end was never reported", turn=turn, replica=replica)
            case _:
                assert_never(decision)

    def _send(self, decision: Place | Held | Refuse | BranchFollowed | Located) -> None:
        if type(decision) is Place and decision.sent:
            return  # it said so itself
        session = self._outboxes.get(decision.dataplane)
        if session is None:
            self.undeliverable += 1  # it will resync and ask again
            return
        session[1].put(decision)

    def _spread(self, decision: EndRun) -> None:
        for name, (_session, outbox) in self._outboxes.items():
            if decision.dataplane in {"", name}:
                outbox.put(decision)

    def _announce(self) -> None:
        before = {replica.name: replica.state for replica in self._announced.replicas}
        self._announced = self._replicas(self.state)
        for replica in self._announced.replicas:
            if replica.state != before.get(replica.name, "unknown"):
                log.info("replica is now " + replica.state, replica=replica.name, url=replica.url, models=replica.models)
        for _session, outbox in self._outboxes.values():
            outbox.put(self._announced)


def _failed(event: str, error: Exception) -> CoreFailedError:
    log.error("the core failed", event_type=event, error=repr(error), traceback="".join(traceback.format_exception(error)))
    return CoreFailedError(event, error)
