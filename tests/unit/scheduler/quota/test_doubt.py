"""Does what a provider once told keep nobody back for ever: a wait, a reset, a limit?"""

from math import inf

import pytest

from luftpause.scheduler.quota.advice import advice
from luftpause.scheduler.quota.decisions import Blocked, HalfOpened, RefuseCode
from luftpause.scheduler.quota.events import LedgerTold, LimitsObserved, ScopeShared, TargetConfigured
from luftpause.scheduler.quota.headers import LimitKind
from luftpause.scheduler.quota.model import Mode, Origin
from luftpause.scheduler.quota.profiles import call_cost, target_spec
from luftpause.scheduler.quota.samples import Sample
from luftpause.scheduler.quota.specs import ScopeSpec
from tests.unit.scheduler.quota.test_core import BUCKET, HOUR, Desk

DAY = 86_400.0
YEARS = 1e9


def learning(profile: str = "openai") -> Desk:
    desk = Desk()
    desk.send(TargetConfigured(0.0, target_spec("t", profile)))
    return desk


# ---- waits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [LimitKind.PRIMARY, LimitKind.SECONDARY, LimitKind.CAPACITY, LimitKind.CREDIT, None])
def test_a_wait_of_years_is_tried_after_a_day_by_one_call(kind: LimitKind) -> None:
    desk = Desk(HOUR)
    desk.want("a")
    desk.limited("a", YEARS, kind)
    assert desk.target.breaker.open_until == DAY + 0.25
    assert advice(desk.state, "t", 0, 0.0) == pytest.approx(31 * DAY + 0.25), "whoever asks is told what the provider said, within reason"
    desk.until(DAY)
    waits = [desk.want(want, 0) for want in ("first", "second")] if kind is not LimitKind.CREDIT else []
    assert waits in ([], [[], []])
    assert HalfOpened("t") in desk.until(DAY + 0.25)
    if kind is LimitKind.CREDIT:
        desk.want("first", 0)
        desk.want("second", 0)
    assert [want for want in desk.grants if want != "a"] == ["first"]
    assert Blocked("t", pytest.approx(2 * DAY + 0.5)) in desk.limited("first", YEARS, LimitKind.PRIMARY)  # type: ignore[arg-type]


def test_days_are_told_until_a_probe_shows_that_they_are_over() -> None:
    desk = Desk(HOUR)
    desk.want("a")
    desk.limited("a", 411_234.0)
    assert advice(desk.state, "t", 0, 0.0) == pytest.approx(411_234.25)
    desk.until(DAY + 0.25)
    desk.want("first", 0)
    assert advice(desk.state, "t", 0, 0.0) == pytest.approx(411_234.25 - desk.now)
    desk.report("first")
    desk.want("second", 0)
    desk.report("second")
    assert advice(desk.state, "t", 0, 0.0) < 1


def test_a_wait_within_a_day_is_believed() -> None:
    desk = Desk(BUCKET)
    desk.want("a", tok=1)
    desk.limited("a", 40_000.0)
    assert desk.target.breaker.open_until == 40_000.25


def test_a_refusal_with_a_reset_in_years_blocks_no_scope_for_longer_than_a_day() -> None:
    desk = Desk(HOUR)
    desk.want("a")
    desk.limited("a", YEARS, LimitKind.PRIMARY, Sample("req", 100, 0.0, YEARS))
    assert (desk.scope("req").blocked_until, desk.scope("req").reset_at) == (DAY + 0.25, DAY)
    desk.want("b", 0)
    desk.until(DAY + 0.25)
    assert "b" in desk.grants


def test_an_answer_that_tells_a_reset_in_years_closes_its_limit_for_a_day_at_most() -> None:
    desk = Desk(HOUR)
    desk.want("a")
    desk.report("a", "ok", Sample("req", 100, 0.0, YEARS))
    assert desk.want("b", 0) == []
    assert desk.granted(desk.until(DAY - 1)) == []
    assert desk.granted(desk.until(DAY)) == ["b"]


def test_a_limit_of_a_month_that_is_used_up_is_tried_by_one_call_a_day() -> None:
    desk = learning("auto")
    desk.want("a", 0, requests=1)
    desk.report("a", "ok", Sample("requests_month", 1_000, 0.0, 20 * DAY, 30 * DAY))
    assert desk.scope("requests_month").reset_at == 20 * DAY
    for want in "bcd":
        assert desk.want(want, 0, requests=1) == []
    assert desk.granted(desk.until(DAY - 1)) == []
    desk.send(LimitsObserved(desk.now, "t", (Sample("other", 5, 5.0),)))
    desk.until(DAY)
    assert list(desk.grants) == ["a", "b"]
    assert desk.granted(desk.report("b", "ok", Sample("requests_month", 1_000, 0.0, 19 * DAY, 30 * DAY))) == []
    desk.until(2 * DAY)
    assert list(desk.grants) == ["a", "b", "c"]
    desk.report("c", "ok", Sample("requests_month", 5_000, 4_000.0, 18 * DAY, 30 * DAY))  # somebody has bought more
    assert "d" in desk.grants


def test_a_month_that_was_only_counted_here_is_not_doubted() -> None:
    desk = Desk(ScopeSpec("req", "fixed", 2, 30 * DAY))
    for want in "ab":
        desk.want(want, 0)
        desk.report(want)
    desk.want("c", 0)
    assert desk.granted(desk.until(29 * DAY)) == []
    assert desk.granted(desk.until(30 * DAY)) == ["c"]


@pytest.mark.parametrize("told", [Sample("requests", 10, 0.0, YEARS), Sample("requests", 10, 0.0, None, YEARS)])
def test_no_window_that_is_learned_is_longer_than_a_month(told: Sample) -> None:
    desk = learning("auto")
    desk.send(LimitsObserved(0.0, "t", (told,)))
    scope = desk.scope("requests")
    assert scope.spec.window_seconds <= 31 * DAY
    assert scope.reset_at <= 31 * DAY


def test_one_wrong_reset_makes_no_minute_a_year() -> None:
    desk = learning("auto")
    desk.send(LimitsObserved(0.0, "t", (Sample("requests_minute", 10, 4.0, 30.0),)))
    desk.send(LimitsObserved(0.0, "t", (Sample("requests_minute", 10, 4.0, YEARS),)))
    assert desk.scope("requests_minute").spec.window_seconds == 60


# ---- limits -----------------------------------------------------------------------------------------------------


def tiny(profile: str = "openai") -> Desk:
    """Its provider has once said that one token is the limit."""
    desk = learning(profile)
    desk.want("a", 0, tokens=1_000, requests=1)
    desk.report("a", "ok", Sample("tokens", 1, 0.0, 60.0))
    return desk


def test_a_told_limit_is_believed_for_its_window_then_one_call_finds_out() -> None:
    desk = tiny()
    desk.until(59.0)
    assert desk.refused(desk.want("b", 0, tokens=1_000)) is RefuseCode.TOO_LARGE
    desk.until(60.0)
    assert desk.granted(desk.want("c", 0, tokens=1_000)) == ["c"]
    assert desk.want("d", 0, tokens=1_000) == [], "one at a time"
    assert desk.granted(desk.report("c", "ok", Sample("tokens", 90_000, 80_000.0, 6.0))) == ["d"]
    assert desk.scope("tokens").limit == 90_000


def test_what_was_served_is_no_more_than_the_limit() -> None:
    desk = tiny()
    desk.until(60.0)
    desk.want("c", 0, tokens=1_000)
    desk.report("c", actual={"tokens": 900.0})
    assert desk.scope("tokens").limit == 900
    assert desk.scope("tokens").remaining >= -900
    assert desk.want("next", 0, tokens=800) == []
    assert desk.granted(desk.until(desk.now + 120)) == ["next"]


def test_a_caller_that_reports_nonsense_of_a_small_call_raises_no_limit() -> None:
    desk = tiny()
    desk.until(61.0)
    desk.want("small", 0, tokens=1)
    desk.report("small", actual={"tokens": 1e12})
    assert desk.scope("tokens").limit == 1


def test_nor_does_it_raise_one_beyond_what_a_call_that_tries_it_asked_for() -> None:
    desk = tiny()
    desk.until(60.0)
    desk.want("c", 0, tokens=1_000)
    desk.report("c", actual={"tokens": 1e12})
    assert desk.scope("tokens").limit == 1_000


def test_a_refusal_as_too_large_confirms_the_limit_for_another_window() -> None:
    desk = tiny()
    desk.until(60.0)
    desk.want("c", 0, tokens=1_000)
    desk.limited("c", None, LimitKind.TOO_LARGE)
    assert desk.refused(desk.want("d", 0, tokens=1_000)) is RefuseCode.TOO_LARGE
    desk.until(120.0)
    assert desk.granted(desk.want("e", 0, tokens=1_000)) == ["e"]


def test_a_limit_that_is_told_again_and_again_stays() -> None:
    desk = tiny()
    for at in range(1, 10):
        desk.until(30.0 * at)
        desk.send(LimitsObserved(desk.now, "t", (Sample("tokens", 1, 0.0),)))
    assert desk.refused(desk.want("b", 0, tokens=1_000)) is RefuseCode.TOO_LARGE


def test_a_configured_limit_is_believed_for_ever_and_comes_back_where_a_lower_one_was_wrong() -> None:
    desk = Desk(BUCKET)
    desk.until(1e6)
    assert desk.refused(desk.want("a", 0, tok=601)) is RefuseCode.TOO_LARGE
    desk.send(LimitsObserved(desk.now, "t", (Sample("tok", 1, 1.0),)))
    assert desk.refused(desk.want("b", 0, tok=500)) is RefuseCode.TOO_LARGE
    desk.until(desk.now + 60)
    desk.want("c", 0, tok=500)
    desk.report("c")
    assert desk.scope("tok").limit == 600
    assert desk.refused(desk.want("d", 0, tok=601)) is RefuseCode.TOO_LARGE


def test_a_limit_of_calls_at_once_below_one_is_tried_too() -> None:
    desk = Desk(ScopeSpec("conc", "concurrent", 4, 60))
    desk.send(LimitsObserved(0.0, "t", (Sample("conc", 0.25),)))
    assert desk.refused(desk.want("a", 0, conc=1)) is RefuseCode.TOO_LARGE
    desk.until(60.0)
    assert desk.granted(desk.want("b", 0, conc=1)) == ["b"]
    desk.report("b")
    assert desk.scope("conc").limit == 4


def test_a_large_call_under_way_while_the_limit_becomes_tiny_leaves_no_debt_of_hours() -> None:
    desk = learning()
    desk.send(LimitsObserved(0.0, "t", (Sample("tokens", 90_000, 90_000.0),)))
    for want in "ab":
        desk.want(want, 0, tokens=10_000)
    desk.report("a", "ok", Sample("tokens", 60, 60.0, 60.0))
    desk.report("b", "error")
    assert desk.scope("tokens").remaining == -60
    desk.want("small", 0, tokens=10)
    assert desk.granted(desk.until(desk.now + 120)) == ["small"]


def test_background_gets_its_floor_again_after_a_tiny_limit() -> None:
    desk = learning()
    desk.send(LimitsObserved(0.0, "t", (Sample("tokens", 1, 1.0),)))
    desk.until(60.0)
    desk.want("b", 2, tokens=1_000)
    desk.until(600.0)
    assert "b" in desk.grants
    assert desk.target.floor_at <= desk.now + 300


def test_a_limit_that_another_node_heard_of_is_doubted_too() -> None:
    desk = Desk(BUCKET)
    told = LedgerTold(0.0, "t", (ScopeShared("tok", 1, 1, 0, -1),))
    desk.send(told)
    assert desk.refused(desk.want("a", 0, tok=500)) is RefuseCode.TOO_LARGE
    desk.until(60.0)
    desk.send(LedgerTold(60.0, "t", told.scopes))
    assert desk.granted(desk.want("b", 0, tok=500)) == ["b"]


def test_the_newest_word_of_how_many_at_once_counts_and_is_forgotten_after_a_day() -> None:
    desk = Desk(ScopeSpec("req", "fixed", 5_000, 3_600))
    for at in range(5):
        desk.want(f"w{at}", lease_seconds=2 * DAY)
    desk.limited("w0", None, LimitKind.CONCURRENCY, Sample("concurrent", 1))
    desk.limited("w1", None, LimitKind.CONCURRENCY, Sample("concurrent", 9))
    assert desk.target.breaker.in_flight_stated == 9
    desk.limited("w2", None, LimitKind.CONCURRENCY, Sample("concurrent", 1))
    desk.report("w3")
    assert (desk.target.breaker.in_flight_max, desk.want("waits")) == (1, [])
    assert desk.granted(desk.until(DAY - 1)) == []
    assert desk.granted(desk.until(DAY + 1)) == ["waits"]


# ---- whose figures ----------------------------------------------------------------------------------------------


def github(*samples: Sample, cost: tuple[tuple[str, float], ...] = call_cost("github")) -> Desk:
    desk = learning("github")
    desk.send_cost("a", cost)
    desk.report("a", "ok", *samples)
    return desk


def test_figures_of_github_without_a_resource_are_those_of_core() -> None:
    desk = github(Sample("requests", 5_000, 4_211.0, 1_800.0))
    assert sorted(desk.target.scopes) == ["at_once", "content", "core", "points"]
    assert (desk.scope("core").remaining, desk.scope("core").reset_at) == (4_211, 1_800)
    desk.send(LimitsObserved(0.0, "t", (Sample("requests", 5_000, 4_000.0, 1_800.0),)))
    assert (desk.scope("core").remaining, "requests" in desk.target.scopes) == (4_000, False)


def test_or_of_the_resource_that_the_call_named() -> None:
    cost = (("points", 1.0), ("search", 1.0))
    desk = github(Sample("requests", 30, 29.0, 60.0), cost=cost)
    assert (desk.scope("search").remaining, desk.scope("core").remaining) == (29, 5_000)
    desk.send_cost("b", cost)
    desk.report("b", "ok", Sample("requests", 30, 12.0, 60.0))
    assert (desk.scope("search").remaining, desk.scope("core").remaining) == (12, 5_000)


def test_a_refusal_without_a_resource_blocks_core() -> None:
    desk = learning("github")
    desk.send_cost("a", call_cost("github"))
    desk.limited("a", 50.0, LimitKind.PRIMARY, Sample("requests", 5_000, 0.0, 50.0))
    assert (desk.scope("core").blocked_until, desk.target.breaker.strikes) == (50.25, 0)


def test_elsewhere_they_are_of_a_limit_of_their_own() -> None:
    desk = learning("openrouter")
    desk.send(LimitsObserved(0.0, "t", (Sample("requests", 50, 40.0),)))
    assert desk.scope("requests").origin is Origin.LEARNED
    assert desk.target.breaker.mode is Mode.CLOSED
    assert desk.target.breaker.rate == inf
