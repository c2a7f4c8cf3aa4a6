"""What goes to one replica and comes from it, and over how many connections?"""

from typing import Final

NAMES_MAX: Final = 1_000  # of replicas that are or were configured


class Flow:
    """Since the start, also over changes of the replica's address. `open` is now."""

    __slots__ = ("failed", "made", "open", "received_bytes", "reused", "sent_bytes", "stale")

    def __init__(self) -> None:
        self.sent_bytes = 0
        self.received_bytes = 0
        self.made = 0  # connections
        self.failed = 0  # could not be made
        self.reused = 0  # requests on a connection that was there
        self.stale = 0  # of these, sent once more: the engine had closed it
        self.open = 0


class Flows:
    """By the replica's name."""

    def __init__(self) -> None:
        self.by_replica: dict[str, Flow] = {}

    def of(self, replica: str) -> Flow:
        if replica not in self.by_replica and len(self.by_replica) >= NAMES_MAX:
            replica = "other"
        return self.by_replica.setdefault(replica, Flow())
