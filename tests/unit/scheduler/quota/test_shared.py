"""What a store that is shared with other nodes says of a grant, and of the ledger."""

from math import inf

import pytest

from luftpause.scheduler.quota import ledger
from luftpause.scheduler.quota.admission import PACED_SECONDS_MAX
from luftpause.scheduler.quota.decisions import Blocked, Disabled, Expired, Grant, Stale
from luftpause.scheduler.quota.events import GrantConfirmed, GrantDeclined, LeaseLost, LeaseReleased, LedgerTold, ScopeShared
from luftpause.scheduler.quota.model import Mode
from luftpause.scheduler.quota.specs import ScopeSpec
from tests.unit.scheduler.quota.test_core import HOUR, Desk

PLAIN = ScopeSpec("req", "fixed", 100, 3_600, protect=(0, 0, 0), floor=0)


def decline(desk: Desk, want: str, seconds: float = 1.0, scope: str = "req") -> list[str]:
    return desk.granted(desk.send(GrantDeclined(desk.now, "t", want, desk.grants[want].fence, scope, seconds)))


def told(desk: Desk, remaining: float, out: float, **more: object) -> list[object]:
    scope = ScopeShared("req", 100.0, remaining, out, more.pop("reset_seconds", -1.0))  # type: ignore[arg-type]
    return list(desk.send(LedgerTold(desk.now, "t", (scope,), **more)))  # type: ignore[arg-type]


# ---- confirmed and declined


def test_the_stores_fence_becomes_the_leases_and_fences_go_on_from_there() -> None:
    desk = Desk(PLAIN)
    desk.want("a")
    (grant,) = desk.send(GrantConfirmed(0.0, "t", "a", desk.grants["a"].fence, 2**20))
    assert isinstance(grant, Grant)
    assert grant.fence == 2**20
    desk.want("b")
    assert desk.grants["b"].fence > 2**20
    assert not desk.send(LeaseReleased(0.0, "t", "a", 2**20))


def test_what_was_declined_is_as_if_it_had_never_been_granted() -> None:
    desk = Desk(PLAIN)
    before = desk.scope("req")
    desk.want("a")
    assert not decline(desk, "a")
    after = desk.scope("req")
    assert (after.out, after.remaining) == (before.out, before.remaining)
    assert after.burn == pytest.approx(0.0)
    assert list(desk.target.waiters) == ["a"]
    assert desk.target.breaker.sent == pytest.approx(0.0)
    assert desk.granted(desk.until(0.99)) == []
    assert desk.granted(desk.until(1.0)) == ["a"]


def test_it_stands_where_it_stood() -> None:
    desk = Desk(PLAIN)
    desk.want("first", caller="x")
    desk.want("second", caller="x")
    decline(desk, "second", 5.0)
    decline(desk, "first", 5.0)
    desk.want("third", caller="x")
    assert desk.granted(desk.until(5.0)) == ["first", "second", "third"]


def test_its_class_and_worse_ones_wait_and_better_ones_don_t() -> None:
    desk = Desk(PLAIN)
    desk.want("p1", 1)
    decline(desk, "p1", 10.0)
    assert desk.granted(desk.want("another p1", 1)) == []
    assert desk.granted(desk.want("p2", 2)) == []
    assert desk.granted(desk.want("p0", 0)) == ["p0"]
    assert set(desk.granted(desk.until(10.0))) == {"p1", "another p1", "p2"}


def test_of_one_scope_the_others_stay_open() -> None:
    desk = Desk(PLAIN, ScopeSpec("other", "fixed", 100, 3_600, protect=(0, 0, 0)))
    desk.want("a", 0)
    decline(desk, "a", 10.0, scope="req")
    assert desk.granted(desk.want("b", 0, other=1.0)) == ["b"]
    decline(desk, "b", 10.0, scope="")
    assert desk.granted(desk.want("c", 0, other=1.0)) == []


def test_a_p2_that_was_promoted_does_not_come_again_at_once() -> None:
    desk = Desk(PLAIN)
    desk.want("p2", 2)
    assert desk.target.leases["p2"].promoted
    assert decline(desk, "p2", 10.0, scope="") == []
    assert desk.granted(desk.until(9.9)) == []
    assert desk.granted(desk.until(10.0)) == ["p2"]


def test_declined_again_and_again_a_class_is_paced_no_slower() -> None:
    desk = Desk(ScopeSpec("req", "fixed", 100, 3_600, protect=(0, 0, 0)))
    told(desk, remaining=30.0, out=0.0, reset_seconds=3_600.0)
    desk.want("a", 1)
    assert desk.scope("req").paced[1] > 10, "the next one of this class waits"
    for _ in range(20):
        assert "a" in desk.target.leases
        decline(desk, "a", 0.1)
        assert desk.scope("req").paced[1] <= desk.now + 0.1
        desk.until(desk.now + 0.1)


def test_of_a_lease_that_is_gone_nothing_is_declined() -> None:
    desk = Desk(PLAIN)
    desk.want("a")
    fence = desk.grants["a"].fence
    desk.report("a")
    assert desk.send(GrantDeclined(0.0, "t", "a", fence, "req", 1.0)) == [Stale("t", "a", fence)]
    assert not desk.target.waiters


def test_a_lease_that_the_store_took_back_is_charged() -> None:
    desk = Desk(HOUR)
    desk.want("a")
    (expired,) = desk.send(LeaseLost(0.0, "t", "a", desk.grants["a"].fence))
    assert isinstance(expired, Expired)
    assert (desk.scope("req").remaining, desk.scope("req").out) == (99, 0)


# ---- the ledger of all


def test_what_others_have_out_is_not_there() -> None:
    desk = Desk(PLAIN)
    desk.want("mine", 0, req=5.0)
    told(desk, remaining=60.0, out=25.0, reset_seconds=100.0)
    scope = desk.scope("req")
    assert scope.remaining - scope.out == 35
    assert scope.reset_at == 100


def test_what_p0_wants_on_other_nodes_is_left_to_it_here() -> None:
    desk = Desk(ScopeSpec("req", "fixed", 100, 3_600, green=0, red=0, protect=(0, 0, 0), floor=0))
    elsewhere = ScopeShared("req", 100.0, 100.0, 0.0, 3_600.0, wanted=(10.0, 0.0, 0.0))  # in 600 s, so 60 in an hour
    desk.send(LedgerTold(0.0, "t", (elsewhere,)))
    assert len([at for at in range(50) if desk.granted(desk.want(f"p1-{at}", 1))]) == 40
    assert desk.granted(desk.want("p0", 0)) == ["p0"]
    assert ledger.wanted_here(desk.scope("req"), 0.0) == (1.0, 50.0, 0.0), "what others want is not told to them as ours"
    assert desk.granted(desk.until(600.0)), "who has told nothing since wants less"


def test_nodes_share_the_pace_of_a_class_by_what_each_wants() -> None:
    spec = ScopeSpec("req", "fixed", 10_000, 3_600, protect=(0, 0, 0))
    paces: list[float] = []
    for elsewhere in (0.0, 3.0):
        desk = Desk(spec)
        desk.send(LedgerTold(0.0, "t", (ScopeShared("req", 10_000.0, 3_000.0, 0.0, 3_600.0, wanted=(0.0, elsewhere, 0.0)),)))
        desk.want("a", 1)
        paces.append(desk.scope("req").paced[1])
    alone, one_of_four = paces
    assert one_of_four == pytest.approx(4 * alone)
    assert 0 < one_of_four < PACED_SECONDS_MAX


def test_what_the_store_does_not_know_yet_is_not_there_either() -> None:
    desk = Desk(PLAIN)
    desk.want("known", 0, req=5.0)
    desk.want("asked", 0, req=7.0)
    told(desk, remaining=60.0, out=25.0, tentative=("asked",))
    scope = desk.scope("req")
    assert scope.remaining - scope.out == 60 - 25 - 7


def test_whoever_was_declined_may_ask_again_when_there_is_news() -> None:
    desk = Desk(PLAIN)
    desk.want("a", 0)
    decline(desk, "a", 1_000.0)
    assert desk.granted(told(desk, remaining=50.0, out=0.0)) == []  # type: ignore[arg-type]
    assert desk.granted(told(desk, remaining=50.0, out=0.0, anew=True)) == ["a"]  # type: ignore[arg-type]


def test_a_block_of_another_node_holds_here_and_is_never_shorter() -> None:
    desk = Desk(PLAIN)
    assert told(desk, 50.0, 0.0, blocked_seconds=10.0) == [Blocked("t", 10.0)]
    assert desk.target.breaker.mode is Mode.OPEN
    assert told(desk, 50.0, 0.0, blocked_seconds=5.0) == []
    assert told(desk, 50.0, 0.0, blocked_seconds=10.01) == [], "the same one"
    assert desk.granted(desk.want("p0", 0)) == []
    assert desk.granted(desk.until(10.0)) == ["p0"]


def test_out_of_credit_on_one_node_is_so_on_all() -> None:
    desk = Desk(PLAIN)
    assert told(desk, 50.0, 0.0, blocked_seconds=inf, disabled=True) == [Disabled("t", inf)]
    assert told(desk, 50.0, 0.0, blocked_seconds=inf, disabled=True) == []


def test_a_target_that_was_enabled_by_another_node_is_tried_here_too() -> None:
    desk = Desk(HOUR)
    told(desk, 100, 0, disabled=True, blocked_seconds=1e300)
    assert desk.target.breaker.mode is Mode.DISABLED
    told(desk, 100, 0)
    assert desk.target.breaker.mode is Mode.HALF_OPEN
    desk.want("probe", 0)
    assert "probe" in desk.grants
