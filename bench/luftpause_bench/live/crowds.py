"""How do sub-agents over MCP load something, one after the other, all at once or in a closed loop?"""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from msgspec import Struct

from luftpause.cli import subagents
from luftpause.cli.subagents import SubAgentRun, SubAgents
from luftpause.kit.errors import LuftpauseError

RUN_SECONDS_MAX: Final = 600.0
SYSTEM: Final = (
    "You are a careful research agent. Look facts up with the tool before you answer, and say which source you took them from. Ask one "
    "question at a time, in few words, and read what comes back before you ask again. Where two sources differ, name both figures and "
    "their years. Never guess: say so when nothing was found. Keep the answer short, in plain sentences, without lists, and begin with "
    "what was asked for. Notes that are part of the task may be old; a source that you looked up yourself counts more than they do. "
    "Units are metric, dates are days, and a name is written as its source writes it."
)  # with the tool's description about 250 tokens, four characters each
WORDS: Final = (
    "harbour", "ledger", "almanac", "ferry", "quarry", "lantern", "orchard", "signal", "meadow", "archive", "granite", "compass", "barley",
    "chimney", "estuary", "furnace",
)  # fmt: skip


class Task(Struct, frozen=True):
    """What a sub-agent is told, and which class its turns have."""

    text: str
    service_class: str = "interactive"


class Ended(Struct, frozen=True):
    """A run that ended, and at which second since the crowd began."""

    crowd: str
    at: float
    run: SubAgentRun


def text(chance: Random, name: str, characters: int, *, calls: int, answer_tokens: int, query_characters: int = 100) -> str:
    """A task that no other run shares, of about so many characters, which orders from a fake engine what its run will be like."""
    order = f'[calls={calls} tool=lookup answer={answer_tokens} args={{"query":"{_words(chance, name, query_characters)}"}}]'
    head = f"{name} {order}\nCompare the notes and name the one that fits.\n"
    return head + _words(chance, name, max(0, characters - len(head)))


def _words(chance: Random, name: str, characters: int) -> str:
    parts = [name]
    while sum(map(len, parts)) + len(parts) <= characters:
        parts.append(f"{chance.choice(WORDS)}-{chance.randrange(1000)}")
    return " ".join(parts)[:characters]


async def spawn(client: SubAgents, task: Task) -> str:
    return await client.spawn(task.text, serviceClass=task.service_class, system=SYSTEM, tools=["lookup"])


async def all_at_once(mcp: str, tasks: Sequence[Task], *, caller: str = "bench") -> tuple[float, list[SubAgentRun]]:
    """`spawn` of each, then one `await` of all: seconds from the first spawn, and the runs. Raises LuftpauseError if one fails."""
    async with subagents.connect(mcp, caller=caller) as client:
        began = time.monotonic()
        handles = await asyncio.gather(*(spawn(client, task) for task in tasks))
        runs = await client.wait(handles, seconds_max=RUN_SECONDS_MAX, progress=_silent)
        took = time.monotonic() - began
    return took, _completed(runs)  # what is raised within the block would come out as a group of exceptions


async def one_after_the_other(mcp: str, tasks: Sequence[Task], *, caller: str = "bench") -> tuple[float, list[SubAgentRun]]:
    """The same with each run spawned when the one before has ended."""
    runs: list[SubAgentRun] = []
    async with subagents.connect(mcp, caller=caller) as client:
        began = time.monotonic()
        for task in tasks:
            runs += await client.wait([await spawn(client, task)], seconds_max=RUN_SECONDS_MAX, progress=_silent)
        took = time.monotonic() - began
    return took, _completed(runs)


class Crowd(Struct, frozen=True):
    """`agents` sub-agents at any time: each agent spawns the next one when its last has ended. `task(agent, number)`: what it is told."""

    name: str
    agents: int
    task: Callable[[int, int], Task]


async def closed_loop(mcp: str, crowds: Sequence[Crowd], seconds: float) -> list[Ended]:
    """The runs that ended within the time; those still under way are cancelled. Each agent is a caller with an MCP session of its own."""
    ended: list[Ended] = []
    began = time.monotonic()
    agents = [asyncio.create_task(_agent(mcp, crowd, number, began, ended)) for crowd in crowds for number in range(crowd.agents)]
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*agents)
    finally:
        for agent in agents:
            agent.cancel()
        await asyncio.gather(*agents, return_exceptions=True)
    return ended


async def _agent(mcp: str, crowd: Crowd, agent: int, began: float, ended: list[Ended]) -> None:
    handle = ""
    async with subagents.connect(mcp, caller=f"{crowd.name}-{agent}") as client:
        try:
            for number in range(1_000_000):
                handle = await spawn(client, crowd.task(agent, number))
                (run,) = await client.wait([handle], seconds_max=RUN_SECONDS_MAX, progress=_silent)
                ended.append(Ended(crowd.name, time.monotonic() - began, run))
                if not run.completed:
                    break
        except asyncio.CancelledError:
            if handle:
                with contextlib.suppress(LuftpauseError):
                    await client.cancel(handle)
            raise
    _completed([ended[-1].run])


def _completed(runs: list[SubAgentRun]) -> list[SubAgentRun]:
    for run in runs:
        if not run.completed:
            raise LuftpauseError(f"a sub-agent ended as {run.state}: {run.error or 'no answer in time'}", code="run_failed")
    return runs


def _silent(_done: int, _message: str) -> None:
    """Nobody watches."""


# ---- figures ------------------------------------------------------------------------------------------------------


class OfCrowd(Struct, frozen=True):
    """Of the runs that ended in a window of time."""

    runs: int
    runs_per_minute: float
    run_seconds_p50: float
    run_seconds_p95: float
    cached_share: float  # prompt tokens found in the engines' caches


def figures(ended: Sequence[Ended], crowd: str, begin: float, end: float) -> OfCrowd:
    """`begin` and `end`: seconds since the crowds began."""
    runs = [each.run for each in ended if each.crowd == crowd and begin < each.at <= end]
    seconds = sorted(run.seconds for run in runs)
    prompt = sum(run.prompt_tokens for run in runs)
    return OfCrowd(
        len(runs), 60 * len(runs) / (end - begin), percentile(seconds, 0.5), percentile(seconds, 0.95),
        sum(run.cached_tokens for run in runs) / prompt if prompt else 0.0,
    )  # fmt: skip


def percentile(values: Sequence[float], share: float) -> float:
    """By nearest rank; 0 of nothing."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0
