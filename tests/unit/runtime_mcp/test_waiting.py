"""Do waiting calls say how far things are, and do sessions and cancels end where they should?"""

import asyncio
import itertools

import pytest

from luftpause.runtime.mcp_tools.open_calls import OpenCalls
from luftpause.runtime.mcp_tools.progress import Progress, with_progress
from luftpause.runtime.mcp_tools.sessions import LiveSessions
from luftpause.runtime.mcp_tools.views import LISTED_MAX, awaited_text, listed_json, listed_text, progress_text, run_text
from luftpause.runtime.ports import RunState, RunView, ServiceClass


def run(handle: str, state: RunState, **fields: object) -> RunView:
    return RunView(handle, state, "task", "m", ServiceClass.INTERACTIVE, **fields)  # type: ignore[arg-type]


def test_progress_rises_with_every_message_and_stays_below_the_next_run():
    progress = Progress(16)
    values = [progress.next(done) for done in [0] * 500 + [7] * 500 + [16]]
    assert all(later > earlier for earlier, later in itertools.pairwise(values))
    assert values[499] < 1
    assert 7 <= values[500] < values[999] < 8


def test_progress_says_how_many_are_done_and_what_the_others_do():
    runs = [run("a", RunState.COMPLETED), run("b", RunState.RUNNING, doing="tool lookup"), run("c", RunState.RUNNING, doing="tool lookup")]
    assert (
        progress_text([*runs, run("d", RunState.RUNNING, doing="held or generating")]) == "1 of 4 done: 2 tool lookup, 1 held or generating"
    )
    assert progress_text(runs[:1]) == "1 of 1 done"


def test_texts_say_what_a_person_needs():
    done = run("run_1", RunState.COMPLETED, answer="42", turns=2, tool_calls=3, failed_tool_calls=1, seconds=1.24)
    assert run_text(done) == "run_1: Completed, 2 turns, 3 tool calls (1 failed), 1.2 s\n42"
    assert "the engine is gone" in run_text(run("r", RunState.FAILED, error="the engine is gone"))
    assert "(an empty answer)" in run_text(run("r", RunState.COMPLETED, answer=""))
    assert awaited_text([done, run("run_2", RunState.RUNNING)]).endswith("Still running; call await again with: run_2")


def test_a_long_list_of_runs_is_cut_to_the_newest_and_counts_all():
    runs = [run(f"r{number}", RunState.COMPLETED, answer="long") for number in range(LISTED_MAX + 2)]
    listed = listed_json(runs)
    assert [listed["runs"][0]["handle"], listed["runs"][-1]["handle"]] == ["r2", f"r{LISTED_MAX + 1}"]
    assert listed["done"] == listed["total"] == LISTED_MAX + 2
    assert "answer" not in listed["runs"][0]
    assert listed_text(runs).startswith(f"{LISTED_MAX + 2} runs. The newest {LISTED_MAX} are listed.")
    assert listed_text([]) == "No runs."


async def test_no_progress_follows_the_result():
    sent: list[float] = []
    result: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def send(progress: float, total: float, message: str) -> None:
        sent.append(progress)
        if len(sent) == 3:
            result.set_result("done")

    assert await with_progress(result, lambda: [run("a", RunState.RUNNING)], send, 0.001) == "done"
    assert len(sent) == 3


async def test_a_stop_ends_the_waiting_and_cancels_what_was_waited_for():
    stop = asyncio.Event()
    stop.set()
    waiting = asyncio.get_running_loop().create_future()

    async def send(progress: float, total: float, message: str) -> None:
        raise AssertionError

    assert await with_progress(waiting, list, send, 60, "", stop) is None
    assert waiting.cancelled()


async def test_an_error_of_what_is_waited_for_is_the_callers():
    waiting = asyncio.get_running_loop().create_future()
    waiting.set_exception(ValueError("x"))

    async def send(progress: float, total: float, message: str) -> None: ...

    with pytest.raises(ValueError, match="x"):
        await with_progress(waiting, list, send, 60)


async def test_a_cancel_notice_reaches_an_open_or_just_left_call_of_its_session_only():
    calls, cancelled = OpenCalls(), list[str]()
    calls.opened("s1", 7, lambda: cancelled.append("s1"))
    other = calls.opened("s2", 7, lambda: cancelled.append("s2"))
    calls.cancelled("s3", 7)
    calls.cancelled("s1", "7")
    calls.cancelled("s1", 7)
    assert cancelled == ["s1"]
    calls.left(other)
    calls.cancelled("s2", 7)
    assert cancelled == ["s1", "s2"]


async def test_a_call_that_ended_can_not_be_cancelled_any_more():
    calls, cancelled = OpenCalls(), list[str]()
    calls.closed(calls.opened("s", 1, lambda: cancelled.append("s")))
    calls.cancelled("s", 1)
    assert cancelled == []


def test_a_session_lives_while_it_asks_and_until_it_was_idle_too_long_or_ended():
    now = [0.0]
    sessions = LiveSessions(60, lambda: now[0])
    assert not sessions.lives("session:a")
    assert sessions.lives("principal:somebody")
    sessions.began("a")
    now[0] = 1000
    assert sessions.lives("session:a")  # a stream is open
    sessions.answered("a")
    now[0] = 1059
    assert sessions.lives("session:a")
    now[0] = 1061
    assert not sessions.lives("session:a")
    sessions.began("b")
    sessions.answered("b")
    assert not sessions.lives("session:a")
    sessions.ended("b")
    assert not sessions.lives("session:b")
