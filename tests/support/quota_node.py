"""A governor that shares a ledger with others, as one node of several in a test."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

from luftpause.scheduler.governor.host import Governor
from luftpause.scheduler.governor.store.link import SharingSettings
from luftpause.scheduler.governor.store.port import Store
from luftpause.scheduler.governor.store.sharing import Sharing
from luftpause.scheduler.quota import core
from luftpause.scheduler.quota.decisions import Grant, Refuse
from luftpause.scheduler.quota.events import AnswerReported, LeaseReleased, LeaseRenewed, QuotaWanted, TargetConfigured
from luftpause.scheduler.quota.headers import LimitKind
from luftpause.scheduler.quota.model import Cost, Settings
from luftpause.scheduler.quota.samples import Sample
from luftpause.scheduler.quota.specs import ScopeSpec, TargetSpec

TARGET = "api"


def one_window(limit: float, window_seconds: float = 3_600.0) -> TargetSpec:
    """A target without pacing, so that tests see the ledger alone."""
    return TargetSpec(TARGET, (ScopeSpec("core", "fixed", limit, window_seconds, green=0.0, red=0.0, protect=(0, 0, 0), floor=0),))


@dataclass
class Node:
    name: str
    governor: Governor
    sharing: Sharing
    granted: list[Grant] = field(default_factory=list)
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def ask(self, priority: int = 0, cost: float = 1.0, lease_seconds: float = 60.0) -> "asyncio.Future[Grant | Refuse]":
        """In the queue from now on."""
        answer: asyncio.Future[Grant | Refuse] = asyncio.get_running_loop().create_future()

        def answered(decision: Grant | Refuse) -> None:
            if isinstance(decision, Grant):
                self.granted.append(decision)
            answer.set_result(decision)

        want = f"{self.name}-{next(self.numbers)}"
        event = QuotaWanted(self.governor.now, TARGET, want, self.name, priority, (("core", cost),), lease_seconds)
        self.governor.want(event, answered)
        return answer

    async def reserve(self, priority: int = 0, *, within_seconds: float = 60.0, cost: float = 1.0, lease_seconds: float = 60.0) -> Grant:
        decision = await asyncio.wait_for(self.ask(priority, cost, lease_seconds), within_seconds)
        assert isinstance(decision, Grant), decision
        return decision

    def report(
        self,
        grant: Grant,
        outcome: Literal["ok", "limited", "error"] = "ok",
        *,
        wait_seconds: float | None = None,
        samples: tuple[Sample, ...] = (),
        actual: Cost = (),
    ) -> None:
        kind = LimitKind.PRIMARY if outcome == "limited" else None
        self.governor.post(
            AnswerReported(self.governor.now, TARGET, grant.want, grant.fence, outcome, actual, samples, wait_seconds, kind)
        )  # fmt: skip

    def release(self, grant: Grant) -> None:
        self.governor.post(LeaseReleased(self.governor.now, TARGET, grant.want, grant.fence))

    def renew(self, grant: Grant) -> None:
        self.governor.post(LeaseRenewed(self.governor.now, TARGET, grant.want, grant.fence))

    def left(self) -> float:
        """As this node believes."""
        scope = self.governor.state.targets[TARGET].scopes["core"]
        return scope.remaining - scope.out


@asynccontextmanager
async def node(name: str, store: Store, spec: TargetSpec, *, settings: SharingSettings | None = None) -> AsyncIterator[Node]:
    governor = Governor(core.initial(Settings(), time.monotonic()))
    governor.share(store, node=name, settings=settings or SharingSettings())
    governor.post(TargetConfigured(governor.now, spec))
    running = asyncio.create_task(governor.run())
    assert governor.sharing is not None
    try:
        yield Node(name, governor, governor.sharing)
        assert not running.done(), running.exception()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def eventually(what: str, true: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until it is."""
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, f"still not: {what}"
        await asyncio.sleep(0.01)
