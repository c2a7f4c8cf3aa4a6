"""Does the journal tell of every run exactly what the runtime knew, wherever the process died?"""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from luftpause.kit.config import RuntimeConfig
from luftpause.runtime.core.advance import advance, fold
from luftpause.runtime.core.budgets import costs_of, limits_of, passed
from luftpause.runtime.core.commit import Circumstances, commit
from luftpause.runtime.core.effects import AskModel
from luftpause.runtime.core.events import ApprovalAnswered, BudgetUsed, CallEnded, Created, Event, Resumed
from luftpause.runtime.core.interpret import interpret
from luftpause.runtime.core.model import Run
from luftpause.runtime.journal import Journal
from luftpause.runtime.journal_lines import Entry, decode, encode
from luftpause.runtime.ports import Json, ModelAnswer, ModelCall, ModelTurn, RunState, ServiceClass, SpawnRequest, ToolResult
from luftpause.runtime.runs import RunService
from luftpause.runtime.tally import RunTally
from tests.support.agents import CountingTools, ScriptedModel, calls, spec, text

TOOLS = {each.name: each for each in (spec("lookup"), spec("safe", read_only=True), spec("delete", destructive=True))}

raw_arguments = st.sampled_from([None, "", "{}", '{"q": "x"}', {"q": 1}, "[1]", "{{{", '"{}"', '{"q": 1e999}', "\ud83e"])
model_calls = st.builds(
    ModelCall,
    id=st.sampled_from(["", "call_0", "call_1", "\ud83e"]),
    name=st.sampled_from(["lookup", "safe", "delete", "nobody", "a b"]),
    arguments=raw_arguments,
)
contents = st.sampled_from([
    "",
    " ",
    "42",
    "\ud83e",
    '{"name": "lookup", "arguments": {"q": "x"}}',
    '<tool_call>{"name": "safe", "arguments": {}}</tool_call>',
])
answers = st.builds(
    ModelAnswer,
    content=contents,
    calls=st.lists(model_calls, max_size=4).map(tuple),
    finish_reason=st.sampled_from(["stop", "tool_calls", "length"]),
    prompt_tokens=st.integers(0, 100),
)
results = st.builds(ToolResult, text=st.text(max_size=5).map(lambda text: text or "-"), failed=st.booleans())


def over(run: Run) -> Any:
    """Its own budget, as the shell would find it for a run without others around it."""
    found = None if run.exceeded else passed(limits_of(run.created), costs_of(run), 0)
    return None if found is None else (found, 0.0)


@given(st.data(), st.integers(0, 5), st.booleans(), st.none() | st.integers(1, 300))
@settings(max_examples=150)
def test_the_fold_of_the_journal_is_the_live_run(data: st.DataObject, budget: int, parallel: bool, tokens: int | None) -> None:
    """A whole life with restarts and decisions at any moment; after every commit the lines read back are folded anew.

    What is counted of it for Prometheus adds up to what the run itself says.
    """
    lines: list[bytes] = []
    run: Run | None = None
    tally = RunTally(lambda tool: "server" if tool in TOOLS else "")

    def record(event: Event) -> list[Any]:
        nonlocal run
        now = Circumstances(1.0, 1.0, lambda tool: tool in TOOLS and TOOLS[tool].read_only, over)
        made = commit(run, event, now)
        tally(run, made.events, made.run)
        run = made.run
        lines.extend(encode("run_1", len(lines) + index, each) for index, each in enumerate(made.events))
        entries = [decode(line[:-1]) for line in lines]
        assert fold([entry.event for entry in entries if isinstance(entry, Entry)]).run == run
        assert len(entries) == sum(isinstance(entry, Entry) for entry in entries)
        return list(made.effects)

    crashes = data.draw(st.sets(st.integers(0, 25), max_size=6), label="crashes")

    def step(number: int, effects: list[Any]) -> list[Any]:
        assert run is not None
        if number in crashes:
            return record(Resumed(2.0))
        waiting = run.waiting
        if waiting and (not effects or data.draw(st.booleans(), label="decide")):
            call = waiting[data.draw(st.integers(0, len(waiting) - 1), label="which approval")]
            return [*effects, *record(ApprovalAnswered(call.approval, data.draw(st.booleans(), label="allow"), 1.0))]
        effect = effects.pop(data.draw(st.integers(0, len(effects) - 1), label="which"))
        if isinstance(effect, AskModel):
            offered = TOOLS if effect.with_tools else {}
            return record(interpret(run, data.draw(answers), offered).event)
        result = data.draw(results)
        return [*effects, *record(CallEnded(effect.id, result.text, failed=result.failed))]

    effects = record(Created("run_1", 1.0, "t", "m", ServiceClass.BATCH, "", budget, 0, parallel_tool_calls=parallel, budget_tokens=tokens))
    for number in range(100):
        if run is None or run.state.ended:
            break
        effects = step(number, effects)
    assert run is not None
    exceeded = tokens is not None and run.prompt_tokens + run.completion_tokens > tokens
    assert run.state is (RunState.CANCELLED if exceeded else RunState.COMPLETED), "every run ends"
    assert not exceeded or run.text.startswith("budget exceeded: tokens ")
    record(BudgetUsed(3.0))
    assert run.budget_seconds == 3.0
    assert run.tool_calls <= budget
    assert run.turns <= budget + 1
    assert run.failed_tool_calls <= run.tool_calls
    adds_up(tally, run)


def adds_up(tally: RunTally, run: Run) -> None:
    outcomes: Counter[str] = Counter()
    for (_, outcome), count in tally.tool_calls.series().items():
        outcomes[outcome] += int(count)
    assert outcomes.total() == run.tool_calls
    assert outcomes.total() - outcomes["ok"] - outcomes["cancelled"] == run.failed_tool_calls
    assert sum(tally.turns.series().values()) == run.turns
    assert tally.tokens.value(("batch", "prompt")) == run.prompt_tokens
    assert tally.ended.value(("batch", run.state.value.lower())) == 1
    assert sum(tally.budgets.series().values()) == (run.exceeded is not None)
    assert (+tally.runs, tally.pending_approvals) == ({("batch", run.state.value.lower()): 1}, 0)


# ---- a crash after every event ------------------------------------------------------------------------------------


class Calls(CountingTools):
    """Remembers which results the journal knew when a call was made."""

    def __init__(self) -> None:
        super().__init__(*TOOLS.values())

    async def call(self, name: str, arguments: Json, traceparent: str = "") -> ToolResult:
        return await super().call(name, arguments, traceparent)


def script() -> list[Any]:
    first = calls(("lookup", '{"q": "one"}'), ("safe", '{"q": "two"}'), ("nobody", "{}"))
    return [first, calls(("lookup", '{"q": "three"}'), ("lookup", '{"q": "four"}')), text(""), text("42")]


def model() -> ScriptedModel:
    """Answers by what the history holds, so that a resumed run hears what it would have heard."""
    answers = script()

    async def answer(turn: ModelTurn) -> ModelAnswer:
        assistants = sum(message["role"] == "assistant" for message in turn.messages)
        return answers[min(assistants, len(answers) - 1)]

    return ScriptedModel(answer)


async def live(state: Path, tools: CountingTools, handles: Sequence[str] = (), *, parallel: bool) -> str:
    """Run to the end in this state directory: a new run, or those that are there."""
    config = RuntimeConfig(state=state, journal_reserve_bytes=0)
    async with await Journal.open(config) as journal, RunService(config, model(), tools, journal) as runs:
        if not handles:
            handles = [(await runs.spawn(SpawnRequest("t", parallel_tool_calls=parallel))).handle]
        (view,) = await runs.wait(handles, "all", 60, None)
        assert (view.state, view.answer) == (RunState.COMPLETED, "42")
        return view.handle


def events_of(path: Path) -> list[Event]:
    entries = [decode(line) for line in path.read_bytes().splitlines()]
    return [entry.event for entry in entries if isinstance(entry, Entry)]


def call_counts(events: Sequence[Event]) -> tuple[Counter[str], Counter[str]]:
    """Of these events: the calls that were begun and those whose result is there, by their question."""
    begun: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    run: Run | None = None
    for event in events:
        if run is not None and run.round is not None:
            names = {call.asked.id: call.asked.arguments for call in run.round.calls}
            match event.__class__.__name__:
                case "CallStarted":
                    begun[names[event.id]] += 1  # type: ignore[union-attr]
                case "CallEnded":
                    ended[names[event.id]] += 1  # type: ignore[union-attr]
        run = advance(run, event).run
    return begun, ended


@pytest.mark.parametrize("parallel", [False, True])
async def test_no_call_whose_result_is_in_the_journal_is_made_again(parallel: bool, tmp_path: Path) -> None:
    """The journal is cut after every line, and in the middle of the next one; each time a new runtime takes the run to its end."""
    handle = await live(tmp_path / "whole", CountingTools(*TOOLS.values()), parallel=parallel)
    lines = (tmp_path / "whole" / "runs.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) > 12
    for count in range(1, len(lines) + 1):
        for torn in (b"", lines[count][: len(lines[count]) // 2]) if count < len(lines) else (b"",):
            state = tmp_path / f"cut-{count}-{len(torn)}"
            state.mkdir()
            (state / "runs.jsonl").write_bytes(b"".join(lines[:count]) + torn)
            begun, ended = call_counts(events_of(state / "runs.jsonl"))
            tools = CountingTools(*TOOLS.values())
            await live(state, tools, [handle], parallel=parallel)
            made = Counter(arguments["q"] for _, arguments in tools.made)
            for question in ("one", "two", "three", "four"):
                key = f'{{"q": "{question}"}}'
                total = begun[key] + made[question]
                if ended[key]:
                    assert not made[question], f"{question} was made again after line {count}"
                elif begun[key]:
                    assert made[question] == (1 if question == "two" else 0), f"{question} after line {count}"
                else:
                    assert total == 1, f"{question} was not made after line {count}"


@given(st.lists(st.integers(0, 30), min_size=1, max_size=4), st.booleans())
@settings(max_examples=15)
def test_however_often_it_dies_a_run_ends_and_unsafe_calls_are_made_once_at_most(cuts: list[int], parallel: bool) -> None:
    async def lives() -> None:
        with tempfile.TemporaryDirectory() as directory:
            state = Path(directory)
            handle = await live(state, CountingTools(*TOOLS.values()), parallel=parallel)
            made: Counter[str] = Counter()
            for cut in cuts:
                lines = (state / "runs.jsonl").read_bytes().splitlines(keepends=True)
                (state / "runs.jsonl").write_bytes(b"".join(lines[: 1 + cut % len(lines)]))
                begun, _ = call_counts(events_of(state / "runs.jsonl"))
                made = Counter({question: begun[f'{{"q": "{question}"}}'] for question in ("one", "three", "four")})
                tools = CountingTools(*TOOLS.values())
                await live(state, tools, [handle], parallel=parallel)
                made.update(arguments["q"] for name, arguments in tools.made if name == "lookup")
                assert set(made.values()) == {1}

    asyncio.run(lives())
