"""Is a fault in the background counted each time, and logged once?"""

import asyncio
import logging

import pytest

from luftpause.kit.faults import Faults
from luftpause.kit.logs import Log
from luftpause.kit.metrics import Counter


def made() -> Faults:
    return Faults(Log("test"), Counter("faults", "Faults.", ("work",)), {"sweep": "it sweeps again", "beat": "it beats again"})


def fail(number: int) -> None:
    raise ValueError(number)


def test_each_is_counted_and_each_kind_logged_once_with_what_it_means(caplog: pytest.LogCaptureFixture) -> None:
    faults = made()
    for number in range(3):
        with faults.noted("sweep"):
            fail(number)
    with faults.noted("beat"):
        fail(3)
    with faults.noted("beat"):
        raise KeyError(4)
    assert faults.counter.series() == {("sweep",): 3.0, ("beat",): 2.0}
    told = [(record.fields["work"], record.fields["problem"]) for record in caplog.records]
    assert told == [("sweep", "ValueError: 0"), ("beat", "ValueError: 3"), ("beat", "KeyError: 4")]
    assert caplog.records[0].fields["means"] == "it sweeps again"
    assert all(record.levelno == logging.ERROR and record.exc_info for record in caplog.records)


def test_what_goes_well_is_no_fault() -> None:
    faults = made()
    with faults.noted("sweep"):
        pass
    assert faults.counter.series() == {}


async def test_a_cancelled_task_is_no_fault() -> None:
    faults = made()
    with pytest.raises(asyncio.CancelledError), faults.noted("sweep"):
        raise asyncio.CancelledError
    assert faults.counter.series() == {}
