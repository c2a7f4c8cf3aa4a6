"""What can happen to the rate governor? One frozen value per fact; `now` never goes back."""

from typing import Literal

from msgspec import Struct

from luftpause.scheduler.quota.headers import LimitKind
from luftpause.scheduler.quota.model import Cost
from luftpause.scheduler.quota.samples import Sample
from luftpause.scheduler.quota.specs import TargetSpec


class Happened(Struct, frozen=True, gc=False, tag=True, tag_field="event", omit_defaults=True):
    """What every event is."""

    now: float


class TargetConfigured(Happened, frozen=True, gc=False):
    """A target is there, or has other limits: then its ledger, waiters and leases stay."""

    spec: TargetSpec


class TargetEnabled(Happened, frozen=True, gc=False):
    """An operator says that a target that was out of credit may be used again."""

    target: str


class QuotaWanted(Happened, frozen=True, gc=False):
    """
    `caller` wants to call. `cost`: units per scope; scopes that the target lacks cost nothing.

    `want` names the wish, and the lease that comes of it: asked again, it stays the same. `retry`: an earlier try of this call was refused.
    """

    target: str
    want: str
    caller: str
    priority: int
    cost: Cost
    lease_seconds: float = 60.0
    retry: bool = False


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
    """Headers of an answer to a call that had no lease."""

    target: str
    samples: tuple[Sample, ...]


class Tick(Happened, frozen=True, gc=False):
    """What is due by now happens."""


Event = (
    TargetConfigured | TargetEnabled | QuotaWanted | QuotaWithdrawn | LeaseRenewed | LeaseReleased | AnswerReported | LimitsObserved | Tick
)  # fmt: skip
