"""Does a tool call wait for a person, is the first decision the one that holds, and does a restart remember it?"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from luftpause.kit.config import RuntimeConfig
from luftpause.kit.errors import LuftpauseError
from luftpause.runtime.core.advance import DECLINED
from luftpause.runtime.journal import Journal
from luftpause.runtime.ports import ModelAnswer, ModelTurn, RunState, RunView, SpawnRequest
from luftpause.runtime.runs import RunService
from tests.support.agents import CountingTools, ScriptedModel, calls, spec, text

DELETE = ("delete", '{"q": "all"}')
LOOKUP = ("lookup", '{"q": "x"}')
SPECS = (spec("lookup"), spec("delete", destructive=True), spec("peek", destructive=True, read_only=True))


@pytest.fixture
def config(tmp_path: Path) -> RuntimeConfig:
    return RuntimeConfig(state=tmp_path / "state", journal_reserve_bytes=0)


@contextlib.asynccontextmanager
async def service(config: RuntimeConfig, model: ScriptedModel, tools: CountingTools) -> AsyncGenerator[RunService]:
    async with await Journal.open(config) as journal, RunService(config, model, tools, journal) as runs:
        yield runs


async def asked(runs: RunService, handle: str, count: int = 1) -> RunView:
    """The run once it has this many pending approvals."""
    known: set[str] = set()
    async with asyncio.timeout(60):
        while len((view := runs.view(handle, None)).pending_approvals) < count:
            known = {each.key for each in view.pending_approvals}
            await runs.wait([handle], "all", 5, None, approvals_known=known)
    return view


async def ended(runs: RunService, handle: str) -> RunView:
    (view,) = await runs.wait([handle], "all", 5, None)
    assert view.state.ended
    return view


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


async def test_a_destructive_call_waits_and_holds_no_turn(config: RuntimeConfig) -> None:
    model, tools = ScriptedModel(calls(DELETE), text("42")), CountingTools(*SPECS)
    async with service(config, model, tools) as runs:
        spawned = await runs.spawn(SpawnRequest("t"))
        view = await asked(runs, spawned.handle)
        assert (view.state, view.doing) == (RunState.AWAITING_APPROVAL, "waits for approval of delete")
        (pending,) = view.pending_approvals
        assert (pending.tool, pending.arguments, pending.key) == ("delete", {"q": "all"}, f"{spawned.handle}/approval-1")
        assert (tools.made, len(model.turns)) == ([], 1)
        decided = await runs.approve(spawned.handle, True, None, None)
        assert (decided.id, decided.tool, decided.allowed, decided.first) == ("approval-1", "delete", True, True)
        view = await ended(runs, spawned.handle)
    assert (view.state, view.answer, view.pending_approvals, tools.made) == (RunState.COMPLETED, "42", (), [("delete", {"q": "all"})])


async def test_a_refusal_is_told_to_the_model_and_counts(config: RuntimeConfig) -> None:
    model, tools = ScriptedModel(calls(DELETE), text("42")), CountingTools(*SPECS)
    async with service(config, model, tools) as runs:
        spawned = await runs.spawn(SpawnRequest("t"))
        await asked(runs, spawned.handle)
        await runs.approve(spawned.handle, False, None, None)
        view = await ended(runs, spawned.handle)
    assert (view.tool_calls, view.failed_tool_calls, tools.made) == (1, 1, [])
    assert model.turns[1].messages[-1]["content"] == DECLINED == "Error: the user declined this tool call"


@pytest.mark.parametrize(("patterns", "waits"), [((), False), (("look*",), True), (("server__lookup",), True), (("*",), True)])
async def test_the_spawn_may_name_more_tools(patterns: tuple[str, ...], waits: bool, config: RuntimeConfig) -> None:
    model, tools = ScriptedModel(calls(LOOKUP, ("peek", "{}")), text("42")), CountingTools(*SPECS)
    async with service(config, model, tools) as runs:
        spawned = await runs.spawn(SpawnRequest("t", approve_tools=patterns))
        (view,) = await runs.wait([spawned.handle], "all", 5, None, approvals_known=())
        assert view.state is (RunState.AWAITING_APPROVAL if waits else RunState.COMPLETED)


async def test_what_would_not_be_made_asks_nobody(config: RuntimeConfig) -> None:
    model = ScriptedModel(calls(("delete", '{"q": {}}'), ("delete", "{{")), text("42"))
    async with service(config, model, CountingTools(*SPECS)) as runs:
        view = await ended(runs, (await runs.spawn(SpawnRequest("t"))).handle)
    assert (view.failed_tool_calls, view.answer) == (2, "42")


async def test_parallel_calls_go_on_beside_several_questions(config: RuntimeConfig) -> None:
    model, tools = ScriptedModel(calls(DELETE, LOOKUP, ("delete", '{"q": "two"}')), text("42")), CountingTools(*SPECS)
    async with service(config, model, tools) as runs:
        spawned = await runs.spawn(SpawnRequest("t", parallel_tool_calls=True))
        view = await asked(runs, spawned.handle, 2)
        assert [each.id for each in view.pending_approvals] == ["approval-1", "approval-2"]
        await until(lambda: tools.made == [("lookup", {"q": "x"})])
        await runs.approve(spawned.handle, True, "approval-2", None)
        assert [each.id for each in runs.view(spawned.handle, None).pending_approvals] == ["approval-1"]
        await runs.approve(spawned.handle, False, None, None)
        await ended(runs, spawned.handle)
    assert tools.made == [("lookup", {"q": "x"}), ("delete", {"q": "two"})]
    assert [message["content"] for message in model.turns[1].messages[-3:]] == [DECLINED, "lookup says x", "delete says two"]


async def test_one_at_a_time_asks_one_at_a_time(config: RuntimeConfig) -> None:
    model, tools = ScriptedModel(calls(DELETE, LOOKUP, DELETE), text("42")), CountingTools(*SPECS)
    async with service(config, model, tools) as runs:
        spawned = await runs.spawn(SpawnRequest("t"))
        assert len((await asked(runs, spawned.handle)).pending_approvals) == 1
        assert tools.made == []
        await runs.approve(spawned.handle, True, None, None)
        view = await asked(runs, spawned.handle)
        assert [each.id for each in view.pending_approvals] == ["approval-2"]
        await runs.approve(spawned.handle, True, "approval-2", None)
        await ended(runs, spawned.handle)
    assert [name for name, _ in tools.made] == ["delete", "lookup", "delete"]


async def test_the_first_decision_wins_and_later_ones_are_told(config: RuntimeConfig) -> None:
    async def hang(turn: ModelTurn) -> ModelAnswer:
        if len(turn.messages) < 4:
            return calls(DELETE)
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    async with service(config, ScriptedModel(hang), CountingTools(*SPECS)) as runs:
        spawned = await runs.spawn(SpawnRequest("t"))
        await asked(runs, spawned.handle)
        watching = asyncio.create_task(runs.approval_over(spawned.handle, "approval-1", None))
        await asyncio.sleep(0)
        both = await asyncio.gather(*(runs.approve(spawned.handle, allow, "approval-1", None) for allow in (False, True)))
        assert [(each.allowed, each.first) for each in both] == [(False, True), (False, False)]
        assert await watching is False
        late = await runs.approve(spawned.handle, True, None, None)
        assert (late.allowed, late.first) == (False, False)
        with pytest.raises(LuftpauseError, match="waits for no approval 'approval-7' now"):
            await runs.approve(spawned.handle, True, "approval-7", None)
        waiting = asyncio.create_task(runs.approval_over(spawned.handle, "approval-1", None))
        assert await waiting is False


async def test_wrong_ids_and_other_peoples_runs_are_refused(config: RuntimeConfig) -> None:
    async with service(config, ScriptedModel(calls(DELETE), text("42")), CountingTools(*SPECS)) as runs:
        spawned = await runs.spawn(SpawnRequest("t", owner="me"))
        await runs.wait([spawned.handle], "all", 5, "me", approvals_known=())
        with pytest.raises(LuftpauseError, match="has no approval 'x'; waiting are: approval-1"):
            await runs.approve(spawned.handle, True, "x", "me")
        with pytest.raises(LuftpauseError, match="unknown handle"):
            await runs.approve(spawned.handle, True, None, "you")
        watching = asyncio.create_task(runs.approval_over(spawned.handle, "approval-1", "me"))
        await asyncio.sleep(0)
        assert (await runs.cancel(spawned.handle, "me")).state is RunState.CANCELLED
        assert await watching is None
        with pytest.raises(LuftpauseError, match=r"has ended \(Cancelled\); nothing waits"):
            await runs.approve(spawned.handle, True, None, "me")


async def test_a_wait_ends_at_a_question_that_it_doesnt_know(config: RuntimeConfig) -> None:
    async with service(config, ScriptedModel(calls(DELETE), text("42")), CountingTools(*SPECS)) as runs:
        one, two = [(await runs.spawn(SpawnRequest("t"))).handle for _ in range(2)]
        known = {f"{handle}/approval-1" for handle in (one, two)}
        (first, second) = await runs.wait([one, two], "all", 5, None, approvals_known=())
        assert RunState.AWAITING_APPROVAL in {first.state, second.state}
        await asked(runs, one)
        await asked(runs, two)
        waiting = asyncio.create_task(runs.wait([one, two], "all", 5, None, approvals_known=known))
        deaf = asyncio.create_task(runs.wait([one, two], "all", 0.05, None))
        assert {view.state for view in await deaf} == {RunState.AWAITING_APPROVAL}
        assert not waiting.done()
        for handle in (one, two):
            await runs.approve(handle, True, None, None)
        assert {view.state for view in await waiting} == {RunState.COMPLETED}


async def test_a_restart_asks_again_what_was_not_answered_and_nothing_else(config: RuntimeConfig) -> None:
    model, tools = ScriptedModel(calls(DELETE), calls(DELETE), text("42")), CountingTools(*SPECS)
    async with service(config, model, tools) as runs:
        handle = (await runs.spawn(SpawnRequest("t"))).handle
        await asked(runs, handle)
    for _ in range(2):
        async with service(config, ScriptedModel(calls(DELETE), text("42")), tools) as runs:
            view = runs.view(handle, None)
            assert (view.state, [each.id for each in view.pending_approvals]) == (RunState.AWAITING_APPROVAL, ["approval-1"])
    async with service(config, ScriptedModel(text("42")), tools) as runs:
        await runs.approve(handle, True, None, None)  # at once, before the run has been taken up again
        view = await ended(runs, handle)
    assert (view.answer, tools.made) == ("42", [("delete", {"q": "all"})])


async def test_a_decision_before_the_crash_holds_after_it(config: RuntimeConfig) -> None:
    """The journal is cut behind the decision: the call was allowed, and may leave without another question."""
    model, tools = ScriptedModel(calls(DELETE), text("42")), CountingTools(*SPECS)
    async with service(config, model, tools) as runs:
        handle = (await runs.spawn(SpawnRequest("t"))).handle
        await asked(runs, handle)
        await runs.approve(handle, True, None, None)
        await ended(runs, handle)
    journal = config.state / "runs.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    answered = next(index for index, line in enumerate(lines) if b'"approval_answered"' in line)
    journal.write_bytes(b"".join(lines[: answered + 1]))
    tools.made.clear()
    async with service(config, ScriptedModel(text("42")), tools) as runs:
        assert runs.view(handle, None).state is RunState.RUNNING
        view = await ended(runs, handle)
    assert (view.answer, tools.made) == ("42", [("delete", {"q": "all"})])


async def test_seconds_run_on_while_a_person_thinks(config: RuntimeConfig) -> None:
    tools = CountingTools(*SPECS)
    async with service(config, ScriptedModel(calls(DELETE), text("42")), tools) as runs:
        spawned = await runs.spawn(SpawnRequest("t", budget_seconds=1))
        await asked(runs, spawned.handle)
        view = await ended(runs, spawned.handle)
    assert (view.state, view.pending_approvals, tools.made) == (RunState.CANCELLED, (), [])
    assert (view.error or "").startswith("budget exceeded: seconds 1")


async def test_a_task_is_found_again_by_its_id(config: RuntimeConfig) -> None:
    async with service(config, ScriptedModel(text("42")), CountingTools(*SPECS)) as runs:
        handle = (await runs.spawn(SpawnRequest("t", task_id="task-1", owner="me"))).handle
    async with service(config, ScriptedModel(text("42")), CountingTools(*SPECS)) as runs:
        assert runs.of_task("task-1", "me").handle == handle
        for task, owner in (("task-1", "you"), ("task-2", "me")):
            with pytest.raises(LuftpauseError, match="unknown handle"):
                runs.of_task(task, owner)


async def test_a_decision_waits_until_the_run_is_taken_up_again(config: RuntimeConfig) -> None:
    """Tools connect late after a restart: the allowed call is not written down as started before it can leave."""
    tools = CountingTools(*SPECS)
    async with service(config, ScriptedModel(calls(DELETE), text("42")), tools) as runs:
        handle = (await runs.spawn(SpawnRequest("t"))).handle
        await asked(runs, handle)
    gate = asyncio.Event()

    async def ready(seconds_max: float) -> None:
        del seconds_max
        await gate.wait()

    tools.ready = ready  # type: ignore[method-assign]
    async with service(config, ScriptedModel(text("42")), tools) as runs:
        deciding = asyncio.create_task(runs.approve(handle, True, None, None))
        await asyncio.sleep(0)
        assert b"approval_answered" not in (config.state / "runs.jsonl").read_bytes()
        gate.set()
        assert (await deciding).first
        view = await ended(runs, handle)
    assert (view.answer, view.failed_tool_calls, tools.made) == ("42", 0, [("delete", {"q": "all"})])
