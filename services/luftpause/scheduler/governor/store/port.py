"""What does a node ask of a ledger that it shares with others, and what is it told?

Only durations travel: each side has a clock of its own. Units are those of the scopes. What is not known is -1 (seconds, limits).
"""

from collections.abc import AsyncIterator
from typing import Literal, Protocol

from msgspec import Struct

from luftpause.scheduler.quota.model import Demand, Owned

Counts = tuple[int, int, int]  # of P0, P1, P2


class StoreDownError(Exception):
    """The store gave no answer in time, or can't be reached. What was asked may have been done: ask again by the same names."""


class StoreFaultError(StoreDownError):
    """What went wrong was not foreseen: it is a fault of luftpause or of the store's client, and the next question may meet it too."""


class Named(Struct, frozen=True, gc=False):
    """Units of one scope."""

    name: str
    units: float


class ScopeAsked(Struct, frozen=True, gc=False):
    """
    A limit as the node has it configured; `cost`: what the call takes of it; `headroom`: what its class leaves to better ones. `wanted`:
    the decaying sums of what each class wants of it on this node; `owned`: the same of owners of reservations, and what they have used.
    """

    name: str
    kind: Literal["fixed", "bucket", "concurrent"]
    limit: float
    window: float
    burst: float = 1.0
    cost: float = 0.0
    headroom: float = 0.0
    wanted: Demand = (0.0, 0.0, 0.0)
    owned: tuple[Owned, ...] = ()


class Rules(Struct, frozen=True, gc=False):
    """Those settings of the governor that the store applies, in seconds."""

    guard: float = 0.25
    exclusive: tuple[float, float, float] = (0.0, 0.5, 3.5)
    probes_max: int = 1
    close_after: int = 2
    window_max: float = 64.0
    capacity: float = 1.0
    forget: float = 600.0


class Question(Struct, frozen=True, gc=False, kw_only=True):
    """`epoch`, `seq`, `fence_max`: the newest that this node was told of this target: so a store that lost writes is found out."""

    node: str
    epoch: str = ""
    seq: int = 0
    fence_max: int = 0
    learning_seconds: float = 60.0
    rules: Rules = Rules()
    scopes: tuple[ScopeAsked, ...] = ()


class Reserve(Question, frozen=True, gc=False, kw_only=True):
    """May `want` go out? `rank`: the class that it counts as; `waiting`: calls of each class that wait on this node, this one too."""

    want: str
    caller: str
    rank: int
    lease_seconds: float
    waiting: Counts = (0, 0, 0)
    chunk: bool = False


class SampleTold(Struct, frozen=True, gc=False):
    """What a provider said of a scope."""

    scope: str
    limit: float = -1.0
    remaining: float = 0.0
    has_remaining: bool = False
    reset_seconds: float = -1.0


class Penalty(Struct, frozen=True, gc=False):
    """Seconds of a block that nobody gave a length to: first * 2^(strikes - 1), at most `most`; without a strike `none`."""

    none: float = 1.0
    first: float = 2.0
    most: float = 60.0


class Report(Question, frozen=True, gc=False, kw_only=True):
    """
    The answer to the call of a lease; without `want` headers of a call that had none.

    `actual`: what the call used, of which the store charges as much as is believed (`quota.reports.bounded`); `whole`: scopes that debit at
    least what was reserved. `age_seconds`: it came so long ago. `part_number` above 0: the lease is a chunk, of which `part` has
    been used up. `number` above 0: the lease was granted `granted_seconds` ago without the store (`cost`). Both numbers grow.
    """

    want: str = ""
    fence: int = 0
    caller: str = ""
    outcome: Literal["ok", "limited", "error"] = "ok"
    kind: str = ""
    wait_seconds: float = -1.0
    penalty: Penalty = Penalty()
    actual: tuple[Named, ...] = ()
    whole: tuple[str, ...] = ()
    samples: tuple[SampleTold, ...] = ()
    part: tuple[Named, ...] = ()
    part_number: int = 0
    age_seconds: float = 0.0
    number: int = 0
    granted_seconds: float = 0.0
    cost: tuple[Named, ...] = ()


class Renewed(Struct, frozen=True, gc=False):
    want: str
    fence: int
    lease_seconds: float


class Renew(Question, frozen=True, gc=False, kw_only=True):
    leases: tuple[Renewed, ...]


class Release(Question, frozen=True, gc=False, kw_only=True):
    """What was never sent, or is left of a chunk."""

    want: str
    fence: int


class Waiting(Question, frozen=True, gc=False, kw_only=True):
    """The node is alive, and so many calls of each class wait on it. The answer says how things stand."""

    waiting: Counts = (0, 0, 0)


class Enable(Question, frozen=True, gc=False, kw_only=True):
    """The target may be used again: its block is over, and what was told of its limits is forgotten."""


class Kept(Struct, frozen=True, gc=False):
    """A lease that a node has in flight."""

    want: str
    fence: int
    caller: str
    granted_seconds: float
    lease_seconds: float
    cost: tuple[Named, ...]


class Left(Struct, frozen=True, gc=False):
    """What of a scope nobody had, as a node was told last."""

    name: str
    units: float
    reset_seconds: float = -1.0


class Restore(Question, frozen=True, gc=False, kw_only=True):
    """
    Back after an outage: the node's leases; `lost`: the store has lost writes, so also what was left and how long it is blocked.

    `disabled`: it is out of credit.
    """

    leases: tuple[Kept, ...] = ()
    lost: bool = False
    left: tuple[Left, ...] = ()
    blocked_seconds: float = 0.0
    disabled: bool = False


Asked = Reserve | Report | Renew | Release | Waiting | Enable | Restore


class ScopeTold(Struct, frozen=True, gc=False):
    """The shared ledger of a scope. `out`: units of all leases of all nodes; `wanted`, `owned`: as `ScopeAsked`'s, of all other nodes."""

    name: str
    limit: float
    remaining: float
    out: float
    reset_seconds: float = -1.0
    wanted: Demand = (0.0, 0.0, 0.0)
    owned: tuple[Owned, ...] = ()


class Answer(Struct, frozen=True, gc=False, kw_only=True):
    """
    `ok`: granted, or the lease was known. `why`, `scope`, `retry_seconds`: what was in the way of a reservation, and for how long.
    `enabled_at`: it grows each time an operator enables the target; -1: never yet.

    `lost`: this store has lost writes. `behind`: others found that out; this node has to restore its leases. `gone`: leases that are over.
    """

    ok: bool
    epoch: str
    seq: int
    fence_max: int
    nodes: int = 1
    scopes: tuple[ScopeTold, ...] = ()
    blocked_seconds: float = 0.0
    disabled: bool = False
    enabled_at: float = -1.0
    learning_seconds: float = 0.0
    lost: bool = False
    behind: bool = False
    fence: int = 0
    lease_seconds: float = 0.0
    why: str = ""
    scope: str = ""
    retry_seconds: float = 0.0
    gone: tuple[str, ...] = ()


class Hint(Struct, frozen=True, gc=False):
    """
    Something changed; the truth is asked for. `what`: blocked, closed, room, or used (after nobody had called for a while).

    No target: hints may have been missed.
    """

    target: str = ""
    what: str = ""
    seconds: float = 0.0
    node: str = ""


class Store(Protocol):
    """The atomic half of the governor. All raise StoreDownError."""

    async def ask(self, target: str, question: Asked) -> Answer:
        """Reserve, Report, Renew, Release, Waiting, Enable or Restore, as one step that nothing comes between."""
        ...

    def hints(self) -> AsyncIterator[Hint]:
        """What others changed. Hints may get lost; after an outage one without a target comes."""
        ...

    async def close(self) -> None: ...
