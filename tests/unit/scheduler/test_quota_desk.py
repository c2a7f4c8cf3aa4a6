"""Do the core's wishes become the governor's, its answers the core's events, and is each lease settled with what its answer told?"""

import asyncio
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from luftpause.scheduler.core.decide import decide, initial
from luftpause.scheduler.core.decisions import HoldReason, Lease, Outcome, Place, Refuse
from luftpause.scheduler.core.events import (
    ConfigChanged,
    DataplaneLost,
    ProbeOutcome,
    QuotaDeferred,
    ReplicaProbed,
    ReplicaSpec,
    Resync,
    ReturnReason,
    TurnAbandoned,
    TurnClass,
    TurnFailed,
    TurnFinished,
    TurnRequested,
    TurnReturned,
    Usage,
)
from luftpause.scheduler.core.settings import Settings
from luftpause.scheduler.governor.host import Governor
from luftpause.scheduler.host import Host
from luftpause.scheduler.quota import core
from luftpause.scheduler.quota.decisions import Expired
from luftpause.scheduler.quota.events import AnswerReported, Event, LeaseReleased, LimitsObserved, TargetConfigured, TargetRemoved
from luftpause.scheduler.quota.model import ScopeSpec, TargetSpec
from luftpause.scheduler.quota.model import Settings as QuotaSettings
from luftpause.scheduler.quota.samples import Sample
from luftpause.scheduler.quota_desk import QuotaDesk, want_of
from luftpause.scheduler.quota_told import AnswerTold, LeaseTold
from luftpause.scheduler.replicas import announced
from luftpause.scheduler.translate import Order

TWO = TargetSpec(
    "acme",
    (
        ScopeSpec("at_once", "concurrent", 2.0, counts=("requests",)),
        ScopeSpec("requests", "fixed", 1_000.0),
        ScopeSpec("tokens", "bucket", 100_000.0),
    ),
)


@dataclass
class Outbox:
    orders: list[Order] = field(default_factory=list)

    def put(self, order: Order) -> None:
        self.orders.append(order)


class World:
    """A scheduler with one hosted replica, on a clock that a test moves."""

    def __init__(self, target: TargetSpec = TWO, hold_seconds: float = 120.0, dataplane_lost_seconds: float = 10.0) -> None:
        self.now = 1_000.0
        self.posted: list[Event] = []
        self.governor = Governor(core.initial(QuotaSettings(), self.now), clock=lambda: self.now)
        self.governor.post(TargetConfigured(self.now, target))
        post = self.governor.post

        def spy(event: Event) -> None:
            self.posted.append(event)
            post(event)

        self.governor.post = spy  # type: ignore[method-assign]
        spec = ReplicaSpec("h", "http://h", models=("m",), capped=False, quota="acme")
        rules = Settings(start_grace_seconds=0, quota_hold_seconds_max=hold_seconds, dataplane_lost_seconds=dataplane_lost_seconds)
        state = initial(rules, (spec,), self.now)
        self.host = Host(decide, state, replicas=announced, clock=lambda: self.now)
        self.desk = QuotaDesk(
            self.governor, state=lambda: self.host.state, post=self.host.post, now=lambda: self.now, lease_seconds=120.0, epoch=lambda: 0.0
        )  # fmt: skip
        self.host.quotas = self.desk
        self.outbox = Outbox()
        self.host.attach(Resync(self.now, "d", "s", "b"), self.outbox)
        self.host.post(ReplicaProbed(self.now, "h", ProbeOutcome.OK))
        self.settle()

    def settle(self, seconds: float = 0.0) -> None:
        until = self.now + seconds
        while True:
            self.governor.advance()
            while self.host.advance() == 0.0:
                pass
            if self.now >= until:
                return
            self.now = min(self.now + 0.25, until)

    def request(self, turn: str, **more: object) -> None:
        asked = TurnRequested(self.now, "d", turn, 1, f"run-{turn}", "m", body_bytes=1_000, answer_tokens_max=100)
        self.host.post(replace(asked, **more))
        self.settle()

    def places(self) -> list[Place]:
        return [order for order in self.outbox.orders if isinstance(order, Place)]

    def place(self, turn: str) -> Place:
        return next(each for each in reversed(self.places()) if each.turn == turn)

    def refusals(self) -> list[Refuse]:
        return [order for order in self.outbox.orders if isinstance(order, Refuse)]

    def reports(self) -> list[AnswerReported]:
        return [event for event in self.posted if isinstance(event, AnswerReported)]

    @property
    def leases(self) -> int:
        return len(self.governor.state.targets["acme"].leases)


def test_what_is_free_is_granted_within_the_same_turn_of_the_loop() -> None:
    world = World()
    world.request("t1")
    place = world.place("t1")
    assert isinstance(place.lease, Lease)
    assert place.lease.fence > 0
    assert place.hold_reason is None, "nobody is told of a wait that took no time"
    assert world.leases == 1


def test_an_answer_settles_its_lease_with_what_it_used_and_told() -> None:
    world = World()
    world.request("t1")
    world.host.post(AnswerTold("t1", 1, 200, {"x-ratelimit-limit-requests": "2", "x-ratelimit-remaining-requests": "1"}))
    world.host.post(TurnFinished(world.now, "d", "t1", 1, usage=Usage(200, 50)))
    world.settle()
    (report,) = world.reports()
    assert report.outcome == "ok"
    assert dict(report.actual) == {"input_tokens": 200, "output_tokens": 50, "requests": 1.0, "tokens": 250}
    assert [sample.scope for sample in report.samples] == ["requests"]
    assert world.leases == 0


def test_who_has_no_quota_waits_in_the_governors_queue_and_goes_when_there_is_some() -> None:
    world = World()
    for turn in ("t1", "t2", "t3"):
        world.request(turn)
    assert [place.turn for place in world.places()] == ["t1", "t2"]
    assert world.host.state.turns["t3"].reason is HoldReason.QUOTA
    world.settle(5.0)
    world.host.post(TurnFinished(world.now, "d", "t1", 1))
    world.settle()
    place = world.place("t3")
    assert (place.hold_reason, place.held_seconds) == (HoldReason.QUOTA, pytest.approx(5.0))


def test_a_refusal_blocks_all_and_the_turn_goes_again_when_its_window_opens() -> None:
    world = World()
    world.request("t1")
    world.host.post(AnswerTold("t1", 1, 429, {"retry-after": "30"}, "slow down"))
    world.host.post(TurnReturned(world.now, "d", "t1", 1, "h", ReturnReason.LIMITED))
    world.settle()
    (report,) = world.reports()
    assert (report.outcome, report.wait_seconds) == ("limited", 30.0)
    world.request("t2")
    assert [place.turn for place in world.places()] == ["t1"]
    world.settle(32.0)
    assert world.place("t1").attempt == 2
    assert world.refusals() == []


def test_a_block_that_is_longer_than_anybody_may_wait_refuses_all_who_wait_at_once() -> None:
    world = World(hold_seconds=20.0)
    world.request("t1")
    world.request("t2")
    world.request("t3")
    assert len(world.places()) == 2
    world.host.post(AnswerTold("t1", 1, 429, {"retry-after": "300"}))
    world.host.post(TurnReturned(world.now, "d", "t1", 1, "h", ReturnReason.LIMITED))
    world.settle()
    assert sorted((refuse.turn, refuse.status, refuse.code) for refuse in world.refusals()) == [
        ("t1", 429, "quota_wait_too_long"), ("t3", 429, "quota_wait_too_long"),
    ]  # fmt: skip
    assert all(refuse.retry_after_seconds >= 290 for refuse in world.refusals())


def test_a_request_that_is_larger_than_the_limit_is_not_sent_again_and_again() -> None:
    world = World()
    world.request("t1")
    told = '{"error":{"code":"rate_limit_exceeded","message":"Request too large for model"}}'
    world.host.post(AnswerTold("t1", 1, 413, {}, told))
    world.host.post(TurnReturned(world.now, "d", "t1", 1, "h", ReturnReason.LIMITED))
    world.settle()
    assert [(refuse.turn, refuse.status, refuse.code) for refuse in world.refusals()] == [("t1", 413, "quota_too_large")]


def test_a_wish_above_the_whole_limit_is_refused_with_what_to_do() -> None:
    world = World()
    world.request("t1", body_bytes=10_000_000)
    (refuse,) = world.refusals()
    assert (refuse.status, refuse.code) == (413, "quota_too_large")
    assert "tokens" in refuse.message


def test_what_was_never_sent_comes_back() -> None:
    world = World()
    world.request("t1")
    world.host.post(TurnAbandoned(world.now, "d", "t1", 1))
    world.settle()
    assert any(isinstance(event, LeaseReleased) for event in world.posted)
    assert world.leases == 0


def test_what_an_engine_had_that_went_away_is_charged_and_nothing_comes_back_with_the_turn() -> None:
    world = World()
    world.request("t1")
    lease = world.place("t1").lease
    assert isinstance(lease, Lease)
    world.host.post(LeaseTold("t1", 1, "h", lease.fence, Outcome.FAILED))
    world.host.post(TurnReturned(world.now, "d", "t1", 1, "h", ReturnReason.UNREACHABLE))
    world.settle()
    assert world.leases == 0
    assert world.governor.state.targets["acme"].scopes["requests"].remaining == 999


def test_whoever_leaves_while_it_waits_takes_its_wish_along() -> None:
    world = World()
    for turn in ("t1", "t2", "t3"):
        world.request(turn)
    assert len(world.governor.state.targets["acme"].waiters) == 1
    world.host.post(TurnAbandoned(world.now, "d", "t3", 1))
    world.settle()
    assert not world.governor.state.targets["acme"].waiters


def test_leases_of_turns_in_flight_are_renewed_for_as_long_as_they_take() -> None:
    expired: list[Expired] = []
    world = World()
    world.governor.listen(lambda decision: expired.append(decision) if isinstance(decision, Expired) else None)
    world.request("t1")
    for _ in range(10):
        world.settle(30.0)
        world.desk.renew()
    assert world.leases == 1
    assert expired == []
    world.host.post(TurnFailed(world.now, "d", "t1", 1, "engine_died"))
    world.settle()
    assert world.reports()[-1].outcome == "error", "it may have been spent"


def test_leases_of_a_dataplane_that_died_end_by_their_own_time_however_long_it_may_stay_away() -> None:
    expired: list[Expired] = []
    world = World(dataplane_lost_seconds=500.0)
    world.governor.listen(lambda decision: expired.append(decision) if isinstance(decision, Expired) else None)
    world.request("t1")
    world.host.post(DataplaneLost(world.now, "d", "s"))
    for _ in range(3):
        world.settle(30.0)
        world.desk.renew()
    assert (world.leases, expired) == (1, [])
    world.settle(31.0)
    assert (world.leases, len(expired)) == (0, 1)


def test_how_a_lease_ended_while_its_dataplane_was_away_is_settled_with_what_it_told() -> None:
    world = World()
    world.request("t1")
    lease = world.place("t1").lease
    assert isinstance(lease, Lease)
    world.host.attach(Resync(world.now, "d", "s2", "b"), world.outbox)  # t1 is not listed: how it ended comes behind this
    world.settle()
    assert world.leases == 1
    answer = AnswerTold("t1", 1, 200, {"x-ratelimit-remaining-requests": "1"})
    world.host.post(LeaseTold("t1", 1, "h", lease.fence, Outcome.ANSWERED, 20, 10, answer))
    world.settle()
    assert world.leases == 0
    assert dict(world.reports()[-1].actual)["tokens"] == 30


def test_background_goes_behind() -> None:
    world = World()
    world.request("t1", turn_class=TurnClass.BATCH)
    wish = next(event for event in world.posted if type(event).__name__ == "QuotaWanted")
    assert getattr(wish, "priority", None) == 2
    assert getattr(wish, "want", None) == want_of("t1", 1, "h")


def test_of_a_wait_nothing_is_said_where_nothing_is_known() -> None:
    world = World(replace(TWO, scopes=(ScopeSpec("at_once", "concurrent", 1.0, counts=("requests",)),)))
    seen: list[QuotaDeferred] = []
    post = world.host.post
    world.desk._post = lambda event: (seen.append(event) if isinstance(event, QuotaDeferred) else None, post(event))[1]
    world.request("t1")
    world.request("t2")
    assert [event.wait_seconds for event in seen] == [0.0]


@pytest.mark.parametrize("quota", ["other", ""])
def test_who_waits_for_a_quota_that_is_renamed_or_taken_away_waits_for_what_its_replica_has_then(quota: str) -> None:
    world = World()
    for turn in ("t1", "t2", "t3"):
        world.request(turn)
    assert {place.turn for place in world.places()} == {"t1", "t2"}
    if quota:
        world.governor.post(TargetConfigured(world.now, replace(TWO, name=quota)))
    world.governor.post(TargetRemoved(world.now, "acme"))
    spec = ReplicaSpec("h", "http://h", models=("m",), capped=False, quota=quota)
    world.host.post(ConfigChanged(world.now, (spec,)))
    world.settle()
    assert world.refusals() == []
    assert isinstance(world.place("t3").lease, Lease) == bool(quota)
    world.host.post(TurnFinished(world.now, "d", "t1", 1, usage=Usage(200, 50)))  # its lease has gone with its target
    world.settle()
    assert set(world.governor.state.targets) == ({quota} if quota else set())


def test_who_waits_for_a_quota_whose_replica_is_removed_is_told_that_nobody_serves_it() -> None:
    world = World()
    for turn in ("t1", "t2", "t3"):
        world.request(turn)
    world.governor.post(TargetRemoved(world.now, "acme"))
    world.host.post(ConfigChanged(world.now, ()))
    world.settle(Settings().no_replica_seconds + 1)
    (refusal,) = world.refusals()
    assert (refusal.turn, refusal.status) == ("t3", 404)
    assert "acme" not in refusal.message


# ---- what who can't wait on is told ------------------------------------------------------------------------------


def teach(world: World, rate: float, tokens: float) -> None:
    """Its governor has learned so many calls a second; so many may go now."""
    state = world.governor.state
    target = state.targets["acme"]
    taught = replace(target.breaker, rate=rate, tokens=tokens, tokens_at=world.now, clean_at=world.now)
    world.governor.state = replace(state, targets=state.targets.set("acme", replace(target, breaker=taught)))


def test_a_turn_whose_place_in_a_slow_line_comes_too_late_is_refused_at_once_with_the_time_that_it_takes() -> None:
    world = World()
    teach(world, 0.05, tokens=0.0)
    for at in range(20):
        world.request(f"t{at}")
    assert [refusal.turn for refusal in world.refusals()] == [f"t{at}" for at in range(13, 20)], "13 can be served in 120 s"
    for refusal in world.refusals():
        assert refusal.code == "quota_wait_too_long"
        assert 120 < refusal.retry_after_seconds < 130


def test_a_turn_that_waited_its_time_is_told_when_its_turn_would_come() -> None:
    world = World(hold_seconds=40.0)
    teach(world, 0.05, tokens=0.0)
    world.request("waits")
    teach(world, 0.05, tokens=-3.0)  # refusals have made it longer
    world.settle(37.0)
    world.desk.tell_the_last()
    world.settle()
    assert world.refusals() == [], "its time has not come"
    world.settle(1.0)
    world.desk.tell_the_last()
    world.settle()
    (refusal,) = world.refusals()
    assert (refusal.turn, refusal.code) == ("waits", "quota_wait_too_long")
    assert 15 < refusal.retry_after_seconds < 40


async def test_and_is_told_so_by_the_desk_itself() -> None:
    world = World(hold_seconds=40.0)
    teach(world, 0.05, tokens=0.0)
    world.request("waits")
    teach(world, 0.05, tokens=-3.0)
    world.now += 39.0
    told = asyncio.Event()
    post = world.desk._post
    world.desk._post = lambda event: (post(event), told.set())[0]
    running = asyncio.create_task(world.desk.run())
    try:
        await asyncio.wait_for(told.wait(), 60)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    world.settle()
    assert [refusal.turn for refusal in world.refusals()] == ["waits"]


def test_a_limit_that_a_turn_does_not_need_keeps_it_no_longer() -> None:
    search = ScopeSpec("search", "fixed", 10.0, 3_600.0)
    world = World(replace(TWO, scopes=(*TWO.scopes, search)))
    world.governor.post(LimitsObserved(world.now, "acme", (Sample("search", 10.0, 0.0, 3_000.0),)))
    for turn in ("t1", "t2", "t3"):
        world.request(turn)
    assert world.refusals() == [], "it waits for a place of two at once, not for the search"
