"""Do callers with a reservation find their share when they come, and does it serve others while they are away?"""

from luftpause.scheduler.quota import ledger, shares
from luftpause.scheduler.quota.decisions import Decision
from luftpause.scheduler.quota.events import (
    LeaseReleased,
    LedgerTold,
    LimitsObserved,
    QuotaWanted,
    QuotaWithdrawn,
    ScopeShared,
    TargetConfigured,
)
from luftpause.scheduler.quota.model import Owned
from luftpause.scheduler.quota.samples import Sample
from luftpause.scheduler.quota.specs import ScopeSpec, TargetSpec
from tests.unit.scheduler.quota.test_core import Desk

PLAIN = {"green": 0.0, "red": 0.0, "protect": (0.0, 0.0, 0.0), "floor": 0.0}  # nothing but the reservations decides
HOUR = ScopeSpec("req", "fixed", 100, 3_600, **PLAIN)  # pyright: ignore[reportArgumentType]
BUCKET = ScopeSpec("tok", "bucket", 600, 60, **PLAIN)  # pyright: ignore[reportArgumentType]


class Office(Desk):
    """A desk whose target gives picard 40 % and data 30 % of each limit."""

    def __init__(self, *scopes: ScopeSpec, **tuned: float) -> None:
        super().__init__(yield_health=0.0, promote_seconds=1e9, **tuned)
        self.asked = 0
        self.send(TargetConfigured(0.0, TargetSpec("t", scopes, reservations=(("data", 0.3), ("picard", 0.4)))))

    def ask(self, caller: str, count: int = 1, priority: int = 1, **cost: float) -> int:
        """How many of so many wishes are granted; the others go away again."""
        granted = 0
        for _ in range(count):
            self.asked += 1
            want = f"{caller}-{self.asked}"
            told = self.send(QuotaWanted(self.now, "t", want, caller, priority, tuple((cost or {"req": 1.0}).items()), 1e6))
            if self.granted(told):
                granted += 1
                self.report(want)
            self.send(QuotaWithdrawn(self.now, "t", want))
        return granted

    def still(self, **demand: float) -> None:
        """Forecasts as they are after callers have asked this many units per second for a long time."""
        target = self.target
        for name, scope in target.scopes.items():
            seconds = ledger.forecast_seconds(scope)
            fitted = scope
            for caller, rate in demand.items():
                fitted = shares.wanted(fitted, caller, 1, rate * seconds, self.now)
            target.scopes[name] = fitted


def test_a_share_whose_owner_is_away_serves_others() -> None:
    office = Office(HOUR)
    assert office.ask("riker", 100) == 100


def test_what_owners_are_forecast_to_want_is_left_to_them() -> None:
    office = Office(HOUR)
    office.still(picard=1.0, data=1.0)  # each more than its share
    assert office.ask("riker", 100) == 30
    assert office.ask("picard", 100) == 40
    assert office.ask("data", 100) == 30


def test_an_owner_who_wants_little_keeps_only_that() -> None:
    office = Office(HOUR)
    office.still(picard=10 / 3_600)
    assert office.ask("riker", 100) == 90
    assert office.ask("picard", 100) == 10


def test_beyond_its_share_an_owner_takes_what_the_others_do_not_need() -> None:
    office = Office(HOUR)
    office.still(data=1.0)
    assert office.ask("picard", 100) == 70
    assert office.ask("data", 100) == 30


def test_p0_always_gets_what_is_left() -> None:
    office = Office(HOUR)
    office.still(picard=1.0, data=1.0)
    assert office.ask("worf", 100, 0) == 100


def test_an_owner_is_not_stopped_by_one_without_a_share_who_came_before() -> None:
    office = Office(HOUR)
    office.still(picard=1.0, data=1.0)
    office.ask("riker", 30)
    assert office.want("riker-waits", 1, caller="riker") == []
    assert office.granted(office.want("picard", 1, caller="picard")) == ["picard"]
    assert office.granted(office.want("data", 1, caller="data")) == ["data"]


def test_a_share_of_a_worse_class_is_no_reason_for_a_better_one_to_wait() -> None:
    office = Office(HOUR)
    scope = office.scope("req")
    office.target.scopes["req"] = shares.wanted(scope, "picard", 2, 3_600.0, 0.0)
    assert office.ask("riker", 60, 2) == 60
    assert office.ask("riker", 1, 2) == 0
    assert office.ask("worf", 40, 1) == 40


def test_in_a_new_window_everybody_has_the_whole_share_again() -> None:
    office = Office(HOUR)
    office.still(picard=1.0)
    assert office.ask("picard", 50) == 50
    assert shares.used(office.scope("req"), "picard", 0.0) == 50
    office.until(3_600.0)
    assert office.ask("picard", 20) == 20
    assert shares.used(office.scope("req"), "picard", 3_600.0) == 20
    office.send(LimitsObserved(office.now, "t", (Sample("req", 100, 99.0, 9_999.0),)))  # the provider says that another one began
    assert shares.used(office.scope("req"), "picard", office.now) == 0


def test_of_a_bucket_an_owner_finds_its_share_of_what_comes_in() -> None:
    office = Office(BUCKET)
    office.still(picard=100.0)
    while office.ask("riker", 1, tok=10.0):
        pass
    assert ledger.left(office.scope("tok")) == 40  # 0.4 of ten seconds
    assert office.ask("picard", 9, tok=10.0) == 4
    office.until(5.0)
    assert office.ask("riker", 9, tok=10.0) == 1
    assert office.ask("picard", 9, tok=10.0) == 4


def test_what_was_not_sent_or_not_used_is_no_part_of_the_share() -> None:
    office = Office(BUCKET)
    used: list[float] = []

    def grant(want: str) -> None:
        told: list[Decision] = office.want(want, 1, caller="picard", tok=100.0)
        assert office.granted(told) == [want]
        used.append(shares.used(office.scope("tok"), "picard", 0.0))

    grant("a")
    grant("b")
    office.send(LeaseReleased(0.0, "t", "a", office.grants["a"].fence))
    office.report("b", actual={"tok": 30.0})
    used.append(shares.used(office.scope("tok"), "picard", 0.0))
    assert used == [100, 200, 30]


def test_other_reservations_hold_for_who_waits_already() -> None:
    office = Office(HOUR)
    office.still(picard=1.0, data=1.0)
    office.ask("riker", 30)
    assert office.want("waits", 1, caller="riker") == []
    told = office.send(TargetConfigured(0.0, TargetSpec("t", (HOUR,), reservations=(("riker", 0.5),))))
    assert office.granted(told) == ["waits"]


# ---- over nodes that share a ledger


def elsewhere(office: Office, *owned: Owned, remaining: float = 100.0) -> None:
    """Another node tells this of the limit that both share."""
    office.send(LedgerTold(office.now, "t", (ScopeShared("req", 100.0, remaining, 0.0, 3_600.0 - office.now, owned=owned),)))


def test_what_owners_want_on_other_nodes_is_left_to_them_here() -> None:
    office = Office(HOUR)
    elsewhere(office, Owned("picard", 0.0, (0.0, 600.0, 0.0)), Owned("data", 0.0, (0.0, 600.0, 0.0)))  # one a second, each
    assert office.ask("riker", 100) == 30
    elsewhere(office, remaining=70.0)
    assert office.ask("riker", 100) == 70, "nobody tells of them any more"


def test_what_an_owner_has_used_on_other_nodes_is_no_longer_kept_for_it_here() -> None:
    office = Office(HOUR)
    office.still(picard=1.0)
    elsewhere(office, Owned("picard", 25.0, (0.0, 0.0, 0.0)), remaining=75.0)
    assert office.ask("riker", 100) == 60, "15 of its 40 are left"
    assert shares.is_entitled(office.scope("req"), office.target.spec.reservations, "picard", 15.0, office.now)
    assert not shares.is_entitled(office.scope("req"), office.target.spec.reservations, "picard", 16.0, office.now)
    office.until(3_600.0)
    assert shares.used(ledger.roll(office.scope("req"), office.now), "picard", office.now) == 0, "a new window"


def test_a_node_tells_its_own_part_only() -> None:
    office = Office(HOUR)
    assert shares.owned(office.scope("req"), office.target.spec.reservations, 0.0) == ()
    elsewhere(office, Owned("picard", 25.0, (0.0, 7.0, 0.0)), Owned("nobody configured here", 9.0, (9.0, 9.0, 9.0)))
    office.ask("picard", 3)
    assert shares.owned(office.scope("req"), office.target.spec.reservations, 0.0) == (Owned("picard", 3.0, (0.0, 3.0, 0.0)),)
    assert set(office.scope("req").shares) == {"picard"}
    assert shares.owned(office.scope("req"), office.target.spec.reservations, 3_600.0)[0].used == 0, "its window is over"


def test_what_was_used_elsewhere_of_a_bucket_fades() -> None:
    office = Office(BUCKET)
    office.send(LedgerTold(0.0, "t", (ScopeShared("tok", 600.0, 600.0, 0.0, -1.0, owned=(Owned("picard", 240.0, (0.0, 0.0, 0.0)),)),)))
    assert shares.used(office.scope("tok"), "picard", 0.0) == 240
    assert 80 < shares.used(office.scope("tok"), "picard", 60.0) < 100
