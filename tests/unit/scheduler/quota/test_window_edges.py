"""What does an answer count that comes when one window ends and the next begins, by clocks that are not quite alike?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from luftpause.scheduler.quota import ledger
from luftpause.scheduler.quota.headers import LimitKind
from luftpause.scheduler.quota.samples import Sample
from luftpause.scheduler.quota.specs import ScopeSpec
from tests.unit.scheduler.quota.test_core import Desk

HOUR = ScopeSpec("req", "fixed", 100, 3_600)


def used_up(*, at: float = 0.0, reset: float = 3_600.0) -> Desk:
    """All of the window that ends at `at` + `reset` is used, says the provider; a call of it is still in flight."""
    desk = Desk(HOUR, penalty_seconds=60)
    desk.now = at
    desk.want("late", 0)
    desk.want("teller", 0)
    desk.report("teller", "ok", Sample("req", 100, 0, reset))
    return desk


def test_an_answer_of_the_window_that_has_ended_takes_nothing_from_the_new_one() -> None:
    desk = used_up()
    desk.now = 3_600.1
    desk.report("late", "ok", Sample("req", 100, 0, 0.0))
    assert desk.scope("req").remaining >= 99
    assert desk.scope("req").reset_at == 7_200
    desk.want("next", 0)
    assert "next" in desk.grants


def test_one_of_the_new_window_counts_at_once() -> None:
    desk = used_up()
    desk.now = 3_600.1
    desk.want("first", 0)
    desk.report("first", "ok", Sample("req", 100, 7, 3_599.0))
    assert desk.scope("req").remaining == 7


def test_a_refusal_by_a_clock_that_is_a_little_late_lasts_a_moment_not_a_window() -> None:
    desk = used_up()
    desk.now = 3_600.0
    desk.want("early", 0)
    desk.report("early", "limited", Sample("req", 100, 0, 0.0), kind=LimitKind.PRIMARY)
    assert desk.target.breaker.open_until == pytest.approx(3_601.25)
    assert desk.target.breaker.strikes == 0
    desk.now = 3_601.3
    desk.want("again", 0)
    assert "again" in desk.grants


def test_a_refusal_that_tells_no_end_long_after_the_beginning_is_believed_to_last() -> None:
    """Azure says 0 of what is used up."""
    desk = used_up()
    desk.now = 3_700.0
    desk.want("later", 0)
    desk.report("later", "limited", Sample("req", 100, 0, 0.0), kind=LimitKind.PRIMARY)
    assert desk.target.breaker.open_until >= 3_760
    assert desk.scope("req").remaining == 0


@given(st.floats(0, 10_000), st.floats(0.0, 3_600), st.integers(0, 100))
def test_only_what_tells_an_end_at_this_windows_beginning_is_left_out(now: float, reset: float, remaining: int) -> None:
    scope = ledger.roll(ledger.sampled(ledger.fresh(HOUR, 0.0), Sample("req", 100, 50, 3_600), 0.0, 0.0), now)
    began = scope.reset_at - 3_600
    told = ledger.sampled(scope, Sample("req", 100, remaining, reset), now, now + 1)
    if now + reset <= began + ledger.CLOCKS_SECONDS:
        assert replace(told, told_at=scope.told_at) == scope
    else:
        assert told.remaining == remaining
