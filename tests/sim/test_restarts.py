"""Does a scheduler that is restarted after any single event of a small world go on as if nothing had been?"""

import pytest

from luftpause_bench.sim.runner import restarted_after_each_event

EVENTS_MIN = 60


@pytest.mark.parametrize(("number", "seconds"), [(1, 0.05), (2, 2.0)])
def test_a_scheduler_may_die_right_after_any_event_before_its_orders_leave(number: int, seconds: float) -> None:
    assert restarted_after_each_event(number, seconds) > EVENTS_MIN
