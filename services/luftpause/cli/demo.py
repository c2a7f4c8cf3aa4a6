"""How does a person see in half a minute what luftpause does, with nothing installed but this?"""

import asyncio
import itertools
import secrets
import shutil
import sys
import textwrap
import time
from pathlib import Path
from typing import Final

import orjson
from msgspec import Struct, to_builtins
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from luftpause.cli import stack, subagents
from luftpause.cli.children import Children, Show, supervise
from luftpause.cli.choices import Engine
from luftpause.cli.lines import LinePrinter, readable
from luftpause.cli.scratch import scratch
from luftpause.cli.stack import Plan
from luftpause.cli.subagents import SubAgentRun
from luftpause.cli.up import MODEL_SECONDS_MAX, first_model, how_to_attach
from luftpause.kit import serve
from luftpause.kit.auth import TOKEN, from_environment
from luftpause.kit.config import Config, RuntimeConfig

SECONDS_MAX: Final = {Engine.FAKE: 120.0, Engine.LLAMACPP: 300.0}
PROGRESS_SECONDS: Final = 0.5
MAX_TOKENS: Final = {Engine.FAKE: 256, Engine.LLAMACPP: 40}
ANSWER_CHARS_MAX: Final = 240
INDENT: Final = "    "

FAKE_TASKS: Final = (
    "Tide tables of the north coast",
    "Lighthouses that still have keepers",
    "Ferries between the inner islands",
    "Migratory birds in the salt marshes",
    "Wrecks along the shipping lane",
    "Weather records of the harbour",
    "Languages spoken on the islands",
    "Windmills that still grind",
)
LLAMA_TASKS: Final = (
    "Name one river in Europe.",
    "Which colour has the sky on a clear day?",
    "Give a synonym of 'quick'.",
    "What is the capital of France?",
    "Name an animal that can fly.",
    "Write a short greeting.",
    "What do bees make?",
    "Name one season of the year.",
)
TASKS: Final = {Engine.FAKE: FAKE_TASKS, Engine.LLAMACPP: LLAMA_TASKS}


class Result(Struct, frozen=True):
    """What the demo measured. `seconds` is the time of all together, from the first spawn to the last answer."""

    engine: str
    model: str | None
    completed: int
    agents: int
    seconds: float
    run_seconds_sum: float
    tasks: tuple[str, ...]
    runs: tuple[SubAgentRun, ...]


async def demo(engine: Engine, agents: int, *, as_json: bool, verbose: bool) -> int:
    """Start everything on free ports, fan out, show, stop; returns the exit status: 0 only if every sub-agent completed."""
    console = Console(stderr=True)
    stopping = asyncio.Event()
    show = LinePrinter(console) if verbose else _quiet(console, stopping)
    token = from_environment(TOKEN) or secrets.token_hex(32)  # what runs for a moment is open to nobody else either
    with scratch() as folder:
        children = Children(folder, show, {TOKEN: token})
        async with serve.stop_signals() as stop:
            try:
                result = await supervise(children, stop, _run(children, engine, agents, folder, console, token))
            finally:
                stopping.set()
                await children.stop(stop.now)
    if result is None:
        console.print("interrupted; everything is stopped")
        return 130
    if as_json:
        print(orjson.dumps(to_builtins(result), option=orjson.OPT_INDENT_2).decode())
    else:
        _print(result, Console())
    return 0 if result.completed == agents else 1


async def _run(children: Children, engine: Engine, agents: int, folder: Path, console: Console, token: str) -> Result:
    with _progress(console) as progress:
        starting = progress.add_task("starting engines, tools and the three services", total=None)
        config = stack.with_free_ports(Config(runtime=RuntimeConfig(state=folder / "state", progress_seconds=PROGRESS_SECONDS)))
        at = await stack.start(children, Plan(config, engine, folder))
        model = await first_model(at, MODEL_SECONDS_MAX, token)
        progress.remove_task(starting)
        bar = progress.add_task(f"{agents} sub-agents", total=agents)

        def show(done: int, message: str) -> None:
            progress.update(bar, completed=done, description=message or f"{agents} sub-agents")

        return await _fan_out(at.mcp, token, engine, model, agents, show)


async def _fan_out(mcp: str, token: str, engine: Engine, model: str | None, agents: int, done: subagents.Progress) -> Result:
    tasks = [f"{task}" for task, _ in zip(itertools.cycle(TASKS[engine]), range(agents), strict=False)]
    began = time.monotonic()
    async with subagents.connect(mcp, caller="demo", token=token) as client:
        handles = await asyncio.gather(*(client.spawn(task, model=model, maxTokens=MAX_TOKENS[engine]) for task in tasks))
        runs = await client.wait(handles, seconds_max=SECONDS_MAX[engine], progress=done)
    return Result(
        engine=engine.value,
        model=model,
        completed=sum(run.completed for run in runs),
        agents=agents,
        seconds=time.monotonic() - began,
        run_seconds_sum=sum(run.seconds for run in runs),
        tasks=tuple(tasks),
        runs=tuple(runs),
    )


def _progress(console: Console) -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True)


def _quiet(console: Console, stopping: asyncio.Event) -> Show:
    """Shows warnings and errors only; none of parts that lose each other because all are being stopped."""
    printer = LinePrinter(console)

    def show(name: str, line: str) -> None:
        if not stopping.is_set() and readable(line)[0] in {"warning", "error", "critical"}:
            printer(name, line)

    return show


def _print(result: Result, console: Console) -> None:
    width = max(len(task) for task in result.tasks)
    for number, (task, run) in enumerate(zip(result.tasks, result.runs, strict=True), 1):
        console.print(f"{number:>2}  {task:<{width}}  {_figures(run)}", markup=False, highlight=False, soft_wrap=True)
        said = run.answer if run.completed else f"{run.state}: {run.error or 'no answer in time'}"
        answer = textwrap.fill(
            _short(said or "(an empty answer)"), width=console.width - 1, initial_indent="    ", subsequent_indent="    "
        )
        console.print(answer, style="cyan" if run.completed else "red", markup=False, highlight=False)
    console.print(_closing(result), markup=False, highlight=False, soft_wrap=True)


def _figures(run: SubAgentRun) -> str:
    calls = "1 tool call " if run.tool_calls == 1 else f"{run.tool_calls} tool calls"
    return f"{calls}  {run.seconds:4.1f} s"


def _short(answer: str) -> str:
    one_line = " ".join(answer.split())
    return one_line if len(one_line) <= ANSWER_CHARS_MAX else one_line[: ANSWER_CHARS_MAX - 1] + "…"


def _closing(result: Result) -> str:
    flag = "" if result.engine == Engine.FAKE.value else f" --engine {result.engine}"
    times = f"in {result.seconds:.1f} s; their run times add up to {result.run_seconds_sum:.1f} s"
    return f"""
{result.completed} of {result.agents} sub-agents completed {times}.
Everything is stopped again. To attach a client of your own, start luftpause and leave it running:

  {_program()} up{flag}

{how_to_attach(stack.DEFAULT_ADDRESSES, result.model, with_token=bool(from_environment(TOKEN)))}
"""


def _program() -> str:
    """What to type for this program: its name where the shell finds it, else its path as it was typed."""
    typed = sys.argv[0]
    if Path(typed).name != "luftpause":
        return f"{sys.executable} -m luftpause"
    found = shutil.which("luftpause")
    return "luftpause" if found is not None and Path(found).resolve() == Path(typed).resolve() else typed
