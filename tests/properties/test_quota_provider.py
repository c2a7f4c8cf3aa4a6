"""Does the governor keep its promises about time and traffic before a provider that has its own mind?

I10 and I12 of the governor's specification: how long background waits at most, and what still reaches a provider that has refused.
"""

from collections import deque
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from luftpause.scheduler.quota import admission
from luftpause.scheduler.quota.core import govern, initial
from luftpause.scheduler.quota.decisions import Blocked, Grant
from luftpause.scheduler.quota.events import AnswerReported, Event, QuotaWanted, TargetConfigured, Tick
from luftpause.scheduler.quota.headers import LimitKind
from luftpause.scheduler.quota.model import Settings
from luftpause.scheduler.quota.specs import ScopeSpec, TargetSpec
from tests.properties.test_quota_mutants import never_open

HOUR = ScopeSpec("req", "fixed", 5_000, 3_600)
MINUTE = ScopeSpec("req", "bucket", 600, 60)  # 10 a second; P2's floor is one in 2 s


class Provider:
    """Allows so many calls in any 10 s, which it tells nobody; then it refuses all for a while."""

    def __init__(self, calls: float, penalty_seconds: float) -> None:
        self.calls, self.penalty_seconds = calls, penalty_seconds
        self.recent: deque[float] = deque()
        self.shut_until = -1.0

    def refuses(self, now: float) -> float | None:
        """Seconds of its Retry-After; None: it answers."""
        while self.recent and self.recent[0] <= now - 10.0:
            self.recent.popleft()
        if now >= self.shut_until and len(self.recent) >= self.calls:
            self.shut_until = now + self.penalty_seconds
        if now < self.shut_until:
            return self.shut_until - now
        self.recent.append(now)
        return None


class World:
    """Calls, their way to the provider and back, and a governor, in virtual time."""

    def __init__(self, seed: int, spec: ScopeSpec, provider: Provider, seconds: float) -> None:
        self.random, self.provider, self.seconds = Random(seed), provider, seconds
        self.state = initial(Settings(), 0.0)
        self.events: list[tuple[float, int, Any]] = []
        self.serial = count()
        self.now = 0.0
        self.waits: dict[int, list[float]] = {0: [], 1: [], 2: []}
        self.asked: dict[str, tuple[float, int, Any]] = {}
        self.in_flight: dict[str, float] = {}  # want -> when it was granted
        self.blocks: list[tuple[float, float, int]] = []  # reported, until, in flight then
        self.arrivals: list[tuple[float, float]] = []  # when, when it was granted
        self.service_seconds = 1.0
        self.tell(TargetConfigured(0.0, TargetSpec("t", (spec,))))

    def at(self, when: float, do: Any) -> None:
        heappush(self.events, (when, next(self.serial), do))

    def run(self) -> "World":
        while self.events and self.events[0][0] <= self.seconds:
            self.now, _, do = heappop(self.events)
            do()
        for at, priority, _ in self.asked.values():  # who still waits has waited so long
            self.waits[priority].append(self.seconds - at)
        return self

    def tell(self, event: Event) -> None:
        step = govern(self.state, event)
        self.state = step.state
        for decision in step.decisions:
            if isinstance(decision, Grant):
                self.granted(decision)
            elif isinstance(decision, Blocked):
                self.blocks.append((self.now, decision.until, len(self.in_flight)))
        if step.wake_at is not None:
            self.at(max(step.wake_at, self.now), lambda due=step.wake_at: self.wake(due))

    def wake(self, due: float) -> None:
        if self.state.due and self.state.due.first()[0] <= due:
            self.tell(Tick(self.now))

    def wants(self, caller: str, priority: int, then: Any = None) -> None:
        want = f"{caller}-{next(self.serial)}"
        self.asked[want] = (self.now, priority, then)
        self.tell(QuotaWanted(self.now, "t", want, caller, priority, (("req", 1.0),), 1e6))

    def granted(self, grant: Grant) -> None:
        self.in_flight[grant.want] = self.now
        at, priority, then = self.asked.pop(grant.want)
        self.waits[priority].append(self.now - at)
        self.at(self.now + self.random.uniform(0.0, 0.3), lambda: self.arrives(grant, then))

    def arrives(self, grant: Grant, then: Any) -> None:
        self.arrivals.append((self.now, self.in_flight[grant.want]))
        refused = self.provider.refuses(self.now)
        back = self.now + self.random.uniform(0.0, self.service_seconds - 0.3)
        self.at(back, lambda: self.answered(grant, refused, then))

    def answered(self, grant: Grant, refused: float | None, then: Any) -> None:
        del self.in_flight[grant.want]
        outcome, kind = ("ok", None) if refused is None else ("limited", LimitKind.SECONDARY)
        self.tell(AnswerReported(self.now, "t", grant.want, grant.fence, outcome, wait_seconds=refused, kind=kind))
        if then is not None:
            then()

    def steadily(self, caller: str, priority: int, per_second: float) -> None:
        self.wants(caller, priority)
        self.at(self.now + 1.0 / per_second, lambda: self.steadily(caller, priority, per_second))

    def always(self, caller: str, priority: int) -> None:
        """Its next call as soon as it has the answer."""
        self.wants(caller, priority, lambda: self.always(caller, priority))


def refused_world(seed: int) -> World:
    random = Random(seed)
    world = World(seed, HOUR, Provider(random.randint(5, 60), random.choice([2.0, 15.0, 40.0])), 100.0)
    for priority in range(3):
        for caller in range(random.randint(1, 6)):
            world.at(random.uniform(0.0, 20.0), lambda name=f"p{priority}-{caller}", rank=priority: world.always(name, rank))
    return world.run()


def busy_world(seed: int) -> World:
    random = Random(seed)
    world = World(seed, MINUTE, Provider(1e9, 0.0), 90.0)
    world.at(0.0, lambda: world.steadily("critical", 0, random.uniform(1.0, 8.0)))
    for caller in range(random.randint(8, 20)):
        world.at(0.0, lambda name=f"standard-{caller}": world.always(name, 1))
    for caller in range(random.randint(1, 2)):
        world.at(5.0, lambda name=f"background-{caller}": world.always(name, 2))
    return world.run()


def check_traffic(world: World) -> None:
    assert world.blocks, "it was refused at all"
    for reported, until, in_flight in world.blocks:
        arrived = [granted for at, granted in world.arrivals if reported < at < until]
        assert len(arrived) <= in_flight, "I12: only what was under way reaches a provider that has refused"
        assert all(granted <= reported for granted in arrived)


def check_starvation(world: World) -> None:
    """Two callers in turn; each has a floor ticket every 2 s, after the one before has its answer and there is a unit for a P1."""
    assert len(world.waits[2]) > 20
    assert max(world.waits[2]) <= 2 * (2.0 + world.service_seconds + 1.0), "I10: background is not starved"
    assert max(world.waits[0]) <= 1.0


@given(st.integers(0, 10_000))
@settings(max_examples=10, deadline=None)
def test_what_reaches_a_provider_that_has_refused_was_under_way(seed: int) -> None:
    check_traffic(refused_world(seed))


@given(st.integers(0, 10_000))
@settings(max_examples=2, deadline=None)
def test_background_has_its_floor_however_much_better_classes_want(seed: int) -> None:
    check_starvation(busy_world(seed))


def test_without_blocks_it_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_target_shut", never_open)
    with pytest.raises(AssertionError, match="I12"):
        check_traffic(refused_world(1))


def test_without_promotion_it_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "promotable", lambda d: None)
    with pytest.raises(AssertionError):
        check_starvation(busy_world(1))
