"""Does the core stay as it is over a long time: with gauges that tell of the past, and with turns that end in every way there is?"""

import gc
import tracemalloc
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from random import Random

import pytest

from luftpause.scheduler.core.decide import decide, initial
from luftpause.scheduler.core.decisions import Place
from luftpause.scheduler.core.events import (
    Continue,
    DataplaneLost,
    Event,
    Load,
    ProbeOutcome,
    ReplicaProbed,
    ReplicaSpec,
    Resync,
    ReturnReason,
    RunEnded,
    Tick,
    TurnAbandoned,
    TurnClass,
    TurnFailed,
    TurnFinished,
    TurnRequested,
    TurnReturned,
    TurnStarted,
)
from luftpause.scheduler.core.model import State
from luftpause.scheduler.core.settings import Settings

PROBE_SECONDS = 2.0


class Core:
    """A core with one engine, and the turns that it has placed so far and nobody has taken up."""

    def __init__(self, settings: Settings) -> None:
        self.state: State = initial(settings, (ReplicaSpec("a", "http://a", models=("m",)),), 0.0)
        self.placed: deque[Place] = deque()
        self.send(Resync(0.0, "d", "s", "boot"))

    def send(self, event: Event) -> None:
        while True:
            step = decide(self.state, event)
            self.state = step.state
            self.placed += [decision for decision in step.decisions if isinstance(decision, Place)]
            if not step.more:
                return
            event = Continue(event.now)

    @property
    def in_flight(self) -> int:
        return self.state.replicas["a"].in_flight


class Engine:
    """It runs 24 turns at once, each for about `seconds`; others queue inside. Its gauges are those of `late` scrapes before."""

    def __init__(self, core: Core, *, seconds: float, late: int) -> None:
        self.core, self.seconds = core, seconds
        self.chance = Random(5)
        self.running: list[tuple[float, str, int]] = []
        self.queue: deque[Place] = deque()
        self.reports: deque[Load] = deque([Load(0, 0)] * (late + 1), maxlen=late + 1)

    def take(self, now: float) -> None:
        self.queue += self.core.placed
        self.core.placed.clear()
        while self.queue and len(self.running) < 24:
            place = self.queue.popleft()
            heappush(self.running, (now + self.seconds * self.chance.uniform(0.7, 1.3), place.turn, place.attempt))

    def scraped(self) -> Load:
        self.reports.append(Load(len(self.running), len(self.queue)))
        return self.reports[0]


@pytest.mark.parametrize("seconds", [0.7, 3.0, 9.0])
@pytest.mark.parametrize("late", [0, 1, 2])
def test_gauges_of_the_scrape_before_last_make_no_engine_swing_between_all_and_nothing(seconds: float, late: int) -> None:
    """O13 (c): 100 turns always wait; over a minute what is in flight varies by less than a factor of two."""
    core = Core(Settings(start_grace_seconds=0.0))
    engine = Engine(core, seconds=seconds, late=late)
    names = count()

    def ask(now: float) -> None:
        core.send(TurnRequested(now, "d", f"t{next(names)}", 1, f"r{next(names)}", "m", turn_class=TurnClass.BATCH))

    core.send(ReplicaProbed(0.0, "a", ProbeOutcome.OK, engine.scraped()))
    for _ in range(124):
        ask(0.0)
    seen: list[int] = []
    probe = 0.0
    while probe < 120.0:
        probe += PROBE_SECONDS
        engine.take(probe - PROBE_SECONDS)
        while engine.running and engine.running[0][0] < probe:
            now, turn, attempt = heappop(engine.running)
            core.send(TurnFinished(now, "d", turn, attempt, "stop"))
            ask(now)
            engine.take(now)
            if now > 60.0:
                seen.append(core.in_flight)
        core.send(ReplicaProbed(probe, "a", ProbeOutcome.OK, engine.scraped()))
    assert min(seen) >= 24, "the engine is kept full"
    assert max(seen) < 2 * min(seen), (min(seen), max(seen))


def ends(core: Core, now: float, turn: str, attempt: int) -> tuple[Callable[[], None], ...]:
    """The ways in which a turn that was placed may end."""
    send = core.send
    return (
        lambda: send(TurnFinished(now, "d", turn, attempt, "stop")),
        lambda: send(TurnFinished(now, "d", turn, attempt, "tool_calls", paused=True, tool_call_ids=(f"call-of-{turn}",))),
        lambda: send(TurnAbandoned(now, "d", turn, attempt)),
        lambda: send(TurnFailed(now, "d", turn, attempt, "engine_died")),
        lambda: (
            send(TurnReturned(now, "d", turn, attempt, "a", ReturnReason.BUSY)),
            send(TurnAbandoned(now, "d", turn, attempt + 1)),
        )[1],
        lambda: send(RunEnded(now, f"run-of-{turn}")),  # its end is never reported: it expires
    )


def live(core: Core, begin: float, turns: int) -> float:
    """So many turns, each ended in another way, some while held; then all is forgotten. Returns when that is over."""
    now = begin
    chance = Random(3)
    for number in range(turns):
        now += 0.01
        turn = f"{begin:.0f}-{number}"
        if number % 50 == 0:
            core.send(ReplicaProbed(now, "a", ProbeOutcome.OK, Load(8, 2)))
        core.send(TurnRequested(now, "d", turn, 1, f"run-of-{turn}", "m", caller=f"c{number % 7}"))
        if number % 3 == 0 and not core.placed:
            core.send(TurnAbandoned(now, "d", turn, 1))
        while core.placed:
            place = core.placed.popleft()
            core.send(TurnStarted(now, "d", place.turn, place.attempt))
            chance.choice(ends(core, now, place.turn, place.attempt))()
        if number == turns // 2:
            core.send(DataplaneLost(now, "d", core.state.dataplanes["d"].session))
            core.send(Resync(now, "d", f"s{turn}", "boot"))
    core.send(DataplaneLost(now, "d", core.state.dataplanes["d"].session))
    for _ in range(45):
        now += 60.0
        core.send(Tick(now))
    core.send(Resync(now, "d", f"s{now}", "boot"))
    core.placed.clear()
    return now


def test_after_thousands_of_turns_that_ended_in_every_way_the_core_is_as_small_as_before() -> None:
    """O15: nothing is counted or held in the end, and memory is back within ten percent."""
    core = Core(Settings(start_grace_seconds=0.0, turn_timeout_seconds=60.0))
    tracemalloc.start()
    try:
        now = live(core, 1_000.0, 1_000)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(3):
            now = live(core, now, 1_000)
        gc.collect()
        after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    state = core.state
    assert (len(state.turns), len(state.runs), core.in_flight) == (0, 0, 0)
    assert after < 1.1 * before
    core.send(ReplicaProbed(now, "a", ProbeOutcome.OK, Load(0, 0)))
    core.send(TurnRequested(now, "d", "one more", 1, "its run", "m"))
    assert [place.turn for place in core.placed] == ["one more"]
