"""Which rules decide who waits, who goes first and where?

A policy is a value: pure functions over what `Facts` shows. `decide` calls them; they never change anything.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from immutables import Map
from msgspec import Struct

from luftpause.scheduler.core import admission
from luftpause.scheduler.core.decisions import HoldReason
from luftpause.scheduler.core.events import Event, TurnClass, TurnFinished
from luftpause.scheduler.core.model import Caller, PlaceInFlow, QueueKey, Replica, Run, Turn
from luftpause.scheduler.core.settings import Settings


class Facts(Protocol):
    """What a policy may read. Both `State` and the draft of a step have it."""

    @property
    def settings(self) -> Settings: ...
    @property
    def now(self) -> float: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def replicas(self) -> "Map[str, Replica]": ...
    @property
    def runs(self) -> "Map[str, Run]": ...
    @property
    def turns(self) -> "Map[str, Turn]": ...
    @property
    def serial(self) -> int: ...
    @property
    def policy_state(self) -> Any: ...


class Learned(Struct, frozen=True, gc=False):
    """What a policy made of an event: its new state, the replicas that may take a held turn now, the flows whose key may have changed."""

    policy_state: Any = None
    replicas: tuple[str, ...] = ()
    flows: tuple[str, ...] = ()


class Policy(Struct, frozen=True, gc=False):
    """
    `absorb` runs after the tables have absorbed the event. `flow_key` orders flows (smaller first) and is evaluated again for each flow
    that an event touched; `place_in_flow` orders a flow's turns and is fixed when a turn is first held. `opens` says whether a replica
    takes any turn of a queue (so that a full pool costs one question), `admits` whether it takes this one where `opens` agrees: None, or
    why not. A replica that opens for batch opens for interactive turns too. `choose` picks among replicas that admit the turn. `reserve`
    is how long a paused branch holds a place: seconds, 0 not at all.

    `placed` and `ended` (None: not of interest) make the policy's new state when a turn comes to be in flight and when it no longer is, in
    whatever way: between two placements of one step, and also for turns that expire, come back, or are found in a Hello. `ended` is told
    the report of the answer where there is one. In both the tables have been changed already; the turn is as it was in flight.
    """

    initial: Callable[[Settings], Any]
    absorb: Callable[[Facts, Event], Learned]
    flow_key: Callable[[Facts, str, Caller], Any]
    place_in_flow: Callable[[Facts, Turn], PlaceInFlow]
    opens: Callable[[Facts, Replica, QueueKey], HoldReason | None]
    admits: Callable[[Facts, Replica, Turn], HoldReason | None]
    choose: Callable[[Facts, Turn, str, Sequence[Replica]], Replica]
    reserve: Callable[[Facts, TurnClass], float]
    placed: Callable[[Facts, Turn], Any] | None = None
    ended: Callable[[Facts, Turn, TurnFinished | None], Any] | None = None


# ---- original: the rules of the first system --------------------------------------------------------------------


def _learns_nothing(facts: Facts, event: Event) -> Learned:
    del facts, event
    return NOTHING


def _fewest_in_flight(facts: Facts, flow: str, caller: Caller) -> int:
    del facts, flow
    return caller.in_flight


def _first_come(facts: Facts, turn: Turn) -> PlaceInFlow:
    return (turn.arrived, facts.serial)


def _opens(facts: Facts, replica: Replica, queue: QueueKey) -> HoldReason | None:
    return admission.admits(replica, queue.kind, queue.turn_class, facts.settings)


def _admits(facts: Facts, replica: Replica, turn: Turn) -> HoldReason | None:
    del facts, replica, turn
    return None  # `opens` has said it all


def _choose(facts: Facts, turn: Turn, home: str, replicas: Sequence[Replica]) -> Replica:
    return admission.most_room(replicas, turn.kind, turn.turn_class, home, facts.settings)


def _reserve(facts: Facts, turn_class: TurnClass) -> float:
    if turn_class is not TurnClass.INTERACTIVE:
        return 0.0
    return facts.settings.reserve_seconds_max or float("inf")


NOTHING = Learned()

ORIGINAL = Policy(
    initial=lambda _: None,
    absorb=_learns_nothing,
    flow_key=_fewest_in_flight,
    place_in_flow=_first_come,
    opens=_opens,
    admits=_admits,
    choose=_choose,
    reserve=_reserve,
)

POLICIES = {"original": ORIGINAL}
