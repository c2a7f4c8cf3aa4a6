"""Does the governor's host answer each wish once, let what is due happen, and give back what nobody wants any more?"""

import asyncio
from collections.abc import Callable

import pytest

from luftpause.scheduler.governor.host import Governor, GovernorFailedError
from luftpause.scheduler.quota import core
from luftpause.scheduler.quota.decisions import Decision, Expired, Grant, Refuse, RefuseCode, Stale, Step
from luftpause.scheduler.quota.events import AnswerReported, Event, LeaseReleased, QuotaWanted, TargetConfigured
from luftpause.scheduler.quota.headers import LimitKind
from luftpause.scheduler.quota.model import ScopeSpec, Settings, State, TargetSpec

ONE_AT_A_TIME = TargetSpec("api", (ScopeSpec("calls", "concurrent", 1.0),))


class Time:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def governor(time: Callable[[], float], spec: TargetSpec = ONE_AT_A_TIME) -> Governor:
    host = Governor(core.initial(Settings(), time()), clock=time)
    host.post(TargetConfigured(host.now, spec))
    return host


def wish(host: Governor, want: str, lease_seconds: float = 60.0, target: str = "api") -> QuotaWanted:
    return QuotaWanted(host.now, target, want, "picard", 1, (("calls", 1.0),), lease_seconds)


def ask(host: Governor, want: str, **kinds: float) -> list[Grant | Refuse]:
    answers: list[Grant | Refuse] = []
    host.want(wish(host, want, **kinds), answers.append)
    return answers


def granted(answers: list[Grant | Refuse]) -> Grant:
    (answer,) = answers
    assert isinstance(answer, Grant)
    return answer


def test_what_is_free_is_granted_before_want_returns() -> None:
    assert granted(ask(governor(Time()), "a")).want == "a"


def test_a_wish_is_answered_once_when_its_turn_comes() -> None:
    host = governor(Time())
    first, second = granted(ask(host, "a")), ask(host, "b")
    assert second == []
    host.post(AnswerReported(host.now, "api", "a", first.fence, "ok"))
    assert granted(second).want == "b"


def test_whoever_asks_for_the_same_wish_again_gets_the_same_grant() -> None:
    host = governor(Time())
    assert granted(ask(host, "a")) == granted(ask(host, "a"))
    waits, waits_too = ask(host, "b"), ask(host, "b")
    host.post(LeaseReleased(host.now, "api", "a", 1))
    assert granted(waits) == granted(waits_too)


def test_a_wish_that_can_not_be_is_refused() -> None:
    answers: list[Grant | Refuse] = []
    host = governor(Time())
    host.want(wish(host, "a", target="aip"), answers.append)
    (answer,) = answers
    assert isinstance(answer, Refuse)
    assert answer.code is RefuseCode.UNKNOWN_TARGET
    assert "'aip'" in answer.message
    assert "known: api" in answer.message


def test_who_withdrew_hears_nothing_and_holds_nothing() -> None:
    host = governor(Time())
    first = granted(ask(host, "a"))
    gone, stays = ask(host, "b"), ask(host, "c")
    host.withdraw("api", "b")
    host.post(LeaseReleased(host.now, "api", "a", first.fence))
    assert gone == []
    assert granted(stays).want == "c"


def test_a_grant_that_comes_while_its_wish_is_being_withdrawn_goes_to_the_next() -> None:
    """Both happen inside an answer, so that the grant is on its way when the wish goes."""
    host = governor(Time())
    first, gone, stays = granted(ask(host, "a")), list[Grant | Refuse](), list[Grant | Refuse]()

    def release_then_withdraw(_: Decision) -> None:
        stop()
        host.post(LeaseReleased(host.now, "api", "a", first.fence))
        host.withdraw("api", "b")

    host.want(wish(host, "b"), gone.append)
    host.want(wish(host, "c"), stays.append)
    stop = host.listen(release_then_withdraw)
    host.post(AnswerReported(host.now, "api", "nobody", 9, "ok"))  # a Stale, heard by the listener
    assert gone == []
    assert granted(stays).want == "c"
    assert set(host.state.targets["api"].leases) == {"c"}


def test_listeners_hear_all_decisions_until_they_stop() -> None:
    host = governor(Time())
    heard: list[Decision] = []
    stop = host.listen(heard.append)
    ask(host, "a")
    host.post(LeaseReleased(host.now, "api", "a", 99))
    stop()
    stop()
    host.post(LeaseReleased(host.now, "api", "a", 99))
    assert [type(each) for each in heard] == [Grant, Stale]


def deaf(_: Decision) -> None:
    raise IndexError


def test_one_listener_or_answer_that_raises_keeps_nobody_else_from_hearing() -> None:
    host = governor(Time())
    heard: list[Decision] = []
    host.listen(deaf)
    host.listen(heard.append)
    first = wish(host, "a")
    answers: list[Grant | Refuse] = []
    host.want(first, deaf)
    host.post(LeaseReleased(host.now, "api", "a", 1))
    host.want(wish(host, "b"), answers.append)
    assert granted(answers).want == "b"
    assert [each.want for each in heard if isinstance(each, Grant)] == ["a", "b"]
    assert host.faults.counter.value(("answers",)) == 3


def test_what_is_due_happens_when_it_is_asked_to_advance() -> None:
    time = Time()
    host = governor(time)
    heard: list[Decision] = []
    host.listen(heard.append)
    ask(host, "a", lease_seconds=10.0)
    waits = ask(host, "b")
    assert host.advance() == 1_010.0
    time.now = 1_010.0
    host.advance()
    assert [each.want for each in heard if isinstance(each, Expired)] == ["a"]
    assert granted(waits).want == "b"


async def test_what_is_due_happens_by_itself_while_it_runs() -> None:
    host = governor(asyncio.get_running_loop().time)
    running = asyncio.create_task(host.run())
    again = asyncio.get_running_loop().create_future()
    first = granted(ask(host, "a"))
    host.post(AnswerReported(host.now, "api", "a", first.fence, "limited", (), (), 0.05, LimitKind.PRIMARY))
    host.want(wish(host, "b"), again.set_result)
    assert (await asyncio.wait_for(again, 60)).want == "b"  # the block of 0.05 s and P1's window are over
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_core_that_fails_ends_the_run_and_says_on_what() -> None:
    def broken(state: State, event: Event) -> Step:
        raise ZeroDivisionError

    host = Governor(core.initial(Settings(), 0.0), govern=broken)
    running = asyncio.create_task(host.run())
    await asyncio.sleep(0)
    host.post(LeaseReleased(host.now, "api", "a", 1))
    with pytest.raises(GovernorFailedError, match="its core failed on LeaseReleased"):
        await running
    assert ask(host, "a") == []  # nothing is decided any more
