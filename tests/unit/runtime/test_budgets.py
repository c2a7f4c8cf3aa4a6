"""Does a subtree stop within one turn of its budget, whatever it does, and does a restart know?"""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from luftpause.kit.clock import monotonic
from luftpause.kit.config import RuntimeConfig
from luftpause.kit.errors import LuftpauseError
from luftpause.runtime.journal import Journal
from luftpause.runtime.ports import Amounts, BudgetKind, Json, ModelAnswer, ModelTurn, RunState, RunView, SpawnRequest, ToolResult
from luftpause.runtime.runs import RunService
from tests.support.agents import CountingTools, ScriptedModel, calls, never, spec, text

LOOKUP = calls(("lookup", '{"q": "x"}'))  # 12 tokens
THREE = calls(("lookup", '{"q": "1"}'), ("lookup", '{"q": "2"}'), ("lookup", '{"q": "3"}'))


@pytest.fixture
def config(tmp_path: Path) -> RuntimeConfig:
    return RuntimeConfig(state=tmp_path / "state", journal_reserve_bytes=0)


class Timers:
    """A clock, and bells that ring when it passes them."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.bells: list[tuple[float, Callable[[], None]]] = []

    def __call__(self) -> float:
        return self.now

    def later(self, seconds: float, call: Callable[[], None]) -> Any:
        bell = (self.now + seconds, call)
        self.bells.append(bell)
        return _Bell(self, bell)

    def pass_seconds(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [bell for bell in self.bells if bell[0] <= end]:
            first = min(due, key=lambda bell: bell[0])
            self.bells.remove(first)
            self.now = max(self.now, first[0])
            first[1]()
        self.now = end


class _Bell:
    def __init__(self, timers: Timers, bell: Any) -> None:
        self._timers = timers
        self._bell = bell

    def cancel(self) -> None:
        if self._bell in self._timers.bells:
            self._timers.bells.remove(self._bell)


@contextlib.asynccontextmanager
async def service(
    config: RuntimeConfig, model: ScriptedModel, tools: CountingTools | None = None, timers: Timers | None = None
) -> AsyncGenerator[RunService]:
    timers = timers or Timers()
    async with (
        await Journal.open(config) as journal,
        RunService(config, model, tools or CountingTools(), journal, clock=timers, wall=timers, later=timers.later) as runs,
    ):
        yield runs


async def ended(runs: RunService, *handles: str) -> tuple[RunView, ...]:
    views = await runs.wait(handles, "all", 60, None)
    assert all(view.state.ended for view in views)
    return views


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


async def test_tokens_are_counted_with_the_turn_that_passes_them(config: RuntimeConfig) -> None:
    model, tools = ScriptedModel(LOOKUP), CountingTools()
    async with service(config, model, tools) as runs:
        spawned = await runs.spawn(SpawnRequest("t", budget_tokens=30))
        (view,) = await ended(runs, spawned.handle)
    assert (view.state, view.error) == (RunState.CANCELLED, "budget exceeded: tokens 36/30")
    assert (view.turns, len(tools.made)) == (3, 2), "the calls of the turn that passed the limit are not made"
    assert view.budget is not None
    assert (view.budget.limits, view.budget.exceeded) == (Amounts(tokens=30), BudgetKind.TOKENS)
    assert (view.budget.used.tokens, view.budget.used.tool_calls) == (36, 3)


async def test_what_just_fits_is_not_beyond(config: RuntimeConfig) -> None:
    async with service(config, ScriptedModel(LOOKUP, text("42"))) as runs:
        spawned = await runs.spawn(SpawnRequest("t", budget_tokens=24, budget_tool_calls=1, budget_seconds=5))
        (view,) = await ended(runs, spawned.handle)
    assert (view.state, view.answer) == (RunState.COMPLETED, "42")
    assert view.budget is not None
    assert view.budget.exceeded is None


async def test_tool_calls_beyond_the_budget_are_not_made(config: RuntimeConfig) -> None:
    tools = CountingTools()
    async with service(config, ScriptedModel(LOOKUP, THREE), tools) as runs:
        spawned = await runs.spawn(SpawnRequest("t", budget_tool_calls=3, parallel_tool_calls=True))
        (view,) = await ended(runs, spawned.handle)
    assert (view.error, len(tools.made)) == ("budget exceeded: toolCalls 4/3", 1)


async def test_a_tree_of_three_levels_is_cancelled_by_a_grandchilds_turn(config: RuntimeConfig) -> None:
    steps: dict[str, asyncio.Event] = {}

    async def script(turn: ModelTurn) -> ModelAnswer:
        if turn.messages[-1]["content"] == "wait":
            return await never(turn)
        steps.setdefault(turn.run, asyncio.Event())
        await steps[turn.run].wait()
        return LOOKUP

    async with service(config, ScriptedModel(script)) as runs:
        root = await runs.spawn(SpawnRequest("wait", budget_tokens=11))
        child = await runs.spawn(SpawnRequest("wait", parent=root.handle, budget_tokens=1000))
        leaf = await runs.spawn(SpawnRequest("work", parent=child.handle))
        other = await runs.spawn(SpawnRequest("wait"))
        await until(lambda: leaf.handle in steps)
        steps[leaf.handle].set()
        views = await ended(runs, root.handle, child.handle, leaf.handle)
        assert {(view.state, view.error) for view in views} == {(RunState.CANCELLED, "budget exceeded: tokens 12/11")}
        assert [view.budget.exceeded if view.budget else None for view in views] == [BudgetKind.TOKENS, None, None]
        for parent in (root, child, leaf):
            with pytest.raises(LuftpauseError, match="budget exceeded: tokens 12/11, so it gets no more children"):
                await runs.spawn(SpawnRequest("more", parent=parent.handle))
        assert runs.view(other.handle, None).state is RunState.RUNNING
        assert runs.view(root.handle, None).subtree.turns == 1


async def test_seconds_bite_when_the_subtree_is_idle_and_a_completed_parents_go_on(config: RuntimeConfig) -> None:
    timers = Timers()

    async def script(turn: ModelTurn) -> ModelAnswer:
        return await never(turn) if turn.messages[-1]["content"] == "wait" else text("42")

    async with service(config, ScriptedModel(script), timers=timers) as runs:
        root = await runs.spawn(SpawnRequest("quick", budget_seconds=10))
        await ended(runs, root.handle)
        timers.pass_seconds(6)
        child = await runs.spawn(SpawnRequest("wait", parent=root.handle))
        timers.pass_seconds(3.99)
        assert runs.view(child.handle, None).state is RunState.RUNNING
        timers.pass_seconds(0.02)
        below, above = await ended(runs, child.handle, root.handle)
        assert (below.state, below.error) == (RunState.CANCELLED, "budget exceeded: seconds 10/10")
        assert (above.state, above.answer) == (RunState.COMPLETED, "42")
        assert above.budget is not None
        assert above.budget.exceeded is BudgetKind.SECONDS
        with pytest.raises(LuftpauseError, match="budget exceeded: seconds 10/10"):
            await runs.spawn(SpawnRequest("more", parent=root.handle))
        assert not timers.bells


@pytest.mark.parametrize("reason", ["exceeded", "cancelled"])
async def test_the_seconds_of_a_budget_stand_still_when_nothing_can_run_under_it_any_more(config: RuntimeConfig, reason: str) -> None:
    timers = Timers()
    async with service(config, ScriptedModel(never), timers=timers) as runs:
        top = (await runs.spawn(SpawnRequest("t", budget_seconds=10))).handle
        await runs.spawn(SpawnRequest("t", parent=top))
        if reason == "exceeded":
            timers.pass_seconds(10)
        else:
            timers.pass_seconds(7)
            await runs.cancel(top, None)
        await ended(runs, top)
        before = runs.view(top, None)
        timers.pass_seconds(100)
        assert runs.view(top, None).budget == before.budget
    async with service(config, ScriptedModel(never), timers=timers) as runs:
        timers.pass_seconds(100)
        again = runs.view(top, None)
        assert again.budget == before.budget
        with pytest.raises(LuftpauseError, match="exceeded: seconds 10/10" if reason == "exceeded" else "was cancelled"):
            await runs.spawn(SpawnRequest("t", parent=top))
    assert before.budget is not None
    assert before.budget.used.seconds == (10 if reason == "exceeded" else 7)
    assert before.budget.exceeded == (BudgetKind.SECONDS if reason == "exceeded" else None)


async def test_a_run_that_passes_the_limit_of_one_above_knows_its_own_seconds(config: RuntimeConfig) -> None:
    timers, turn_may_end = Timers(), asyncio.Event()

    async def script(turn: ModelTurn) -> ModelAnswer:
        await turn_may_end.wait()
        return text("42")

    async with service(config, ScriptedModel(script), timers=timers) as runs:
        top = (await runs.spawn(SpawnRequest("t", budget_tokens=1))).handle
        below = (await runs.spawn(SpawnRequest("t", parent=top, budget_seconds=100))).handle
        timers.pass_seconds(7)
        turn_may_end.set()
        _, view = await ended(runs, top, below)
    assert view.error is not None
    assert view.error.startswith("budget exceeded: tokens")
    assert view.budget is not None
    assert (view.budget.used.seconds, view.budget.exceeded) == (7, None)


async def test_seconds_stand_still_while_the_runtime_is_down(config: RuntimeConfig) -> None:
    timers, model = Timers(), ScriptedModel(never)
    async with service(config, model, timers=timers) as runs:
        spawned = await runs.spawn(SpawnRequest("t", budget_seconds=100))
        timers.pass_seconds(40)
    timers.now += 5000
    async with service(config, model, timers=timers) as runs:
        view = runs.view(spawned.handle, None)
        assert view.budget is not None
        assert view.budget.used.seconds == pytest.approx(40)
        timers.pass_seconds(59)
        assert runs.view(spawned.handle, None).state is RunState.RUNNING
        timers.pass_seconds(1.1)
        (view,) = await ended(runs, spawned.handle)
    assert view.error == "budget exceeded: seconds 100/100"


async def test_a_restart_knows_what_was_used_and_what_was_exceeded(config: RuntimeConfig) -> None:
    async with service(config, ScriptedModel(text("42"))) as runs:
        root = await runs.spawn(SpawnRequest("t", budget_tokens=30))
        child = await runs.spawn(SpawnRequest("t", parent=root.handle))
        await ended(runs, root.handle, child.handle)
    async with service(config, ScriptedModel(text("43"))) as runs:
        assert runs.view(root.handle, None).subtree.prompt_tokens == 20
        last = await runs.spawn(SpawnRequest("t", parent=root.handle))
        (view,) = await ended(runs, last.handle)
        assert view.error == "budget exceeded: tokens 36/30"
    async with service(config, ScriptedModel(text("44"))) as runs:
        with pytest.raises(LuftpauseError, match="budget exceeded: tokens 36/30"):
            await runs.spawn(SpawnRequest("t", parent=child.handle))
        view = runs.view(root.handle, None)
        assert (view.state, view.answer) == (RunState.COMPLETED, "42")
        assert view.budget is not None
        assert view.budget.exceeded is BudgetKind.TOKENS


async def test_no_active_run_goes_on_beyond_the_turn_that_it_was_in(config: RuntimeConfig) -> None:
    """Twenty runs under one budget, all in a turn at once: each has ended after that turn at the latest."""
    together = asyncio.Barrier(20)

    async def script(turn: ModelTurn) -> ModelAnswer:
        if turn.messages[-1]["content"] == "wait":
            return await never(turn)
        await together.wait()
        return LOOKUP

    model, tools = ScriptedModel(script), CountingTools()
    async with service(config, model, tools) as runs:
        root = await runs.spawn(SpawnRequest("wait", budget_tokens=12 * 25))
        children = [await runs.spawn(SpawnRequest("work", parent=root.handle)) for _ in range(20)]
        views = await ended(runs, *(child.handle for child in children))
        used = runs.view(root.handle, None).subtree
    assert {view.error for view in views} == {"budget exceeded: tokens 312/300"}
    assert max(view.turns for view in views) <= 2
    assert used.turns == 26, "what is over is what the turn of one run brought"


async def test_limits_of_ancestors_all_apply(config: RuntimeConfig) -> None:
    async def script(turn: ModelTurn) -> ModelAnswer:
        return await never(turn) if turn.messages[1]["content"] == "wait" else LOOKUP

    async with service(config, ScriptedModel(script)) as runs:
        root = await runs.spawn(SpawnRequest("wait", budget_tool_calls=3))
        child = await runs.spawn(SpawnRequest("work", parent=root.handle, budget_tool_calls=1))
        (view,) = await ended(runs, child.handle)
        assert view.error == "budget exceeded: toolCalls 2/1"
        assert runs.view(root.handle, None).state is RunState.RUNNING
        second = await runs.spawn(SpawnRequest("work", parent=root.handle, budget_tool_calls=50))
        views = await ended(runs, second.handle, root.handle)
    assert {view.error for view in views} == {"budget exceeded: toolCalls 4/3"}


async def test_a_real_clock_bites(config: RuntimeConfig) -> None:
    async def work(name: str, arguments: Json) -> ToolResult:
        del name, arguments
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    tools = CountingTools(work=work)
    async with await Journal.open(config) as journal, RunService(config, ScriptedModel(LOOKUP), tools, journal) as runs:
        began = monotonic()
        spawned = await runs.spawn(SpawnRequest("t", budget_seconds=0.3))
        (view,) = await ended(runs, spawned.handle)
    assert monotonic() - began < 10, "no tool would ever have answered"
    assert re.fullmatch(r"budget exceeded: seconds [0-9.]+/0\.3", view.error)


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (SpawnRequest("t", budget_tokens=0), "budgetTokens: 0 leaves nothing"),
        (SpawnRequest("t", budget_seconds=float("nan")), "budgetSeconds: nan leaves nothing"),
        (SpawnRequest("t", budget_tool_calls=-1), "budgetToolCalls: -1 is negative"),
        (SpawnRequest("t", approve_tools=("nobody",)), "approveTools: no tool is called 'nobody'; the tools are: lookup"),
    ],
)
async def test_a_senseless_limit_is_refused(request_: SpawnRequest, says: str, config: RuntimeConfig) -> None:
    async with service(config, ScriptedModel(text("42")), CountingTools(spec("lookup"))) as runs:
        with pytest.raises(LuftpauseError, match=says):
            await runs.spawn(request_)
