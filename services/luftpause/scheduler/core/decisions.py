"""What can the scheduler decide? One frozen value per order to the host."""

from enum import Enum
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType

if TYPE_CHECKING:
    from luftpause.scheduler.core.model import State


class HoldReason(Enum):
    """Why a turn waits; it stands in headers, on the status page and in metrics."""

    STARTING = "starting"  # the scheduler has not heard all dataplanes yet
    IDENTITY = "identity"  # another dataplane may know these tool-call ids (at most 20 ms; after a start, until it is here)
    NO_REPLICA = "no_replica"  # no healthy replica serves the model
    STICKY = "sticky"  # its home is full; its prefix is there
    CAPPED = "capped"  # every replica that it may use is full
    RESERVED = "reserved"  # batch leaves room for paused interactive runs
    KV = "kv"  # what runs fills the engine's KV memory
    PROTECT = "protect"  # it would push out the prefix of a run that is about to come back
    QUOTA = "quota"  # the allowance that it needs has no room, or others go first


class Lease(Struct, frozen=True, gc=False):
    """
    The leave to use a quota, 0: none is needed there. `level`: how far to cut the load; from 1 on answers to `answer_share` of their
    length, but not below `answer_least` tokens. `model`: what the request is to name; empty: its own.
    """

    fence: int
    level: int = 0
    answer_share: float = 1.0
    answer_least: int = 0
    model: str = ""


class Place(Struct, frozen=True, gc=False):
    """
    Tell the waiting dataplane where the turn goes. `held_seconds` since it arrived, 0.0 if it was never held.

    `priority`: what the request should say to the engine, in the sign of its flavour; not set: nothing. `lease`: where
    quotas have a say; not set: they have none. `sent`: the dataplane has sent it there before it said so, and is told nothing.
    """

    dataplane: str
    turn: str
    attempt: int
    run: str
    replica: str
    turn_seq: int
    hold_reason: HoldReason | None = None  # the last one
    held_seconds: float = 0.0
    priority: int | UnsetType = UNSET
    lease: Lease | UnsetType = UNSET
    sent: bool | UnsetType = UNSET


class Held(Struct, frozen=True, gc=False):
    """
    It waits, why, and for which replicas: all that it may go to now or once they are healthy; empty where none is known.

    Decided when it is first held and when either changes.
    """

    dataplane: str
    turn: str
    attempt: int
    run: str
    reason: HoldReason
    waits_for: tuple[str, ...] = ()


class Refuse(Struct, frozen=True, gc=False):
    """Answer with an error by rule: `status` HTTP, `code` stable."""

    dataplane: str
    turn: str
    attempt: int
    run: str
    status: int
    code: str
    message: str
    retry_after_seconds: float = 0.0


class Probe(Struct, frozen=True, gc=False):
    """Probe this replica now."""

    replica: str


class ReplicasChanged(Struct, frozen=True, gc=False):
    """Health, models or configuration of a replica changed: tell all dataplanes."""


class Forget(Struct, frozen=True, gc=False):
    """The run is no longer known (ended, or idle too long)."""

    run: str


class EndRun(Struct, frozen=True, gc=False):
    """The run was ended by a client: all dataplanes forget it. To one of them (`dataplane`), whose Hello brought it back, or to all."""

    run: str
    principal: str = ""
    dataplane: str = ""


class BranchFollowed(Struct, frozen=True, gc=False):
    """A turn through another dataplane follows an answer that this one gave: its memory must not call that branch paused any more."""

    dataplane: str
    run: str
    principal: str
    model: str
    ids: tuple[str, ...]


class Located(Struct, frozen=True, gc=False):
    """Which replica stores the response that a dataplane asked for; empty: unknown."""

    dataplane: str
    query: str
    replica: str = ""
    run: str = ""


class Expire(Struct, frozen=True, gc=False):
    """A turn in flight was dropped because its end was never reported."""

    turn: str
    replica: str


class ReserveQuota(Struct, frozen=True, gc=False):
    """
    The turn wants to go to this replica, whose quota it needs: tokens of the prompt, as estimated, and of the answer.

    Answered by `QuotaGranted`, `QuotaDeferred` or `QuotaRefused`. `retry`: an earlier attempt was refused by quota.
    """

    turn: str
    attempt: int
    replica: str
    caller: str
    priority: int
    prompt_tokens: int
    answer_tokens: int
    retry: bool = False


class CancelReserve(Struct, frozen=True, gc=False):
    """It does not want that any more."""

    turn: str
    attempt: int
    replica: str


class Outcome(Enum):
    """What became of a lease."""

    UNUSED = "unused"  # nothing was sent: all of it comes back
    ANSWERED = "answered"
    LIMITED = "limited"  # refused by quota
    FAILED = "failed"  # it may have been spent
    LOST = "lost"  # nobody said; its dataplane may still tell


class SettleQuota(Struct, frozen=True, gc=False):
    """The place of a turn with a lease has ended. Tokens as its engine counted them; None: it did not say."""

    turn: str
    attempt: int
    replica: str
    fence: int
    outcome: Outcome
    prompt_tokens: int | None = None
    answer_tokens: int | None = None


Decision = (
    Place
    | Held
    | Refuse
    | Probe
    | ReplicasChanged
    | Forget
    | EndRun
    | BranchFollowed
    | Located
    | Expire
    | ReserveQuota
    | CancelReserve
    | SettleQuota
)


class Step(Struct, frozen=True, gc=False):
    """
    The answer of `decide`. The host sends `Tick` at `wake_at` (None: whenever), and `Continue` behind the waiting events if `more`.

    `absorbing`: the event is large and not yet absorbed. `Continue` goes before the waiting events then; any other event would have to wait
    until all of it is absorbed in one step.
    """

    state: "State"
    decisions: tuple[Decision, ...]
    wake_at: float | None = None
    more: bool = False
    absorbing: bool = False
