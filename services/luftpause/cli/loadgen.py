"""How is a load put on luftpause or on anything that speaks its APIs, and what is seen of it meanwhile?"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from luftpause.cli import load_trace, subagents
from luftpause.cli.load_agents import Load, Loaded, Standing, run_load
from luftpause.cli.load_report import DecideReport, Outcome, Report, RunRecord, decide_report, report
from luftpause.cli.load_stop import interruptible
from luftpause.cli.load_target import choose_model
from luftpause.cli.subagents import SubAgentRun, SubAgents
from luftpause.kit.errors import LuftpauseError

SPAWNS_AT_ONCE: Final = 64
SPAWN_END_SECONDS: Final = 10.0  # after an interrupt, to hear of runs that were asked for: they must be cancelled too
GIVE_UP_SECONDS: Final = 10.0
TICK_SECONDS: Final = 0.5


async def own_loop(load: Load, *, warm_up_s: float = 0.0, trace_out: Path | None = None) -> Report:
    """Agents with their own loop, through `load.base_url`; empty models are the only ones served there. Raises LuftpauseError."""
    load = await _with_models(load)
    standing = Standing()

    def note(now: Standing) -> None:
        nonlocal standing
        standing = now

    with _bar() as bar, interruptible() as interrupt:
        task = bar.add_task("", total=load.seconds)
        began = time.monotonic()

        def describe() -> None:
            bar.update(task, completed=time.monotonic() - began, description=_described(load, standing))

        async with _every(TICK_SECONDS, describe):
            loaded = await run_load(load, note, interrupt.asked)
    if trace_out is not None:
        load_trace.write(trace_out, loaded.runs)
    found = report(loaded.runs, loaded.seconds, warm_up_s=warm_up_s, seed=loaded.seed)
    decided = _decided(loaded, warm_up_s) if load.deciding.clients else None
    return replace(found, decide=decided, interrupted=interrupt.by)


async def _with_models(load: Load) -> Load:
    if not load.model and (load.crowds or load.plans):
        load = replace(load, model=await choose_model(load.base_url, load.token))
    if load.deciding.clients and not load.deciding.model:
        load = replace(load, deciding=replace(load.deciding, model=await choose_model(load.base_url, load.token, classifier=True)))
    return load


def _described(load: Load, standing: Standing) -> str:
    agents = f"{load.agents} agents, " if load.agents else ""
    failed = f" ({standing.failed} failed)" if standing.failed else ""
    return f"{agents}{standing.open} runs open, {standing.ended} ended{failed}"


def _decided(loaded: Loaded, warm_up_s: float) -> DecideReport:
    counted = [each for each in loaded.decided if each.at_s + each.seconds > warm_up_s]
    errors = [each.error for each in counted if each.error is not None]
    return decide_report([each.seconds for each in counted if each.error is None], errors, loaded.seconds - warm_up_s)


async def spawned(mcp: str, number: int, *, caller: str, seconds_max: float, arguments: dict[str, object], token: str = "") -> Report:
    """`number` sub-agents over MCP; `arguments` are those of the tool `spawn`."""
    turn_class = str(arguments.get("serviceClass") or "interactive")
    with _bar() as bar, interruptible() as interrupt:
        task = bar.add_task(f"{number} sub-agents", total=number)
        began = time.monotonic()
        async with subagents.connect(mcp, caller=caller, token=token) as client:
            handles: list[str] = []
            progress = _advance(bar, task)
            try:
                await _until(_spawn(client, number, handles, arguments, interrupt.asked), interrupt.asked, SPAWN_END_SECONDS)
                if not interrupt.asked.is_set():
                    await _until(client.wait(handles, seconds_max=seconds_max, progress=progress), interrupt.asked)
            except LuftpauseError:
                await _give_up(client, handles)
                raise
            runs = await client.wait(handles, seconds_max=0, progress=progress) if handles else []
            await asyncio.gather(*(client.cancel(run.handle) for run in runs if not run.ended))
    found = report([_record(run, turn_class) for run in runs], time.monotonic() - began)
    return replace(found, interrupted=interrupt.by)


async def _spawn(client: SubAgents, number: int, handles: list[str], arguments: dict[str, object], stop: asyncio.Event) -> None:
    """`handles` grows as runs begin; after `stop`, or once one is refused, no more do. Raises why when all that were asked are known."""
    spawning = asyncio.Semaphore(SPAWNS_AT_ONCE)
    refused: list[LuftpauseError] = []

    async def spawn(i: int) -> None:
        async with spawning:
            if stop.is_set() or refused:
                return
            try:
                handles.append(await client.spawn(f"Task {i}: look up one fact about the number {i} and sum it up.", **arguments))
            except LuftpauseError as error:
                refused.append(error)

    async with asyncio.TaskGroup() as tasks:
        for i in range(number):
            tasks.create_task(spawn(i))
    if refused and not stop.is_set():
        raise refused[0]


async def _give_up(client: SubAgents, handles: Sequence[str]) -> None:
    """Cancel as many as can be, where something went wrong that is told already."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(GIVE_UP_SECONDS):
            await asyncio.gather(*(client.cancel(handle) for handle in handles), return_exceptions=True)


async def _until(work: Coroutine[Any, Any, object], stop: asyncio.Event, seconds_more: float = 0.0) -> None:
    """Until the work is done, or `seconds_more` after `stop`, which then ends it. Raises what the work does."""
    task, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({task}, timeout=seconds_more if stop.is_set() else None)
        if task.done():
            task.result()
    finally:
        for each in (task, stopped):
            each.cancel()
        await asyncio.gather(task, stopped, return_exceptions=True)


def _record(run: SubAgentRun, turn_class: str) -> RunRecord:
    outcome = Outcome.COMPLETED if run.completed else Outcome.FAILED if run.ended else Outcome.UNFINISHED
    return RunRecord(
        turn_class=turn_class,
        outcome=outcome,
        seconds=run.seconds,
        turns=run.turns,
        prompt_tokens=run.prompt_tokens,
        cached_tokens=run.cached_tokens,
        completion_tokens=run.completion_tokens,
        tool_calls=run.tool_calls,
        error=(run.error or run.state) if outcome is Outcome.FAILED else None,
    )


def _bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def _advance(bar: Progress, task: TaskID) -> subagents.Progress:
    def advance(done: int, message: str) -> None:
        bar.update(task, completed=done, description=message or None)

    return advance


@contextlib.asynccontextmanager
async def _every(seconds: float, call: Callable[[], None]) -> AsyncGenerator[None]:
    async def repeat() -> None:
        while True:
            await asyncio.sleep(seconds)
            call()

    task = asyncio.create_task(repeat())
    try:
        yield
    finally:
        task.cancel()
