"""Which events go to the journal together when one thing has happened?"""

from collections import deque
from collections.abc import Callable

from msgspec import Struct

from luftpause.runtime.core.advance import advance, finished
from luftpause.runtime.core.effects import AskModel, Finish, StartCall
from luftpause.runtime.core.events import CallStarted, Event
from luftpause.runtime.core.model import Run


class Commit(Struct, frozen=True):
    """Append `events`, and when they are on disk carry out `effects`: one `AskModel`, or calls that run at the same time, or nothing."""

    run: Run
    events: tuple[Event, ...]
    effects: tuple[AskModel | StartCall, ...]


def commit(run: Run | None, event: Event, *, at: float, seconds: float, repeatable: Callable[[str], bool]) -> Commit:
    """Absorb `event` and what follows from it at once: the start of its calls, the end of the run.

    `at`: now; `seconds`: the run's age; `repeatable`: may a call of the tool of this name be made twice? Raises ValueError as `advance`.
    """
    pending: deque[Event] = deque([event])
    events: list[Event] = []
    effects: list[AskModel | StartCall] = []
    while pending:
        events.append(pending.popleft())
        step = advance(run, events[-1])
        run = step.run
        for effect in step.effects:
            match effect:
                case AskModel():
                    effects.append(effect)
                case StartCall():
                    effects.append(effect)
                    pending.append(CallStarted(effect.id, repeatable=repeatable(effect.name)))
                case Finish(state, text):
                    pending.append(finished(run, state, text, at=at, seconds=seconds))
    if run is None:
        raise ValueError("nothing was committed")
    return Commit(run, tuple(events), tuple(effects))
