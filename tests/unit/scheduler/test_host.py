"""Does the host carry events to the core and its decisions to the world, in order and on time?"""

import asyncio
import gc
from collections.abc import Callable

import pytest
from msgspec import Struct, structs

from luftpause.kit.garbage import NEVER, Garbage
from luftpause.scheduler.core.decisions import Decision, Expire, Forget, Held, HoldReason, Place, Probe, Refuse, ReplicasChanged, Step
from luftpause.scheduler.core.events import (
    Continue,
    DataplaneAlive,
    DataplaneLost,
    Event,
    Kind,
    Resync,
    RunEnded,
    Tick,
    TurnAbandoned,
    TurnStarted,
)
from luftpause.scheduler.host import EVENTS_PER_TURN, CoreFailedError, Host
from luftpause.scheduler.outbox import Outbox
from luftpause.scheduler.rates import Rate
from luftpause.scheduler.translate import Announced, Replicas
from tests.support.virtual_time import virtual_time

HELD = Held("dp", "t", 1, "r", HoldReason.CAPPED)
PLACE = Place("dp", "t", 1, "r", "a", 1)
REFUSE = Refuse("dp", "t", 1, "r", 404, "model_not_found", "no such model")


class FakeState(Struct, frozen=True):
    """A core's state that only remembers what it was given."""

    events: tuple[Event, ...] = ()


class World:
    """A virtual clock, a stand-in core that is told what to decide, and a host between them."""

    def __init__(self, **host: object) -> None:
        self.now = 1000.0
        self.seen: list[Event] = []
        self.answers: dict[type, Callable[[Event], Step]] = {}
        self.wake_at: float | None = None
        self.more = self.absorbing = 0
        self.probed: list[str] = []
        self.replicas = Replicas((Announced("a", "http://e", ("m",), Kind.GENERATIVE, "unknown"),))
        self.host = Host(
            self.decide,
            FakeState(),
            replicas=lambda _state: self.replicas,
            probe=self.probed.append,
            clock=lambda: self.now,
            **host,
        )

    def decide(self, state: FakeState, event: Event) -> Step:
        self.seen.append(event)
        answer = self.answers.get(type(event))
        decisions = answer(event) if answer else ()
        more = self.more > 0
        self.more = max(0, self.more - 1)
        absorbing = self.absorbing > 0
        self.absorbing = max(0, self.absorbing - 1)
        return Step(FakeState((*state.events, event)), decisions, self.wake_at, more or absorbing, absorbing)

    def on(self, kind: type, *decisions: Decision) -> None:
        self.answers[kind] = lambda _event: decisions

    def post(self, event: Event) -> None:
        self.host.post(event)

    def attach(self, dataplane: str = "dp", session: str = "s1", orders_max: int = 100) -> Outbox:
        outbox = Outbox(orders_max, lambda: None)
        self.host.attach(Resync(self.now, dataplane, session, "boot"), outbox)
        return outbox

    def settle(self) -> float:
        while (pause := self.host.advance()) == 0:
            pass
        return pause

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.seen]


def said(outbox: Outbox) -> list[str]:
    return [order.WhichOneof("order") or "" for order in outbox.take(1 << 20).orders]


@pytest.fixture
def world() -> World:
    made = World()
    made.settle()
    made.seen.clear()
    return made


def test_events_are_handled_in_the_order_of_their_coming_each_on_the_state_of_the_one_before(world: World):
    events: list[Event] = [TurnStarted(world.now, "dp", str(n), 1) for n in range(EVENTS_PER_TURN + 10)]
    for event in events:
        world.post(event)
    world.settle()
    assert world.seen == events
    assert world.host.state.events[-len(events) :] == tuple(events)


def test_a_large_event_is_absorbed_before_those_that_wait_and_the_loop_runs_between_its_pieces(world: World):
    world.absorbing = 2
    resync, after = Resync(world.now, "dp", "s", "boot"), TurnStarted(world.now, "dp", "t", 1)
    world.post(resync)
    world.post(after)
    seen: list[int] = []
    while world.host.advance() == 0:
        seen.append(len(world.seen))
    assert seen[:2] == [1, 2], "one piece, then others get to run"
    assert world.kinds() == ["Resync", "Continue", "Continue", "TurnStarted"]


def test_an_advance_handles_a_bounded_number_and_says_that_more_waits(world: World):
    for n in range(EVENTS_PER_TURN + 1):
        world.post(TurnStarted(world.now, "dp", str(n), 1))
    assert world.host.advance() == 0
    assert len(world.seen) == EVENTS_PER_TURN


def test_orders_go_to_the_dataplane_that_they_are_for(world: World):
    mine, other = world.attach("dp"), world.attach("other", "s2")
    world.on(TurnStarted, HELD, PLACE, REFUSE)
    world.post(TurnStarted(world.now, "dp", "t", 1))
    world.settle()
    assert said(mine) == ["replicas", "held", "placed", "refused"]
    assert said(other) == ["replicas"]


def test_a_place_that_its_dataplane_has_told_itself_is_told_nobody(world: World):
    outbox = world.attach()
    world.settle()
    outbox.take(1 << 20)
    world.on(TurnStarted, structs.replace(PLACE, sent=True))
    world.post(TurnStarted(world.now, "dp", "t", 1))
    world.settle()
    assert said(outbox) == []
    assert (world.host.decisions["Place"], world.host.undeliverable) == (1, 0)


def test_orders_for_a_dataplane_without_session_are_counted_and_dropped(world: World):
    world.on(TurnStarted, PLACE)
    world.post(TurnStarted(world.now, "dp", "t", 1))
    world.settle()
    assert world.host.undeliverable == 1
    assert said(world.attach()) == []


def test_what_was_decided_before_a_resync_does_not_go_to_the_new_session(world: World):
    world.on(TurnStarted, PLACE)
    old = world.attach(session="s1")
    world.post(TurnStarted(world.now, "dp", "t", 1))
    new = world.attach(session="s2")
    world.settle()
    assert said(old) == ["replicas", "placed"]
    assert said(new) == ["replicas"]


def test_the_loss_of_an_older_session_leaves_the_newer_one_its_orders(world: World):
    world.on(TurnStarted, PLACE)
    world.attach(session="s1")
    new = world.attach(session="s2")
    world.post(DataplaneLost(world.now, "dp", "s1"))
    world.post(TurnStarted(world.now, "dp", "t", 1))
    world.settle()
    assert said(new) == ["replicas", "placed"]
    world.post(DataplaneLost(world.now, "dp", "s2"))
    world.post(TurnStarted(world.now, "dp", "t", 1))
    world.settle()
    assert said(new) == []
    assert world.kinds().count("DataplaneLost") == 2


def test_a_change_of_replicas_is_told_to_all_before_a_place_that_needs_it(world: World):
    mine, other = world.attach("dp"), world.attach("other", "s2")
    world.settle()
    said(mine), said(other)
    world.replicas = Replicas((Announced("new", "http://n", (), Kind.GENERATIVE, "healthy"),))
    world.on(TurnStarted, ReplicasChanged(), PLACE)
    world.post(TurnStarted(world.now, "dp", "t", 1))
    world.settle()
    first, second = mine.take(1 << 20).orders
    assert [replica.name for replica in first.replicas.replicas] == ["new"]
    assert second.HasField("placed")
    assert said(other) == ["replicas"]


def test_a_session_that_opens_later_is_told_the_replicas_of_now(world: World):
    world.on(TurnStarted, ReplicasChanged())
    world.replicas = Replicas((Announced("a", "http://e", ("m",), Kind.GENERATIVE, "healthy"),))
    world.post(TurnStarted(world.now, "dp", "t", 1))
    outbox = world.attach()
    world.settle()
    assert outbox.take(1 << 20).orders[0].replicas.replicas[0].state == "healthy"


def test_each_change_of_a_replicas_health_is_logged_once(world: World, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO", logger="luftpause")
    world.on(TurnStarted, ReplicasChanged())
    for state in ("healthy", "healthy", "unhealthy", "healthy"):
        world.replicas = Replicas((Announced("a", "http://e", ("m",), Kind.GENERATIVE, state),))
        world.post(TurnStarted(world.now, "dp", "t", 1))
        world.settle()
    assert [record.getMessage() for record in caplog.records] == [
        "replica is now healthy", "replica is now unhealthy", "replica is now healthy"
    ]  # fmt: skip


def test_probes_are_asked_for_and_bookkeeping_is_counted(world: World):
    world.on(TurnStarted, Probe("a"), Forget("r"), Expire("t", "a"))
    world.post(TurnStarted(world.now, "dp", "t", 1))
    world.settle()
    assert world.probed == ["a"]
    assert {name: world.host.decisions[name] for name in ("Probe", "Forget", "Expire")} == {"Probe": 1, "Forget": 1, "Expire": 1}


def test_a_tick_comes_a_second_after_the_last_one(world: World):
    assert world.settle() == pytest.approx(1.0)
    world.now += 0.99
    world.settle()
    assert world.seen == []
    world.now += 0.02
    world.settle()
    assert world.seen == [Tick(world.now)]


def test_a_tick_comes_at_wake_at_where_that_is_sooner(world: World):
    world.wake_at = world.now + 0.2
    world.post(TurnStarted(world.now, "dp", "t", 1))
    assert world.settle() == pytest.approx(0.2)
    world.wake_at = None
    world.now += 0.2
    world.settle()
    assert world.kinds() == ["TurnStarted", "Tick"]


def test_the_last_step_says_when_to_wake(world: World):
    world.wake_at = world.now + 0.2
    world.post(TurnStarted(world.now, "dp", "t", 1))
    world.settle()
    world.wake_at = None
    world.post(TurnStarted(world.now, "dp", "t", 1))
    assert world.settle() == pytest.approx(1.0)
    world.wake_at = world.now + 5
    world.post(TurnStarted(world.now, "dp", "t", 1))
    assert world.settle() == pytest.approx(1.0)


def test_a_wake_up_in_the_past_does_not_become_a_busy_loop(world: World):
    world.wake_at = world.now - 10
    world.post(TurnStarted(world.now, "dp", "t", 1))
    assert world.settle() > 0
    assert world.kinds() == ["TurnStarted"]


def test_a_stream_of_events_does_not_starve_the_tick(world: World):
    for _ in range(30):
        world.now += 0.1
        world.post(TurnStarted(world.now, "dp", "t", 1))
        world.settle()
    assert world.kinds().count("Tick") in {2, 3}


def test_time_never_goes_back_between_two_events(world: World):
    for n in range(3 * EVENTS_PER_TURN):
        world.now += 0.01
        world.post(TurnStarted(world.now, "dp", str(n), 1))
    world.settle()
    times = [event.now for event in world.seen]
    assert times == sorted(times)
    assert "Tick" in world.kinds()


def test_what_a_step_left_over_continues_behind_the_events_that_wait(world: World):
    world.more = 1
    world.post(TurnStarted(world.now, "dp", "t", 1))
    for n in range(EVENTS_PER_TURN):
        world.post(TurnAbandoned(world.now, "dp", str(n), 1))
    world.more = EVENTS_PER_TURN + 2
    world.settle()
    assert world.kinds()[:2] == ["TurnStarted", "TurnAbandoned"]
    assert world.kinds().count("Continue") == 2  # the first one and the one that its own `more` asked for
    assert world.kinds()[-1] == "Continue"
    assert isinstance(world.seen[-1], Continue)


def test_a_core_that_raises_stops_the_host_and_names_the_event(world: World, caplog: pytest.LogCaptureFixture):
    def broken(_event: Event) -> Step:
        raise ZeroDivisionError("by design")

    world.answers[RunEnded] = broken
    before = world.host.state
    world.post(RunEnded(world.now, "r"))
    world.post(TurnStarted(world.now, "dp", "t", 1))
    with pytest.raises(CoreFailedError, match=r"failed on RunEnded \(ZeroDivisionError: by design\)"):
        world.settle()
    assert world.host.state is before
    assert "TurnStarted" not in world.kinds()
    fields = caplog.records[-1].fields
    assert fields["event_type"] == "RunEnded"
    assert "ZeroDivisionError: by design" in fields["traceback"]


async def test_a_running_host_handles_what_is_posted_and_ends_loudly():
    world = World()

    def broken(_event: Event) -> Step:
        raise ZeroDivisionError

    world.answers[RunEnded] = broken
    running = asyncio.create_task(world.host.run())
    world.post(TurnStarted(world.now, "dp", "t", 1))
    world.post(RunEnded(world.now, "r"))
    with pytest.raises(CoreFailedError):
        await asyncio.wait_for(running, 60)
    assert "TurnStarted" in world.kinds()


async def test_whoever_brings_facts_waits_while_the_inbox_is_full():
    world = World(inbox_events_max=2)
    world.settle()
    await asyncio.wait_for(world.host.room(), 60)
    world.post(TurnStarted(world.now, "dp", "1", 1))
    world.post(TurnStarted(world.now, "dp", "2", 1))
    waiting = asyncio.create_task(world.host.room())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    world.settle()
    await asyncio.wait_for(waiting, 60)


def test_garbage_waits_for_a_quiet_moment_but_not_for_ever():
    before = gc.get_threshold()
    world = World()
    seconds = iter(range(10_000))  # each collection takes one, which is as long as work may wait for it
    garbage = Garbage(lambda: world.now, timer=lambda: float(next(seconds)))
    try:
        assert gc.get_threshold()[2] == NEVER
        world.host._garbage = garbage
        collected: list[float] = []
        garbage._collect_after, original = (
            lambda seconds: collected.append(world.now) if original(seconds) else None,
            garbage._collect_after,
        )
        for _ in range(50):  # 25 s of work, with routine events beside it
            world.now += 0.5
            world.post(TurnStarted(world.now, "dp", "t", 1))
            world.post(DataplaneAlive(world.now, "dp"))
            world.settle()
        assert not collected
        world.post(DataplaneAlive(world.now, "dp"))
        world.now += 5
        world.settle()
        assert collected == [world.now]
        for _ in range(1300):  # more than ten minutes without a pause
            world.now += 0.5
            world.post(TurnStarted(world.now, "dp", "t", 1))
            world.settle()
        assert len(collected) == 2
    finally:
        garbage.stop()
    assert gc.get_threshold() == before


def test_events_per_second_are_those_of_the_last_ten_seconds():
    now = 100.5
    rate = Rate(lambda: now)
    assert rate.per_second() == 0
    for _ in range(50):
        rate.count()
    now = 101.5
    assert rate.per_second() == 50
    now = 105.5
    assert rate.per_second() == 10
    now = 110.5
    assert rate.per_second() == 5
    now = 111.5
    assert rate.per_second() == 0
    now = 1e6
    assert rate.per_second() == 0


@virtual_time
async def test_what_nobody_waits_for_is_handled_within_milliseconds_or_with_the_next_event():
    world = World()
    running = asyncio.create_task(world.host.run())
    try:
        async with asyncio.timeout(60):
            while not world.seen:  # the first tick
                await asyncio.sleep(0.001)
            world.seen.clear()
            world.host.post_soon(TurnStarted(world.now, "dp", "t", 1))
            await asyncio.sleep(0)
            assert world.seen == []  # not at once
            while not world.seen:
                await asyncio.sleep(0.001)
            world.host.post_soon(TurnStarted(world.now, "dp", "t2", 1))
            world.host.post(TurnAbandoned(world.now, "dp", "t2", 1))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert [type(event).__name__ for event in world.seen] == ["TurnStarted", "TurnStarted", "TurnAbandoned"]
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@virtual_time
async def test_an_earlier_wake_up_moves_the_timer_forward():
    world = World()
    running = asyncio.create_task(world.host.run())
    try:
        await asyncio.sleep(0)
        world.wake_at = world.now + 0.01  # much earlier than the next tick
        world.post(TurnStarted(world.now, "dp", "t", 1))
        async with asyncio.timeout(60):
            while len(world.seen) < 2:
                world.now += 0.002
                await asyncio.sleep(0.002)
        assert isinstance(world.seen[1], Tick)
        assert world.now - 1000.0 < 0.5
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_core_that_raises_later_ends_the_run():
    world = World()
    running = asyncio.create_task(world.host.run())
    await asyncio.sleep(0)
    world.answers[TurnStarted] = lambda _event: 1 / 0
    world.post(TurnStarted(world.now, "dp", "t", 1))
    with pytest.raises(CoreFailedError, match="TurnStarted"):
        await asyncio.wait_for(running, 60)
    world.post(TurnStarted(world.now, "dp", "t", 1))  # nobody handles it any more, and nothing breaks
