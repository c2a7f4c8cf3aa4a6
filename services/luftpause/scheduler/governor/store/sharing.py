"""How do grants of this node come to hold for all nodes that share a ledger?

The core grants as if it were alone. A grant goes out once the store has agreed (`settles`); else the core is told that it was declined.
What ends or prolongs a lease is told to the store (`follow`). While the store is down the node grants within its safe share.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final, Literal

from msgspec.structs import replace

from luftpause.kit.clock import Clock
from luftpause.kit.faults import Faults
from luftpause.scheduler.governor.store import claims
from luftpause.scheduler.governor.store.chunking import Chunking
from luftpause.scheduler.governor.store.journal import named
from luftpause.scheduler.governor.store.link import Link, SharingSettings
from luftpause.scheduler.governor.store.port import Enable, Hint, Renew, Renewed, Report, Store, Waiting
from luftpause.scheduler.governor.store.shared_target import TOLD_SECONDS, Holding, SharedTarget
from luftpause.scheduler.governor.store.verdicts import CLOSED_SECONDS, Declined, Verdicts
from luftpause.scheduler.quota.decisions import Decision, Expired, Grant
from luftpause.scheduler.quota.events import (
    AnswerReported,
    Event,
    GrantConfirmed,
    GrantDeclined,
    LeaseLost,
    LeaseReleased,
    LeaseRenewed,
    LimitsObserved,
    TargetEnabled,
)  # fmt: skip
from luftpause.scheduler.quota.model import Lease, State, Target
from luftpause.scheduler.quota.reports import told_by

BEAT_SECONDS: Final = 0.25  # so often the store hears who waits, and which leases last on
SWEEP_SECONDS: Final = 30.0  # the same of targets that nobody uses, at most
HINT_SECONDS: Final = 0.02  # hints that come within it are one
TOLD: Final = (AnswerReported, LimitsObserved, LeaseReleased, LeaseRenewed, TargetEnabled)


class Sharing:
    """One node of those that share `store`. `post` and `state` are the governor's; all runs on its event loop."""

    def __init__(
        self,
        store: Store,
        *,
        node: str,
        post: Callable[[Event], None],
        state: Callable[[], State],
        clock: Clock,
        settings: SharingSettings,
        faults: Faults,
    ) -> None:
        self.declines: Counter[str] = Counter()  # by cause
        self.link = Link(store, node=node, post=post, state=state, clock=clock, settings=settings, faults=faults)
        self._store, self._node, self._post, self._state, self._clock = store, node, post, state, clock
        self._chunking = Chunking(self.link, calls=settings.chunk_calls, state=state, clock=clock)
        self._verdicts = Verdicts(self.link, self._chunking, node=node, state=state, clock=clock, settings=settings)
        self._hinted: set[str] = set()
        self._enabling: set[str] = set()  # targets of which the store has still to hear it

    @property
    def mode(self) -> Literal["up", "down", "learning"]:
        if self.link.down_since is not None:
            return "down"
        return "learning" if any(shared.learning_until > self._clock() for shared in self.link.targets.values()) else "up"

    # ---- what the governor calls

    def settles(self, grant: Grant) -> bool:
        """Whether the grant holds. If not, the store is asked; its answer comes as an event."""
        try:
            return self._settles(grant)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing may be granted silently
            self.link.fault(error)
            self.link.of(grant.target).pending.discard(grant.want)
            self._post(GrantDeclined(self._clock(), grant.target, grant.want, grant.fence, "", CLOSED_SECONDS))
            return False

    def _settles(self, grant: Grant) -> bool:
        shared = self.link.of(grant.target)
        holding = shared.held.get(grant.want)
        if holding is not None and holding.fence == grant.fence:
            return True
        if grant.want not in shared.pending:
            shared.pending.add(grant.want)
            self.link.start(self._reserve(shared, self._state().targets[grant.target].leases[grant.want]))
        return False

    def follow(self, event: Event, before: State, decisions: tuple[Decision, ...]) -> None:
        """Tell the store what has happened; `before`: the governor's state until then. What it is not told it charges in time."""
        try:
            self._follow(event, before, decisions)
        except Exception as error:  # noqa: BLE001 - whatever it is, the core is right
            self.link.fault(error)

    def _follow(self, event: Event, before: State, decisions: tuple[Decision, ...]) -> None:
        for expired in (one for one in decisions if isinstance(one, Expired)):
            self._expired(expired)
        if isinstance(event, TOLD) and event.target not in before.targets:
            return  # nobody else knows it either
        match event:
            case AnswerReported():
                self._answered(event, before)
            case LimitsObserved():
                self._observed(event, before)
            case LeaseReleased():
                self._released(event)
            case LeaseRenewed():
                self._renewed(event)
            case TargetEnabled():
                self._enabled(event.target)
            case _:
                pass

    def _held(self, event: LeaseReleased | LeaseRenewed | AnswerReported | Expired) -> Holding | None:
        holding = self.link.of(event.target).held.get(event.want)
        return holding if holding is not None and holding.fence == event.fence else None

    def _answered(self, event: AnswerReported, before: State) -> None:
        """Also of a lease that another node granted: the store knows it, or takes of it only what the provider told."""
        target = before.targets[event.target]
        lease = target.leases.get(event.want)
        if lease is not None and lease.fence != event.fence:
            lease = None
        if lease is not None:
            actual, caller = claims.used(target, lease, event), lease.caller
        else:
            actual, caller = claims.used_elsewhere(target, event), ""
        holding = self._held(event)
        if holding is not None:
            self.link.of(event.target).end(event.want, actual)
        report = Report(
            node=self._node,
            want=event.want,
            fence=event.fence,
            caller=caller,
            outcome=event.outcome,
            actual=named(actual),
            whole=claims.whole_of(target, event),
            samples=claims.samples_of(told_by(target, lease, event)),
        )
        report = claims.refused(report, event, target.spec, before.settings)
        if holding is not None and holding.chunk is not None:
            self._chunking.report(self.link.of(event.target), holding.chunk, holding.cost, report)
        else:
            self._tell(event.target, holding, report)

    def _observed(self, event: LimitsObserved, before: State) -> None:
        target = before.targets.get(event.target)
        samples = event.samples if target is None else told_by(target, None, event)
        report = Report(node=self._node, samples=claims.samples_of(samples))
        if event.limited and target is not None:
            report = claims.refused(replace(report, outcome="limited"), event, target.spec, before.settings)
        self._tell(event.target, None, report)

    def _renewed(self, event: LeaseRenewed) -> None:
        if (holding := self._held(event)) is not None and holding.chunk is None:
            self.link.of(event.target).renewals[event.want] = holding

    def _released(self, event: LeaseReleased) -> None:
        holding = self._held(event)
        if holding is not None:
            self.link.of(event.target).end(event.want, tuple((name, 0.0) for name, _ in holding.cost))
            if holding.chunk is not None:
                holding.chunk.put_back(holding.cost)
                return
            self.link.journal.release(event.target, holding, self._clock())
            self.link.told()

    def _expired(self, decision: Expired) -> None:
        """The store finds out by itself, but for what it was never told."""
        holding = self._held(decision)
        if holding is not None:
            self.link.of(decision.target).end(decision.want, holding.cost)
            gone = Report(node=self._node, want=holding.want, fence=holding.fence, outcome="error", actual=named(holding.cost))
            if holding.chunk is not None:
                self._chunking.report(self.link.of(decision.target), holding.chunk, holding.cost, gone)
            elif holding.alone:
                self._tell(decision.target, holding, gone)

    def _tell(self, target: str, holding: Holding | None, report: Report) -> None:
        self.link.journal.report(target, holding, report, self._clock())
        self.link.told()

    def _enabled(self, target: str) -> None:
        """An operator's word. A store that is down hears it when it is back."""
        self._enabling.add(target)
        self.link.start(self._enable(target))

    async def _enable(self, target: str) -> None:
        answer = await self.link.quietly(target, Enable(node=self._node))
        if answer is not None:
            self._enabling.discard(target)
            self.link.told_core(self.link.of(target), answer, anew=True)

    # ---- reservations

    async def _reserve(self, shared: SharedTarget, lease: Lease) -> None:
        try:
            verdict = await self._verdicts.of(shared, lease)
        except Exception as error:  # noqa: BLE001 - whatever it is, the call waits again
            self.link.fault(error)
            verdict = Declined("", CLOSED_SECONDS, "fault")
        shared.pending.discard(lease.want)
        target = self._state().targets.get(shared.name)
        current = target.leases.get(lease.want) if target is not None else None
        wanted = current is not None and current.fence == lease.fence
        if isinstance(verdict, Declined):
            self.declines[verdict.why] += 1
            if wanted:
                self._post(GrantDeclined(self._clock(), shared.name, lease.want, lease.fence, verdict.scope, verdict.retry_seconds))
        elif wanted:
            shared.held[lease.want] = verdict
            self._post(GrantConfirmed(self._clock(), shared.name, lease.want, lease.fence, verdict.fence))
            self._hear_of_others(shared)
        elif verdict.chunk is not None:
            verdict.chunk.put_back(verdict.cost)
        else:
            self.link.journal.release(shared.name, verdict, self._clock())
            self.link.told()

    def _hear_of_others(self, shared: SharedTarget) -> None:
        if shared.known is not None and shared.nodes > 1 and self._clock() - shared.told_at >= TOLD_SECONDS:
            self.link.told_core(shared, shared.known)

    # ---- the loop

    async def run(self) -> None:
        """Until cancelled; nothing else ends it."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.link.run())
                group.create_task(self.link.endlessly(self._beats))
                group.create_task(self.link.endlessly(self._listen, hints=True))
        finally:
            await self._store.close()

    async def _beats(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            for name, target in self._state().targets.items():
                shared = self.link.of(name)
                busy = target.waiters or target.leases or shared.chunks or name in self._enabling
                pause = 0.0 if busy else shared.pause_seconds
                if self.link.down_since is None and self._clock() >= shared.beat_at + pause:
                    await self.link.guarded(self._beat(shared, target))

    async def _beat(self, shared: SharedTarget, target: Target) -> None:
        if shared.name in self._enabling:
            await self._enable(shared.name)
        shared.beat_at, seq = self._clock(), shared.known.seq if shared.known is not None else -1
        answer = await self.link.quietly(shared.name, Waiting(node=self._node, waiting=claims.waiting_of(target)))
        self._chunking.tidy(shared)
        if answer is not None:
            shared.pause_seconds = 2 * BEAT_SECONDS if answer.seq != seq else min(2 * shared.pause_seconds, SWEEP_SECONDS)
            self.link.told_core(shared, answer, anew=True)
            await self._renew(shared)

    async def _renew(self, shared: SharedTarget) -> None:
        renewed, asked = {want: one for want, one in shared.renewals.items() if not one.alone}, self._clock()
        leases = tuple(Renewed(want, one.fence, one.lease_seconds) for want, one in renewed.items()) + self._chunking.renewals(shared)
        if not leases:
            return
        answer = await self.link.quietly(shared.name, Renew(node=self._node, leases=leases))
        if answer is None or answer.behind:
            return
        self._chunking.renewed(shared, answer.gone, asked)
        for want, one in renewed.items():
            if shared.renewals.get(want) is one:
                del shared.renewals[want]
            if want in answer.gone and shared.held.get(want) is one:
                del shared.held[want]
                self._post(LeaseLost(self._clock(), shared.name, want, one.fence))

    async def _listen(self) -> None:
        async for hint in self._store.hints():
            names = [hint.target] if hint.target else list(self._state().targets)
            for name in names:
                if hint.node != self._node and name in self._state().targets and name not in self._hinted:
                    self._hinted.add(name)
                    self.link.start(self._look(name, hint))

    async def _look(self, name: str, hint: Hint) -> None:
        """Ask how things stand; of room only if somebody here waits for it."""
        await asyncio.sleep(HINT_SECONDS)
        self._hinted.discard(name)
        target = self._state().targets.get(name)
        if target is not None and self.link.down_since is None and (target.waiters or hint.what != "room"):
            await self._beat(self.link.of(name), target)
