"""Which events go to the journal together when one thing has happened?"""

from collections import deque
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from luftpause.runtime.core.advance import advance, finished
from luftpause.runtime.core.budgets import Passed
from luftpause.runtime.core.effects import AskApproval, AskModel, Effect, Finish, StartCall
from luftpause.runtime.core.events import ApprovalAsked, CallStarted, Event
from luftpause.runtime.core.model import Run
from luftpause.runtime.ports import RunState


class Commit(Struct, frozen=True):
    """Append `events`, and when they are on disk carry out `effects`: one `AskModel`, or calls that run at the same time, or nothing."""

    run: Run
    events: tuple[Event, ...]
    effects: tuple[AskModel | StartCall, ...]


class Circumstances(Struct, frozen=True):
    """What the core can't know. `at`: now; `seconds`: the run's age; `repeatable`: may a call of the tool of this name be made twice?

    `budget_seconds`: what the run's own budget has used so far. `over`: the limit that a run above this one has passed, or the run itself
    (then with the seconds of its budget), if it is now as given.
    """

    at: float
    seconds: float
    repeatable: Callable[[str], bool]
    over: Callable[[Run], tuple[Passed, float | None] | None] = lambda _: None
    budget_seconds: float = 0.0


def commit(run: Run | None, event: Event, now: Circumstances) -> Commit:
    """Absorb `event` and what follows from it at once: questions, the start of calls, the end of the run, which a budget may bring about.

    Raises ValueError as `advance`.
    """
    pending: deque[Event] = deque([event])
    events: list[Event] = []
    effects: list[AskModel | StartCall] = []
    while pending:
        events.append(pending.popleft())
        step = advance(run, events[-1])
        run = step.run
        ending = _over(run, now) if len(events) == 1 and not run.state.ended else None
        if ending is not None:
            pending.append(ending)
            continue
        for effect in step.effects:
            if isinstance(effect, AskModel | StartCall):
                effects.append(effect)
            if follows := _follows(run, effect, now):
                pending.append(follows)
    if run is None:
        raise ValueError("nothing was committed")
    return Commit(run, tuple(events), tuple(effects))


def _over(run: Run, now: Circumstances) -> Event | None:
    """The event that ends a run whose own budget, or one above it, is used up."""
    found = now.over(run)
    if found is None:
        return None
    passed, own_seconds = found
    if own_seconds is not None:
        return passed.event(own_seconds)
    run = replace(run, budget_seconds=max(run.budget_seconds, now.budget_seconds))
    return finished(run, RunState.CANCELLED, passed.message, at=now.at, seconds=now.seconds)


def _follows(run: Run, effect: Effect, now: Circumstances) -> Event | None:
    match effect:
        case AskModel():
            return None
        case StartCall():
            return CallStarted(effect.id, repeatable=effect.repeatable or now.repeatable(effect.name))
        case AskApproval():
            return ApprovalAsked(effect.id, effect.approval, now.at)
        case Finish(state, text):
            return finished(run, state, text, at=now.at, seconds=now.seconds)
