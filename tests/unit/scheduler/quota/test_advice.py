"""Does everybody who retries by itself get a moment in the window of its class, after the shared end of the block?"""

from math import inf

import pytest

from luftpause.scheduler.quota.advice import advice
from luftpause.scheduler.quota.events import LimitsObserved
from luftpause.scheduler.quota.headers import LimitKind
from luftpause.scheduler.quota.samples import Sample
from luftpause.scheduler.quota.specs import ScopeSpec
from tests.unit.scheduler.quota.test_core import Desk

HOUR = ScopeSpec("req", "fixed", 5_000, 3_600)
BUCKET = ScopeSpec("tok", "bucket", 600, 60)
WINDOWS = [(0, 0.0, 0.5), (1, 0.5, 3.5), (2, 3.5, 9.5)]


def blocked(seconds: float) -> Desk:
    desk = Desk(HOUR)
    desk.warm_up()
    desk.want("a")
    desk.limited("a", seconds)
    return desk


@pytest.mark.parametrize(("priority", "first", "last"), WINDOWS)
def test_the_windows_stand_at_the_end_of_the_block_whoever_asks_when(priority: int, first: float, last: float) -> None:
    desk = blocked(10.0)
    for now in (0.0, 4.0, 10.2):
        ends = 10.25 - now
        assert advice(desk.state, "t", priority, 0.0, now=now) == pytest.approx(ends + first)
        assert advice(desk.state, "t", priority, 0.5, now=now) == pytest.approx(ends + (first + last) / 2)
        assert advice(desk.state, "t", priority, 0.999_999, now=now) < ends + last


def test_what_has_passed_of_a_window_is_left_out_and_after_it_there_is_a_new_one() -> None:
    desk = blocked(10.0)
    desk.until(12.25)
    assert advice(desk.state, "t", 1, 0.0) == pytest.approx(0.0)
    assert advice(desk.state, "t", 1, 0.5) == pytest.approx(0.75)
    assert advice(desk.state, "t", 2, 0.0) == pytest.approx(1.5)
    assert advice(desk.state, "t", 0, 0.5) == pytest.approx(0.25)  # its window has passed: as from now


def test_without_a_block_they_stand_at_the_moment() -> None:
    desk = Desk(HOUR, BUCKET)
    assert [advice(desk.state, "t", priority, 0.0, now=7.0) for priority in range(3)] == [0.0, 0.5, 3.5]


def test_what_is_used_up_must_renew_first_but_only_what_the_call_needs() -> None:
    desk = Desk(HOUR, BUCKET)
    desk.send(LimitsObserved(0.0, "t", (Sample("req", 5_000, 0.0, 30.0), Sample("tok", 600, -9.0))))
    assert advice(desk.state, "t", 0, 0.0) == pytest.approx(30.0)
    assert advice(desk.state, "t", 0, 0.0, scopes=["tok"]) == pytest.approx(1.0)
    assert advice(desk.state, "t", 0, 0.0, now=31.0) == 0.0


def test_a_scope_that_a_refusal_blocked_counts_until_it_opens() -> None:
    desk = Desk(HOUR)
    desk.want("a")
    desk.limited("a", 50.0, LimitKind.PRIMARY, Sample("req", 5_000, 0.0, 50.0))
    assert advice(desk.state, "t", 2, 0.0) == pytest.approx(53.75)


def test_without_credit_no_wait_helps() -> None:
    desk = Desk(HOUR)
    desk.want("a")
    desk.limited("a", None, LimitKind.CREDIT)
    assert advice(desk.state, "t", 0, 0.5) == inf
    with pytest.raises(KeyError):
        advice(desk.state, "x", 0, 0.5)
