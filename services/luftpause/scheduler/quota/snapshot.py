"""How does the ledger survive a restart?

A snapshot has what is known of each target: limits, what remains, leases, the breaker. Who waits is not in it: they ask again. All
times in it are durations, as the clock of the core begins anew with each process.
"""

from collections import Counter
from typing import Any, Final, TypeVar, get_origin
from zlib import crc32

import msgspec
from immutables import Map
from msgspec import Struct
from msgspec.structs import replace

from luftpause.scheduler.core.sorted_set import sorted_set
from luftpause.scheduler.quota.model import Breaker, Cascade, Lease, Scope, Share, State, Target
from luftpause.scheduler.quota.specs import TargetSpec

VERSION: Final = 2
SHARE_TIMES: Final = ("used_at", "demand_at", "elsewhere_at")
SCOPE_TIMES: Final = ("at", "reset_at", "sample_at", "told_at", "blocked_until", "burn_at", "demand_at", "elsewhere_at")
BREAKER_TIMES: Final = (
    "open_until", "told_until", "episode_at", "limited_at", "level_at", "trend_at", "tokens_at", "clean_at", "sent_at", "risen_at",
)  # fmt: skip
T = TypeVar("T", bound=Struct)


class SnapshotError(ValueError):
    """Nothing can be learned from these bytes; it says why and what to do."""


class SavedTarget(Struct, frozen=True):
    spec: TargetSpec
    scopes: list[Scope]
    breaker: Breaker
    cascade: Cascade
    leases: list[Lease]
    floor_at: float
    learning_until: float
    budgets: dict[str, float]
    budgets_at: float


class Moment(Struct, frozen=True):
    """
    A moment that another process can tell the distance to. `epoch_seconds`: since 1970. `boot`, `boot_seconds`: the machine's present boot
    and how long it lasts; empty: not known. The calendar may be set meanwhile, so it counts only where the boots are not the same.
    """

    epoch_seconds: float
    boot: str = ""
    boot_seconds: float = 0.0

    def since(self, earlier: "Moment") -> float:
        """Seconds; 0 where a clock went back."""
        if self.boot and self.boot == earlier.boot:
            return max(0.0, self.boot_seconds - earlier.boot_seconds)
        return max(0.0, self.epoch_seconds - earlier.epoch_seconds)


class Saved(Struct, frozen=True):
    """`moment`: when it was written. All other times are seconds from then."""

    moment: Moment
    fence: int
    targets: list[SavedTarget]


class Sealed(Struct, frozen=True):
    """`ledger`: a `Saved`; `sum`: its CRC-32, as a bit that turned over may be a limit, or the end of a block, as good as any other."""

    version: int
    sum: int
    ledger: bytes


class Version(Struct, frozen=True):
    version: int


def to_snapshot(state: State, now: float, moment: Moment) -> bytes:
    """`now`: on the core's clock, at least that of the last event; `moment`: the same one for others."""
    now = max(state.now, now)
    targets = [_saved(state.targets[name], -now) for name in sorted(state.targets)]
    ledger = msgspec.msgpack.encode(Saved(moment, state.fence, targets), enc_hook=dict)
    return msgspec.msgpack.encode(Sealed(VERSION, crc32(ledger), ledger))


def from_snapshot(snapshot: bytes, state: State, moment: Moment) -> State:
    """
    `state`, which has just begun, with the targets of the snapshot. The host configures them next, as limits may be others by now.

    What the time since has changed (windows, blocks, leases) shows with the next `Tick`, which is due at once. A clock that went back
    counts as no time. SnapshotError: the bytes are damaged, or of another version.
    """
    try:
        version = msgspec.msgpack.decode(snapshot, type=Version).version
        if version != VERSION:
            raise SnapshotError(f"the snapshot has version {version}, this program reads {VERSION}: move the file away to start anew")
        sealed = msgspec.msgpack.decode(snapshot, type=Sealed)
        if crc32(sealed.ledger) != sealed.sum:
            raise SnapshotError("the snapshot is not as it was written: move the file away to start anew")
        saved = msgspec.msgpack.decode(sealed.ledger, type=Saved, dec_hook=_map)
        by = state.now - moment.since(saved.moment)
        targets = {one.spec.name: _restored(one, state.now, by) for one in saved.targets}
    except (msgspec.DecodeError, KeyError, RecursionError) as error:
        raise SnapshotError(f"the snapshot can't be read ({error}): move the file away to start anew") from error
    due = sorted_set([(state.now, name) for name in targets])
    return replace(state, targets=Map(targets), due=due, fence=max(state.fence, saved.fence))


def _saved(t: Target, by: float) -> SavedTarget:
    return SavedTarget(
        t.spec,
        [_scope_moved(t.scopes[name], by) for name in sorted(t.scopes)],
        _moved(t.breaker, BREAKER_TIMES, by),
        _cascade_moved(t.cascade, by),
        [replace(_moved(t.leases[want], ("granted", "expires"), by), waiter=None) for want in sorted(t.leases)],
        t.floor_at + by,
        t.learning_until + by,
        {**t.budgets_old, **t.budgets},
        t.budgets_at + by,
    )


def _restored(saved: SavedTarget, now: float, by: float) -> Target:
    leases = [_moved(lease, ("granted", "expires"), by) for lease in saved.leases]
    breaker = _moved(saved.breaker, BREAKER_TIMES, by)
    return Target(
        spec=saved.spec,
        at=now,
        scopes={scope.spec.name: _scope_moved(scope, by) for scope in saved.scopes},
        breaker=breaker,
        cascade=_cascade_moved(saved.cascade, by),
        leases=Map({lease.want: lease for lease in leases}),
        expiries=sorted_set((lease.expires, lease.want) for lease in leases),
        in_flight=Map(Counter(lease.caller for lease in leases)),
        probes=sum(lease.probe and lease.episode == breaker.episode for lease in leases),
        promoted=sum(lease.promoted for lease in leases),
        floor_at=saved.floor_at + by,
        learning_until=saved.learning_until + by,
        budgets=Map(saved.budgets),
        budgets_at=saved.budgets_at + by,
        due=now,
    )


# ---- times ------------------------------------------------------------------------------------------------------


def _moved(one: T, fields: tuple[str, ...], by: float) -> T:
    return replace(one, **{field: getattr(one, field) + by for field in fields})


def _scope_moved(scope: Scope, by: float) -> Scope:
    p0, p1, p2 = scope.paced
    shares = {owner: _moved(share, SHARE_TIMES, by) for owner, share in scope.shares.items()}
    return replace(_moved(scope, SCOPE_TIMES, by), paced=(p0 + by, p1 + by, p2 + by), shares=Map(shares))


def _cascade_moved(cascade: Cascade, by: float) -> Cascade:
    return Cascade(tuple((at + by, caller) for at, caller in cascade.hits), cascade.until + by)


def _map(kind: Any, value: Any) -> Any:
    """The one kind of value that msgspec doesn't know."""
    if get_origin(kind) is not Map:
        raise NotImplementedError(f"a snapshot has no {kind}")
    return Map(msgspec.convert(value, dict[str, Share]))
