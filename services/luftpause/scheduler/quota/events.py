"""What can happen to the rate governor? One frozen value per fact; `now` never goes back."""

from typing import Literal

from msgspec import Struct

from luftpause.scheduler.quota.headers import LimitKind
from luftpause.scheduler.quota.model import Cost, Demand, Owned
from luftpause.scheduler.quota.samples import Sample
from luftpause.scheduler.quota.specs import TargetSpec


class Happened(Struct, frozen=True, gc=False, tag=True, tag_field="event", omit_defaults=True):
    """What every event is."""

    now: float


class TargetConfigured(Happened, frozen=True, gc=False):
    """
    A target is there, or has other limits: then its ledger, waiters and leases stay.

    `learning_seconds`: what it had before is lost, and calls may be out of which nobody knows: P2 waits so long.
    """

    spec: TargetSpec
    learning_seconds: float = 0.0


class TargetRemoved(Happened, frozen=True, gc=False):
    """The target is no longer configured: who waits for it is refused, its leases and its ledger are forgotten."""

    target: str


class TargetEnabled(Happened, frozen=True, gc=False):
    """An operator says that a target may be used again: its block or lack of credit is over, and what was learned may be wrong."""

    target: str


class Standing(Struct, frozen=True, gc=False):
    """When a wish arrived: its number, on the governor's clock, and on the target's clock of unblocked time."""

    number: int
    since: float
    unblocked_at: float


class QuotaWanted(Happened, frozen=True, gc=False):
    """
    `caller` wants to call. `cost`: units per scope; scopes that the target lacks cost nothing.

    `want` names the wish, and the lease that comes of it: asked again, it stays the same. `retry`: an earlier try of this call was refused.
    `standing`: it was asked before and withdrawn for a moment, so it goes back to where it stood, and is no further demand.
    """

    target: str
    want: str
    caller: str
    priority: int
    cost: Cost
    lease_seconds: float = 60.0
    retry: bool = False
    standing: Standing | None = None


class QuotaWithdrawn(Happened, frozen=True, gc=False):
    """It does not wait any more."""

    target: str
    want: str


class LeaseRenewed(Happened, frozen=True, gc=False):
    """Its holder is alive."""

    target: str
    want: str
    fence: int


class LeaseReleased(Happened, frozen=True, gc=False):
    """The call was never sent: all of it comes back."""

    target: str
    want: str
    fence: int


class AnswerReported(Happened, frozen=True, gc=False):
    """
    The call has its answer. `actual`: units used, where they are known. `kind`, `wait_seconds`: of a refusal.

    `limited` is a refusal by quota; `error` whatever else failed.
    """

    target: str
    want: str
    fence: int
    outcome: Literal["ok", "limited", "error"]
    actual: Cost = ()
    samples: tuple[Sample, ...] = ()
    wait_seconds: float | None = None
    kind: LimitKind | None = None


class LimitsObserved(Happened, frozen=True, gc=False):
    """An answer to a call that had no lease. `limited`: it was refused; `kind`, `wait_seconds`: of the refusal."""

    target: str
    samples: tuple[Sample, ...]
    limited: bool = False
    wait_seconds: float | None = None
    kind: LimitKind | None = None


class GrantConfirmed(Happened, frozen=True, gc=False):
    """The store that is shared with other nodes has agreed to the grant; its fence is the lease's from now on."""

    target: str
    want: str
    fence: int
    shared_fence: int


class GrantDeclined(Happened, frozen=True, gc=False):
    """
    The store has not agreed, so the waiter is back in its place.

    Its class and worse ones don't ask before `retry_seconds` have passed: for a cost of this scope, or (empty) at all.
    """

    target: str
    want: str
    fence: int
    scope: str
    retry_seconds: float


class LeaseLost(Happened, frozen=True, gc=False):
    """The store has taken the lease back: it was not renewed in time."""

    target: str
    want: str
    fence: int


class ScopeShared(Struct, frozen=True, gc=False):
    """
    The ledger of all nodes. `out`: units of all leases; `reset_seconds`: -1 is not known; `wanted`: decaying sums of what each class wants
    on other nodes, `owned`: what owners of reservations have used and want there.
    """

    name: str
    limit: float
    remaining: float
    out: float
    reset_seconds: float
    wanted: Demand = (0.0, 0.0, 0.0)
    owned: tuple[Owned, ...] = ()


class LedgerTold(Happened, frozen=True, gc=False):
    """
    How things stand in the store.

    `tentative`: leases of this node that the store has not agreed to yet. `anew`: whoever was declined may ask again. `enabled`: since it
    was told last an operator has enabled the target, here or on another node.
    """

    target: str
    scopes: tuple[ScopeShared, ...]
    blocked_seconds: float = 0.0
    disabled: bool = False
    tentative: tuple[str, ...] = ()
    anew: bool = False
    enabled: bool = False


class Tick(Happened, frozen=True, gc=False):
    """What is due by now happens."""


Event = (
    TargetConfigured | TargetRemoved | TargetEnabled | QuotaWanted | QuotaWithdrawn | LeaseRenewed | LeaseReleased | AnswerReported
    | LimitsObserved | GrantConfirmed | GrantDeclined | LeaseLost | LedgerTold | Tick
)  # fmt: skip
