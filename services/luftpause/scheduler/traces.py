"""What does a trace show of the scheduler's part: how long was a turn held, and where did it go?"""

import time
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from luftpause.kit.tracing import Tracer
from luftpause.scheduler.core.decisions import Place, Refuse, Step
from luftpause.scheduler.core.events import (
    Event,
    TurnAbandoned,
    TurnFailed,
    TurnFinished,
    TurnRequested,
    TurnReturned,
)
from luftpause.scheduler.core.model import State

TURNS_MAX: Final = 100_000  # that are remembered; the oldest are forgotten, so that none stays for ever
ENDS: Final = (TurnFinished, TurnFailed, TurnAbandoned)


class Asked(Struct, frozen=True, gc=False):
    traceparent: str
    turn_class: str
    since_ns: int


class Admissions:
    """An observer of the host: one span `admit` for each time that a turn with a trace asks for a place."""

    def __init__(self, tracer: Tracer, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._tracer = tracer
        self._wall_ns = wall_ns
        self._asked: dict[str, Asked] = {}

    def __call__(self, before: State, event: Event, step: Step) -> None:
        if isinstance(event, TurnRequested) and event.traceparent:
            waited = max(0.0, event.now - event.arrived)
            self._remember(event.turn, Asked(event.traceparent, event.turn_class.name.lower(), self._wall_ns() - int(waited * 1e9)))
        elif isinstance(event, TurnReturned) and (known := self._asked.get(event.turn)) is not None:
            self._remember(event.turn, Asked(known.traceparent, known.turn_class, self._wall_ns()))
        if self._asked:
            for decision in step.decisions:
                if isinstance(decision, Place | Refuse):
                    self._decided(decision)
            if isinstance(event, ENDS):
                self._asked.pop(event.turn, None)

    def _remember(self, turn: str, asked: Asked) -> None:
        self._asked[turn] = asked
        if len(self._asked) > TURNS_MAX:
            del self._asked[next(iter(self._asked))]

    def _decided(self, decision: Place | Refuse) -> None:
        asked = self._asked.get(decision.turn)
        if asked is None:
            return
        now = self._wall_ns()
        span = self._tracer.begin(
            "admit", parent=asked.traceparent, kind="server", start_ns=min(asked.since_ns, now),
            attributes={"luftpause.turn_id": decision.turn, "luftpause.class": asked.turn_class},
        )  # fmt: skip
        if isinstance(decision, Place):
            span.set("luftpause.replica", decision.replica)
            span.set("luftpause.held_ms", round(decision.held_seconds * 1000))
            if decision.hold_reason is not None:
                span.set("luftpause.hold_reason", decision.hold_reason.value)
            span.end(end_ns=now)
            return
        self._asked.pop(decision.turn, None)
        span.set("error.type", decision.code)
        span.end(decision.code, end_ns=now)
