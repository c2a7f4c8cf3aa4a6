"""May a grant of this node go out: by the store, out of a chunk, or within the safe share where the store can't be asked?"""

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from luftpause.kit.clock import Clock
from luftpause.scheduler.governor.store import claims
from luftpause.scheduler.governor.store.chunking import Chunking
from luftpause.scheduler.governor.store.link import Link, SharingSettings
from luftpause.scheduler.governor.store.port import Reserve, StoreDownError
from luftpause.scheduler.governor.store.safe_share import SafeShare
from luftpause.scheduler.governor.store.shared_target import Holding, SharedTarget
from luftpause.scheduler.quota.model import Lease, State, Target
from luftpause.scheduler.quota.shared import rank_of

CLOSED_SECONDS: Final = 1.0


class Declined(Struct, frozen=True):
    scope: str
    retry_seconds: float
    why: str


class Verdicts:
    """Of one node. `state` is the governor's."""

    def __init__(
        self, link: Link, chunking: Chunking, *, node: str, state: Callable[[], State], clock: Clock, settings: SharingSettings
    ) -> None:
        self._link, self._chunking = link, chunking
        self._node, self._state, self._clock, self._settings = node, state, clock, settings

    async def of(self, shared: SharedTarget, lease: Lease) -> Holding | Declined:
        """Of a lease that the core has granted. Raises whatever is a fault."""
        target = self._state().targets.get(shared.name)
        if target is None:
            return Declined("", CLOSED_SECONDS, "removed")
        if (holding := self._chunking.take(shared, lease) or await self._chunking.wait(shared, lease)) is not None:
            return holding
        return self._alone(shared, lease, target) if self._link.down_since is not None else await self._agreed(shared, lease, target)

    async def _agreed(self, shared: SharedTarget, lease: Lease, target: Target) -> Holding | Declined:
        """By the store, and while that learns within the safe share too."""
        is_learning = self._clock() < shared.learning_until
        if is_learning and (declined := self._unsafe(shared, lease, target)) is not None:
            return declined
        try:
            answer = await self._link.ask(shared.name, self._question(lease, target))
        except StoreDownError as error:
            self._link.lose(error)
            return self._alone(shared, lease, target)
        if answer.ok:
            return Holding(lease, answer.fence, alone=False)
        if is_learning and shared.safe is not None:
            shared.safe.over(lease.cost, tuple((name, 0.0) for name, _ in lease.cost))
        self._link.told_core(shared, answer)
        return Declined(answer.scope, answer.retry_seconds, answer.why)

    def _question(self, lease: Lease, target: Target) -> Reserve:
        return Reserve(
            node=self._node,
            want=lease.want,
            caller=lease.caller,
            rank=rank_of(lease),
            lease_seconds=lease.seconds,
            waiting=claims.waiting_of(target, lease.priority),
            scopes=claims.scopes_of(target, self._state().settings, self._clock(), lease),
        )

    def _alone(self, shared: SharedTarget, lease: Lease, target: Target) -> Holding | Declined:
        """Without the store."""
        if self._settings.failure_mode == "closed":
            return Declined("", CLOSED_SECONDS, "down")
        if self._settings.failure_mode == "soft" and (declined := self._unsafe(shared, lease, target)) is not None:
            return declined
        return Holding(lease, lease.fence, alone=True)

    def _unsafe(self, shared: SharedTarget, lease: Lease, target: Target) -> Declined | None:
        """What is not within this node's safe share; what is, is booked there."""
        now = self._clock()
        if shared.safe is None:
            scopes = claims.without(target, shared.pending)
            shared.safe = SafeShare(scopes, shared.nodes, now, part=self._settings.safe_part)
        refused = shared.safe.refused(lease.cost, lease.priority, now)
        return None if refused is None else Declined(refused[0], refused[1], "safe_share")
