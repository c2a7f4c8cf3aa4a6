"""When is what a replica said of its models in doubt, so that it is asked before its time?"""

from collections.abc import Callable
from typing import Final

from luftpause.scheduler.core.decisions import Refuse, Step
from luftpause.scheduler.core.events import Event, TurnFailed, TurnRequested
from luftpause.scheduler.core.faults import ENGINE_FAULT
from luftpause.scheduler.core.model import State

UNKNOWN_MODEL: Final = "model_not_found"
ENGINE_ERRORS: Final = frozenset({"engine_error", ENGINE_FAULT})


class Doubts:
    """An observer of the host. An engine that refuses a turn may have come back with other models; one that loads an adapter tells nobody.

    `doubt` gets the replica's name; empty: all of them.
    """

    def __init__(self, doubt: Callable[[str], None]) -> None:
        self._doubt = doubt

    def __call__(self, before: State, event: Event, step: Step) -> None:
        if isinstance(event, TurnFailed):
            turn = before.turns.get(event.turn)
            if event.reason in ENGINE_ERRORS and turn is not None and turn.replica:
                self._doubt(turn.replica)
        elif isinstance(event, TurnRequested):
            for decision in step.decisions:
                if isinstance(decision, Refuse) and decision.code == UNKNOWN_MODEL:
                    self._doubt("")
