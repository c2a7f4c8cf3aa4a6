"""What can the rate governor decide? One frozen value per order to the host, or to those who listen."""

from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from luftpause.scheduler.quota.model import State
    from luftpause.scheduler.quota.specs import Cut


class RefuseCode(Enum):
    """Why a wish is refused for good; it stands in answers and metrics."""

    UNKNOWN_TARGET = "unknown_target"
    TARGET_REMOVED = "target_removed"
    BAD_COST = "bad_cost"  # not above 0, or no finite number
    BAD_PRIORITY = "bad_priority"
    TOO_LARGE = "too_large"  # above a whole limit: no wait would help
    QUEUE_FULL = "queue_full"
    OUT_OF_CREDIT = "out_of_credit"
    RETRY_BUDGET = "retry_budget"


class Grant(Struct, frozen=True, gc=False):
    """
    Call now. `fence` grows with every grant.

    `level`: how far to cut the load, 0 not at all; `cut`: what that means. `priority`: the class that it went as, 1 for a promoted P2.
    """

    target: str
    want: str
    fence: int
    expires: float
    level: int
    priority: int = 1
    cut: "Cut | None" = None


class Refuse(Struct, frozen=True, gc=False):
    """The wish is not kept; `message` names the mistake and the mend."""

    target: str
    want: str
    code: RefuseCode
    message: str


class Stale(Struct, frozen=True, gc=False):
    """There is no such lease (any more): of this report only what the provider said was used."""

    target: str
    want: str
    fence: int


class Expired(Struct, frozen=True, gc=False):
    """A lease was not renewed. What it reserved counts as used."""

    target: str
    want: str
    fence: int
    caller: str


class Blocked(Struct, frozen=True, gc=False):
    target: str
    until: float


class HalfOpened(Struct, frozen=True, gc=False):
    target: str


class Closed(Struct, frozen=True, gc=False):
    target: str


class Levelled(Struct, frozen=True, gc=False):
    """The quota will end before it renews (a higher level), or will not any more."""

    target: str
    level: int


class Disabled(Struct, frozen=True, gc=False):
    """Out of credit; `until` inf: until an operator enables it."""

    target: str
    until: float


class CascadeBegan(Struct, frozen=True, gc=False):
    """`callers` were limited within a short time: one call at a time. `downstream`: who waits for their work."""

    target: str
    callers: tuple[str, ...]
    downstream: tuple[str, ...]
    until: float


class CascadeOver(Struct, frozen=True, gc=False):
    target: str


Decision = Grant | Refuse | Stale | Expired | Blocked | HalfOpened | Closed | Levelled | Disabled | CascadeBegan | CascadeOver


class Step(Struct, frozen=True, gc=False):
    """`wake_at`: when the host sends `Tick` if nothing else comes; None: it need not."""

    state: "State"
    decisions: tuple[Decision, ...]
    wake_at: float | None
