"""Does the rate that refusals teach come back, and is whoever has to wait for it told how long?"""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from luftpause.scheduler.quota import rates
from luftpause.scheduler.quota.advice import advice, earliest
from luftpause.scheduler.quota.headers import LimitKind
from luftpause.scheduler.quota.model import Breaker, Mode, Settings
from luftpause.scheduler.quota.specs import ScopeSpec
from tests.unit.scheduler.quota.test_core import Desk

WIDE = ScopeSpec("req", "fixed", 50_000, 3_600)
RULES = Settings()


def served(desk: Desk, seconds: float, callers: int = 50) -> int:
    """So many calls the governor lets out, where so many callers always want one and each is answered at once."""
    ends, done = desk.now + seconds, 0
    while desk.now < ends:
        while len(desk.target.waiters) < callers:
            desk.want(f"w{desk.target.number}", 0)
            done += answer_all(desk)
        due = desk.state.due.first()[0] if desk.state.due else ends
        desk.until(min(max(due, desk.now + 0.01), ends))
        done += answer_all(desk)
    return done


def answer_all(desk: Desk) -> int:
    done = 0
    while desk.target.leases:
        for want in list(desk.target.leases):
            desk.report(want)
            done += 1
    return done


def storm(desk: Desk, refusals: int) -> None:
    """Ten calls a second, then a provider that refuses whatever comes, and tells nothing."""
    for at in range(100):
        desk.until(0.1 * at)
        desk.want(f"before-{at}", 0)
        desk.report(f"before-{at}")
    desk.want("probe-0", 0)
    for at in range(refusals):
        desk.limited(f"probe-{at}")
        desk.want(f"probe-{at + 1}", 0)
        desk.until(desk.target.breaker.open_until)


def test_refused_probes_say_nothing_of_the_rate() -> None:
    desk = Desk(WIDE)
    storm(desk, 1)
    rate = desk.target.breaker.rate
    assert 2.0 < rate < 7.1
    desk = Desk(WIDE)
    storm(desk, 8)
    assert desk.target.breaker.rate >= rate


def test_after_a_long_storm_calls_flow_again_within_minutes() -> None:
    desk = Desk(WIDE)
    storm(desk, 12)
    desk.report("probe-12")
    assert served(desk, 60.0) >= 60


def test_from_the_lowest_rate_it_recovers_with_what_is_served() -> None:
    desk = lowest()
    first = served(desk, 60.0)
    assert 3 <= first <= 12
    assert served(desk, 240.0) > 4 * 2 * first
    assert desk.target.breaker.rate > 0.5


def lowest() -> Desk:
    desk = Desk(WIDE)
    desk.want("a", 0)
    desk.limited("a")
    desk.state = replace(
        desk.state, targets=desk.state.targets.set("t", replace(desk.target, breaker=replace(desk.target.breaker, rate=rates.RATE_MIN)))
    )  # fmt: skip
    for want in ("b", "c"):
        desk.until(max(desk.now, desk.target.breaker.open_until))
        desk.want(want, 0)
        desk.report(want)
    assert desk.target.breaker.mode is Mode.CLOSED
    return desk


def test_it_recovers_with_time_also_where_nobody_calls() -> None:
    desk = lowest()
    rate = desk.target.breaker.rate
    desk.until(desk.now + 600.0)
    desk.want("next", 0)
    assert desk.target.breaker.rate == pytest.approx(rate + 0.6, abs=0.02)


def test_one_call_in_the_shortest_window_always_goes() -> None:
    def slowest(*scopes: ScopeSpec) -> float:
        return rates.slowest(Desk(*scopes).target.scopes.values())

    assert slowest() == slowest(WIDE) == rates.RATE_MIN
    assert slowest(WIDE, ScopeSpec("tok", "bucket", 600, 10.0)) == 0.1
    assert slowest(ScopeSpec("burst", "fixed", 5, 0.1)) == 1.0
    assert slowest(ScopeSpec("conc", "concurrent", 5, 1.0)) == rates.RATE_MIN


def test_refusals_while_it_starts_again_cut_what_was_learned_not_what_was_measured() -> None:
    b = Breaker(mode=Mode.CLOSED, window=3.0, rate=4.0, sent=1.0, sent_at=0.0)
    assert rates.cut(b, 0.0, RULES, (), strikes=1, probe=False) == pytest.approx(2.8)
    assert rates.cut(b, 0.0, RULES, (), strikes=2, probe=False) == pytest.approx(1.96)
    assert rates.cut(b, 0.0, RULES, (), strikes=9, probe=False) == pytest.approx(1.372)
    assert rates.cut(replace(b, window=inf), 0.0, RULES, (), strikes=1, probe=False) == pytest.approx(0.07)
    assert rates.cut(b, 0.0, RULES, (), strikes=1, probe=True) == 4.0


def test_it_recovers_half_as_fast_for_each_strike_until_they_are_forgotten() -> None:
    b = Breaker(rate=0.5, strikes=3, limited_at=0.0, clean_at=0.0)
    assert rates.grown(b, 39.9, RULES).rate == 0.5
    assert rates.grown(b, 40.0, RULES).rate == pytest.approx(0.51)
    assert rates.served(b, 40.0, RULES).rate == pytest.approx(0.5025)
    assert rates.served(b, 600.0, RULES).rate == pytest.approx(0.51)
    assert rates.grown(b, 600.0, RULES).rate == pytest.approx(1.1)


@given(st.floats(0.05, 50.0), st.integers(1, 500), st.floats(0.0, 1.0))
def test_the_forecast_is_when_so_many_have_gone(rate: float, calls: int, tokens: float) -> None:
    """Played in small steps."""
    b = Breaker(rate=rate, tokens=tokens)
    forecast = rates.seconds_until(b, calls, 0.0, RULES)
    gone, at, step, speed = tokens, 0.0, max(forecast / 2_000, 1e-6), rate
    while gone < calls - 1e-9:
        gone, at, speed = gone + speed * step, at + step, speed + 0.001 * step
    assert forecast == pytest.approx(at, rel=0.01, abs=2 * step)


# ---- what who waits is told -------------------------------------------------------------------------------------


def test_whoever_comes_to_a_line_is_told_when_it_has_passed() -> None:
    desk = lowest()
    for at in range(20):
        desk.want(f"w{at}", 1)
    desk.until(desk.now + 5)  # P1's window after the block has opened
    ahead = len(desk.target.waiters)
    assert ahead > 15
    wait = rates.seconds_until(desk.target.breaker, ahead + 1, desk.now, RULES)
    assert wait > 60
    assert earliest(desk.state, "t", 1) == pytest.approx(wait)
    assert advice(desk.state, "t", 1, 0.0) == pytest.approx(wait + 0.5)
    assert advice(desk.state, "t", 2, 0.0) == pytest.approx(wait + 3.5)
    assert advice(desk.state, "t", 0, 0.0) < 20, "what is critical passes them"


def test_whoever_stands_in_the_line_is_told_of_those_before_it_only() -> None:
    desk = lowest()
    for at in range(20):
        desk.want(f"w{at}", 1)
    desk.until(desk.now + 5)
    waiters = sorted(desk.target.waiters.values(), key=lambda one: one.number)
    waits = [earliest(desk.state, "t", 1, number=one.number) for one in waiters]
    assert waits == sorted(waits)
    assert waits[0] < 20
    assert waits[-1] == pytest.approx(rates.seconds_until(desk.target.breaker, len(waiters), desk.now, RULES))


def test_the_forecast_of_a_line_comes_true() -> None:
    desk = lowest()
    for at in range(10):
        desk.want(f"w{at}", 0)
    waiting = sorted(desk.target.waiters.values(), key=lambda one: one.number)
    begin, forecast = desk.now, {one.want: earliest(desk.state, "t", 0, number=one.number) for one in waiting}
    while desk.target.waiters:
        desk.until(desk.state.due.first()[0])
        for want in list(desk.target.leases):
            desk.report(want, "error")  # so that it recovers by time alone
            assert desk.now - begin == pytest.approx(forecast[want], rel=0.1, abs=5.0), want


def test_behind_a_block_the_line_comes_on_top() -> None:
    desk = lowest()
    desk.want("a", 0)
    desk.until(desk.now + 30)
    desk.limited("a", 50.0, LimitKind.PRIMARY)
    for at in range(5):
        desk.want(f"w{at}", 1)
    ends = desk.target.breaker.open_until
    line = rates.seconds_until(desk.target.breaker, 6 - 2, ends, RULES)
    assert line > 10
    assert earliest(desk.state, "t", 0) == pytest.approx(ends - desk.now), "a probe goes at once"
    assert advice(desk.state, "t", 1, 0.0) == pytest.approx(ends - desk.now + line + 0.5)


def test_without_a_learned_rate_a_line_is_of_unknown_length() -> None:
    desk = Desk(ScopeSpec("conc", "concurrent", 1, 60))
    for at in range(20):
        desk.want(f"w{at}", 1, conc=1)
    assert earliest(desk.state, "t", 1) == 0
