"""How often is everything that lives walked through?"""

import gc
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from luftpause.kit.garbage import BUSY_SECONDS, QUIET_SECONDS, Garbage


class Time:
    """A clock, and a timer by which each collection takes `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.now = 0.0
        self._seconds, self._read = seconds, 0.0

    def clock(self) -> float:
        return self.now

    def timer(self) -> float:
        self._read += self._seconds
        return self._read


@contextmanager
def collecting(time: Time) -> Generator[Garbage]:
    garbage = Garbage(time.clock, timer=time.timer)
    try:
        yield garbage
    finally:
        garbage.stop()


@pytest.mark.parametrize(("takes", "pause"), [(0.0005, QUIET_SECONDS), (0.01, 100.0), (0.2, BUSY_SECONDS)])
def test_work_loses_a_ten_thousandth_of_its_time_but_garbage_does_not_stay_for_ever(takes: float, pause: float) -> None:
    time = Time(takes)
    with collecting(time) as garbage:
        time.now = QUIET_SECONDS
        assert garbage.busy()  # what one takes is not known before
        time.now += pause - 1
        assert not garbage.busy()
        time.now += 1.5
        assert garbage.busy()


def test_where_nothing_waits_it_does_not_matter_what_it_takes() -> None:
    time = Time(60.0)
    with collecting(time) as garbage:
        for _ in range(2):
            time.now += QUIET_SECONDS - 1
            assert not garbage.idle()
            time.now += 1
            assert garbage.idle()


def test_python_collects_by_itself_again_in_the_end() -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    with collecting(Time(0.0)):
        assert gc.get_threshold() != before
        assert gc.get_freeze_count() > frozen
    assert gc.get_threshold() == before
