"""Are the rules kept that were first published, with what is wrong about them?"""

import pytest

from luftpause.kit.config_governor import CascadeConfig, GovernorConfig
from luftpause.scheduler.governor.targets import settings_of
from luftpause.scheduler.quota import article
from luftpause.scheduler.quota.decisions import CascadeBegan, Refuse, RefuseCode
from luftpause.scheduler.quota.events import LimitsObserved, TargetConfigured
from luftpause.scheduler.quota.model import Mode, Settings
from luftpause.scheduler.quota.rules import RULES
from luftpause.scheduler.quota.samples import Sample
from luftpause.scheduler.quota.specs import ScopeSpec, TargetSpec
from tests.unit.scheduler.quota.test_core import Desk

HOUR = ScopeSpec("req", "fixed", 100, 3_600)


class Old(Desk):
    def __init__(self, remaining: float = 100.0, reset: float = 3_600.0, **reservations: float) -> None:
        super().__init__(HOUR)
        self.state = self.state.__class__(settings=article.settings())
        self.send(TargetConfigured(0.0, TargetSpec("t", (HOUR,), reservations=tuple(reservations.items()))))
        self.send(LimitsObserved(0.0, "t", (Sample("req", 100, remaining, reset),)))

    def goes_after(self, want: str, most: float = 10.0) -> float | None:
        """Seconds, as the host wakes it; None: not within `most`."""
        begin = self.now
        while want not in self.grants and self.state.due and self.state.due.first()[0] <= begin + most:
            self.until(self.state.due.first()[0])
        return self.now - begin if want in self.grants else None


@pytest.mark.parametrize(
    ("remaining", "waits"),
    [
        (100, (0, 0, 0)),
        (40, (0, 0, 0)),
        (35, (0, 0.4, 0.4)),
        (30, (0, 0.8, 0.8)),
        (20, (0, 1.6, None)),
        (15, (0, 2, None)),
        (14, (0, 1, None)),
    ],
)
def test_a_call_waits_as_long_as_its_light_says(remaining: float, waits: tuple[float | None, ...]) -> None:
    for priority, seconds in enumerate(waits):
        desk = Old(remaining)
        desk.want("a", priority)
        assert desk.goes_after("a") == (None if seconds is None else pytest.approx(seconds)), priority


def test_what_expires_in_five_seconds_is_red_all_the_same() -> None:
    desk = Old(10, reset=5.0)
    assert desk.want("a", 2) == []
    assert desk.granted(desk.until(4.9)) == []


def test_background_that_was_refused_for_five_minutes_goes_as_standard() -> None:
    desk = Old(20, reset=1e6)
    desk.want("a", 2)
    assert desk.goes_after("a", 400.0) == pytest.approx(300.0)


def test_a_reservation_is_used_up_and_then_what_idle_callers_donate() -> None:
    desk = Old(picard=0.02, data=0.03)
    asked = [f"w{at}" for at in range(9)]
    desk.until(61.0)
    for want in asked:
        desk.want(want, 1, caller="picard")
    assert list(desk.grants) == asked[:5]  # two of its own, three of data's, who was never seen
    assert desk.granted(desk.want("critical", 0, caller="worf")) == ["critical"]
    desk.want("owner", 1, caller="data")
    assert "owner" in desk.grants  # over-admission: what was donated is still its own


def test_a_caller_without_a_reservation_gets_only_what_is_donated() -> None:
    desk = Old(data=0.02)
    desk.want("d", 1, caller="data")
    assert desk.want("a", 1, caller="riker") == []
    desk.report("d")
    assert desk.granted(desk.until(60.0)) == []
    assert desk.granted(desk.until(62.0)) == ["a"]


def test_without_reservations_there_is_nothing_to_keep_to() -> None:
    desk = Old()
    for at in range(50):
        desk.want(f"w{at}", 1)
    assert len(desk.grants) == 50


def test_when_the_rate_says_so_only_p0_goes_whenever_it_renews() -> None:
    desk = Old(100, reset=10.0)
    for at in range(60):
        desk.want(f"w{at}", 1)
    assert 0 < len(desk.grants) < 60
    assert desk.granted(desk.want("critical", 0)) == ["critical"]


def test_a_refusal_makes_all_red_and_each_tries_again_after_its_own() -> None:
    desk = Old()
    for want in ("p0", "p1", "p2"):
        desk.want(want, int(want[1]))
    desk.limited("p0", 10.0)
    desk.until(3.0)
    desk.limited("p1", 10.0)
    assert desk.target.breaker.mode is Mode.CLOSED
    assert desk.granted(desk.want("new", 0)) == ["new"]  # P0 passes, into the block
    desk.want("p0-again", 0, caller="p0", retry=True)
    desk.want("p1-again", 1, caller="p1", retry=True)
    assert 7.0 <= (desk.goes_after("p0-again", 30.0) or 0.0) <= 7.5
    desk.report("new")
    assert 3.5 <= (desk.goes_after("p1-again", 30.0) or 0.0) <= 6.5


def test_three_limited_callers_make_it_one_at_a_time_for_five_minutes() -> None:
    desk = Old()
    for want in "abcd":
        desk.want(want)
    told = [decision for want in "abc" for decision in desk.limited(want, 1.0)]
    assert [decision.until for decision in told if isinstance(decision, CascadeBegan)] == [300.0]
    desk.report("d")
    desk.until(10.0)
    assert desk.granted(desk.want("x", 0)) == ["x"]
    assert desk.want("y", 0) == []
    assert desk.granted(desk.report("x")) == ["y"]
    desk.until(301.0)
    assert desk.granted(desk.want("z", 0)) == ["z"]


def test_what_can_never_be_is_refused_here_too() -> None:
    desk = Old()
    (refusal,) = desk.want("a", req=101)
    assert isinstance(refusal, Refuse)
    assert refusal.code is RefuseCode.TOO_LARGE


def test_the_configuration_chooses_the_rules() -> None:
    chosen = settings_of(GovernorConfig(policy="article", cascade=CascadeConfig(threshold=4)))
    assert chosen == article.settings(Settings(cascade_callers=4))
    assert settings_of(GovernorConfig()).policy == "governor"


def test_settings_choose_the_rules() -> None:
    assert article.settings(Settings(waiters_max=5)) == Settings(
        policy="article", retry_budget=float("inf"), cascade_quiet_seconds=float("inf"), guard_seconds=0.0, promote_seconds=float("inf"),
        waiters_max=5,
    )  # fmt: skip
    assert set(RULES) == {"governor", "article"}
    assert Settings().policy == "governor"
