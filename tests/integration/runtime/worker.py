"""A process that runs sub-agents with a model and tools of its own, for a test that kills it.

`python -m tests.integration.runtime.worker STATE CALLS RUNS`: spawns RUNS runs unless STATE knows some, writes each tool call to CALLS,
says "up", and "done" with all answers once every run has ended.
"""

import asyncio
import os
import sys
from pathlib import Path

import orjson

from luftpause.kit.config import RuntimeConfig
from luftpause.runtime.journal import Journal
from luftpause.runtime.ports import Json, ModelAnswer, ModelTurn, SpawnRequest, ToolResult
from luftpause.runtime.runs import RunService
from tests.support.agents import CountingTools, ScriptedModel, calls, spec, text

ROUNDS = 4


async def answer(turn: ModelTurn) -> ModelAnswer:
    """Four rounds with one call of each kind, told apart by run and round."""
    await asyncio.sleep(0.005)
    done = sum(message["role"] == "assistant" for message in turn.messages)
    if done == ROUNDS:
        return text(f"answer of {turn.messages[0]['content']}")
    question = {"q": f"{turn.messages[0]['content']} {done}"}
    return calls(("pay", question), ("look", question))


async def main(state: Path, log: Path, count: int) -> None:
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def work(name: str, arguments: Json) -> ToolResult:
        os.write(fd, f"{name} {arguments['q']}\n".encode())
        await asyncio.sleep(0.005)
        return ToolResult("done")

    tools = CountingTools(spec("pay"), spec("look", read_only=True), work=work)
    config = RuntimeConfig(state=state)
    async with await Journal.open(config) as journal, RunService(config, ScriptedModel(answer), tools, journal) as runs:
        print("up", flush=True)
        missing = count - len(runs.everything())
        for number in range(missing):
            task = f"task {count - missing + number}"
            await runs.spawn(SpawnRequest(task, system="", parallel_tool_calls=number % 2 == 0))
        views = await runs.wait([view.handle for view in runs.everything()], "all", 60, None)
        print("done", orjson.dumps({view.task: [view.state.value, view.answer, view.tool_calls] for view in views}).decode(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
