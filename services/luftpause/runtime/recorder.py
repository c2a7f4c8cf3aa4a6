"""How does what happened to a run get on disk before anybody sees it?"""

import asyncio
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from luftpause.kit.clock import Clock
from luftpause.runtime.core.advance import finished
from luftpause.runtime.core.budgets import Passed
from luftpause.runtime.core.commit import Circumstances, Commit, commit
from luftpause.runtime.core.events import BudgetUsed, Event, Finished
from luftpause.runtime.core.model import Run
from luftpause.runtime.entries import Effects, Entry
from luftpause.runtime.journal import Journal
from luftpause.runtime.ports import RunState, Toolbox

Observer = Callable[[Run | None, Sequence[Event], Run], None]


class Over(Exception):  # noqa: N818  (no fault: somebody else ended the run)
    """Nothing more can be recorded for a run that has ended, or by a runtime that stops."""


class Recorder:
    """Absorbs events into entries and journals them.

    `on_end` is called when a run's end is on disk; `on_exceeded` when a run has used up the budget of this entry; `observer` of all that
    is on disk: the run before (None: there was none), the events, the run after.
    """

    def __init__(
        self,
        journal: Journal,
        tools: Toolbox,
        *,
        clock: Clock,
        wall: Callable[[], float],
        on_end: Callable[[Entry], None],
        on_exceeded: Callable[[Entry, Passed], None],
        observer: Observer,
    ) -> None:
        self.stopping = False
        self._journal = journal
        self._tools = tools
        self._clock = clock
        self._wall = wall
        self._on_end = on_end
        self._on_exceeded = on_exceeded
        self._observer = observer

    async def record(self, entry: Entry, event: Event) -> Effects:
        """The effects that follow; all is on disk, so they may be carried out. Raises Over."""
        if entry.run.state.ended or self.stopping:
            raise Over
        return await self.commit(entry, entry.run, event)

    async def commit(self, entry: Entry, run: Run | None, event: Event) -> Effects:
        """As `record`, for a run that may be none yet. Raises LuftpauseError as `Journal.append`."""
        effects, done = self.put(entry, run, event)
        await asyncio.shield(done)  # a run that is cancelled now has recorded this all the same
        return effects

    def end(self, entry: Entry, state: RunState, text: str) -> None:
        """End a run from outside its loop; `on_end` tells when that is on disk."""
        self.put(entry, entry.run, ending(entry.run, state, text))

    def age(self, entry: Entry) -> float:
        """Seconds; by the wall clock for a run that an earlier process began."""
        since = self._wall() - entry.run.created.at if entry.began is None else self._clock() - entry.began
        return round(max(0.0, since), 3)

    def put(self, entry: Entry, run: Run | None, event: Event) -> tuple[Effects, asyncio.Future[None]]:
        """Absorb at once; the effects may be carried out when the future is done. Its errors are those of `Journal.append`."""
        at, seconds, now = self._wall(), self.age(entry), self._clock()
        if isinstance(event, Finished):
            event = replace(event, at=at, seconds=seconds)
            if event.state is RunState.CANCELLED:
                event = replace(event, budget_seconds=entry.budget_seconds(now))
        passed: list[tuple[Entry, Passed]] = []

        def over(after: Run) -> tuple[Passed, float | None] | None:
            passed.extend(entry.over(run, after, now))
            if not passed:
                return None
            above, limit = passed[0]
            return limit, above.budget_seconds(now) if above is entry else None

        made = commit(run, event, Circumstances(at, seconds, self._repeatable, over, entry.budget_seconds(now)))
        done = self._journal.append(entry.handle, self._journal.seq(entry.handle), made.events)
        entry.spent(run, made.run)
        entry.run = made.run
        if entry.run.exceeded is not None or entry.run.state is RunState.CANCELLED:
            entry.counting_since = None  # nothing can ever run under it again
        elif entry.counting_since is not None and any(isinstance(each, BudgetUsed) for each in made.events):
            entry.counting_since = now
        done.add_done_callback(lambda future: self._on_disk(entry, run, made, future))
        for above, limit in passed:
            self._on_exceeded(above, limit)
        return made.effects, done

    def _on_disk(self, entry: Entry, before: Run | None, made: Commit, done: asyncio.Future[None]) -> None:
        if done.cancelled() or done.exception() is not None:
            return  # whoever awaits it hears of it
        run = made.run
        self._observer(before, made.events, run)
        had, waited = entry.ended, entry.shown.waiting if entry.shown is not None else ()
        entry.shown = run
        if run.waiting != waited or (run.state.ended and not had):
            entry.wake()
        if run.state.ended and not had:
            entry.note = ""
            entry.taken_up.set()
            self._on_end(entry)
            entry.release()

    def _repeatable(self, tool: str) -> bool:
        spec = self._tools.tools().get(tool)
        return spec is not None and (spec.read_only or spec.idempotent)


def ending(run: Run, state: RunState, text: str) -> Finished:
    """The last event of `run`; the recorder sets its time."""
    return finished(run, state, text, at=0, seconds=0)
