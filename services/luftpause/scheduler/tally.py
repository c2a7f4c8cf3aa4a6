"""How often were turns placed, held, given back and ended: by class, by replica, and how?

An observer of the host. What a turn was before an event and is after it tells what became of it; only the turns that an event or its
decisions name are looked at, so that most events cost one look into a set.
"""

from collections.abc import Collection
from typing import Final

from luftpause.kit.metrics import OTHER, Counter, Histogram
from luftpause.scheduler.core.decisions import Decision, Expire, Held, Place, Refuse, Step
from luftpause.scheduler.core.events import (
    ConfigChanged,
    DataplaneLost,
    Event,
    ReplicaProbed,
    Resync,
    TurnAbandoned,
    TurnFailed,
    TurnFinished,
    TurnRequested,
    TurnReturned,
)  # fmt: skip
from luftpause.scheduler.core.model import State, Turn, TurnPhase
from luftpause.scheduler.core.shares import Shares
from luftpause.scheduler.core.turns import FAILURES_COUNTED
from luftpause.scheduler.core.view_held import CLASSES

HELD_BOUNDS_SECONDS: Final = (
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600,
)  # fmt: skip
NOT_HELD: Final = "none"
NOWHERE: Final = ""  # the replica of a turn that was never placed

_LOUD: Final = frozenset({
    TurnRequested, TurnAbandoned, TurnReturned, TurnFinished, TurnFailed, Resync, DataplaneLost, ReplicaProbed, ConfigChanged,
})  # fmt: skip
_IN_FLIGHT: Final = TurnPhase.IN_FLIGHT


class Tally:
    """
    `placements + adopted = turns that ended at a replica + returns + turns in flight`, by class and replica.

    Call it as an `Observer`. `shares` is what is held and in flight now.
    """

    def __init__(self) -> None:
        where = ("class", "replica")
        self.shares = Shares()
        self.turns = Counter(
            "luftpause_scheduler_turns",
            "Turns that are over, by how they ended; replica is empty where they were never placed.",
            (*where, "outcome"),
        )
        self.placements = Counter("luftpause_scheduler_placements", "Turns given to a replica, each attempt for itself.", where)
        self.adopted = Counter("luftpause_scheduler_adopted_turns", "Turns in flight that a dataplane told of after a resync.", where)
        self.returns = Counter(
            "luftpause_scheduler_returns", "Turns that a replica did not take, given back to be placed anew.", (*where, "reason")
        )
        self.tokens = Counter(
            "luftpause_scheduler_tokens",
            "Tokens of turns that finished, as engines counted them; cached ones are part of the prompt.",
            (*where, "type"),
        )
        self.held_seconds = Histogram(
            "luftpause_scheduler_held_seconds",
            "From a turn's arrival to its place, by the last reason for which it was held; none: it was placed at once.",
            HELD_BOUNDS_SECONDS,
            ("class", "reason"),
        )

    def __call__(self, before: State, event: Event, step: Step) -> None:
        kind = type(event)
        decisions = step.decisions
        if kind not in _LOUD and not decisions:
            return
        simple = len(decisions) < 2 and self._simple(event, before, step.state, decisions[0] if decisions else None)
        if not simple:
            self._whatever(before, event, step)

    # ---- the common cases: most turns are asked for, held, placed and finished, one per step ------------------------

    def _simple(self, event: Event, before: State, after: State, decision: Decision | None) -> bool:
        """A turn that is asked for, or one that is over and lets at most one other in. False: nothing was counted."""
        if type(event) is TurnRequested:
            place = decision if type(decision) is Place else None
            return (place is not None or type(decision) is Held) and self._simply_asked(event, place, before, after)
        if type(event) is not TurnFinished:
            return False
        if decision is None:
            return self._simply_finished(event, before, after)
        return type(decision) is Place and self._simply_succeeded(event, decision, before, after)

    def _simply_succeeded(self, event: TurnFinished, place: Place, before: State, after: State) -> bool:
        """It is over, and another that was held has been placed."""
        old, new = before.turns.get(place.turn), after.turns.get(place.turn)
        if old is None or new is None or old.phase is _IN_FLIGHT or new.phase is not _IN_FLIGHT:
            return False
        if not self._simply_finished(event, before, after):
            return False
        self._placed(place, CLASSES[new.turn_class])
        self.shares.count(new, 1)
        self.shares.count(old, -1)
        return True

    def _simply_asked(self, event: TurnRequested, place: Place | None, before: State, after: State) -> bool:
        """It is new, and placed or held now. (A decision about another turn leaves it where it is not to be found, or known before.)"""
        new = after.turns.get(event.turn)
        if new is None or event.turn in before.turns or (new.phase is _IN_FLIGHT) != (place is not None):
            return False
        if place is not None:
            self._placed(place, CLASSES[new.turn_class])
        self.shares.count(new, 1)
        return True

    def _simply_finished(self, event: TurnFinished, before: State, after: State) -> bool:
        """It was in flight and is over."""
        old = before.turns.get(event.turn)
        if old is None or old.phase is not _IN_FLIGHT or event.turn in after.turns:
            return False
        self.shares.count(old, -1)
        self._finished(event, CLASSES[old.turn_class], old.replica)
        return True

    # ---- any case ---------------------------------------------------------------------------------------------------

    def _whatever(self, before: State, event: Event, step: Step) -> None:
        expired = {each.turn for each in step.decisions if isinstance(each, Expire)}
        for id_ in _named(before, event, step.decisions):
            self._turn(id_, before, event, step, expired)
        if isinstance(event, ReplicaProbed | ConfigChanged):
            self._healths(before, event, step.state)

    def _placed(self, place: Place, turn_class: str) -> None:
        reason = place.hold_reason
        self.placements.add((turn_class, place.replica))
        self.held_seconds.observe(place.held_seconds, (turn_class, NOT_HELD if reason is None else reason._value_))

    def _turn(self, id_: str, before: State, event: Event, step: Step, expired: Collection[str]) -> None:
        """What became of this turn in this step."""
        old, new = before.turns.get(id_), step.state.turns.get(id_)
        turn = new or old
        if turn is None:
            self._refused(id_, step, CLASSES[event.turn_class] if isinstance(event, TurnRequested) else OTHER)
            return
        self._recount(old, new)
        name = CLASSES[turn.turn_class]
        was = old if old is not None and old.phase is _IN_FLIGHT else None
        placed = [each for each in step.decisions if isinstance(each, Place) and each.turn == id_ and not _repeated(each, was)]
        for place in placed:
            self._placed(place, name)
        now = new if new is not None and new.phase is _IN_FLIGHT else None
        left = (was is not None) + len(placed) - (now is not None)  # how often it left a replica
        if now is not None and (left < 0 or (left == 0 and not placed and _elsewhere(was, now))):
            self.adopted.add((name, now.replica))
            left += 1
        if left > 0:
            self._ended(id_, name, was.replica if was is not None else placed[-1].replica, event, expired)
        if new is None and not self._refused(id_, step, name) and left == 0:
            self._given_up(name, event)

    def _recount(self, old: Turn | None, new: Turn | None) -> None:
        if new is not None:
            self.shares.count(new, 1)
        if old is not None:
            self.shares.count(old, -1)

    def _finished(self, event: TurnFinished, turn_class: str, replica: str) -> None:
        self.turns.add((turn_class, replica, "paused" if event.paused else "finished"))
        usage = event.usage
        if usage is not None:
            self.tokens.add((turn_class, replica, "prompt"), usage.prompt)
            self.tokens.add((turn_class, replica, "completion"), usage.completion)
            self.tokens.add((turn_class, replica, "cached"), usage.cached or 0)

    def _ended(self, id_: str, turn_class: str, replica: str, event: Event, expired: Collection[str]) -> None:
        """It was at this replica and is not any more."""
        if id_ in expired:
            self.turns.add((turn_class, replica, "expired"))
            return
        match event:
            case TurnFinished():
                self._finished(event, turn_class, replica)
            case TurnReturned():
                self.returns.add((turn_class, replica, event.reason.value))
            case TurnFailed(reason=reason):
                self.turns.add((turn_class, replica, _failure(reason)))
            case TurnAbandoned():
                self.turns.add((turn_class, replica, "abandoned"))
            case _:
                self.turns.add((turn_class, replica, "unlisted"))

    def _given_up(self, turn_class: str, event: Event) -> None:
        """It was held and is gone. Where its session went, it is asked for again: then it is not over."""
        match event:
            case TurnAbandoned():
                self.turns.add((turn_class, NOWHERE, "abandoned"))
            case TurnFailed(reason=reason):
                self.turns.add((turn_class, NOWHERE, _failure(reason)))
            case TurnFinished():
                self.turns.add((turn_class, NOWHERE, "unlisted"))
            case _:
                pass

    def _refused(self, id_: str, step: Step, turn_class: str) -> bool:
        for each in step.decisions:
            if isinstance(each, Refuse) and each.turn == id_:
                self.turns.add((turn_class, NOWHERE, "refused"))
                return True
        return False

    def _healths(self, before: State, event: ReplicaProbed | ConfigChanged, after: State) -> None:
        """Since when each replica has been as it is; one that is no longer configured is forgotten."""
        for name in (event.replica,) if isinstance(event, ReplicaProbed) else after.names:
            old, new = before.replicas.get(name), after.replicas.get(name)
            if new is not None and (old is None or old.removed or old.health is not new.health):
                self.shares.health_since[name] = event.now
        if isinstance(event, ConfigChanged):
            self.shares.forget_replicas(after.names)


def _named(before: State, event: Event, decisions: tuple[Decision, ...]) -> dict[str, None]:
    """The turns that may have been placed, held or ended."""
    found: dict[str, None] = {}
    match event:
        case TurnRequested() | TurnAbandoned() | TurnReturned() | TurnFinished() | TurnFailed():
            found[event.turn] = None
        case Resync() | DataplaneLost():
            found |= dict.fromkeys(id_ for id_, turn in before.turns.items() if turn.dataplane == event.dataplane)
            if isinstance(event, Resync):
                found |= dict.fromkeys(memory.turn for memory in event.turns)
        case _:
            pass
    for decision in decisions:
        if isinstance(decision, Place | Held | Refuse | Expire):
            found[decision.turn] = None
    return found


def _failure(reason: str) -> str:
    """Dataplanes say why; only what is known becomes a label."""
    return reason if reason in FAILURES_COUNTED else OTHER


def _repeated(place: Place, was: Turn | None) -> bool:
    """It was in flight already, and its dataplane asked again."""
    return was is not None and was.attempt == place.attempt


def _elsewhere(was: Turn | None, now: Turn) -> bool:
    """A dataplane has it in flight in another way than was known here."""
    return was is None or (was.attempt, was.replica) != (now.attempt, now.replica)
