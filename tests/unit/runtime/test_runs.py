"""Does the runtime's shell run, wait for, cancel and resume runs as promised?"""

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from luftpause.kit.config import RuntimeConfig
from luftpause.kit.errors import LuftpauseError
from luftpause.runtime.core.advance import INTERRUPTED
from luftpause.runtime.journal import Journal
from luftpause.runtime.journal_disk import OsFiles
from luftpause.runtime.ports import Json, ModelAnswer, ModelTurn, RunState, RunView, ServiceClass, SpawnRequest, ToolResult, TurnError
from luftpause.runtime.runs import RunService
from tests.support.agents import CountingTools, ScriptedModel, calls, never, spec, text
from tests.support.small_disk import SmallDisk

LOOKUP = calls(("lookup", '{"q": "x"}'))


@pytest.fixture
def config(tmp_path: Path) -> RuntimeConfig:
    return RuntimeConfig(state=tmp_path / "state", journal_reserve_bytes=4096)


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def service(
    config: RuntimeConfig, model: ScriptedModel, tools: CountingTools | None = None, clock: Clock | None = None, **files: Any
) -> AsyncGenerator[RunService]:
    clock = clock or Clock()
    async with (
        await Journal.open(config, **files) as journal,
        RunService(config, model, tools or CountingTools(), journal, clock=clock, wall=clock, sleep=clock.sleep) as runs,
    ):
        yield runs


async def finish(runs: RunService, request: SpawnRequest) -> RunView:
    spawned = await runs.spawn(request)
    (ended,) = await runs.wait([spawned.handle], "all", 10, request.owner)
    assert ended.state.ended
    return ended


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


# ---- the loop -----------------------------------------------------------------------------------------------------


async def test_a_run_calls_tools_and_completes(config: RuntimeConfig) -> None:
    model, tools = ScriptedModel(LOOKUP, text("42")), CountingTools()
    async with service(config, model, tools) as runs:
        view = await finish(runs, SpawnRequest("find it", service_class=ServiceClass.BATCH, caller="me", max_tokens=99))
        await until(lambda: model.ended)
    assert (view.state, view.answer, view.error) == (RunState.COMPLETED, "42", None)
    assert (view.turns, view.tool_calls, view.failed_tool_calls) == (2, 1, 0)
    assert (view.prompt_tokens, view.completion_tokens, view.cached_tokens) == (20, 4, 8)
    assert tools.made == [("lookup", {"q": "x"})]
    first, second = model.turns
    assert (first.run, first.model, first.service_class, first.caller, first.max_tokens) == (view.handle, "m", ServiceClass.BATCH, "me", 99)
    assert [tool["function"]["name"] for tool in first.tools] == ["lookup", "add"]
    assert second.messages[-1] == {"role": "tool", "tool_call_id": "call_0", "content": "lookup says x"}
    assert model.ended == [view.handle]


async def test_where_a_quota_is_about_to_end_results_older_than_the_last_round_are_cut_and_that_is_journaled(
    config: RuntimeConfig, tmp_path: Path
) -> None:
    async def long_result(name: str, arguments: Json) -> ToolResult:
        return ToolResult(f"{name} says {arguments['q']} " + "x" * 5_000)

    model = ScriptedModel(LOOKUP, replace(LOOKUP, compact=True), LOOKUP, text("42"))
    async with service(config, model, CountingTools(work=long_result)) as runs:
        view = await finish(runs, SpawnRequest("find it"))
    assert view.answer == "42"
    lengths = [[len(each["content"]) for each in turn.messages if each["role"] == "tool"] for turn in model.turns]
    (first,), (cut, second), (still, second_again, third) = lengths[1:]
    assert first == second == second_again == third > 5_000, "the last round, and what came after the hint, stay whole"
    assert cut == still < 1_200
    assert model.turns[2].messages[3]["content"].startswith("lookup says x")
    journal = "".join(path.read_text() for path in (config.state or tmp_path).rglob("*.jsonl"))
    assert journal.count('"type":"shortened"') == 1


async def test_every_message_has_content_and_every_call_its_answer(config: RuntimeConfig) -> None:
    model = ScriptedModel(calls(("lookup", {"q": 1}), ("nobody", "{{{"), ids=["", ""]), text(""), text("42"))
    async with service(config, model) as runs:
        await finish(runs, SpawnRequest("t"))
    messages = model.turns[-1].messages
    assert all(isinstance(message["content"], str) for message in messages)
    assert all(message["content"] or message.get("tool_calls") for message in messages)
    asked = [call["id"] for message in messages for call in message.get("tool_calls", [])]
    assert asked == [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert len(set(asked)) == 2
    assert all(json.loads(call["function"]["arguments"]) is not None for message in messages for call in message.get("tool_calls", []))


async def test_when_the_budget_is_spent_the_next_turn_has_no_tools(config: RuntimeConfig) -> None:
    model, tools = ScriptedModel(LOOKUP), CountingTools()
    async with service(config, model, tools) as runs:
        view = await finish(runs, SpawnRequest("t", max_tool_calls=3))
    assert len(model.turns) == 4
    assert [bool(turn.tools) for turn in model.turns] == [True, True, True, False]
    assert (view.state, view.answer, view.tool_calls, len(tools.made)) == (RunState.COMPLETED, "", 3, 3)


async def test_wrong_names_for_ever_end_at_the_budget(config: RuntimeConfig) -> None:
    model, tools = ScriptedModel(calls(("nobody", "{}"))), CountingTools()
    async with service(config, model, tools) as runs:
        view = await finish(runs, SpawnRequest("t"))
    assert (view.tool_calls, view.failed_tool_calls, view.turns, tools.made) == (8, 8, 9, [])


async def test_a_call_written_as_text_is_made(config: RuntimeConfig) -> None:
    model, tools = ScriptedModel(text('{"name": "lookup", "arguments": {"q": "x"}}'), text("42")), CountingTools()
    async with service(config, model, tools) as runs:
        view = await finish(runs, SpawnRequest("t"))
    assert (view.answer, tools.made) == ("42", [("lookup", {"q": "x"})])
    assistant = model.turns[1].messages[2]
    assert (assistant["content"], assistant["tool_calls"][0]["function"]["name"]) == ("", "lookup")


async def test_a_failing_parallel_call_leaves_its_siblings_alone(config: RuntimeConfig) -> None:
    together = asyncio.Barrier(3)

    async def work(name: str, arguments: Json) -> ToolResult:
        await together.wait()  # none goes on unless all three have begun
        if arguments["q"] == "raises":
            raise RuntimeError
        return ToolResult("" if arguments["q"] == "silent" else "good", failed=arguments["q"] == "silent")

    asked = calls(*(("lookup", {"q": q}) for q in ("good", "raises", "silent")))
    model = ScriptedModel(asked, text("42"))
    async with service(config, model, CountingTools(work=work)) as runs:
        view = await finish(runs, SpawnRequest("t", parallel_tool_calls=True))
    assert [message["content"] for message in model.turns[1].messages[-3:]] == [
        "good", "Error: RuntimeError", "Error: the tool failed without saying why",
    ]  # fmt: skip
    assert (view.tool_calls, view.failed_tool_calls) == (3, 2)


async def test_only_allowed_tools_are_offered_and_made(config: RuntimeConfig) -> None:
    model, tools = ScriptedModel(calls(("add", "{}")), text("42")), CountingTools()
    async with service(config, model, tools) as runs:
        view = await finish(runs, SpawnRequest("t", tools=("look*",)))
    assert [tool["function"]["name"] for tool in model.turns[0].tools] == ["lookup"]
    assert (view.failed_tool_calls, tools.made) == (1, [])


async def test_long_results_are_cut_and_lone_surrogates_replaced(config: RuntimeConfig) -> None:
    async def work(name: str, arguments: Json) -> ToolResult:
        return ToolResult("\ud83e" + "y" * 50_000)

    model = ScriptedModel(LOOKUP, ModelAnswer("so \ud83e", (), "stop"))
    async with service(config, model, CountingTools(work=work)) as runs:
        view = await finish(runs, SpawnRequest("t \ud83e"))
    result = model.turns[1].messages[-1]["content"]
    assert result.startswith("\ufffdyyy")
    assert "[cut: 16,000 of 50,001 characters shown]" in result
    assert (view.task, view.answer) == ("t \ufffd", "so \ufffd")


# ---- turns that give no answer ------------------------------------------------------------------------------------


def spread(slept: list[float], *waits: float) -> bool:
    """Are these the waits, each up to a quarter longer so that runs are kept apart?"""
    return len(slept) == len(waits) and all(wait <= each < 1.25 * wait for each, wait in zip(slept, waits, strict=True))


async def test_rate_limits_are_waited_out(config: RuntimeConfig) -> None:
    limited = TurnError("429", retry_after_s=7, limited=True)
    clock = Clock()
    async with service(config, ScriptedModel(*[limited] * 20, text("42")), clock=clock) as runs:
        view = await finish(runs, SpawnRequest("t"))
    assert (view.answer, view.turns) == ("42", 1)
    assert spread(clock.slept, *[7] * 20)
    assert 140 < view.seconds < 175
    assert len(set(clock.slept)) == 20


async def test_a_lost_connection_is_retried_under_the_same_run_and_then_fails(config: RuntimeConfig) -> None:
    model, clock = ScriptedModel(TurnError("connection refused", retry_after_s=0)), Clock()
    async with service(config, model, clock=clock) as runs:
        view = await finish(runs, SpawnRequest("t"))
    assert view.state is RunState.FAILED
    assert spread(clock.slept, 0.5, 1, 2, 4, 8, 10)
    assert sum(clock.slept) > 20, "a dataplane is restarted in less"
    assert {turn.run for turn in model.turns} == {view.handle}
    assert view.error is not None
    assert view.error.startswith(
        "turn 1 got no answer after 7 tries: connection refused. Check that the dataplane at http://127.0.0.1:8080"
    )


async def test_rate_limits_do_not_use_up_the_retries(config: RuntimeConfig) -> None:
    limited, lost = TurnError("429", retry_after_s=7, limited=True), TurnError("lost", retry_after_s=0)
    clock = Clock()
    async with service(config, ScriptedModel(limited, lost, limited, limited, lost, limited, lost, text("42")), clock=clock) as runs:
        assert (await finish(runs, SpawnRequest("t"))).answer == "42"
    assert spread(clock.slept, 7, 0.5, 7, 7, 1, 7, 2)


async def test_runs_that_failed_together_do_not_come_back_together(config: RuntimeConfig) -> None:
    limited, clock = TurnError("429", retry_after_s=8, limited=True), Clock()
    async with service(config, ScriptedModel(limited, text("42")), clock=clock) as runs:
        handles = [(await runs.spawn(SpawnRequest("t"))).handle for _ in range(20)]
        await runs.wait(handles, "all", 60, None)
    assert spread(clock.slept, *[8] * 20)
    assert len(set(clock.slept)) == 20


async def test_an_error_that_no_retry_mends_fails_at_once_with_the_engines_words(config: RuntimeConfig) -> None:
    model = ScriptedModel(TurnError("context too long", retry_after_s=None))
    async with service(config, model) as runs:
        view = await finish(runs, SpawnRequest("t"))
    assert (view.state, view.error, len(model.turns)) == (RunState.FAILED, "turn 1 got no answer: context too long", 1)


async def test_a_fault_in_the_model_client_ends_its_own_run_only(config: RuntimeConfig) -> None:
    async def boom(turn: ModelTurn) -> ModelAnswer:
        raise KeyError("x")

    async with service(config, ScriptedModel(boom)) as runs:
        view = await finish(runs, SpawnRequest("t"))
    assert view.state is RunState.FAILED
    assert "fault of luftpause" in (view.error or "")


# ---- spawn --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "code", "said"),
    [
        (SpawnRequest(" "), "bad_argument", "task: it is empty"),
        (SpawnRequest("t", max_tool_calls=-1), "bad_argument", "maxToolCalls: -1 is negative"),
        (SpawnRequest("t", max_tokens=-1), "bad_argument", "maxTokens: -1 is negative"),
        (SpawnRequest("t", tools=("lokup",)), "bad_argument", "no tool is called 'lokup'; the tools are: lookup, add"),
        (SpawnRequest("t", parent="run_x"), "unknown_handle", "unknown handle 'run_x'"),
    ],
)
async def test_a_bad_argument_is_named(config: RuntimeConfig, request_: SpawnRequest, code: str, said: str) -> None:
    async with service(config, ScriptedModel(text("42"))) as runs:
        with pytest.raises(LuftpauseError, match=said) as refused:
            await runs.spawn(request_)
        assert refused.value.code == code
        assert runs.everything() == ()


async def test_tools_that_may_still_come_can_be_named(config: RuntimeConfig) -> None:
    tools = CountingTools()
    tools.connected = False
    async with service(config, ScriptedModel(text("42")), tools) as runs:
        assert (await finish(runs, SpawnRequest("t", tools=("later",)))).answer == "42"


async def test_the_model_is_the_given_one_else_the_default_else_the_only_one(config: RuntimeConfig) -> None:
    model = ScriptedModel(text("42"))
    async with service(config, model) as runs:
        views = await asyncio.gather(*(runs.spawn(SpawnRequest("t")) for _ in range(50)))
        assert {view.model for view in views} == {"m"}
        assert model.asked == 1, "spawns at the same time ask once"
        assert (await runs.spawn(SpawnRequest("t", model="other"))).model == "other"
    async with service(config.model_copy(update={"default_model": "usual"}), model) as runs:
        assert (await runs.spawn(SpawnRequest("t"))).model == "usual"


@pytest.mark.parametrize(("served", "said"), [((), "no generative model is served"), (("b", "a"), "name one of a, b")])
async def test_without_a_choice_the_models_are_listed(config: RuntimeConfig, served: tuple[str, ...], said: str) -> None:
    async with service(config, ScriptedModel(text("42"), served=served)) as runs:
        with pytest.raises(LuftpauseError, match=said) as refused:
            await runs.spawn(SpawnRequest("t"))
    assert refused.value.code == "unknown_model"


async def test_more_runs_than_the_limit_are_refused(config: RuntimeConfig) -> None:
    async with service(config.model_copy(update={"runs_max": 1}), ScriptedModel(never, text("42"))) as runs:
        first = await runs.spawn(SpawnRequest("t"))
        with pytest.raises(LuftpauseError, match=r"runtime\.runs_max") as refused:
            await runs.spawn(SpawnRequest("t"))
        assert refused.value.code == "too_many_runs"
        await runs.cancel(first.handle, None)
        await runs.spawn(SpawnRequest("t"))


async def test_a_full_disk_refuses_a_spawn_and_leaves_nothing_of_it(config: RuntimeConfig) -> None:
    config.state.mkdir()
    disk = SmallDisk(config.state, 10_000)
    async with service(config, ScriptedModel(never), files=disk) as runs:
        parent = await runs.spawn(SpawnRequest("t"))
        disk.capacity -= disk.free
        with pytest.raises(LuftpauseError, match="is full") as refused:
            await runs.spawn(SpawnRequest("t", parent=parent.handle))
        assert refused.value.code == "disk_full"
        assert [view.handle for view in runs.everything()] == [parent.handle]
        assert runs.view(parent.handle, None).children == ()
        assert (await runs.cancel(parent.handle, None)).state is RunState.CANCELLED, "an end uses the reserve"


async def test_a_child_inherits_its_parents_class(config: RuntimeConfig) -> None:
    async with service(config, ScriptedModel(text("42"))) as runs:
        parent = await finish(runs, SpawnRequest("t", service_class=ServiceClass.BATCH))
        child = await runs.spawn(SpawnRequest("t", parent=parent.handle))
        other = await runs.spawn(SpawnRequest("t", parent=parent.handle, service_class=ServiceClass.INTERACTIVE))
        assert (child.service_class, other.service_class) == (ServiceClass.BATCH, ServiceClass.INTERACTIVE)
        assert runs.view(parent.handle, None).children == (child.handle, other.handle)
        assert child.parent == parent.handle


# ---- handles, owners, wait ----------------------------------------------------------------------------------------


async def test_a_run_with_an_owner_is_nobody_elses(config: RuntimeConfig) -> None:
    async with service(config, ScriptedModel(text("42"))) as runs:
        mine, free = await runs.spawn(SpawnRequest("t", owner="me")), await runs.spawn(SpawnRequest("t"))
        assert runs.view(mine.handle, "me").handle == mine.handle
        assert runs.view(free.handle, "me").handle == free.handle
        for owner in ("you", None):
            with pytest.raises(LuftpauseError, match="unknown handle"):
                runs.view(mine.handle, owner)
            with pytest.raises(LuftpauseError, match="unknown handle"):
                await runs.cancel(mine.handle, owner)
        assert [view.handle for view in runs.views("me")] == [mine.handle]
        assert [view.handle for view in runs.views(None)] == [free.handle]
        assert len(runs.everything()) == 2


async def test_a_run_whose_owner_is_gone_belongs_to_whoever_has_the_handle(config: RuntimeConfig) -> None:
    async with service(config, ScriptedModel(text("42"))) as runs:
        orphan = await runs.spawn(SpawnRequest("t", owner="session:gone"))
        owned = await runs.spawn(SpawnRequest("t", owner="session:here"))
    async with (
        await Journal.open(config) as journal,
        RunService(config, ScriptedModel(text("42")), CountingTools(), journal, owner_lives=lambda owner: owner == "session:here") as runs,
    ):
        assert runs.view(orphan.handle, None).handle == orphan.handle
        with pytest.raises(LuftpauseError, match="unknown handle"):
            runs.view(owned.handle, None)


async def test_a_handle_says_whose_it_is(config: RuntimeConfig) -> None:
    async with service(config.model_copy(update={"name": "east"}), ScriptedModel(text("42"))) as runs:
        spawned = await runs.spawn(SpawnRequest("t"))
        assert spawned.handle.startswith("east.run_")
        with pytest.raises(LuftpauseError, match="belongs to the runtime 'west'; this one is 'east'"):
            runs.view("west.run_1", None)


async def test_wait_for_all_any_and_not_at_all(config: RuntimeConfig) -> None:
    go = asyncio.Event()

    async def gated(turn: ModelTurn) -> ModelAnswer:
        if turn.messages[-1]["content"] == "slow":
            await go.wait()
        return text("42")

    async with service(config, ScriptedModel(gated)) as runs:
        slow, fast = [(await runs.spawn(SpawnRequest(task))).handle for task in ("slow", "fast")]
        states = [view.state for view in await runs.wait([slow, fast, fast], "any", 60, None)]
        assert states == [RunState.RUNNING, RunState.COMPLETED, RunState.COMPLETED]
        assert [view.state for view in await runs.wait([slow, fast], "all", 0.01, None)] == states[:2]
        assert [view.state for view in await runs.wait([slow], "all", 0, None)] == states[:1]
        waiting = asyncio.create_task(runs.wait([fast, slow], "all", 60, None))
        left = asyncio.create_task(runs.wait([slow], "all", 60, None))
        await asyncio.sleep(0)
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)
        go.set()
        assert {view.state for view in await waiting} == {RunState.COMPLETED}
        with pytest.raises(LuftpauseError, match="handles: it is empty"):
            await runs.wait([], "all", 1, None)


async def test_a_thousand_handles_are_waited_for_at_once(config: RuntimeConfig) -> None:
    async with service(config, ScriptedModel(LOOKUP, text("42"))) as runs:
        handles = [view.handle for view in await asyncio.gather(*(runs.spawn(SpawnRequest("t")) for _ in range(1000)))]
        async with asyncio.timeout(60):
            views = await runs.wait(handles, "all", 60, None)
    assert [view.handle for view in views] == handles
    assert {view.answer for view in views} == {"42"}


# ---- cancel -------------------------------------------------------------------------------------------------------


async def test_cancel_reaches_the_whole_subtree_even_a_tool_that_does_not_listen(config: RuntimeConfig) -> None:
    stubborn = asyncio.Event()

    async def work(name: str, arguments: Json) -> ToolResult:
        while not stubborn.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await stubborn.wait()
        return ToolResult("too late")

    async def script(turn: ModelTurn) -> ModelAnswer:
        if turn.messages[-1]["content"] == "tool":
            return LOOKUP
        return await never(turn)

    model, tools = ScriptedModel(script), CountingTools(work=work)
    async with service(config, model, tools) as runs:
        a = await runs.spawn(SpawnRequest("a"))
        b = await runs.spawn(SpawnRequest("b", parent=a.handle))
        c = await runs.spawn(SpawnRequest("tool", parent=b.handle))
        await until(lambda: tools.made)
        waiting = asyncio.create_task(runs.wait([b.handle, c.handle], "all", 60, None))
        async with asyncio.timeout(60):
            assert (await runs.cancel(a.handle, None)).state is RunState.CANCELLED
            assert {view.state for view in await waiting} == {RunState.CANCELLED}
            assert (await runs.cancel(a.handle, None)).error == "cancelled"
        for parent in (a, b, c):
            with pytest.raises(LuftpauseError, match="was cancelled, so it gets no more children"):
                await runs.spawn(SpawnRequest("d", parent=parent.handle))
        turns = len(model.turns)
        stubborn.set()
        await until(lambda: len(model.ended) == 3)
        assert len(model.turns) == turns
    async with service(config, ScriptedModel(text("42"))) as runs:
        assert {view.state for view in runs.everything()} == {RunState.CANCELLED}


async def test_cancel_leaves_an_ended_run_as_it_is(config: RuntimeConfig) -> None:
    async with service(config, ScriptedModel(text("42"))) as runs:
        view = await finish(runs, SpawnRequest("t"))
        assert await runs.cancel(view.handle, None) == view


async def test_a_completed_parent_of_a_cancelled_grandparent_gets_no_children(config: RuntimeConfig) -> None:
    async with service(config, ScriptedModel(never)) as runs:
        top = await runs.spawn(SpawnRequest("t"))
        await runs.cancel(top.handle, None)
        with pytest.raises(LuftpauseError, match="parent: "):
            await runs.spawn(SpawnRequest("t", parent=top.handle))


class SlowDisk(OsFiles):
    def __init__(self) -> None:
        self.asked = threading.Event()
        self.go = threading.Event()

    def sync(self, fd: int) -> None:
        self.asked.set()
        assert self.go.wait(10)


async def test_a_spawn_whose_client_left_before_it_had_the_handle_is_cancelled(config: RuntimeConfig) -> None:
    disk = SlowDisk()
    async with service(config, ScriptedModel(never), files=disk) as runs:
        spawning = asyncio.create_task(runs.spawn(SpawnRequest("t", model="m")))
        await until(disk.asked.is_set)
        assert runs.everything() == (), "nothing is shown before it is on disk"
        spawning.cancel()
        await asyncio.gather(spawning, return_exceptions=True)
        disk.go.set()
        await until(lambda: [view.state for view in runs.everything()] == [RunState.CANCELLED])


# ---- restart ------------------------------------------------------------------------------------------------------


async def test_leaving_stops_runs_without_an_end_and_the_next_start_resumes_them(config: RuntimeConfig) -> None:
    tools = CountingTools()
    async with service(config, ScriptedModel(LOOKUP, never), tools) as runs:
        spawned = await runs.spawn(SpawnRequest("t", owner="me"))
        await until(lambda: runs.view(spawned.handle, "me").doing == "held or generating" and tools.made)
        waiting = asyncio.create_task(runs.wait([spawned.handle], "all", 60, "me"))
        await asyncio.sleep(0)
    with pytest.raises(LuftpauseError, match="its runs go on when it starts again"):
        await waiting
    model = ScriptedModel(text("42"))
    async with service(config, model, tools) as runs:
        (view,) = await runs.wait([spawned.handle], "all", 10, "me")
    assert (view.answer, view.tool_calls, view.turns) == ("42", 1, 2)
    assert len(tools.made) == 1
    assert model.turns[0].messages[-1]["content"] == "lookup says x"
    async with service(config, ScriptedModel(never), tools) as runs:
        assert runs.view(spawned.handle, "me") == view


@pytest.mark.parametrize(("repeatable", "times"), [(False, 1), (True, 2)])
async def test_a_call_that_a_restart_interrupted(config: RuntimeConfig, repeatable: bool, times: int) -> None:
    async def hang(name: str, arguments: Json) -> ToolResult:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    tools = CountingTools(spec("lookup", idempotent=repeatable), work=hang)
    async with service(config, ScriptedModel(LOOKUP), tools) as runs:
        spawned = await runs.spawn(SpawnRequest("t"))
        await until(lambda: tools.made)
    model, after = ScriptedModel(text("42")), CountingTools(spec("lookup", idempotent=repeatable))
    async with service(config, model, after) as runs:
        (view,) = await runs.wait([spawned.handle], "all", 60, None)
    assert len(tools.made) + len(after.made) == times
    assert view.answer == "42"
    assert view.failed_tool_calls == (0 if repeatable else 1)
    assert (model.turns[0].messages[-1]["content"] == INTERRUPTED) is not repeatable


async def test_a_resumed_run_waits_for_its_tools(config: RuntimeConfig) -> None:
    async with service(config, ScriptedModel(never)) as runs:
        spawned = await runs.spawn(SpawnRequest("t"))

    class Slow(CountingTools):
        async def ready(self, seconds_max: float) -> None:
            assert seconds_max == 10
            await up.wait()

    up, tools, model = asyncio.Event(), Slow(), ScriptedModel(text("42"))
    late, tools.specs = tools.specs, {}
    async with service(config, model, tools) as runs:
        await asyncio.sleep(0.05)
        assert not model.turns
        tools.specs = late
        up.set()
        await runs.wait([spawned.handle], "all", 60, None)
    assert len(model.turns[0].tools) == 2


async def test_a_damaged_run_fails_once_and_says_why(config: RuntimeConfig) -> None:
    async with service(config, ScriptedModel(never)) as runs:
        spawned = await runs.spawn(SpawnRequest("t"))
        await until(lambda: runs.view(spawned.handle, None).doing)
    path = config.state / "runs.jsonl"
    path.write_bytes(path.read_bytes() + b'{"run":"%s"}\n' % spawned.handle.encode())
    for _ in range(2):
        async with service(config, ScriptedModel(never)) as runs:
            (view,) = await runs.wait([spawned.handle], "all", 60, None)
        assert view.state is RunState.FAILED
        assert "line 2 of the journal is damaged" in (view.error or "")
    assert path.read_text().count('"finished"') == 1


async def test_a_descendant_that_a_cancel_did_not_reach_before_the_crash_is_cancelled(config: RuntimeConfig) -> None:
    async with service(config, ScriptedModel(never)) as runs:
        parent = await runs.spawn(SpawnRequest("t"))
        child = await runs.spawn(SpawnRequest("t", parent=parent.handle))
        await runs.cancel(parent.handle, None)
    path = config.state / "runs.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if not (child.handle.encode() in line and b'"finished"' in line)))
    async with service(config, ScriptedModel(text("42"))) as runs:
        (view,) = await runs.wait([child.handle], "all", 60, None)
    assert (view.state, view.error) == (RunState.CANCELLED, "cancelled with its parent")


async def test_old_results_are_dropped_and_young_ones_kept(config: RuntimeConfig) -> None:
    clock = Clock()
    config = config.model_copy(update={"journal_compact_bytes": 1, "retention_seconds": 100})
    async with service(config, ScriptedModel(text("42")), clock=clock) as runs:
        old = await finish(runs, SpawnRequest("t"))
        clock.now += 1000
        young = [await finish(runs, SpawnRequest("t")) for _ in range(2)]
        clock.now += 61
        await finish(runs, SpawnRequest("t" * 10))
        await until(lambda: old.handle not in {view.handle for view in runs.everything()})
        with pytest.raises(LuftpauseError, match="older than the retention"):
            runs.view(old.handle, None)
        assert [runs.view(view.handle, None) for view in young] == young
    async with service(config, ScriptedModel(text("42")), clock=clock) as runs:
        assert [runs.view(view.handle, None) for view in young] == young


async def test_a_spawn_that_meets_the_stop_is_refused_and_its_run_goes_on_later(config: RuntimeConfig) -> None:
    disk = SlowDisk()
    async with await Journal.open(config, files=disk) as journal:
        async with RunService(config, ScriptedModel(never), CountingTools(), journal) as runs:
            spawning = asyncio.create_task(runs.spawn(SpawnRequest("t", model="m")))
            await until(disk.asked.is_set)
        with pytest.raises(LuftpauseError, match="the runtime is stopping"):
            await spawning
        disk.go.set()
    async with service(config, ScriptedModel(text("42"))) as runs:
        await until(lambda: [view.answer for view in runs.everything()] == ["42"])
