"""How does a runtime hold a thousand runs, and take them up again after a restart?"""

import asyncio
import contextvars
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar

from luftpause.kit.clock import Clock, monotonic
from luftpause.kit.config import RuntimeConfig
from luftpause.kit.errors import LuftpauseError
from luftpause.kit.ids import new_run_id
from luftpause.kit.logs import Log
from luftpause.runtime import approving, waiting
from luftpause.runtime.budgets import Budgets, Later, later
from luftpause.runtime.core.budgets import Passed
from luftpause.runtime.core.events import Created, Resumed
from luftpause.runtime.core.model import Run
from luftpause.runtime.core.view import Around, view
from luftpause.runtime.deciding import Models
from luftpause.runtime.entries import Effects, Entry, barred, subtree
from luftpause.runtime.housekeeping import Housekeeping
from luftpause.runtime.journal import Journal
from luftpause.runtime.loop import Loop, Sleep
from luftpause.runtime.metrics import CountingModel
from luftpause.runtime.ports import Decided, Decision, ModelClient, RunState, RunView, ServiceClass, SpawnRequest, Toolbox
from luftpause.runtime.recorder import Over, Recorder
from luftpause.runtime.refusals import bad_argument, stopping, too_many_runs
from luftpause.runtime.register import Register
from luftpause.runtime.spawning import check_request, created
from luftpause.runtime.tally import UNKNOWN, RunTally
from luftpause.runtime.traces import Traces

STOP_SECONDS: Final = 2.0  # for tools that don't listen when they are cancelled

log = Log("runtime")
T = TypeVar("T")


class RunService:
    """Implements `ports.Runs`. Within `async with` the runs go on; leaving it stops them without an end, so that the next start resumes."""

    def __init__(
        self,
        config: RuntimeConfig,
        model: ModelClient,
        tools: Toolbox,
        journal: Journal,
        *,
        clock: Clock = monotonic,
        wall: Callable[[], float] = time.time,
        sleep: Sleep = asyncio.sleep,
        later: Later = later,
        owner_lives: Callable[[str], bool] = lambda _: True,
        traces: Traces | None = None,
    ) -> None:
        """`owner_lives`: an owner that is gone (a session that ended) keeps nobody out."""
        self._config = config
        self._tools = tools
        self._journal = journal
        self._clock = clock
        self._wall = wall
        self._runs = Register(config.name, owner_lives)
        self._unfinished = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._tools_ready: asyncio.Task[None] | None = None
        self._models = Models(model, config.default_model)
        self.tally = RunTally(lambda tool: found.server if (found := tools.tools().get(tool)) else UNKNOWN)
        self._recorder = Recorder(
            journal, tools, clock=clock, wall=wall, on_end=self._on_end, on_exceeded=self._on_exceeded, observer=self.tally
        )
        self._budgets = Budgets(self._recorder, self._stop, clock, later)
        self._traces = traces
        self._loop = Loop(config, CountingModel(model, self.tally.failed), tools, self._recorder.record, clock, sleep, traces)
        self._house = Housekeeping(
            model, journal, self._runs.entries, self._drop, retention_seconds=config.retention_seconds, clock=clock, wall=wall
        )

    # ---- life -----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Read the journal and take unfinished runs up again. Raises LuftpauseError."""
        loaded = await self._journal.load()
        self._runs.take(loaded)
        for entry in self._runs:
            self.tally.took(entry.run)
        unfinished = [entry for entry in self._runs if not entry.ended]
        self._unfinished = len(unfinished)
        if self._runs.entries:
            log.info("read the journal", runs=len(self._runs.entries), resumed=len(unfinished) - len(loaded.lost), lost=len(loaded.lost))
        self._tools_ready = self._task(self._tools.ready(self._config.tools_ready_seconds))
        self._budgets.check(list(self._runs))
        for entry in unfinished:
            self._resume(entry, loaded.lost.get(entry.handle))
        for entry in self._runs:
            self._budgets.start(entry)
        self._task(self._house.tidy())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._recorder.stopping = True
        self._budgets.stop(self._runs)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
        for entry in self._runs:
            entry.stop(stopping())

    def _resume(self, entry: Entry, lost: str | None) -> None:
        if entry.run.state.ended:
            return  # its budget was used up
        above = barred(entry.parent)
        if lost is not None:
            self._recorder.end(
                entry, RunState.FAILED, f"{lost}; what the run did can't be told for sure, so it was not taken up again. Spawn it anew"
            )
        elif above is not None:
            self._recorder.end(entry, RunState.CANCELLED, above[1])
        else:
            self._start(entry, lambda: self._take_up(entry))

    async def _take_up(self, entry: Entry) -> Effects:
        """Not before the tools are there: a call is written down as started when it can leave."""
        if self._tools_ready is not None:
            await asyncio.wait({self._tools_ready})
        try:
            return await self._recorder.record(entry, Resumed(self._wall()))
        finally:
            entry.taken_up.set()

    # ---- what clients ask -----------------------------------------------------------------------------------------

    async def spawn(self, request: SpawnRequest) -> RunView:
        check_request(request, self._tools)
        self._check_parent(request)
        model = await self._models.choose(request.model)
        parent = self._check_parent(request)  # again: it may have been cancelled meanwhile
        if self._recorder.stopping:
            raise stopping()
        if self._unfinished >= self._config.runs_max:
            raise too_many_runs(self._unfinished)
        inherited = parent.run.created.service_class if parent else ServiceClass.INTERACTIVE
        prefix = f"{self._config.name}." if self._config.name else ""
        event = created(
            request,
            handle=prefix + new_run_id(),
            model=model,
            service_class=request.service_class or inherited,
            at=self._wall(),
        )
        return await self._create(event, parent)

    async def wait(
        self,
        handles: Sequence[str],
        mode: Literal["all", "any"],
        timeout_s: float,
        owner: str | None,
        approvals_known: Collection[str] | None = None,
    ) -> tuple[RunView, ...]:
        if not handles:
            raise bad_argument("handles", "it is empty; name at least one")
        entries = {handle: self._runs.find(handle, owner) for handle in handles}
        if timeout_s > 0:
            pending = [entry for entry in entries.values() if not entry.ended]
            if mode == "all" or len(pending) == len(entries):
                await self._ended(pending, len(pending) if mode == "all" else 1, timeout_s, approvals_known)
        return tuple(self._view(entries[handle]) for handle in handles)

    async def approve(self, handle: str, allow: bool, approval_id: str | None, owner: str | None) -> Decided:
        entry = self._runs.find(handle, owner)
        # A task of its own: a decision that is on its way to the disk is carried out, even when whoever gave it has left.
        answering = self._task(approving.answer(entry, allow, approval_id, self._recorder, self._wall()))
        try:
            verdict, first = await asyncio.shield(answering)
        except asyncio.CancelledError:
            if self._recorder.stopping:
                raise stopping() from None
            raise
        return Decided(verdict.approval, verdict.tool, verdict.allowed, first, self._view(entry))

    async def approval_over(self, handle: str, approval_id: str, owner: str | None) -> bool | None:
        return await approving.over(self._runs.find(handle, owner), approval_id)

    async def decide(self, text: str, labels: Sequence[str] | None, model: str | None, caller: str) -> Decision:
        return await self._models.decide(text, labels, model, caller)

    def of_task(self, task_id: str, owner: str | None) -> RunView:
        return self._view(self._runs.of_task(task_id, owner))

    def view(self, handle: str, owner: str | None) -> RunView:
        return self._view(self._runs.find(handle, owner))

    def views(self, owner: str | None) -> tuple[RunView, ...]:
        return tuple(self._view(entry) for entry in self._runs if entry.shown and entry.run.created.owner == owner)

    def everything(self) -> tuple[RunView, ...]:
        return tuple(self._view(entry) for entry in self._runs if entry.shown)

    async def cancel(self, handle: str, owner: str | None) -> RunView:
        entry = self._runs.find(handle, owner)
        unfinished = [each for each in subtree(entry) if not each.ended]
        for each in unfinished:
            self._stop(each, "cancelled")
        await self._ended(unfinished, len(unfinished), None)
        return self._view(entry)

    # ---- parts of the above ---------------------------------------------------------------------------------------

    def _check_parent(self, request: SpawnRequest) -> Entry | None:
        """Raises LuftpauseError if it isn't known, or if it or a run above it was cancelled or has used up its budget."""
        if request.parent is None:
            return None
        parent = self._runs.find(request.parent, request.owner)
        if found := barred(parent):
            above, why = found
            what = f"has its {why}" if above.run.exceeded is not None else "was cancelled"
            raise bad_argument("parent", f"{above.handle} {what}, so it gets no more children")
        return parent

    async def _create(self, event: Created, parent: Entry | None) -> RunView:
        entry = Entry(Run(created=event), parent, began=self._clock())
        self._runs.add(entry)
        entry.taken_up.set()
        self._unfinished += 1
        creating = self._task(self._begin(entry, event))
        try:
            await asyncio.shield(creating)
        except asyncio.CancelledError:
            if self._recorder.stopping:
                raise stopping() from None
            self._stop(entry, "cancelled")  # the client left before it had the handle: nobody could ever ask for this run
            raise
        return self._view(entry)

    async def _begin(self, entry: Entry, event: Created) -> None:
        try:
            effects = await self._recorder.commit(entry, None, event)
        except LuftpauseError:
            self._forget(entry)
            raise
        if entry.cancel_asked:
            above = barred(entry.parent)
            self._stop(entry, above[1] if above else "cancelled")
        else:
            self._budgets.start(entry)
            self._start(entry, lambda: _done(effects))

    def _stop(self, entry: Entry, text: str) -> None:
        """End it now, whatever it does."""
        if entry.shown is None:
            entry.cancel_asked = True
            return
        if entry.task is not None:
            entry.task.cancel()
        if not entry.run.state.ended:
            self._recorder.end(entry, RunState.CANCELLED, text)

    async def _ended(
        self, entries: Sequence[Entry], count: int, timeout_s: float | None, approvals_known: Collection[str] | None = None
    ) -> None:
        if self._recorder.stopping:
            raise stopping()
        await waiting.ended(entries, count, timeout_s, approvals_known)

    def _view(self, entry: Entry) -> RunView:
        around = Around(
            seconds=self._recorder.age(entry),
            children=tuple(child.handle for child in entry.children),
            note="waiting for room on the disk" if self._journal.waiting else entry.note,
            subtree=entry.subtree,
            budget_seconds=entry.budget_seconds(self._clock()),
        )
        return view(entry.shown or entry.run, around)

    # ---- tasks ----------------------------------------------------------------------------------------------------

    def _start(self, entry: Entry, first: Callable[[], Awaitable[Effects]]) -> None:
        entry.task = self._task(self._drive(entry, first))

    async def _drive(self, entry: Entry, first: Callable[[], Awaitable[Effects]]) -> None:
        try:
            effects = await first()
            if self._tools_ready is not None:
                await asyncio.wait({self._tools_ready})  # else a run resumed by a restart would be asked to go on without its tools
            await self._loop.drive(entry, effects)
        except* Over:
            pass
        except* LuftpauseError as errors:  # the journal doesn't take events any more: the next start resumes
            log.warning("run stopped", run=entry.handle, why=str(errors.exceptions[0]))
        except* Exception as errors:  # noqa: BLE001  (a fault must end its own run only)
            what = repr(errors.exceptions[0])
            log.error("run failed by a fault of luftpause", run=entry.handle, error=what)  # noqa: TRY400  (no exception())
            if not entry.run.state.ended and not self._recorder.stopping:
                self._recorder.end(entry, RunState.FAILED, f"internal error: {what}; this is a fault of luftpause, please report it")

    def _on_exceeded(self, entry: Entry, limit: Passed) -> None:
        self._budgets.exceeded(entry, limit)

    def _on_end(self, entry: Entry) -> None:
        run = entry.run
        self._unfinished -= 1
        why = {"error": run.text[:300]} if run.state is RunState.FAILED else {}
        if self._traces is not None:
            self._traces.ended(run)
        log.info("run ended", run=run.handle, state=run.state.value, turns=run.turns, tool_calls=run.tool_calls, **why)
        self._task(self._house.after_end(run.handle))

    # ---- small things ---------------------------------------------------------------------------------------------

    def _task(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        # In a context of its own: in that of the client's request the SDK would tell tools that they are called within that one.
        task = asyncio.create_task(work, context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever awaits it hears of it

    def _drop(self, handle: str) -> None:
        """A run whose retention is over."""
        self.tally.dropped(self._runs.entries[handle].run)
        self._runs.drop(handle)

    def _forget(self, entry: Entry) -> None:
        """A run that could not be created."""
        self._unfinished -= 1
        self._runs.forget(entry)


async def _done(effects: Effects) -> Effects:
    return effects
