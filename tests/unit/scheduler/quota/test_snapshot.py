"""Does the governor go on after a restart as if only time had passed?"""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from luftpause.scheduler.quota.core import govern, initial
from luftpause.scheduler.quota.decisions import Expired, HalfOpened
from luftpause.scheduler.quota.events import LimitsObserved, TargetConfigured, Tick
from luftpause.scheduler.quota.headers import LimitKind
from luftpause.scheduler.quota.model import Settings, Target
from luftpause.scheduler.quota.profiles import target_spec
from luftpause.scheduler.quota.samples import Sample
from luftpause.scheduler.quota.snapshot import Moment, SnapshotError, from_snapshot, to_snapshot
from luftpause.scheduler.quota.specs import ScopeSpec, TargetSpec
from tests.unit.scheduler.quota.test_core import AT_ONCE, BUCKET, HOUR, Desk

EPOCH = 1_780_000_000.0


def restarted(desk: Desk, *, now: float = 0.0, down_seconds: float = 0.0) -> Desk:
    """The same desk in a new process, whose clock shows `now`."""
    written = to_snapshot(desk.state, desk.now, Moment(EPOCH))
    desk.state = from_snapshot(written, initial(desk.state.settings, now), Moment(EPOCH + down_seconds))
    desk.now = now
    desk.told.clear()
    desk.until(now)
    return desk


def busy() -> Desk:
    desk = Desk(HOUR, BUCKET, AT_ONCE, cascade_callers=2)
    desk.send(TargetConfigured(0.0, TargetSpec("t", (HOUR, BUCKET, AT_ONCE), 7.0, "auto", reservations=(("picard", 0.5),))))
    desk.until(100.0)
    desk.want("a", 1, caller="picard", req=1, tok=50)
    desk.want("b", 2, caller="b", lease_seconds=20, req=1, conc=1)
    desk.want("c", 0, caller="c", req=1)
    desk.send(LimitsObserved(100.0, "t", (Sample("req", 100, 40.0, 600.0), Sample("tok", 600, 90.0))))
    desk.limited("c", 30.0, LimitKind.SECONDARY)
    return desk


def comparable(target: Target) -> Target:
    """Without who waits and what an event changes anyway."""
    leases = target.leases.__class__({want: replace(lease, waiter=None) for want, lease in target.leases.items()})
    return replace(target, leases=leases, number=0, unblocked=0.0, budgets_old=target.budgets_old.__class__(), at=0.0, due=0.0)


def test_nothing_but_the_clock_is_another_one() -> None:
    desk = busy()
    desk.until(105.0)
    desk.send(LimitsObserved(105.0, "t", ()))  # buckets are filled as of now
    before = comparable(desk.target)
    after = restarted(desk, now=105.0)
    assert comparable(after.target) == before
    assert after.state.fence == 3


def test_blocks_leases_and_windows_end_when_they_would_have() -> None:
    desk = restarted(busy(), now=5_000.0, down_seconds=10.0)
    assert desk.target.breaker.open_until == pytest.approx(5_000.0 - 10.0 + 30.25)
    assert desk.scope("req").reset_at == pytest.approx(5_000.0 + 590.0)
    told = desk.until(5_051.0)
    assert [decision for decision in told if isinstance(decision, Expired)] == [Expired("t", "b", 2, "b"), Expired("t", "a", 1, "picard")]
    assert HalfOpened("t") in told
    assert desk.report("c") != []  # its lease is gone, and it is told so


def test_a_lease_from_before_can_be_settled_after() -> None:
    desk = restarted(busy(), down_seconds=5.0)
    assert (desk.scope("tok").out, desk.target.in_flight["picard"]) == (50, 1)
    desk.report("a", actual={"tok": 20.0, "req": 1.0})
    assert desk.scope("tok").out == 0
    desk.until(400.0)
    (grant,) = desk.want("new", 0, req=1)
    assert grant.fence > 3  # pyright: ignore[reportAttributeAccessIssue]


def test_what_was_learned_is_kept() -> None:
    desk = Desk()
    desk.send(TargetConfigured(0.0, target_spec("t", "openai")))
    desk.send(LimitsObserved(0.0, "t", (Sample("requests", 500.0, 100.0, 48.0),)))
    after = restarted(desk, down_seconds=6.0)
    after.send(TargetConfigured(0.0, target_spec("t", "openai")))
    assert after.scope("requests").spec.kind == "bucket"
    after.send(LimitsObserved(0.0, "t", ()))
    assert after.scope("requests").remaining == pytest.approx(150.0)


def test_a_clock_that_went_back_counts_as_no_time() -> None:
    desk = restarted(busy(), down_seconds=-1e6)
    assert desk.target.breaker.open_until == pytest.approx(30.25)


@pytest.mark.parametrize("damaged", [b"", b"\xff" * 20, b"{}", b"not one"])
def test_damage_is_an_error_that_says_what_to_do(damaged: bytes) -> None:
    with pytest.raises(SnapshotError, match="move the file away to start anew"):
        from_snapshot(damaged, initial(Settings(), 0.0), Moment(0.0))


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_snapshot_that_was_cut_or_changed_is_taken_for_damaged_whatever_byte_it_is(data: st.DataObject) -> None:
    whole = to_snapshot(busy().state, 100.0, Moment(EPOCH))
    at = data.draw(st.integers(0, len(whole) - 1))
    other = whole[at] ^ data.draw(st.integers(1, 255))
    changed = whole[:at] if data.draw(st.booleans()) else whole[:at] + bytes([other]) + whole[at + 1 :]
    with pytest.raises(SnapshotError):
        from_snapshot(changed, initial(Settings(), 0.0), Moment(EPOCH))


@pytest.mark.parametrize(
    "bomb",
    [
        b"\x82\xa7version\x02\xa1x" + b"\x91" * 1_000_000 + b"\xc0",  # deeper than anybody can go
        b"\x83\xa7version\x02\xa3sum\x00\xa6ledger\xc6\xff\xff\xff\xff",  # four gigabytes, it says
        b"\x91" * 1_000_000,
    ],
)
def test_a_bomb_is_damage(bomb: bytes) -> None:
    with pytest.raises(SnapshotError, match="can't be read"):
        from_snapshot(bomb, initial(Settings(), 0.0), Moment(0.0))


@pytest.mark.parametrize("step", [3_600.0, -3_600.0, 50 * 366 * 86_400.0])
def test_within_one_boot_a_calendar_that_is_set_changes_nothing(step: float) -> None:
    desk = busy()
    written = to_snapshot(desk.state, desk.now, Moment(EPOCH, "boot-1", 500.0))
    state = from_snapshot(written, initial(Settings(), 0.0), Moment(EPOCH + step, "boot-1", 510.0))
    assert state.targets["t"].breaker.open_until == pytest.approx(20.25)  # 10 s of the 30.25 are over


@pytest.mark.parametrize(("written", "read"), [("boot-1", "boot-2"), ("", "boot-2"), ("boot-1", ""), ("", "")])
def test_between_two_boots_the_calendar_counts(written: str, read: str) -> None:
    desk = busy()
    before = to_snapshot(desk.state, desk.now, Moment(EPOCH, written, 500.0))
    state = from_snapshot(before, initial(Settings(), 0.0), Moment(EPOCH + 7.0, read, 510.0))
    assert state.targets["t"].breaker.open_until == pytest.approx(23.25)


def test_another_version_is_named() -> None:
    other = msgspec.msgpack.encode({"version": 99})
    with pytest.raises(SnapshotError, match="version 99, this program reads 2"):
        from_snapshot(other, initial(Settings(), 0.0), Moment(0.0))


def test_where_the_ledger_is_lost_background_waits_a_while() -> None:
    desk = Desk()
    desk.send(TargetConfigured(0.0, TargetSpec("t", (ScopeSpec("req", "fixed", 5_000, 3_600),)), learning_seconds=60.0))
    assert desk.want("p2", 2) == []
    assert desk.granted(desk.want("p1", 1)) == ["p1"]
    assert desk.granted(desk.until(59.0)) == []
    assert desk.granted(desk.until(60.0)) == ["p2"]


def test_a_tick_right_after_the_restart_is_due() -> None:
    desk = busy()
    state = from_snapshot(to_snapshot(desk.state, desk.now, Moment(EPOCH)), initial(Settings(), 7.0), Moment(EPOCH))
    step = govern(state, Tick(7.0))
    assert step.wake_at is not None
    assert step.wake_at > 7.0
