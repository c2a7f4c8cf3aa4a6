"""How does a node take quota in advance from the shared ledger, grant out of it, and give back what it does not need?

P0 does not wait for a chunk: if there is nothing left in one, its call asks for itself.
"""

import asyncio
from collections.abc import Callable

from msgspec.structs import replace

from luftpause.kit.clock import Clock
from luftpause.scheduler.governor.store import claims
from luftpause.scheduler.governor.store.chunks import CHUNK_SECONDS, IDLE_SECONDS, Chunk, Key, chunk_of, key_of, starts_again
from luftpause.scheduler.governor.store.journal import named
from luftpause.scheduler.governor.store.link import Link
from luftpause.scheduler.governor.store.port import Renewed, Report, Reserve, ScopeAsked
from luftpause.scheduler.governor.store.shared_target import Holding, SharedTarget
from luftpause.scheduler.quota.model import Cost, Lease, State
from luftpause.scheduler.quota.shared import rank_of


class Chunking:
    """Of one node. `calls`: most that a chunk is for; 0: there are none."""

    def __init__(self, link: Link, *, calls: int, state: Callable[[], State], clock: Clock) -> None:
        self._link, self._calls, self._state, self._clock = link, calls, state, clock
        self._number = 0
        self._asked: dict[tuple[str, Key], asyncio.Event] = {}  # set when the answer is there

    # ---- grants

    def take(self, shared: SharedTarget, lease: Lease) -> Holding | None:
        """Out of what is there. What runs low is asked for."""
        target, now = self._state().targets.get(shared.name), self._clock()
        if not self._calls or not lease.cost or target is None or starts_again(target):
            return None
        chunk = shared.chunks.take(lease.cost, now)
        key = (shared.name, key_of(lease.cost))
        is_up = self._link.down_since is None and now >= shared.learning_until
        if is_up and key not in self._asked and shared.chunks.is_low(lease.cost):
            self._asked[key] = asyncio.Event()
            self._link.start(self._fill(shared, lease))
        return None if chunk is None else Holding(lease, lease.fence, alone=False, chunk=chunk)

    async def wait(self, shared: SharedTarget, lease: Lease) -> Holding | None:
        """The same for whoever waits for the chunk that is being asked for; P0 does not."""
        asked = self._asked.get((shared.name, key_of(lease.cost)))
        if asked is None or rank_of(lease) == 0:
            return None
        await asked.wait()
        return self.take(shared, lease)

    async def _fill(self, shared: SharedTarget, lease: Lease) -> None:
        """The calls themselves ask if there is no chunk, whatever the reason."""
        state, now = self._state(), self._clock()
        target = state.targets.get(shared.name)
        try:
            cost = chunk_of(target, lease.cost, self._calls, shared.nodes, now) if target is not None else None
            if target is not None and cost is not None:
                await self._ask(shared, lease, cost, claims.scopes_of(target, state.settings, now, replace(lease, cost=cost)), now)
        finally:
            self._asked.pop((shared.name, key_of(lease.cost))).set()

    async def _ask(self, shared: SharedTarget, lease: Lease, cost: Cost, scopes: tuple[ScopeAsked, ...], now: float) -> None:
        self._number += 1
        want = f"chunk/{self._link.node}/{self._number}"
        question = Reserve(
            node=self._link.node, want=want, caller="", rank=rank_of(lease), lease_seconds=CHUNK_SECONDS, scopes=scopes, chunk=True
        )  # fmt: skip
        answer = await self._link.quietly(shared.name, question)
        if answer is not None and answer.ok:
            shared.chunks.add(Chunk(want, answer.fence, cost, granted=now, until=now + CHUNK_SECONDS))
            self._link.told_core(shared, answer)

    # ---- ends

    def report(self, shared: SharedTarget, chunk: Chunk, cost: Cost, report: Report) -> None:
        """A call has ended: a part of the chunk is used."""
        number = chunk.end(cost)
        part = replace(report, want=chunk.want, fence=chunk.fence, part=named(cost), part_number=number)
        self._link.journal.report(shared.name, None, part, self._clock())
        self._link.told()

    # ---- time

    def renewals(self, shared: SharedTarget) -> tuple[Renewed, ...]:
        """Chunks that last on."""
        return tuple(Renewed(chunk.want, chunk.fence, CHUNK_SECONDS) for chunk in shared.chunks if not chunk.gone)

    def renewed(self, shared: SharedTarget, gone: tuple[str, ...], asked: float) -> None:
        for chunk in shared.chunks:
            chunk.gone = chunk.gone or chunk.want in gone
            chunk.until = max(chunk.until, asked + CHUNK_SECONDS)
        shared.chunks.drop(asked)

    def tidy(self, shared: SharedTarget) -> None:
        """What nobody takes goes back."""
        now = self._clock()
        for chunk in shared.chunks:
            if chunk.gone or now < chunk.used_at + IDLE_SECONDS:
                continue
            if not chunk.is_flying:
                chunk.gone = True
                self._link.journal.give_up(shared.name, chunk.want, chunk.fence, now)
            elif not chunk.is_spent:
                cost, number = chunk.spare()
                nothing = named(tuple((name, 0.0) for name, _ in cost))
                part = Report(
                    node=self._link.node, want=chunk.want, fence=chunk.fence, part=named(cost), part_number=number, actual=nothing
                )
                self._link.journal.report(shared.name, None, part, now)
            self._link.told()
        shared.chunks.drop(now)
