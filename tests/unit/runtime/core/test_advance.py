"""Does a run go the way that its events say?"""

from typing import Any

import pytest
from msgspec.structs import replace

from luftpause.runtime.core.advance import BUDGET_SPENT, INTERRUPTED, advance, finished, fold
from luftpause.runtime.core.effects import AskModel, Finish, StartCall
from luftpause.runtime.core.events import Answered, AskedCall, CallEnded, CallStarted, Created, Event, Resumed, Shortened
from luftpause.runtime.core.history import ASK_AGAIN, NO_ANSWER
from luftpause.runtime.core.model import Run
from luftpause.runtime.core.view import Around, view
from luftpause.runtime.ports import RunState, ServiceClass


def created(**given: Any) -> Created:
    fields: dict[str, Any] = {
        "handle": "run_1",
        "at": 100.0,
        "task": "the task",
        "model": "m",
        "service_class": ServiceClass.INTERACTIVE,
        "system": "be brief",
        "max_tool_calls": 8,
        "max_tokens": 256,
    }
    return Created(**{**fields, **given})


def asked(*ids: str, rejected: str = "") -> Answered:
    return Answered("", tuple(AskedCall(each, "lookup", "{}", rejected) for each in ids), "tool_calls", prompt_tokens=5)


def play(*events: Event) -> tuple[Run, tuple[Any, ...]]:
    step = fold(events)
    return step.run, step.effects


def call(call_id: str) -> StartCall:
    return StartCall(call_id, "lookup", "{}")


def test_a_run_begins_with_system_and_task() -> None:
    run, effects = play(created())
    assert run.messages == ({"role": "system", "content": "be brief"}, {"role": "user", "content": "the task"})
    assert effects == (AskModel(with_tools=True),)


def test_an_empty_system_message_is_left_out() -> None:
    assert play(created(system=""))[0].messages == ({"role": "user", "content": "the task"},)


def test_a_budget_of_zero_offers_no_tools() -> None:
    assert play(created(max_tool_calls=0))[1] == (AskModel(with_tools=False),)


def test_an_answer_without_calls_completes_the_run() -> None:
    run, effects = play(created(), Answered("42", prompt_tokens=7, completion_tokens=1, cached_tokens=3))
    assert effects == (Finish(RunState.COMPLETED, "42"),)
    ended = advance(run, finished(run, RunState.COMPLETED, "42", at=109, seconds=9)).run
    assert (ended.state, ended.text, ended.turns, ended.prompt_tokens, ended.cached_tokens) == (RunState.COMPLETED, "42", 1, 7, 3)
    assert ended.messages == ()


def test_calls_are_made_one_after_another() -> None:
    events: list[Event] = [created(), asked("a", "b")]
    assert play(*events)[1] == (call("a"),)
    events.append(CallStarted("a"))
    assert play(*events)[1] == ()
    events.append(CallEnded("a", "A"))
    assert play(*events)[1] == (call("b"),)
    events += [CallStarted("b"), CallEnded("b", "B", failed=True)]
    run, effects = play(*events)
    assert effects == (AskModel(with_tools=True),)
    assert (run.tool_calls, run.failed_tool_calls, run.turns) == (2, 1, 1)
    assert [message.get("tool_call_id") for message in run.messages[3:]] == ["a", "b"]
    assert [message["content"] for message in run.messages[2:]] == ["", "A", "B"]


def test_parallel_calls_start_together_and_their_results_stand_in_call_order() -> None:
    events: list[Event] = [created(parallel_tool_calls=True), asked("a", "b", "c")]
    assert play(*events)[1] == (call("a"), call("b"), call("c"))
    events += [CallStarted("a"), CallStarted("b"), CallStarted("c"), CallEnded("c", "C"), CallEnded("b", "B")]
    assert play(*events)[1] == ()
    run, effects = play(*events, CallEnded("a", "A"))
    assert effects == (AskModel(with_tools=True),)
    assert [message["content"] for message in run.messages[3:]] == ["A", "B", "C"]


def test_a_rejected_call_is_not_made_but_counts() -> None:
    run, effects = play(created(), asked("a", rejected="Error: no"))
    assert effects == (AskModel(with_tools=True),)
    assert (run.tool_calls, run.failed_tool_calls) == (1, 1)
    assert run.messages[-1] == {"role": "tool", "tool_call_id": "a", "content": "Error: no"}


def test_calls_beyond_the_budget_are_answered_but_not_made() -> None:
    run, effects = play(created(max_tool_calls=2, parallel_tool_calls=True), asked("a", "b", "c"))
    assert effects == (call("a"), call("b"))
    run, effects = play(
        created(max_tool_calls=2, parallel_tool_calls=True), asked("a", "b", "c"),
        CallStarted("a"), CallStarted("b"), CallEnded("a", "A"), CallEnded("b", "B"),
    )  # fmt: skip
    assert effects == (AskModel(with_tools=False),)
    assert [message["content"] for message in run.messages[3:]] == ["A", "B", BUDGET_SPENT]
    assert (run.tool_calls, run.failed_tool_calls) == (2, 0)


def test_rejected_calls_spend_the_budget_too() -> None:
    events = [created(max_tool_calls=3), *(asked(name, rejected="Error: no") for name in "abc")]
    run, effects = play(*events)
    assert effects == (AskModel(with_tools=False),)
    assert run.failed_tool_calls == 3


def test_an_empty_answer_is_asked_for_once_again() -> None:
    run, effects = play(created(), Answered("  \n"))
    assert effects == (AskModel(with_tools=True),)
    assert run.messages[-2:] == ({"role": "assistant", "content": NO_ANSWER}, {"role": "user", "content": ASK_AGAIN})
    assert play(created(), Answered(""), Answered(""))[1] == (Finish(RunState.COMPLETED, ""),)


def test_an_empty_answer_to_the_last_turn_is_not_asked_for_again() -> None:
    assert play(created(max_tool_calls=0), Answered(""))[1] == (Finish(RunState.COMPLETED, ""),)


def test_an_answer_that_a_filter_withholds_twice_fails_the_run() -> None:
    withheld = Answered("", finish_reason="content_filter")
    assert play(created(), withheld)[1] == (AskModel(with_tools=True),)
    (end,) = play(created(), withheld, withheld)[1]
    assert isinstance(end, Finish)
    assert end.state is RunState.FAILED
    assert "a filter of the engine or its provider withheld the answer" in end.text


def test_an_empty_answer_costs_one_turn_with_tools() -> None:
    events = [created(max_tool_calls=2), Answered(""), asked("a", rejected="Error: no")]
    run, effects = play(*events)
    assert (run.turns, run.tool_calls) == (2, 1)
    assert effects == (AskModel(with_tools=False),)


def test_an_ended_run_takes_no_more_events() -> None:
    run, _ = play(created())
    ended = advance(run, finished(run, RunState.CANCELLED, "cancelled", at=1, seconds=1)).run
    assert advance(ended, Answered("late")).run is ended
    assert advance(ended, Answered("late")).effects == ()


def test_a_call_that_was_under_way_at_a_restart_is_not_made_again() -> None:
    run, effects = play(created(), asked("a", "b"), CallStarted("a"), Resumed(5))
    assert effects == (call("b"),)
    assert run.failed_tool_calls == 1
    run, effects = play(created(), asked("a"), CallStarted("a"), Resumed(5))
    assert effects == (AskModel(with_tools=True),)
    assert run.messages[-1]["content"] == INTERRUPTED


def test_a_repeatable_call_that_was_under_way_at_a_restart_is_made_again() -> None:
    run, effects = play(created(), asked("a", "b"), CallStarted("a", repeatable=True), Resumed(5))
    assert effects == (replace(call("a"), repeatable=True),), "also when its tool is not connected yet"
    assert run.failed_tool_calls == 0


def test_a_call_with_a_result_is_not_made_again() -> None:
    events = (created(parallel_tool_calls=True), asked("a", "b"), CallStarted("a", repeatable=True), CallStarted("b", repeatable=True))
    assert play(*events, CallEnded("a", "A"), Resumed(5))[1] == (replace(call("b"), repeatable=True),)


def test_a_call_that_had_not_started_at_a_restart_is_made() -> None:
    assert play(created(), asked("a"), Resumed(5))[1] == (call("a"),)


def test_an_answer_whose_end_was_not_written_is_not_asked_for_again() -> None:
    assert play(created(), Answered("42"), Resumed(5))[1] == (Finish(RunState.COMPLETED, "42"),)


def test_a_finished_run_needs_its_first_and_last_event_only() -> None:
    events: list[Event] = [created(), asked("a"), CallStarted("a"), CallEnded("a", "A", failed=True), Answered("42")]
    run, _ = play(*events)
    last = finished(run, RunState.COMPLETED, "42", at=109, seconds=9)
    assert play(*events, last) == play(created(), last)


@pytest.mark.parametrize(
    "events",
    [
        (),
        (Answered("42"),),
        (created(), created()),
        (created(), CallStarted("a")),
        (created(), asked("a"), CallEnded("a", "A")),
        (created(), asked("a"), CallStarted("b")),
        (created(), asked("a"), CallStarted("a"), CallStarted("a")),
        (created(), asked("a"), CallStarted("a"), Answered("42")),
    ],
)
def test_events_that_can_not_follow_each_other_are_a_damaged_journal(events: tuple[Event, ...]) -> None:
    with pytest.raises(ValueError, match="run"):
        fold(events)


# ---- what is cut --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("reason", "truncated"), [("length", True), ("stop", False)])
def test_an_answer_that_was_cut_at_its_length_says_so(reason: str, truncated: bool) -> None:
    run, effects = play(created(), Answered("a part of", finish_reason=reason))
    assert effects == (Finish(RunState.COMPLETED, "a part of"),)
    ended = advance(run, finished(run, RunState.COMPLETED, "a part of", at=1, seconds=1)).run
    assert view(ended, Around(0)).truncated is truncated


def test_a_cut_answer_before_the_last_one_is_no_cut_result() -> None:
    run, _ = play(created(), Answered("", finish_reason="length"), Answered("42", finish_reason="stop"))
    assert not advance(run, finished(run, RunState.COMPLETED, "42", at=1, seconds=1)).run.truncated


def test_old_tool_results_are_shortened_once_and_the_last_round_stays() -> None:
    events = (
        created(),
        asked("a"), CallStarted("a"), CallEnded("a", "A" * 5000),
        asked("b"), CallStarted("b"), CallEnded("b", "B" * 5000),
    )  # fmt: skip
    run, _ = play(*events, Shortened(1000))
    results = [message["content"] for message in run.messages if message["role"] == "tool"]
    assert results == ["A" * 1000 + "\n[cut: 1,000 of 5,000 characters shown]", "B" * 5000]
    assert advance(run, Shortened(1000)).run.messages == run.messages
    within, _ = play(*events, asked("c"), CallStarted("c"), Shortened(1000))
    assert [len(message["content"]) > 1100 for message in within.messages if message["role"] == "tool"] == [False, False]
