"""What does the ledger keep of a turn, from its ask to its end?"""

from typing import TYPE_CHECKING

from msgspec import Struct

from luftpause.dataplane.leases import AnswerTold
from luftpause.dataplane.turns import Ask, Lease, Waiter

if TYPE_CHECKING:
    from luftpause.dataplane.tally import Row


class Turn(Struct):
    """`run` is empty until an order names it."""

    ask: Ask
    waiter: Waiter
    arrived: float
    attempt: int = 1
    run: str = ""
    without: tuple[str, ...] = ()  # replicas that could not be reached
    replica: str = ""  # empty: held
    started: bool = False
    asked_in: int = 0  # the session
    number: int = 0  # of its last request, among all of this ledger
    placed_at: float = 0.0
    row: "Row | None" = None  # where it is counted, once placed
    fence: int = 0  # of its lease, at a replica with a quota
    told: AnswerTold | None = None  # what its answer said of limits while nobody could be told


class Parked(Struct, frozen=True):
    """A place on a replica that is not announced yet."""

    why: str  # it was held
    held_ms: int
    since: float
    priority: int | None
    lease: Lease | None
