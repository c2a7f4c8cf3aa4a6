"""Is every known way to tell a limit read as it is meant, and does anything else do no harm?"""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from luftpause.scheduler.quota.header_values import duration, moment, number, seconds_until
from luftpause.scheduler.quota.headers import LimitKind, observe
from tests.unit.scheduler.quota.header_cases import CASES, NOW, Case

REFUSALS = frozenset(LimitKind) - {LimitKind.TOO_LARGE}  # what a later try may not get


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_an_answer_says_what_its_provider_means(case: Case) -> None:
    seen = observe(case.status, case.headers, case.body, NOW)

    assert {sample.scope for sample in seen.samples} == set(case.samples)
    for sample in seen.samples:
        assert (sample.limit, sample.remaining, sample.reset_seconds) == pytest.approx(case.samples[sample.scope], abs=1e-3), sample.scope
    assert seen.wait_seconds == (None if case.wait_seconds is None else pytest.approx(case.wait_seconds, abs=1e-3))
    assert seen.kind is case.kind
    assert seen.limited == (case.kind in REFUSALS)


def test_the_table_names_each_answer_once() -> None:
    assert len({case.id for case in CASES}) == len(CASES) >= 55


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("6m0s", 360.0), ("2m52.8s", 172.8), ("547ms", 0.547), ("1h2m3.5s", 3723.5), ("12µs", 12e-6), ("1d", 86_400.0)],
)
def test_a_duration_is_read_as_go_writes_it(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "1", "1x", "1s ", "-1s", "1s1", "1 s", "٣s", "1e3s"])
def test_what_is_no_duration_is_none(text: str) -> None:
    assert duration(text) == (1.0 if text == "1s " else None)  # blanks around it are the transport's


@pytest.mark.parametrize("text", ["", "nan", "inf", "1_000", "0x10", "٣", "1,5", "--1", "1e400", "9" * 40])
def test_what_is_no_number_is_none(text: str) -> None:
    assert number(text) is None


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("1970-01-01T00:00:00Z", 0.0),
        ("2000-02-29T12:00:00.25+02:00", 951_818_400.25),
        ("2026-05-28 20:26:40", NOW),
        ("Thu, 28 May 2026 20:26:40 GMT", NOW),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 784_111_777.0),
        ("Sun Nov  6 08:49:37 1994", 784_111_777.0),
    ],
)
def test_a_moment_is_read_in_all_its_forms(text: str, at: float) -> None:
    assert moment(text) == at


@pytest.mark.parametrize(
    "text",
    ["2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "2026-01-01T24:00:00Z", "Thu, 31 Apr 2026 00:00:00 GMT", "1969-01-01T00:00:00Z",
     "Thu, 28 Mai 2026 20:26:40 GMT", "soon"],
)  # fmt: skip
def test_what_is_no_moment_is_none(text: str) -> None:
    assert moment(text) is None


@given(st.floats(0, 4e9).map(int))
@settings(deadline=None, max_examples=100)
def test_a_moment_counts_days_as_the_calendar_does(at: int) -> None:
    assert moment(datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")) == at
    assert seconds_until(datetime.fromtimestamp(at, UTC).strftime("%a, %d %b %Y %H:%M:%S GMT"), at - 7.0) == 7.0


NAMES = st.sampled_from(sorted({name for case in CASES for name in case.headers})) | st.text(max_size=30)
VALUES = st.sampled_from(sorted({value for case in CASES for value in case.headers.values()})) | st.text(max_size=60)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "errors", "metadata", "headers", "details", "@type", "retry_after", "extensions"]), inner
        )
    ),
    max_leaves=12,
)


@given(st.sampled_from([200, 400, 402, 403, 413, 429, 500, 503, 529]), st.dictionaries(NAMES, VALUES, max_size=8), st.data())
@settings(deadline=None, max_examples=200)
def test_no_answer_breaks_the_parser(status: int, headers: dict[str, str], data: st.DataObject) -> None:
    body = data.draw(st.text(max_size=80) | JSON.map(json.dumps) | st.sampled_from([case.body for case in CASES]))
    seen = observe(status, headers, body, NOW)

    assert seen.wait_seconds is None or seen.wait_seconds >= 0
    for sample in seen.samples:
        for value in (sample.limit, sample.remaining, sample.reset_seconds, sample.window_seconds):
            assert value is None or abs(value) < float("inf")
        assert sample.reset_seconds is None or sample.reset_seconds >= 0


def test_deep_and_long_bodies_are_no_trouble() -> None:
    assert observe(429, {}, "[" * 100_000).kind is LimitKind.PRIMARY
    assert observe(429, {}, "wait " * 20_000 + "wait 5 s").wait_seconds is None  # beyond what is read
    assert observe(200, {"RateLimit": '"' * 5_000 + ":" * 5_000}).samples == ()
