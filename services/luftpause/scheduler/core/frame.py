"""What must a policy answer, and what may it read?

A policy is a value: pure functions over what `Facts` shows. `decide` calls them; they never change anything.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from immutables import Map
from msgspec import Struct, UnsetType

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
    def held(self) -> int: ...
    @property
    def policy_state(self) -> Any: ...


class Learned(Struct, frozen=True, gc=False):
    """What a policy made of it: its new state, the replicas that may take a held turn now, the flows whose key may have changed."""

    policy_state: Any = None
    replicas: tuple[str, ...] = ()
    flows: tuple[str, ...] = ()


class Policy(Struct, frozen=True, gc=False):
    """
    `absorbs`, by the type of an event, runs after the tables have absorbed it. `flow_key` orders flows (smaller first) and is evaluated
    again for each flow that an event touched; `place_in_flow` orders a flow's turns and is fixed when a turn is first held. `opens` says
    whether a replica takes any turn of a queue (so that a full pool costs one question), `admits` whether it takes this one where `opens`
    agrees: None, or why not. A replica that opens for batch opens for interactive turns too. `choose` picks among replicas that admit the
    turn. `reserve` is how long a paused branch of that class holds a place on that replica: seconds, 0 not at all.

    `placed` and `ended` (None: not of interest) say what the policy learned when a turn comes to be in flight and when it no longer is, in
    whatever way: between two placements of one step, and also for turns that expire, come back, or are found in a Hello. `ended` is told
    the report of the answer where there is one. In both the tables have been changed already; the turn is as it was in flight. `waits` is
    told when a turn begins (1) and ceases (-1) to be held, before the key of its flow is worked out.

    `priority` is what a placed turn says to its engine. `queue_reports`: so many reports in a row must show a queue before it counts.
    `arriving_seconds`: for so long after its place a turn that an engine without a cap shows as waiting may just be on its way in.
    """

    initial: Callable[[Settings], Any]
    flow_key: Callable[[Facts, str, Caller], Any]
    place_in_flow: Callable[[Facts, Turn], PlaceInFlow]
    opens: Callable[[Facts, Replica, QueueKey], HoldReason | None]
    admits: Callable[[Facts, Replica, Turn], HoldReason | None]
    choose: Callable[[Facts, Turn, str, Sequence[Replica]], Replica]
    reserve: Callable[[Facts, TurnClass, str], float]
    absorbs: Mapping[type[Event], Callable[[Facts, Any], Learned]] = MappingProxyType({})
    placed: Callable[[Facts, Turn], Learned] | None = None
    ended: Callable[[Facts, Turn, TurnFinished | None], Learned] | None = None
    waits: Callable[[Facts, Turn, int], Learned] | None = None
    priority: Callable[[Facts, Turn], int | UnsetType] | None = None
    queue_reports: Callable[[Settings], int] = lambda _: 1
    arriving_seconds: Callable[[Settings], float] = lambda _: 0.0


NOTHING = Learned()
