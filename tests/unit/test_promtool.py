"""Does the test double of promtool object to what promtool objects to?"""

import pytest

from tests.support.promtool import Page

GOOD = """\
# HELP a_wait_seconds Waits.
# TYPE a_wait_seconds histogram
a_wait_seconds_bucket{le="1.0"} 1
a_wait_seconds_bucket{le="+Inf"} 2
a_wait_seconds_count 2
a_wait_seconds_sum 4.5
# HELP a_turns_total Turns.
# TYPE a_turns_total counter
a_turns_total{class="batch"} 3
"""


def test_a_good_page_passes() -> None:
    page = Page(GOOD)
    assert page.sum("a_turns_total", **{"class": "batch"}) == 3
    assert page.labels() == {"class": {"batch"}, "le": {"1.0", "+Inf"}}


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ("# HELP a_turns_total Turns.\n", ""),
        ("# TYPE a_turns_total counter\n", ""),
        ("# HELP a_turns_total Turns.\n", "# HELP a_turns_total\n"),
        ('le="+Inf"} 2', 'le="+Inf"} 0.5'),
        ("a_wait_seconds_count 2", "a_wait_seconds_count 3"),
        ("a_wait_seconds_sum 4.5", "a_wait_seconds_sum 0.5"),
        ('a_wait_seconds_bucket{le="+Inf"} 2\n', ""),
        ("a_wait_seconds", "a_wait_milliseconds"),
        ("a_wait_seconds", "a_wait"),
        ("a_turns_total", "a_turns_ms_total"),
        ("a_turns_total", "a_turns_counter_total"),
        ("a_turns_total", "aTurns_total"),
        ('{class="batch"} 3', '{class="batch"} 3\na_turns_total{other="batch"} 3'),
        ('{class="batch"} 3', '{class="batch"} NaN'),
        ('{class="batch"} 3', '{class="batch"} -3'),
        ("# TYPE a_turns_total counter", "# TYPE a_turns_total gauge"),
    ],
)
def test_a_bad_one_does_not(good: str, bad: str) -> None:
    assert good in GOOD
    with pytest.raises((AssertionError, ValueError)):
        Page(GOOD.replace(good, bad))
