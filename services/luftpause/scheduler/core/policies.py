"""Which rules decide who waits, who goes first and where?"""

from collections.abc import Sequence

from luftpause.scheduler.core import admission
from luftpause.scheduler.core.decisions import HoldReason
from luftpause.scheduler.core.events import TurnClass
from luftpause.scheduler.core.frame import NOTHING, Facts, Learned, Policy
from luftpause.scheduler.core.guard import GUARD
from luftpause.scheduler.core.model import Caller, PlaceInFlow, QueueKey, Replica, Turn

__all__ = ["NOTHING", "ORIGINAL", "POLICIES", "Facts", "Learned", "Policy"]

# ---- original: the rules of the first system --------------------------------------------------------------------


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


def _reserve(facts: Facts, turn_class: TurnClass, home: str) -> float:
    del home
    return admission.reserve_seconds(facts.settings, turn_class)


ORIGINAL = Policy(
    initial=lambda _: None,
    flow_key=_fewest_in_flight,
    place_in_flow=_first_come,
    opens=_opens,
    admits=_admits,
    choose=_choose,
    reserve=_reserve,
    arriving_seconds=admission.arriving_seconds,
)

POLICIES = {"original": ORIGINAL, "guard": GUARD}
