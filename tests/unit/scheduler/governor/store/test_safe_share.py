"""What a node may grant by itself: by class, by kind of limit, and over the end of a window."""

from math import inf

import pytest
from msgspec.structs import replace

from luftpause.scheduler.governor.store.safe_share import SafeShare
from luftpause.scheduler.quota import ledger
from luftpause.scheduler.quota.model import Scope
from luftpause.scheduler.quota.specs import ScopeSpec

ONE = (("core", 1.0),)


def fixed(left: float, reset_at: float = inf, out: float = 0.0) -> Scope:
    scope = ledger.fresh(ScopeSpec("core", "fixed", 100, 60), 0.0)
    return replace(scope, remaining=left + out, out=out, reset_at=reset_at)


def granted(share: SafeShare, rank: int, now: float, most: int = 1_000) -> int:
    for count in range(most):
        if share.refused(ONE, rank, now) is not None:
            return count
    return most


@pytest.mark.parametrize(
    ("left", "nodes", "grants"), [(100, 1, 80), (100, 2, 40), (50, 2, 20), (100, 4, 20), (1, 2, 0), (0, 1, 0), (-5, 1, 0)]
)
def test_p0_gets_the_safe_part_of_the_share_of_what_is_left(left: float, nodes: int, grants: int) -> None:
    assert granted(SafeShare([fixed(left)], nodes, 0.0), 0, 0.0) == grants


def test_p2_waits() -> None:
    assert SafeShare([fixed(100)], 1, 0.0).refused(ONE, 2, 0.0) == ("", 1.0)


def test_p1_comes_at_half_the_rate() -> None:
    share = SafeShare([fixed(100, reset_at=40.0)], 1, 0.0)
    grants = sum(share.refused(ONE, 1, tick / 10) is None for tick in range(400))
    assert 39 <= grants <= 41
    assert granted(share, 0, 39.99) == 80 - grants, "the rest is P0's"


def test_whoever_is_refused_learns_when_to_ask_again() -> None:
    share = SafeShare([fixed(0, reset_at=30.0)], 1, 0.0)
    assert share.refused(ONE, 0, 10.0) == ("core", 20.0)
    assert share.refused(ONE, 0, 30.0) is None


def test_the_next_window_is_a_whole_one() -> None:
    share = SafeShare([fixed(0, reset_at=30.0)], 2, 0.0)
    assert granted(share, 0, 31.0) == 40
    assert granted(share, 0, 89.0) == 0
    assert granted(share, 0, 90.0) == 40


def test_a_bucket_gives_what_flows_in() -> None:
    scope = replace(ledger.fresh(ScopeSpec("core", "bucket", 600, 60, burst=0.1), 0.0), remaining=30.0)
    share = SafeShare([scope], 2, 0.0)
    assert granted(share, 0, 0.0) == 12
    assert granted(share, 0, 1.0) == 4, "10 a second, of which 0.8 / 2"
    assert granted(share, 0, 1_000.0) == 24, "and not more than the bucket holds"
    assert share.refused((("core", 500.0),), 0, 2_000.0) is None, "what is larger than the bucket goes out of the full one"
    assert share.refused(ONE, 0, 2_000.0) is not None


def test_of_slots_a_share_is_used_at_most_but_one() -> None:
    scope = replace(ledger.fresh(ScopeSpec("core", "concurrent", 10, 60), 0.0), out=1.0)
    share = SafeShare([scope], 2, 0.0)
    assert granted(share, 0, 0.0) == 3
    share.over(ONE, ())
    assert granted(share, 0, 0.0) == 1
    assert granted(SafeShare([replace(scope, out=0.0)], 100, 0.0), 0, 0.0) == 1


def test_what_was_not_used_comes_back() -> None:
    share = SafeShare([fixed(100)], 1, 0.0)
    assert share.refused((("core", 50.0),), 0, 0.0) is None
    share.over((("core", 50.0),), (("core", 10.0),))
    assert granted(share, 0, 0.0) == 70


def test_a_scope_that_is_not_known_is_no_obstacle() -> None:
    assert SafeShare([], 1, 0.0).refused(ONE, 0, 0.0) is None
