"""What does a node remember of a target that it shares with others?"""

from math import inf
from typing import Final

from luftpause.scheduler.governor.store.chunks import Chunk, Chunks
from luftpause.scheduler.governor.store.port import Answer
from luftpause.scheduler.governor.store.safe_share import SafeShare
from luftpause.scheduler.quota.model import Cost, Lease

TOLD_SECONDS: Final = 0.02  # grants tell the core what others have used at most this often


class Holding:
    """A lease that the store has agreed to, or (`alone`) that was granted without it and is not known there yet; or a part of `chunk`."""

    def __init__(self, lease: Lease, fence: int, *, alone: bool, chunk: Chunk | None = None) -> None:
        self.want, self.caller, self.cost, self.granted = lease.want, lease.caller, lease.cost, lease.granted
        self.lease_seconds = lease.seconds
        self.fence = fence
        self.alone = alone
        self.chunk = chunk

    def __repr__(self) -> str:
        return f"<Holding {self.want} {self.fence}{' alone' if self.alone else ''}>"


class SharedTarget:
    """`known`: the newest answer. `pending`: wants that the store is being asked about."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.known: Answer | None = None
        self.held: dict[str, Holding] = {}
        self.pending: set[str] = set()
        self.renewals: dict[str, Holding] = {}
        self.chunks = Chunks()
        self.safe: SafeShare | None = None
        self.learning_until = -inf
        self.restoring = False
        self.beat_at = -inf
        self.pause_seconds = 0.5  # until the next beat, if nobody calls here: longer, the longer nobody calls anywhere
        self.told_at = -inf
        self.enabled_at: float | None = None  # what was heard of it last

    @property
    def nodes(self) -> int:
        return self.known.nodes if self.known is not None else 1

    def hear(self, answer: Answer, now: float, *, alone: bool) -> None:
        """Take in what every answer says, but of one that was overtaken by a newer one. `alone`: the node has not told all yet."""
        known = self.known
        if known is not None and answer.epoch == known.epoch and answer.seq < known.seq:
            return
        self.known = answer
        self.enabled_at = answer.enabled_at if self.enabled_at is None else self.enabled_at
        self.learning_until = now + answer.learning_seconds if answer.learning_seconds > 0 else -inf
        if answer.learning_seconds <= 0 and not alone:
            self.safe = None

    def hear_of_operators(self, answer: Answer) -> bool:
        """Has one enabled the target since this was asked last?"""
        was = self.enabled_at
        self.enabled_at = max(answer.enabled_at, -1.0 if was is None else was)
        return was is not None and answer.enabled_at > was

    def is_behind(self, answer: Answer) -> bool:
        """The store has lost writes, or another one took its place: it does not know what this node has."""
        return self.known is not None and answer.epoch != self.known.epoch

    def end(self, want: str, used: Cost) -> Holding | None:
        """The lease is over."""
        holding = self.held.pop(want, None)
        self.renewals.pop(want, None)
        if holding is not None and self.safe is not None:
            self.safe.over(holding.cost, used)
        return holding
