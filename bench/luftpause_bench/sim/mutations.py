"""Which functions of the core can be replaced by wrong ones?

Each function here returns what to change: the module that has the right one, its name, and the wrong one.
"""

# pyright: reportPrivateUsage=false

from typing import Any

from msgspec.structs import replace

from luftpause.dataplane.turns import Kind
from luftpause.dataplane.unasked import Unasked
from luftpause.kit.model_names import fits
from luftpause.scheduler import replicas as announcing
from luftpause.scheduler.core import (
    admission,
    dataplanes,
    endings,
    holding,
    identity,
    placement,
    policies,
    replicas,
    requests,
    runs,
    serving,
    timers,
    turns,
    twins,
    verdicts,
)  # fmt: skip
from luftpause.scheduler.core.decisions import EndRun, HoldReason
from luftpause.scheduler.core.events import DataplaneLost, Resync, RunEnded, TurnClass
from luftpause.scheduler.core.indexes import Draft, bump, turns_of
from luftpause.scheduler.core.model import UNLIMITED, Caller, IdKey, Known, Lane, QueueKey, Replica, Run, Turn
from luftpause.scheduler.core.settings import Settings
from luftpause.scheduler.core.timing import Timer

Change = tuple[object, str, object]  # whose attribute, its name, and what it is instead


def _policy(**changed: Any) -> tuple[Change, ...]:
    return ((policies, "POLICIES", {"original": replace(policies.ORIGINAL, **changed)}),)


def _nothing(*_: Any) -> None:
    """Instead of something."""


def _unlimited(*_: Any) -> int:
    return UNLIMITED


def _always(*_: Any) -> bool:
    return True


def _for_no_time(*_: Any) -> float:
    return 0.0


def _nowhere(*_: Any) -> str:
    return ""


def _as_it_was(replica: Replica, *_: Any) -> Replica:
    return replica


def _run_as_it_was(d: Draft, run: Run, *_: Any) -> Run:
    del d
    return run


def _lane_as_it_was(d: Draft, run: Run, lane: Lane, *_: Any) -> Lane:
    del d, run
    return lane


# ---- admission --------------------------------------------------------------------------------------------------


def no_room_for_the_paused() -> tuple[Change, ...]:
    right = admission.admits

    def admits(replica: Replica, kind: str, turn_class: int, settings: Settings) -> HoldReason | None:
        refused = right(replica, kind, turn_class, settings)
        return None if refused is HoldReason.RESERVED else refused

    return ((admission, "admits", admits),)


def nothing_is_reserved() -> tuple[Change, ...]:
    return _policy(reserve=_for_no_time)


def no_cap() -> tuple[Change, ...]:
    return ((admission, "limit", _unlimited),)


def cap_lifted_at_once() -> tuple[Change, ...]:
    return ((admission, "_released", _nothing),)


def no_burst_limit() -> tuple[Change, ...]:
    return ((admission, "burst_limit", _unlimited),)


def batch_counts_as_interactive() -> tuple[Change, ...]:
    right = admission.admits

    def admits(replica: Replica, kind: str, turn_class: int, settings: Settings) -> HoldReason | None:
        return right(replica, kind, int(TurnClass.INTERACTIVE), settings)

    return ((admission, "admits", admits),)


def busy_is_forgotten() -> tuple[Change, ...]:
    return ((admission, "full", _as_it_was),)


# ---- order ------------------------------------------------------------------------------------------------------


def batch_first() -> tuple[Change, ...]:
    return ((placement, "CLASSES", tuple(reversed(placement.CLASSES))),)


def last_come_first_served() -> tuple[Change, ...]:
    def place_in_flow(facts: policies.Facts, turn: Turn) -> tuple[float, int]:
        return -turn.arrived, facts.serial

    return _policy(place_in_flow=place_in_flow)


def busiest_caller_first() -> tuple[Change, ...]:
    def flow_key(facts: policies.Facts, flow: str, caller: Caller) -> int:
        del facts, flow
        return -caller.in_flight

    return _policy(flow_key=flow_key)


def arrival_not_inherited() -> tuple[Change, ...]:
    def twin_of(d: Draft, turn: Turn) -> None:
        del d, turn

    return ((twins, "twin_of", twin_of),)


# ---- homes and identity -----------------------------------------------------------------------------------------


def no_stickiness() -> tuple[Change, ...]:
    return ((holding, "strict_home", _nowhere),)


def a_pause_is_forgotten() -> tuple[Change, ...]:
    return ((runs, "pause", _lane_as_it_was),)


def an_id_alone_joins() -> tuple[Change, ...]:
    right = identity.id_key

    def id_key(principal: str, caller: str, id_: str, digest: bytes) -> IdKey | None:
        del digest
        return right(principal, caller, id_.ljust(20, "X"), b"") if id_ else None

    def fits(d: Draft, known: Known, digest: bytes) -> list[str]:
        del digest
        return [sighting.run for sighting in known.sightings if sighting.run in d.runs][-1:]

    return (identity, "id_key", id_key), (identity, "_fits", fits)


def ids_are_not_recalled() -> tuple[Change, ...]:
    return ((identity, "recall_ids", _run_as_it_was),)


def home_not_recalled() -> tuple[Change, ...]:
    def merge_lane(d: Draft, dataplane: str, run: Run, memory: object, told: Any) -> Lane:
        del d, dataplane, memory
        return runs.lane_of(run, told.model) or Lane(told.model, turn_seq=told.turn_seq)

    return ((dataplanes, "_merge_lane", merge_lane),)


# ---- turns ------------------------------------------------------------------------------------------------------


def no_place_freed_on_failure() -> tuple[Change, ...]:
    def failed(d: Draft, event: object) -> None:
        del event
        bump(d, "failed/other")

    return ((turns, "failed", failed),)


def expired_but_still_counted() -> tuple[Change, ...]:
    def expired(d: Draft, turn: Turn) -> None:
        count_only = replace(d.replicas[turn.replica], in_flight=d.replicas[turn.replica].in_flight + 1)
        right(d, turn)
        d.replicas = d.replicas.set(turn.replica, count_only)

    right = turns.expired
    return ((turns, "expired", expired),)


def abandoned_but_still_held() -> tuple[Change, ...]:
    right = turns.abandoned

    def abandoned(d: Draft, event: Any) -> None:
        turn = d.turns.get(event.turn)
        if turn is None or turn.replica:
            right(d, event)

    return ((turns, "abandoned", abandoned),)


def given_back_to_where_it_came_from() -> tuple[Change, ...]:
    right = holding.queue_key

    def queue_key(d: Draft, turn: Turn) -> QueueKey:
        return right(d, turn)._replace(without=())

    return ((holding, "queue_key", queue_key), (holding, "queue_key", queue_key))


# ---- replicas ---------------------------------------------------------------------------------------------------


def suspicion_is_ignored() -> tuple[Change, ...]:
    return ((dataplanes, "suspected", _nothing),)


def one_miss_is_death() -> tuple[Change, ...]:
    right = replicas._missed

    def missed(d: Draft, replica: Replica, outcome: Any) -> Replica:
        return right(d, replace(replica, misses=99, delivered_at=float("-inf")), outcome)

    return ((replicas, "_missed", missed),)


def no_replica_for_ever() -> tuple[Change, ...]:
    return ((timers, "_no_replica", _nothing),)


def a_place_on_the_unhealthy() -> tuple[Change, ...]:
    def candidates(d: Draft, key: Any) -> list[Replica]:
        return [d.replicas[name] for name in d.servers.get((key.kind, key.model), ())]

    right = admission.admits

    def admits(replica: Replica, kind: str, turn_class: int, settings: Settings) -> HoldReason | None:
        refused = right(replica, kind, turn_class, settings)
        return None if refused is HoldReason.NO_REPLICA and not replica.removed else refused

    return (verdicts, "candidates", candidates), (admission, "admits", admits)


# ---- single passes that go unasked ------------------------------------------------------------------------------


def passes_go_anywhere() -> tuple[Change, ...]:
    return ((announcing, "passes_unasked", _always),)


def passes_have_a_choice() -> tuple[Change, ...]:
    def only(self: Unasked, kind: Kind, model: str) -> Any:
        found = [each for each in self._replicas if each.kind is kind or kind is Kind.EMBEDDING]
        return next((each for each in found if any(fits(name, model) for name in each.models)), None)

    return ((Unasked, "_only", only),)


def sent_passes_are_not_counted() -> tuple[Change, ...]:
    return ((requests, "_sent", _nothing),)


# ---- dataplanes -------------------------------------------------------------------------------------------------


def lost_frees_at_once() -> tuple[Change, ...]:
    right = dataplanes.lost

    def lost(d: Draft, event: DataplaneLost) -> None:
        known = d.dataplanes.get(event.dataplane)
        right(d, event)
        if known is not None and known.session == event.session and known.connected:
            for id_ in turns_of(d, event.dataplane):
                turns.expired(d, d.turns[id_])

    return ((dataplanes, "lost", lost),)


def lost_for_ever() -> tuple[Change, ...]:
    return ((dataplanes, "lost_for_good", _nothing),)


def resync_only_adds() -> tuple[Change, ...]:
    right = dataplanes.resync

    def resync(d: Draft, event: Resync) -> None:
        flying = [turn for id_ in turns_of(d, event.dataplane) if (turn := d.turns[id_]).replica]
        for turn in flying:
            d.turns = d.turns.set(turn.id, replace(turn, dataplane=""))
        right(d, event)
        for turn in flying:
            if turn.id in d.turns:
                d.turns = d.turns.set(turn.id, turn)

    return ((dataplanes, "resync", resync),)


def nobody_else_is_told() -> tuple[Change, ...]:
    right = endings.run_ended

    def run_ended(d: Draft, event: RunEnded) -> None:
        right(d, event)
        d.decisions[:] = [decision for decision in d.decisions if not isinstance(decision, EndRun)]

    return ((endings, "run_ended", run_ended),)


def start_waits_for_nobody() -> tuple[Change, ...]:
    right = dataplanes.open_gate

    def open_gate(d: Draft) -> None:
        d.started_at = float("-inf")
        right(d)

    return ((dataplanes, "open_gate", open_gate),)


def runs_are_immortal() -> tuple[Change, ...]:
    return ((timers, "_run", _nothing),)


def reserve_never_ends() -> tuple[Change, ...]:
    right = timers._fired

    def fired(d: Draft, timer: Timer, of: str, detail: str) -> None:
        if timer is not Timer.RESERVE:
            right(d, timer, of, detail)

    return ((timers, "_fired", fired),)


def batch_gets_no_share() -> tuple[Change, ...]:
    return ((admission, "owes", _never),)


def holds_have_no_end() -> tuple[Change, ...]:
    return ((timers, "_held_too_long", _nothing),)


def any_number_is_held() -> tuple[Change, ...]:
    return ((verdicts, "too_many", _nothing),)


def one_star_fits_nothing() -> tuple[Change, ...]:
    return ((serving, "fits", _never),)


def _never(*_: Any) -> bool:
    return False
