"""How do those who want quota reach `govern`, and how do its decisions reach them?

Events are handled in the order of their coming, each to its end before the next one. Nothing is awaited in between.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from math import inf
from typing import Final, ParamSpec

from luftpause.kit.clock import Clock, monotonic
from luftpause.kit.errors import LuftpauseError
from luftpause.kit.faults import Faults
from luftpause.kit.logs import Log
from luftpause.kit.metrics import Counter
from luftpause.scheduler.governor.store.link import SharingSettings
from luftpause.scheduler.governor.store.port import Store
from luftpause.scheduler.governor.store.sharing import Sharing
from luftpause.scheduler.quota import core
from luftpause.scheduler.quota.decisions import Decision, Grant, Refuse, Step
from luftpause.scheduler.quota.events import Event, GrantDeclined, LeaseReleased, QuotaWanted, QuotaWithdrawn, TargetRemoved, Tick
from luftpause.scheduler.quota.model import State

TICK_SECONDS_MIN: Final = 0.001  # a `wake_at` in the past must not become a busy loop

FAULTS: Final = {
    "store": "the shared ledger is taken for down and tried again; another version of the package redis may do better meanwhile",
    "store_hints": "what other nodes change is heard a little later",
    "answers": "somebody was not told of a decision; a lease that nobody has ends by itself",
    "ledger_file": "the ledger is written again in a few seconds; a restart before that would lose what is used and reserved",
    "lights": "the log lacks changes of lights",
    "turns": "leases of turns are renewed with the next round",
}

P = ParamSpec("P")
Answer = Callable[[Grant | Refuse], None]
Listener = Callable[[Decision], None]

log = Log("governor")


class GovernorFailedError(LuftpauseError):
    """The core raised on an event, so its state can't be trusted."""

    def __init__(self, event: str, error: Exception) -> None:
        super().__init__(
            f"the rate governor stopped: its core failed on {event} ({type(error).__name__}: {error}). "
            "Start the scheduler again, and please report this with the log line before it.",
            code="governor_failed",
        )


class _Asking:
    """Who waits for the answer to one wish, and since when."""

    __slots__ = ("answers", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.answers: list[Answer] = []


class Governor:
    """
    Owns the state. Everything happens on one event loop; answers and listeners are called there and must neither block nor raise.

    Only a fault of the core ends it; all others are `faults`.
    """

    def __init__(self, state: State, *, clock: Clock = monotonic, govern: Callable[[State, Event], Step] = core.govern) -> None:
        self.state = state
        self._clock = clock
        self._govern = govern
        self._inbox: deque[Event] = deque()
        self._working = False
        self._asking: dict[tuple[str, str], _Asking] = {}  # by target and want
        self.waited: Callable[[Grant, float], None] | None = None  # hears how many seconds a grant was waited for
        self._listeners: list[Listener] = []
        counter = Counter("luftpause_scheduler_quota_faults", "Faults in work that goes on all the same, by the work.", ("work",))
        self.faults = Faults(log, counter, FAULTS)
        self._loop: asyncio.AbstractEventLoop | None = None  # while it runs
        self._failed: asyncio.Future[None] | None = None
        self._failure: GovernorFailedError | None = None
        self._timer: asyncio.Handle | None = None
        self._timer_at = inf  # on the loop's clock; not every loop's timers tell it
        self._wake_at: float | None = state.due.first()[0] if state.due else None
        self.sharing: Sharing | None = None

    def share(self, store: Store, *, node: str, settings: SharingSettings) -> None:
        """To be called before `run`: from now on grants hold for all nodes of `store`; `node` must be a name of its own."""
        self.sharing = Sharing(
            store, node=node, post=self.post, state=lambda: self.state, clock=self._clock, settings=settings, faults=self.faults
        )  # fmt: skip

    @property
    def now(self) -> float:
        """Seconds on its clock, for the `now` of events."""
        return self._clock()

    def settling(self, target: str, want: str) -> bool:
        """It has been granted as far as this node goes; the shared store is being asked."""
        return self.sharing is not None and want in self.sharing.link.of(target).pending

    # ---- in

    def want(self, event: QuotaWanted, answer: Answer) -> None:
        """Ask for quota. `answer` is called exactly once, maybe before this returns; never after `withdraw`."""
        asking = self._asking.get((event.target, event.want))
        if asking is None:
            since = event.now if event.standing is None else event.standing.since
            asking = self._asking[event.target, event.want] = _Asking(since)
        asking.answers.append(answer)
        self.post(event)

    def withdraw(self, target: str, want: str) -> None:
        """Nobody waits for this want any more: no answer comes, and a lease granted meanwhile is given back."""
        if self._asking.pop((target, want), None) is not None:
            self.post(QuotaWithdrawn(self.now, target, want))

    def post(self, event: Event) -> None:
        """Tell it what happened. What follows is done when this returns, unless it was called by an answer or a listener: then soon."""
        self._inbox.append(event)
        self._work()

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Hear every decision from now on; returns the way to stop."""
        self._listeners.append(listener)

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return stop

    # ---- the loop

    async def run(self) -> None:
        """Let what is due happen, until cancelled. Raises GovernorFailedError."""
        self._loop = asyncio.get_running_loop()
        self._failed = self._loop.create_future()
        sharing = None if self.sharing is None else self._loop.create_task(self.sharing.run())
        try:
            self.advance()
            if self._failure is not None:
                raise self._failure
            await self._failed
        finally:
            if sharing is not None:
                sharing.cancel()
                await asyncio.gather(sharing, return_exceptions=True)
            self._loop = self._failed = None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def advance(self) -> float | None:
        """Let happen what is due by now; when the next thing is, on its clock. For a test or a simulator that has no running loop."""
        if self._wake_at is not None and self._clock() >= self._wake_at:
            self._inbox.append(Tick(self._clock()))
        self._work()
        return self._wake_at

    def _work(self) -> None:
        if self._working or self._failure is not None:
            return
        self._working = True
        try:
            while self._inbox:
                self._take(self._inbox.popleft())
        finally:
            self._working = False
        self._arm()

    def _take(self, event: Event) -> None:
        if isinstance(event, GrantDeclined) and (event.target, event.want) not in self._asking:  # whoever wanted it has left meanwhile
            event = LeaseReleased(event.now, event.target, event.want, event.fence)
        try:
            step = self._govern(self.state, event)
        except Exception as error:
            log.exception("the core failed", event_type=type(event).__name__)
            self._failure = GovernorFailedError(type(event).__name__, error)
            self._inbox.clear()
            if self._failed is not None and not self._failed.done():
                self._failed.set_exception(self._failure)
            return
        before, self.state, self._wake_at = self.state, step.state, step.wake_at
        if self.sharing is not None:
            self.sharing.follow(event, before, step.decisions)
        for decision in step.decisions:
            self._carry_out(decision)
        if isinstance(event, TargetRemoved):  # who is left waits for the shared store's word on a grant
            for target, want in [key for key in self._asking if key[0] == event.target]:
                self._carry_out(core.removed(target, want))

    def _carry_out(self, decision: Decision) -> None:
        if self.sharing is not None and isinstance(decision, Grant) and not self.sharing.settles(decision):
            return
        if isinstance(decision, Grant | Refuse):
            self._answer(decision)
        for listener in tuple(self._listeners):
            self._call(listener, decision)

    def _answer(self, decision: Grant | Refuse) -> None:
        asking = self._asking.pop((decision.target, decision.want), None)
        if isinstance(decision, Grant):
            if asking is None:
                self._inbox.append(LeaseReleased(self.now, decision.target, decision.want, decision.fence))
            elif self.waited is not None:
                self._call(self.waited, decision, max(0.0, self.state.now - asking.since))
        for answer in asking.answers if asking is not None else ():
            self._call(answer, decision)

    def _call(self, hears: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """One that raises must keep nobody else from hearing."""
        try:
            hears(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever it is, the core is right
            self.faults.note("answers", error)

    # ---- time

    def _arm(self) -> None:
        """An earlier timer stays and looks again."""
        if self._loop is None or self._wake_at is None:
            return
        due = self._loop.time() + max(TICK_SECONDS_MIN, self._wake_at - self._clock())
        if self._timer is not None:
            if self._timer_at <= due:
                return
            self._timer.cancel()
        self._timer, self._timer_at = self._loop.call_at(due, self._on_time), due

    def _on_time(self) -> None:
        self._timer = None
        self.advance()
