"""How is a load put on luftpause or on anything that speaks its APIs, and what is seen of it meanwhile?"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from msgspec.structs import replace
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from luftpause.cli import load_trace, subagents
from luftpause.cli.load_agents import Load, Loaded, Standing, run_load
from luftpause.cli.load_report import DecideReport, Outcome, Report, RunRecord, decide_report, report
from luftpause.cli.load_stop import interruptible
from luftpause.cli.load_target import choose_model
from luftpause.cli.subagents import SubAgentRun, SubAgents

SPAWNS_AT_ONCE = 64
TICK_SECONDS = 0.5


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
            work = asyncio.create_task(_spawn_and_wait(client, number, handles, arguments, seconds_max, _advance(bar, task)))
            await _first(work, interrupt.asked)
            runs = await client.wait(handles, seconds_max=0, progress=_advance(bar, task)) if handles else []
            await asyncio.gather(*(client.cancel(run.handle) for run in runs if not run.ended))
    found = report([_record(run, turn_class) for run in runs], time.monotonic() - began)
    return replace(found, interrupted=interrupt.by)


async def _spawn_and_wait(
    client: SubAgents, number: int, handles: list[str], arguments: dict[str, object], seconds_max: float, progress: subagents.Progress
) -> None:
    """`handles` grows as runs begin."""
    spawning = asyncio.Semaphore(SPAWNS_AT_ONCE)

    async def spawn(i: int) -> None:
        async with spawning:
            handles.append(await client.spawn(f"Task {i}: look up one fact about the number {i} and sum it up.", **arguments))

    await asyncio.gather(*(spawn(i) for i in range(number)))
    await client.wait(handles, seconds_max=seconds_max, progress=progress)


async def _first(work: asyncio.Task[None], event: asyncio.Event) -> None:
    """Until the work is done, or the event ends it. Raises what the work does."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
    finally:
        for each in (work, waiting):
            each.cancel()
        await asyncio.gather(work, waiting, return_exceptions=True)


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
