"""How is a load put on luftpause or on anything that speaks its APIs, and what is shown of it?"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable

import msgspec
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from luftpause.cli import subagents
from luftpause.cli.load_agents import Load, choose_model, run_load
from luftpause.cli.load_report import ClassReport, Outcome, Report, RunRecord, Spread, report
from luftpause.cli.subagents import SubAgentRun

SPAWNS_AT_ONCE = 64
TICK_SECONDS = 0.5


async def own_loop(load: Load) -> Report:
    """Agents with their own loop, through `load.base_url`; an empty model is the only one served there."""
    if not load.model:
        load = msgspec.structs.replace(load, model=await choose_model(load.base_url, load.token))
    ended = 0

    def count(number: int) -> None:
        nonlocal ended
        ended = number

    with _bar() as bar:
        task = bar.add_task("", total=load.duration_s)
        began = time.monotonic()

        def describe() -> None:
            bar.update(task, completed=time.monotonic() - began, description=f"{load.agents} agents, {ended} runs ended")

        async with _every(TICK_SECONDS, describe):
            records = await run_load(load, count)
    return report(records, load.duration_s)


async def spawned(mcp: str, number: int, *, caller: str, seconds_max: float, arguments: dict[str, object], token: str = "") -> Report:
    """`number` sub-agents over MCP; `arguments` are those of the tool `spawn`."""
    turn_class = str(arguments.get("serviceClass") or "interactive")
    spawning = asyncio.Semaphore(SPAWNS_AT_ONCE)
    with _bar() as bar:
        task = bar.add_task(f"{number} sub-agents", total=number)
        began = time.monotonic()
        async with subagents.connect(mcp, caller=caller, token=token) as client:

            async def spawn(i: int) -> str:
                async with spawning:
                    return await client.spawn(f"Task {i}: look up one fact about the number {i} and sum it up.", **arguments)

            handles = await asyncio.gather(*(spawn(i) for i in range(number)))
            runs = await client.wait(handles, seconds_max=seconds_max, progress=_advance(bar, task))
            await asyncio.gather(*(client.cancel(run.handle) for run in runs if not run.ended))
    return report([_record(run, turn_class) for run in runs], time.monotonic() - began)


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


def show(result: Report, *, as_json: bool) -> int:
    """Print it on stdout; returns the exit status: 0 when runs completed and none failed."""
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(result), indent=2).decode())
    else:
        _table(result, Console())
    return 0 if result.completed and not result.failed else 1


def _table(result: Report, console: Console) -> None:
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column(f"in {result.seconds:.1f} s")
    for name in result.classes:
        table.add_column(name, justify="right")
    columns = [_rows(each) for each in result.classes.values()]
    for row, title in enumerate(ROW_TITLES):
        table.add_row(title, *(column[row] for column in columns))
    console.print(table)
    for name, each in result.classes.items():
        for error, count in each.errors.items():
            console.print(f"{name}: {count} × {error}", style="red", markup=False, highlight=False)


ROW_TITLES = (
    "runs completed", "runs failed", "runs unfinished", "runs/min", "run time p50 / p95 / p99", "first token p50 / p95 / p99",
    "turns", "tool calls", "prompt tokens", "of these from cache", "completion tokens",
)  # fmt: skip


def _rows(each: ClassReport) -> tuple[str, ...]:
    share = "–" if each.cached_share is None else f"{100 * each.cached_share:.1f} %"
    return (
        str(each.completed), str(each.failed), str(each.unfinished), f"{each.runs_per_min:.1f}",
        _times(each.run_s), _times(each.first_token_s),
        str(each.turns), str(each.tool_calls), str(each.prompt_tokens), share, str(each.completion_tokens),
    )  # fmt: skip


def _times(spread: Spread | None) -> str:
    return "–" if spread is None else f"{spread.p50:.2f} / {spread.p95:.2f} / {spread.p99:.2f} s"
