"""How does a runtime hold a thousand runs, and take them up again after a restart?"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Literal, Self

from luftpause.kit.clock import Clock, monotonic
from luftpause.kit.config import RuntimeConfig
from luftpause.kit.errors import LuftpauseError
from luftpause.kit.ids import new_run_id
from luftpause.kit.logs import Log
from luftpause.runtime.core.events import Created, Resumed
from luftpause.runtime.core.model import Run
from luftpause.runtime.core.view import view
from luftpause.runtime.entries import Entry, Waiter, ancestors, subtree
from luftpause.runtime.housekeeping import Housekeeping
from luftpause.runtime.journal import Journal
from luftpause.runtime.journal_load import Loaded
from luftpause.runtime.loop import Loop, Sleep
from luftpause.runtime.ports import ModelClient, RunState, RunView, ServiceClass, SpawnRequest, Toolbox
from luftpause.runtime.recorder import Effects, Over, Recorder
from luftpause.runtime.refusals import bad_argument, stopping, too_many_runs, unknown_handle
from luftpause.runtime.spawning import Models, check_request, created

STOP_SECONDS: Final = 2.0  # for tools that don't listen when they are cancelled

log = Log("runtime")


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
        owner_lives: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """`owner_lives`: an owner that is gone (a session that ended) keeps nobody out."""
        self._config = config
        self._tools = tools
        self._journal = journal
        self._clock = clock
        self._owner_lives = owner_lives
        self._wall = wall
        self._entries: dict[str, Entry] = {}
        self._unfinished = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._tools_ready: asyncio.Task[None] | None = None
        self._models = Models(model, config.default_model)
        self._recorder = Recorder(journal, tools, clock=clock, wall=wall, on_end=self._on_end)
        self._loop = Loop(config, model, tools, self._recorder.record, sleep)
        self._house = Housekeeping(model, journal, self._entries, retention_seconds=config.retention_seconds, clock=clock, wall=wall)

    # ---- life -----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Read the journal and take unfinished runs up again. Raises LuftpauseError."""
        loaded = await self._journal.load()
        self._take(loaded)
        unfinished = [entry for entry in self._entries.values() if not entry.ended]
        self._unfinished = len(unfinished)
        if self._entries:
            log.info("read the journal", runs=len(self._entries), resumed=len(unfinished) - len(loaded.lost), lost=len(loaded.lost))
        self._tools_ready = self._task(self._tools.ready(self._config.tools_ready_seconds))
        for entry in unfinished:
            self._resume(entry, loaded.lost.get(entry.handle))
        self._task(self._house.tidy())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._recorder.stopping = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
        for entry in self._entries.values():
            for waiter in entry.waiters:
                waiter.stop(stopping())

    def _take(self, loaded: Loaded) -> None:
        for handle, run in loaded.runs.items():
            self._entries[handle] = Entry(run)
            self._entries[handle].shown = run
        for handle, run in loaded.runs.items():
            if run.created.parent in self._entries:
                self._entries[run.created.parent].children.append(handle)

    def _resume(self, entry: Entry, lost: str | None) -> None:
        parent = entry.run.created.parent
        if lost is not None:
            self._recorder.end(
                entry, RunState.FAILED, f"{lost}; what the run did can't be told for sure, so it was not taken up again. Spawn it anew"
            )
        elif any(above.run.state is RunState.CANCELLED for above in ancestors(self._entries, parent)):
            self._recorder.end(entry, RunState.CANCELLED, "cancelled with its parent")
        else:
            self._start(entry, lambda: self._recorder.record(entry, Resumed(self._wall())))

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

    async def wait(self, handles: Sequence[str], mode: Literal["all", "any"], timeout_s: float, owner: str | None) -> tuple[RunView, ...]:
        if not handles:
            raise bad_argument("handles", "it is empty; name at least one")
        entries = {handle: self._find(handle, owner) for handle in handles}
        if timeout_s > 0:
            pending = [entry for entry in entries.values() if not entry.ended]
            if mode == "all" or len(pending) == len(entries):
                await self._ended(pending, len(pending) if mode == "all" else 1, timeout_s)
        return tuple(self._view(entries[handle]) for handle in handles)

    def view(self, handle: str, owner: str | None) -> RunView:
        return self._view(self._find(handle, owner))

    def views(self, owner: str | None) -> tuple[RunView, ...]:
        return tuple(self._view(entry) for entry in self._entries.values() if entry.shown and entry.run.created.owner == owner)

    def everything(self) -> tuple[RunView, ...]:
        """All runs, whoever they belong to: for the status page."""
        return tuple(self._view(entry) for entry in self._entries.values() if entry.shown)

    async def cancel(self, handle: str, owner: str | None) -> RunView:
        entry = self._find(handle, owner)
        unfinished = [each for each in subtree(self._entries, entry) if not each.ended]
        for each in unfinished:
            self._cancel(each)
        await self._ended(unfinished, len(unfinished), None)
        return self._view(entry)

    # ---- parts of the above ---------------------------------------------------------------------------------------

    def _find(self, handle: str, owner: str | None) -> Entry:
        entry = self._entries.get(handle)
        if entry is not None and entry.shown is not None and self._may(entry.run.created.owner, owner):
            return entry
        raise unknown_handle(handle, self._config.name)

    def _may(self, owns: str | None, asks: str | None) -> bool:
        return owns is None or owns == asks or not self._owner_lives(owns)

    def _check_parent(self, request: SpawnRequest) -> Entry | None:
        """Raises LuftpauseError if it isn't known, or if it or a run above it was cancelled."""
        if request.parent is None:
            return None
        parent = self._find(request.parent, request.owner)
        for above in ancestors(self._entries, parent.handle):
            if above.run.state is RunState.CANCELLED or above.cancel_asked:
                raise bad_argument("parent", f"{above.handle} was cancelled, so it gets no more children")
        return parent

    async def _create(self, event: Created, parent: Entry | None) -> RunView:
        entry = Entry(Run(created=event), began=self._clock())
        self._entries[event.handle] = entry
        self._unfinished += 1
        if parent is not None:
            parent.children.append(event.handle)
        creating = self._task(self._begin(entry, event))
        try:
            await asyncio.shield(creating)
        except asyncio.CancelledError:
            if self._recorder.stopping:
                raise stopping() from None
            self._cancel(entry)  # the client left before it had the handle: nobody could ever ask for this run
            raise
        return self._view(entry)

    async def _begin(self, entry: Entry, event: Created) -> None:
        try:
            effects = await self._recorder.commit(entry, None, event)
        except LuftpauseError:
            self._forget(entry)
            raise
        if entry.cancel_asked:
            self._cancel(entry)
        else:
            self._start(entry, lambda: _done(effects))

    def _cancel(self, entry: Entry) -> None:
        if entry.shown is None:
            entry.cancel_asked = True
        elif not entry.run.state.ended:
            if entry.task is not None:
                entry.task.cancel()
            self._recorder.end(entry, RunState.CANCELLED, "cancelled")

    async def _ended(self, entries: Iterable[Entry], count: int, timeout_s: float | None) -> None:
        """Until `count` of these have ended, or the time is over."""
        if not count:
            return
        if self._recorder.stopping:
            raise stopping()
        waiter = Waiter(count)
        waiting = list(entries)
        for entry in waiting:
            entry.waiters.add(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter.done
        except TimeoutError:
            pass
        finally:
            for entry in waiting:
                entry.waiters.discard(waiter)

    def _view(self, entry: Entry) -> RunView:
        run = entry.shown or entry.run
        children = tuple(handle for handle in entry.children if handle in self._entries)
        note = "waiting for room on the disk" if self._journal.waiting else entry.note
        return view(run, seconds=self._recorder.age(entry), children=children, note=note)

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

    def _on_end(self, entry: Entry) -> None:
        run = entry.run
        self._unfinished -= 1
        why = {"error": run.text[:300]} if run.state is RunState.FAILED else {}
        log.info("run ended", run=run.handle, state=run.state.value, turns=run.turns, tool_calls=run.tool_calls, **why)
        self._task(self._house.after_end(run.handle))

    # ---- small things ---------------------------------------------------------------------------------------------

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever awaits it hears of it

    def _forget(self, entry: Entry) -> None:
        """A run that could not be created."""
        self._unfinished -= 1
        self._entries.pop(entry.handle, None)
        parent = self._entries.get(entry.run.created.parent or "")
        if parent is not None:
            parent.children.remove(entry.handle)
        entry.release()


async def _done(effects: Effects) -> Effects:
    return effects
