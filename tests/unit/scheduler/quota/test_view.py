"""Does the view say of each pattern what is so, in plain JSON?"""

import json

import msgspec
import pytest

from luftpause.scheduler.quota.core import initial
from luftpause.scheduler.quota.events import LimitsObserved, TargetConfigured
from luftpause.scheduler.quota.headers import LimitKind
from luftpause.scheduler.quota.model import Settings
from luftpause.scheduler.quota.samples import Sample
from luftpause.scheduler.quota.specs import ScopeSpec, TargetSpec
from luftpause.scheduler.quota.view import TargetView, view
from tests.unit.scheduler.quota.test_core import AT_ONCE, BUCKET, HOUR, Desk


def shown(desk: Desk, now: float | None = None) -> TargetView:
    (target,) = view(desk.state, now)
    json.loads(msgspec.json.encode(target), parse_constant=pytest.fail)  # no Infinity, no NaN
    return target


def test_the_traffic_light_is_the_worst_of_the_scopes_by_what_is_left_now() -> None:
    desk = Desk(HOUR, BUCKET, AT_ONCE)
    desk.send(LimitsObserved(0.0, "t", (Sample("req", 100, 10.0, 3_600.0), Sample("tok", 600, 0.0))))
    seen = shown(desk)
    assert seen.traffic_light.light == "red"
    by_name = {scope.name: scope for scope in seen.traffic_light.scopes}
    assert {name: scope.light for name, scope in by_name.items()} == {"req": "red", "tok": "red", "conc": "green"}
    assert (by_name["req"].remaining, by_name["req"].renews_seconds, by_name["conc"].renews_seconds) == (10.0, 3_600.0, None)
    later = {scope.name: scope for scope in shown(desk, 30.0).traffic_light.scopes}
    assert (later["tok"].remaining, later["tok"].light) == (300.0, "green")
    assert shown(desk, 3_700.0).traffic_light.light == "green"


def test_of_a_bucket_more_may_be_left_than_its_window_brings() -> None:
    desk = Desk()
    desk.send(TargetConfigured(0.0, TargetSpec("t", (HOUR, ScopeSpec("points", "bucket", 300.0, burst=2.0)))))
    scopes = {scope.name: scope for scope in shown(desk).traffic_light.scopes}
    assert (scopes["points"].limit, scopes["points"].capacity, scopes["points"].free) == (300.0, 600.0, 600.0)
    assert scopes["req"].capacity == scopes["req"].limit


def test_the_pool_counts_who_waits_and_what_owners_have_used() -> None:
    desk = Desk()
    desk.send(TargetConfigured(0.0, TargetSpec("t", (AT_ONCE, HOUR), profile="auto", reservations=(("a", 0.25),))))
    desk.want("a", 1, caller="a", conc=1, req=1)
    desk.want("b", 0, caller="a", conc=1)
    for at, priority in enumerate((0, 1, 1, 2)):
        desk.want(f"w{at}", priority, caller="c", conc=1)
    seen = shown(desk)
    assert seen.shared_pool.waiting == (1, 2, 1)
    assert (seen.shared_pool.reservations[0].caller, seen.shared_pool.reservations[0].used["req"]) == ("a", 1)
    assert seen.shared_pool.forecast["conc"][1] > seen.shared_pool.forecast["conc"][2] > 0
    assert (seen.leases.out, seen.leases.by_class, seen.leases.callers, seen.leases.next_expiry_seconds) == (2, (1, 1, 0), {"a": 2}, 60.0)
    assert seen.profile == "auto"


def test_the_breaker_and_the_windows_say_when_it_goes_on() -> None:
    desk = Desk(ScopeSpec("req", "fixed", 5_000, 3_600))
    assert (shown(desk).breaker.mode, shown(desk).retry_windows.anchor_seconds) == ("closed", None)
    desk.want("a")
    desk.limited("a", 10.0)
    seen = shown(desk, 4.0)
    assert (seen.breaker.mode, seen.breaker.open_seconds, seen.breaker.strikes) == ("open", 6.25, 1)
    assert seen.breaker.calls_per_second == pytest.approx(0.07)
    assert seen.retry_windows.anchor_seconds == 6.25
    assert seen.retry_windows.windows == ((0.0, 0.5), (0.5, 3.5), (3.5, 9.5))
    desk.until(11.25)
    assert shown(desk).retry_windows.anchor_seconds == -1.0


def test_without_credit_no_time_is_told() -> None:
    desk = Desk(HOUR)
    desk.want("a")
    desk.limited("a", None, LimitKind.CREDIT)
    seen = shown(desk)
    assert (seen.breaker.mode, seen.breaker.open_seconds, seen.retry_windows.anchor_seconds) == ("disabled", None, None)


def test_a_cascade_names_who_was_limited_and_who_waits_for_them() -> None:
    desk = Desk(ScopeSpec("req", "fixed", 5_000, 36_000), workflows={"ship": ["up", "mid", "down"]}, cascade_callers=2)
    desk.warm_up()
    for caller in ("up", "mid"):
        desk.want(f"a-{caller}", 0, caller=caller)
        desk.until(max(desk.now, desk.target.breaker.open_until) + 1.0)
        desk.limited(f"a-{caller}", 0.5)
    seen = shown(desk).cascade
    assert (seen.sequential, seen.limited, seen.downstream) == (True, ("mid", "up"), ("down",))
    assert 299.0 < seen.seconds_max <= 300.0


def test_targets_come_by_name_and_none_is_an_empty_list() -> None:
    desk = Desk(HOUR)
    desk.send(TargetConfigured(0.0, TargetSpec("a", ())))
    assert [target.name for target in view(desk.state)] == ["a", "t"]
    assert shown(Desk()).traffic_light.light == "green"  # a target without limits
    assert view(initial(Settings(), 0.0)) == ()
