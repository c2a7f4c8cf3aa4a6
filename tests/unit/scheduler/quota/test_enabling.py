"""Does an operator's word lift all that keeps calls back, and does it begin again with one call?"""

from math import inf

import pytest
from msgspec.structs import replace

from luftpause.scheduler.quota.decisions import CascadeOver, Grant, HalfOpened, RefuseCode
from luftpause.scheduler.quota.events import LedgerTold, LimitsObserved, QuotaWanted, ScopeShared, TargetConfigured, TargetEnabled
from luftpause.scheduler.quota.headers import LimitKind
from luftpause.scheduler.quota.model import Cascade, Mode
from luftpause.scheduler.quota.profiles import target_spec
from luftpause.scheduler.quota.samples import Sample
from luftpause.scheduler.quota.specs import ScopeSpec
from tests.unit.scheduler.quota.test_core import AT_ONCE, BUCKET, HOUR, Desk


def enable(desk: Desk) -> list[str]:
    return desk.granted(desk.send(TargetEnabled(desk.now, "t")))


def test_a_block_ends_and_one_call_tries_it() -> None:
    desk = Desk(ScopeSpec("req", "fixed", 5_000, 3_600))
    desk.want("a")
    desk.limited("a", 600.0)
    for want in ("first", "second"):
        assert desk.want(want, 0) == []
    assert enable(desk) == ["first"]
    assert HalfOpened("t") in desk.told
    assert desk.granted(desk.report("first")) == ["second"]
    desk.report("second")
    assert desk.target.breaker.mode is Mode.CLOSED


def test_a_probe_whose_answer_never_comes_keeps_nobody_back() -> None:
    desk = Desk(ScopeSpec("req", "fixed", 5_000, 3_600))
    desk.want("a")
    desk.limited("a", 1.0)
    desk.until(2.0)
    desk.want("lost", 0, lease_seconds=3_600)
    assert desk.want("waits", 0) == []
    assert enable(desk) == ["waits"]


def test_an_answer_from_before_is_no_probe() -> None:
    desk = Desk(ScopeSpec("req", "fixed", 5_000, 3_600))
    for want in "abc":
        desk.want(want, 0)
    desk.limited("a", 600.0)
    desk.until(1.0)
    enable(desk)
    desk.report("b")
    desk.report("c")
    assert desk.target.breaker.mode is Mode.HALF_OPEN


def test_a_scope_that_a_refusal_blocked_opens_and_what_was_told_of_it_is_forgotten() -> None:
    desk = Desk(HOUR)
    desk.want("a")
    desk.limited("a", 1e9, LimitKind.PRIMARY, Sample("req", 3, 0.0, 1e9))
    scope = desk.scope("req")
    assert (scope.limit, scope.remaining, scope.blocked_until) == (3, 0, desk.target.breaker.open_until)
    assert desk.want("b", 0) == []
    assert enable(desk) == ["b"]
    scope = desk.scope("req")
    assert (scope.limit, scope.remaining, scope.out) == (100, 100, 1)


def test_what_was_counted_here_of_a_limit_that_nobody_tells_stays() -> None:
    desk = Desk(HOUR, BUCKET)
    for at in range(40):
        desk.want(f"w{at}", 0, req=1, tok=10)
        desk.report(f"w{at}")
    enable(desk)
    assert (desk.scope("req").remaining, desk.scope("req").reset_at) == (60, 3_600)
    assert desk.scope("tok").remaining == 200


def test_strikes_the_learned_rate_and_the_learned_most_in_flight_are_forgotten() -> None:
    desk = Desk(ScopeSpec("req", "fixed", 5_000, 3_600))
    for want in "abcd":
        desk.want(want)
    desk.limited("a", 0.0, LimitKind.CONCURRENCY, Sample("concurrent", 2))
    desk.limited("b")
    breaker = desk.target.breaker
    assert (breaker.strikes, breaker.rate < inf, breaker.in_flight_max, breaker.in_flight_stated) == (1, True, 2, 2)
    enable(desk)
    breaker = desk.target.breaker
    assert (breaker.strikes, breaker.rate, breaker.in_flight_max, breaker.in_flight_stated) == (0, inf, inf, inf)
    desk.want("next", 0)
    desk.until(30.0)
    desk.limited("next")
    assert desk.target.breaker.open_until == pytest.approx(32.25), "the first strike again"


def test_learned_limits_are_gone_and_who_waits_for_them_waits_no_more() -> None:
    desk = Desk()
    desk.send(TargetConfigured(0.0, target_spec("t", "openai")))
    desk.want("a", 0, tokens=1_000, requests=1)
    desk.report("a", "ok", Sample("tokens", 5_000, 0.0, 60.0))
    assert desk.want("b", 0, tokens=1_000, requests=1) == []
    assert enable(desk) == ["b"]
    assert "tokens" not in desk.target.scopes
    desk.report("b", "ok", Sample("tokens", 9_000, 8_000.0, 60.0))
    assert desk.scope("tokens").limit == 9_000


def test_what_is_out_of_a_limit_that_appears_again_is_still_out() -> None:
    desk = Desk()
    desk.send(TargetConfigured(0.0, target_spec("t", "openai")))
    desk.send(LimitsObserved(0.0, "t", (Sample("tokens", 5_000, 5_000.0),)))
    desk.want("flies", 0, tokens=1_000)
    enable(desk)
    desk.send(LimitsObserved(0.0, "t", (Sample("tokens", 5_000, 5_000.0),)))
    assert desk.scope("tokens").out == 1_000
    desk.report("flies", actual={"tokens": 700.0})
    assert (desk.scope("tokens").out, desk.scope("tokens").remaining) == (0, 4_000)  # as was asked for


def test_one_at_a_time_is_over() -> None:
    desk = Desk(ScopeSpec("req", "fixed", 5_000, 36_000), cascade_callers=1)
    desk.want("a")
    desk.limited("a", 1.0)
    assert desk.target.cascade.until > 0
    enable(desk)
    assert CascadeOver("t") in desk.told
    assert desk.target.cascade == Cascade()


def test_retries_come_back() -> None:
    desk = Desk(ScopeSpec("req", "fixed", 5_000, 3_600), retry_budget=5.0)
    desk.want("a", caller="c", retry=True)
    assert desk.refused(desk.want("b", caller="c", retry=True)) is RefuseCode.RETRY_BUDGET
    enable(desk)
    desk.until(60.0)
    assert not any(not isinstance(one, Grant) for one in desk.want("b", caller="c", retry=True))


def test_a_target_that_was_well_starts_slowly_and_nobody_is_refused() -> None:
    desk = Desk(AT_ONCE)
    desk.want("a", 0, conc=1)
    assert enable(desk) == []
    assert desk.granted(desk.want("b", 0, conc=1)) == ["b"]
    desk.report("a")
    assert desk.granted(desk.want("c", 0, conc=1)) == []
    assert desk.granted(desk.report("b")) == ["c"]


def test_what_another_node_was_told_by_an_operator_counts_here_and_the_ledger_is_as_the_store_says() -> None:
    desk = Desk(HOUR)
    desk.want("a")
    desk.limited("a", 600.0, LimitKind.PRIMARY, Sample("req", 3, 0.0, 600.0))
    desk.want("b", 0)
    told = LedgerTold(0.0, "t", (ScopeShared("req", 100, 40, 0, 3_000),))
    assert desk.granted(desk.send(told)) == []
    assert desk.granted(desk.send(replace(told, enabled=True))) == ["b"]
    assert (desk.scope("req").limit, desk.scope("req").remaining, desk.scope("req").blocked_until) == (100, 40, -inf)


def test_nothing_is_enabled_that_is_not_there() -> None:
    desk = Desk(HOUR)
    assert desk.send(TargetEnabled(0.0, "elsewhere")) == []
    assert desk.send(QuotaWanted(0.0, "t", "a", "c", 1, (("req", 1.0),)))
