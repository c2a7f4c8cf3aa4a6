"""Does the rate governor do what each of its rules says, in the plainest case of it?"""

from math import inf

import pytest
from msgspec.structs import replace

from luftpause.scheduler.quota.cascade import depths, edges
from luftpause.scheduler.quota.core import govern, initial
from luftpause.scheduler.quota.decisions import (
    Blocked,
    CascadeBegan,
    CascadeOver,
    Closed,
    Decision,
    Disabled,
    Expired,
    Grant,
    HalfOpened,
    Levelled,
    Refuse,
    RefuseCode,
    Stale,
)  # fmt: skip
from luftpause.scheduler.quota.events import (
    AnswerReported,
    Event,
    LeaseReleased,
    LeaseRenewed,
    LimitsObserved,
    QuotaWanted,
    QuotaWithdrawn,
    TargetConfigured,
    TargetEnabled,
    TargetRemoved,
    Tick,
)  # fmt: skip
from luftpause.scheduler.quota.headers import LimitKind
from luftpause.scheduler.quota.model import Cost, Mode, Scope, Settings, Target
from luftpause.scheduler.quota.samples import Sample
from luftpause.scheduler.quota.specs import Cut, Ladder, ScopeSpec, TargetSpec, cut

HOUR = ScopeSpec("req", "fixed", 100, 3_600)
BUCKET = ScopeSpec("tok", "bucket", 600, 60)
AT_ONCE = ScopeSpec("conc", "concurrent", 2, 1)


class Desk:
    """A governor with one target, on a clock of its own."""

    def __init__(self, *scopes: ScopeSpec, penalty_seconds: float = 0.0, workflows: dict | None = None, **tuned: float) -> None:
        self.now = 0.0
        self.state = initial(Settings(**tuned), 0.0, workflows)
        self.grants: dict[str, Grant] = {}
        self.told: list[Decision] = []
        self.send(TargetConfigured(0.0, TargetSpec("t", scopes, penalty_seconds)))

    @property
    def target(self) -> Target:
        return self.state.targets["t"]

    def scope(self, name: str) -> Scope:
        return self.target.scopes[name]

    def send(self, event: Event) -> list[Decision]:
        step = govern(self.state, event)
        self.state = step.state
        self.told += step.decisions
        self.grants |= {decision.want: decision for decision in step.decisions if isinstance(decision, Grant)}
        return list(step.decisions)

    def want(
        self, want: str, priority: int = 1, *, caller: str = "", retry: bool = False, lease_seconds: float = 60.0, **cost: float
    ) -> list[Decision]:
        cost = cost or {"req": 1.0}
        return self.send(QuotaWanted(self.now, "t", want, caller or want, priority, tuple(cost.items()), lease_seconds, retry))

    def send_cost(self, want: str, cost: Cost, priority: int = 1) -> list[Decision]:
        return self.send(QuotaWanted(self.now, "t", want, want, priority, cost))

    def report(self, want: str, outcome: str = "ok", *samples: Sample, actual: dict | None = None, wait: float | None = None,
               kind: LimitKind | None = None) -> list[Decision]:  # fmt: skip
        fence = self.grants[want].fence
        return self.send(AnswerReported(self.now, "t", want, fence, outcome, tuple((actual or {}).items()), samples, wait, kind))

    def limited(self, want: str, wait: float | None = None, kind: LimitKind = LimitKind.PRIMARY, *samples: Sample) -> list[Decision]:
        return self.report(want, "limited", *samples, wait=wait, kind=kind)

    def until(self, at: float) -> list[Decision]:
        """Time passes; it is woken whenever it asked to be."""
        told: list[Decision] = []
        while self.state.due and self.state.due.first()[0] <= at:
            told += self.send(Tick(self.state.due.first()[0]))
        self.now = at
        return told + self.send(Tick(at))

    def warm_up(self) -> None:
        """So fast that what is learned from a refusal is no limit for what follows."""
        for at in range(300):
            self.want(f"warm-{at}", 0)
            self.report(f"warm-{at}")
        self.grants.clear()

    def granted(self, decisions: list[Decision]) -> list[str]:
        return [decision.want for decision in decisions if isinstance(decision, Grant)]

    def refused(self, decisions: list[Decision]) -> RefuseCode:
        (refusal,) = decisions
        assert isinstance(refusal, Refuse)
        assert refusal.message
        return refusal.code


# ---- the ledger -------------------------------------------------------------------------------------------------


def test_a_lease_is_granted_at_once_and_settled_with_what_was_used() -> None:
    desk = Desk(BUCKET)
    assert desk.granted(desk.want("a", tok=100)) == ["a"]
    assert (desk.scope("tok").remaining, desk.scope("tok").out) == (600, 100)
    desk.report("a", actual={"tok": 40.0})
    assert (desk.scope("tok").remaining, desk.scope("tok").out) == (560, 0)


def test_where_a_provider_debits_what_was_asked_for_no_less_is_charged() -> None:
    desk = Desk(ScopeSpec("tok", "bucket", 600, 60, charge="reserved"))
    desk.want("a", tok=100)
    desk.report("a", actual={"tok": 40.0})
    assert desk.scope("tok").remaining == 500


def test_what_was_never_sent_comes_back_and_what_may_have_been_does_not() -> None:
    desk = Desk(HOUR)
    for want in "abc":
        desk.want(want, lease_seconds=10)
    desk.send(LeaseReleased(0.0, "t", "a", desk.grants["a"].fence))
    desk.report("b", "error")
    assert any(isinstance(decision, Expired) and decision.want == "c" for decision in desk.until(10.0))
    assert (desk.scope("req").remaining, desk.scope("req").out) == (98, 0)


def test_a_heartbeat_keeps_a_lease() -> None:
    desk = Desk(HOUR)
    desk.want("a", lease_seconds=10)
    desk.until(9.0)
    desk.send(LeaseRenewed(9.0, "t", "a", desk.grants["a"].fence))
    assert not desk.until(18.0)
    assert desk.target.leases


def test_asking_again_gives_the_same_lease_and_an_old_fence_changes_nothing() -> None:
    desk = Desk(HOUR)
    (first,) = desk.want("a")
    assert desk.want("a") == [first]
    desk.report("a")
    assert desk.report("a") == [Stale("t", "a", 1)]
    assert desk.scope("req").remaining == 99
    (second,) = desk.want("a")
    assert isinstance(second, Grant)
    assert second.fence == 2
    stale = AnswerReported(0.0, "t", "a", 1, "limited", samples=(Sample("req", 100, 50.0),), wait_seconds=9.0)
    assert desk.send(stale) == [Stale("t", "a", 1)]
    assert desk.target.breaker.mode is Mode.CLOSED
    assert desk.scope("req").remaining == 50  # what the provider says is so, whoever brings it


def test_a_sample_raises_only_what_it_can_know() -> None:
    desk = Desk(HOUR)
    desk.send(LimitsObserved(0.0, "t", (Sample("req", 100, 30.0, 600.0),)))
    desk.send(LimitsObserved(0.0, "t", (Sample("req", 100, 40.0, 600.0),)))  # may be older than the one before
    assert desk.scope("req").remaining == 30
    desk.until(1.0)
    desk.want("a", 0)
    desk.report("a", "ok", Sample("req", 100, 45.0, 599.0))  # went out after it
    assert desk.scope("req").remaining == 45
    desk.send(LimitsObserved(1.0, "t", (Sample("req", 100, 99.0, 3_600.0),)))  # a new window
    assert desk.scope("req").remaining == 99


def test_a_window_is_full_again_when_it_ends() -> None:
    desk = Desk(HOUR)
    desk.send(LimitsObserved(0.0, "t", (Sample("req", 100, 0.0, 30.0),)))
    assert desk.want("a", 0) == []
    assert desk.granted(desk.until(29.9)) == []
    assert desk.granted(desk.until(30.0)) == ["a"]


def test_a_reset_of_zero_refills_nothing() -> None:
    desk = Desk(HOUR)
    desk.send(LimitsObserved(0.0, "t", (Sample("req", 100, 0.0, 0.0),)))
    assert desk.granted(desk.want("a", 0) + desk.until(5.0)) == []


# ---- who goes first ---------------------------------------------------------------------------------------------


def test_better_classes_go_first_then_callers_with_fewer_leases_then_arrival() -> None:
    desk = Desk(ScopeSpec("conc", "concurrent", 1, 1))
    desk.want("busy", conc=1)
    for want, priority, caller in (("p2", 2, "x"), ("p1", 1, "y"), ("p1-again", 1, "y"), ("p1-other", 1, "z"), ("p0", 0, "w")):
        assert desk.want(want, priority, caller=caller, conc=1) == []
    order, holder = [], "busy"
    for _ in range(5):
        (holder,) = desk.granted(desk.report(holder))
        order.append(holder)
    assert order[0] == "p0"
    assert sorted(order[1:3] + order[3:]) == ["p1", "p1-again", "p1-other", "p2"]
    assert order.index("p1") < order.index("p1-again") < order.index("p1-other")


def test_a_large_one_that_waits_is_not_overtaken() -> None:
    desk = Desk(BUCKET)
    desk.want("first", 0, tok=500)
    desk.want("large", 0, tok=300)
    assert desk.want("small", 0, tok=95) == []
    assert desk.report("first") == []
    assert desk.granted(desk.until(20.0)) == ["large"]


def test_another_limit_is_not_closed_by_it() -> None:
    desk = Desk(BUCKET, HOUR)
    desk.want("first", 0, tok=600)
    desk.want("waits", 0, tok=300)
    assert desk.granted(desk.want("other", 0, req=1)) == ["other"]


def test_background_leaves_what_better_classes_are_forecast_to_need() -> None:
    desk = Desk(ScopeSpec("req", "fixed", 100, 3_600, declared_demand=0.01))
    for at in range(80):
        desk.want(f"b{at}", 2)
    assert len(desk.grants) <= 64  # P0 is said to want 36 in this hour
    assert desk.granted(desk.want("critical", 0)) == ["critical"]


def test_outside_the_green_background_parks_and_standard_is_paced() -> None:
    desk = Desk(HOUR, promote_seconds=1e6)
    desk.until(1_800.0)
    desk.send(LimitsObserved(1_800.0, "t", (Sample("req", 100, 7.0, 1_800.0),)))  # red: 7 % for half of the time
    assert desk.granted(desk.want("p0", 0)) == ["p0"]
    first = desk.granted(desk.want("p1", 1))
    second = desk.granted(desk.want("p1-more", 1))
    assert (first, second) == (["p1"], [])


def test_background_ranks_as_standard_when_it_has_waited_too_long_and_only_one_does() -> None:
    desk = Desk(ScopeSpec("conc", "concurrent", 1, 1), promote_seconds=300.0)
    desk.want("busy", conc=1, lease_seconds=1e4)
    desk.want("old", 2, conc=1)
    desk.want("old-too", 2, conc=1)
    desk.until(300.0)
    desk.want("p1", 1, conc=1)
    desk.want("p0", 0, conc=1)
    assert desk.granted(desk.report("busy")) == ["p0"]
    assert desk.granted(desk.report("p0")) == ["old"]
    assert desk.target.promoted == 1
    assert desk.granted(desk.report("old")) == ["old-too"]


def test_who_left_does_not_get_it() -> None:
    desk = Desk(AT_ONCE)
    for want in "abcd":
        desk.want(want, conc=1)
    desk.send(QuotaWithdrawn(0.0, "t", "c"))
    assert desk.granted(desk.report("a")) == ["d"]


# ---- the breaker ------------------------------------------------------------------------------------------------


def test_a_block_ends_in_a_probe_then_a_slow_start_in_the_order_of_the_classes() -> None:
    desk = Desk(ScopeSpec("req", "fixed", 5_000, 3_600))
    desk.warm_up()
    desk.want("a")
    assert desk.limited("a", 10.0) == [Blocked("t", 10.25)]
    for want, priority in (("p2", 2), ("p1", 1), ("p0", 0), ("p0-more", 0)):
        assert desk.want(want, priority) == []
    assert desk.until(10.25)[0] == HalfOpened("t")
    assert list(desk.grants) == ["a", "p0"]
    assert desk.granted(desk.report("p0")) == ["p0-more"]
    assert desk.report("p0-more") == [Closed("t")]
    desk.until(10.74)
    assert "p1" not in desk.grants
    desk.until(13.74)
    assert "p2" not in desk.grants
    desk.until(60.0)
    assert "p1" in desk.grants


def test_a_block_is_never_made_shorter_and_late_refusals_are_no_strikes() -> None:
    desk = Desk(ScopeSpec("req", "fixed", 5_000, 3_600))
    for want in "abc":
        desk.want(want)
    desk.limited("a", 60.0)
    assert desk.limited("b", 5.0) == [Blocked("t", 60.25)]
    assert desk.limited("c", 90.0) == [Blocked("t", 90.25)]
    assert desk.target.breaker.strikes == 1


@pytest.mark.parametrize(
    ("penalty", "kind", "blocks"),
    [(0.0, LimitKind.PRIMARY, [2, 4, 8]), (60.0, LimitKind.PRIMARY, [60, 120, 240]), (0.0, LimitKind.SECONDARY, [60, 120, 240])],
)
def test_without_a_hint_each_refused_probe_doubles_the_block(penalty: float, kind: LimitKind, blocks: list[float]) -> None:
    desk = Desk(ScopeSpec("req", "fixed", 5_000, 36_000), penalty_seconds=penalty)
    seen = []
    for want in ("a", "b", "c"):
        desk.want(want, 0)
        desk.until(max(desk.now, desk.target.breaker.open_until) + 30.0)
        desk.limited(want, None, kind)
        seen.append(desk.target.breaker.open_until - desk.now - 0.25)
    assert seen == pytest.approx(blocks)


def test_a_refusal_of_a_call_without_a_lease_blocks_too_and_is_news_once() -> None:
    desk = Desk(ScopeSpec("req", "fixed", 5_000, 3_600), penalty_seconds=60.0)
    desk.want("flies")
    unknown = LimitsObserved(0.0, "t", (), limited=True, kind=LimitKind.SECONDARY)
    assert desk.send(unknown) == [Blocked("t", 60.25)]
    assert desk.send(unknown) == [Blocked("t", 60.25)]
    assert desk.want("waits", 0) == []
    breaker = desk.target.breaker
    assert (breaker.strikes, breaker.rate < inf, desk.target.cascade.hits) == (1, True, ())
    desk.until(60.25)
    assert "waits" in desk.grants
    desk.send(LimitsObserved(60.25, "t", (), limited=True, wait_seconds=5.0, kind=LimitKind.PRIMARY))
    assert (desk.target.breaker.strikes, desk.target.breaker.open_until) == (1, 65.5)


def test_a_refusal_that_an_empty_scope_explains_teaches_nothing() -> None:
    desk = Desk(HOUR)
    for want in "abcd":
        desk.want(want)
    for want in "abcd":
        desk.limited(want, 50.0, LimitKind.PRIMARY, Sample("req", 100, 0.0, 50.0))
    assert (desk.target.breaker.strikes, desk.target.breaker.rate, desk.target.cascade.hits) == (0, inf, ())
    assert desk.scope("req").blocked_until == 50.25


def test_five_refused_of_ten_at_once_leave_five() -> None:
    desk = Desk(ScopeSpec("req", "fixed", 5_000, 3_600))
    for at in range(10):
        desk.want(f"w{at}")
    for at in range(5):
        desk.limited(f"w{at}", 0.0, LimitKind.CONCURRENCY)
    assert (desk.target.breaker.in_flight_max, desk.target.breaker.mode) == (5, Mode.CLOSED)
    assert desk.want("one-more") == []
    assert desk.granted(desk.report("w9")) == ["one-more"]


@pytest.mark.parametrize(
    ("kind", "most"),
    [(LimitKind.CONCURRENCY, 49), (LimitKind.CAPACITY, 49), (LimitKind.PRIMARY, 8), (LimitKind.SECONDARY, 1), (None, 8)],
)
def test_a_call_that_is_refused_whenever_it_is_alone_does_not_go_again_at_once(kind: LimitKind | None, most: int) -> None:
    desk = Desk(ScopeSpec("req", "fixed", 5_000, 3_600))
    calls, granted = 0, desk.granted(desk.want("w0", 0))
    while desk.now < 60.0:
        while granted and calls <= most:
            calls += 1
            told = desk.limited(granted[0], None, kind)
            granted = desk.granted([*told, *desk.want(f"w{calls}", 0)])
        granted = desk.granted(desk.until(desk.now + 0.05))
    assert 1 <= calls <= most, "a second and a quarter between two of a full provider, ever more else"


def test_a_full_provider_is_asked_again_soon_and_nobody_is_blamed() -> None:
    desk = Desk(ScopeSpec("req", "fixed", 5_000, 3_600))
    desk.want("a")
    assert desk.limited("a", None, LimitKind.CAPACITY) == [Blocked("t", 1.25)]
    assert desk.target.breaker.strikes == 0


def test_without_credit_nobody_waits_until_somebody_paid() -> None:
    desk = Desk(AT_ONCE)
    for want in "abc":
        desk.want(want, conc=1)
    told = desk.limited("a", None, LimitKind.CREDIT)
    assert isinstance(told[0], Disabled)
    assert desk.refused(told[1:]) is RefuseCode.OUT_OF_CREDIT
    assert desk.refused(desk.want("d", conc=1)) is RefuseCode.OUT_OF_CREDIT
    desk.send(TargetEnabled(0.0, "t"))
    assert desk.granted(desk.want("e", 0, conc=1)) == ["e"]


def test_the_level_rises_while_the_quota_will_end_too_soon_and_falls_again() -> None:
    desk = Desk(ScopeSpec("req", "fixed", 200, 3_600, protect=(0.0, 0.0, 0.0)))
    for at in range(160):
        desk.until(at * 0.1)
        desk.want(f"w{at}", 0)
        desk.report(f"w{at}")
    assert Levelled("t", 1) in desk.told
    (grant,) = desk.want("more", 0)
    assert isinstance(grant, Grant)
    assert grant.level == 0  # P0 is not cut
    desk.until(200.0)
    assert Levelled("t", 0) in desk.told
    assert desk.target.breaker.mode is Mode.CLOSED


# ---- cascades ---------------------------------------------------------------------------------------------------


def test_three_limited_callers_make_it_one_at_a_time_upstream_first_until_it_is_quiet() -> None:
    flow = {"ship": ["up", "mid", "down", "last"]}
    desk = Desk(ScopeSpec("req", "fixed", 5_000, 36_000), workflows=flow, exclusive_seconds=(0.0, 0.0, 0.0))
    desk.warm_up()
    began = []
    for caller in ("up", "mid", "other"):
        desk.want(f"a-{caller}", caller=caller)
        desk.until(max(desk.now, desk.target.breaker.open_until) + 2.0)
        began += [decision for decision in desk.limited(f"a-{caller}", 0.5) if isinstance(decision, CascadeBegan)]
    (cascade,) = began
    assert (cascade.callers, cascade.downstream) == (("mid", "other", "up"), ("down", "last"))
    for caller in ("last", "down", "mid", "up"):
        desk.want(f"b-{caller}", caller=caller)
    order = []
    for _ in range(4):
        desk.until(desk.now + 10.0)
        (flying,) = desk.target.leases
        order.append(flying)
        desk.report(flying)
    assert order == ["b-up", "b-mid", "b-down", "b-last"]
    desk.until(desk.now + 31.0)
    assert CascadeOver("t") in desk.told


def test_workflows_become_depths() -> None:
    graph = edges({"a": {"ralph": ["picard", "data"], "picard": ["data"]}, "b": ["data", "neelix"]})
    assert depths(graph) == {"ralph": 0, "picard": 1, "data": 2, "neelix": 3}
    with pytest.raises(ValueError, match=r"circle through a, b, c: take one"):
        depths({"a": ("b",), "b": ("a",), "c": (), "d": ()} | {"b": ("a", "c")})


# ---- refusals ---------------------------------------------------------------------------------------------------


def test_what_can_never_be_is_refused_with_the_mend() -> None:
    desk = Desk(HOUR, waiters_max=1)
    assert desk.refused(desk.want("a", req=101)) is RefuseCode.TOO_LARGE
    assert desk.refused(desk.want("a", req=-1)) is RefuseCode.BAD_COST
    assert desk.refused(desk.want("a", req=float("nan"))) is RefuseCode.BAD_COST
    assert desk.refused(desk.want("a", 3)) is RefuseCode.BAD_PRIORITY
    assert desk.refused(desk.send(QuotaWanted(0.0, "x", "a", "c", 1, ()))) is RefuseCode.UNKNOWN_TARGET
    desk.want("a", 0, req=100)
    desk.want("b")
    assert desk.refused(desk.want("c")) is RefuseCode.QUEUE_FULL


def test_who_only_retries_runs_out_of_retries() -> None:
    desk = Desk(ScopeSpec("req", "fixed", 5_000, 3_600), retry_budget=12.0)
    codes = [desk.want(f"w{at}", caller="c", retry=True) for at in range(3)]
    assert desk.refused(codes[2]) is RefuseCode.RETRY_BUDGET
    for at in range(2):
        desk.report(f"w{at}")
    desk.want("fine", caller="c")
    desk.report("fine")
    assert desk.granted(desk.want("again", caller="c", retry=True)) == ["again"]


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({"limit": 0.0}, "limit is 0 and burst 1; give a limit from 0.001 to 1e.15"),
        ({"limit": 1e-300}, "limit is 1e-300"),
        ({"limit": 1e300}, "limit is 1e.300"),
        ({"limit": 10.0, "burst": 1e-300}, "burst 1e-300; give .* a burst from 1e-06 to 60"),
        ({"limit": 10.0, "window_seconds": 1e-300}, "window_seconds is 1e-300; give 0.001 to"),
        ({"limit": 10.0, "window_seconds": -5.0}, "window_seconds is -5; give 0.001 to"),
        ({"limit": 10.0, "floor": 1e-323}, "floor is .*; give 0, or 1e-06 to 1"),
    ],
)
def test_a_limit_without_sense_is_refused_when_it_is_configured(figures: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ScopeSpec("req", "fixed", **figures)


def test_new_limits_keep_the_ledger_the_waiters_and_the_leases() -> None:
    desk = Desk(HOUR, AT_ONCE)
    for want in "abc":
        desk.want(want, req=1, conc=1)
    told = desk.send(TargetConfigured(0.0, TargetSpec("t", (ScopeSpec("req", "fixed", 50, 3_600),))))
    assert desk.granted(told) == ["c"]  # what it waited for is gone
    assert (desk.scope("req").limit, desk.scope("req").out, len(desk.target.leases)) == (50, 3, 3)


@pytest.mark.parametrize(("limit", "go"), [(150, 50), (130, 30), (80, 0)])
def test_a_limit_that_is_raised_is_there_at_once_and_what_was_used_stays_used(limit: int, go: int) -> None:
    desk = Desk(HOUR)
    for number in range(100):
        desk.want(f"used{number}", 0, req=1)
        desk.report(f"used{number}")
    waiting = [f"w{number}" for number in range(60)]
    for want in waiting:
        assert desk.granted(desk.want(want, 0, req=1)) == []
    changed = TargetSpec("t", (replace(HOUR, limit=float(limit)),))
    assert len(desk.granted(desk.send(TargetConfigured(0.0, changed)))) == go
    assert desk.scope("req").remaining == limit - 100
    desk.send(TargetConfigured(0.0, TargetSpec("t", (HOUR,))))
    assert desk.scope("req").remaining == 0, "as it was"


def test_a_window_that_is_made_shorter_ends_sooner() -> None:
    desk = Desk(HOUR)
    for number in range(100):
        desk.want(f"used{number}", 0, req=1)
        desk.report(f"used{number}")
    desk.want("next", 0, req=1)
    desk.send(TargetConfigured(0.0, TargetSpec("t", (replace(HOUR, window_seconds=60.0),))))
    assert desk.granted(desk.until(59.0)) == []
    assert desk.granted(desk.until(61.0)) == ["next"]


def test_a_target_that_is_removed_refuses_who_waits_and_forgets_its_leases() -> None:
    desk = Desk(AT_ONCE)
    for want in "abcd":
        desk.want(want, conc=1)
    told = desk.send(TargetRemoved(0.0, "t"))
    assert [(decision.want, decision.code) for decision in told if isinstance(decision, Refuse)] == [
        ("c", RefuseCode.TARGET_REMOVED),
        ("d", RefuseCode.TARGET_REMOVED),
    ]
    assert "no longer configured" in str(told[0])
    assert (dict(desk.state.targets), list(desk.state.due)) == ({}, [])
    assert desk.report("a") == [Stale("t", "a", 1)]
    assert desk.send(TargetRemoved(0.0, "t")) == []
    desk.send(TargetConfigured(0.0, TargetSpec("t", (AT_ONCE,))))
    (anew,) = desk.want("e", conc=1)
    assert isinstance(anew, Grant)
    assert anew.fence == 3  # fences grow, whatever is forgotten


def test_a_level_says_what_to_shed_and_p0_sheds_nothing() -> None:
    ladder = Ladder(max_tokens_factor=0.25, max_tokens_min=100)
    assert [cut(ladder, level) for level in range(4)] == [
        None,
        Cut(0.25, 100, compact=False, fall_back=False),
        Cut(0.25, 100, compact=True, fall_back=False),
        Cut(0.25, 100, compact=True, fall_back=True),
    ]
    desk = Desk(ScopeSpec("req", "fixed", 200, 3_600, protect=(0.0, 0.0, 0.0)), forecast_part_max=0.0)
    for at in range(160):
        desk.until(at * 0.1)
        desk.want(f"w{at}", 0)
        desk.report(f"w{at}")
    (standard,), (critical,) = desk.want("p1", 1), desk.want("p0", 0)
    assert isinstance(standard, Grant)
    assert isinstance(critical, Grant)
    assert standard.cut == cut(Ladder(), standard.level) is not None
    assert (critical.level, critical.cut) == (0, None)


def test_a_mistake_in_what_a_call_used_costs_a_whole_limit_at_most() -> None:
    desk = Desk(ScopeSpec("req", "bucket", 60, 60))
    desk.want("wrong", 0)
    desk.report("wrong", actual={"req": 1e300})
    assert desk.scope("req").remaining == 0
    desk.now += 2
    desk.want("next", 0)
    assert "next" in desk.grants


def test_nobody_is_told_to_owe_more_than_a_whole_limit() -> None:
    desk = Desk(ScopeSpec("req", "bucket", 60, 60))
    desk.want("liar", 0)
    desk.report("liar", "ok", Sample("req", 60, -1e18, None))
    assert desk.scope("req").remaining == -60
