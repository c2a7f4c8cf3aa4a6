"""What does the timeline tell of each run, and how much of it is kept?"""

import pytest

from luftpause.scheduler.core.decide import decide, initial
from luftpause.scheduler.core.events import (
    DataplaneLost,
    Event,
    FirstToken,
    Load,
    ProbeOutcome,
    ReplicaProbed,
    ReplicaSpec,
    Resync,
    RunEnded,
    Tick,
    TurnClass,
    TurnFailed,
    TurnFinished,
    TurnRequested,
    Usage,
)
from luftpause.scheduler.core.memory import TurnMemory
from luftpause.scheduler.core.settings import Settings
from luftpause.scheduler.tally import Tally
from luftpause.scheduler.timeline import CHANGES_MAX, SAMPLES_MAX, Change, RunLine, Timeline

A = ReplicaSpec("a", "http://a", models=("m",), max_in_flight=1)


class World:
    def __init__(self, **limits: int) -> None:
        self.state = initial(Settings(start_grace_seconds=0.0), (A,), 100.0)
        self.tally = Tally()
        self.timeline = Timeline(self.tally, 100.0, **limits)
        self.now = 100.0
        self.happens(ReplicaProbed(100.0, "a", ProbeOutcome.OK, Load(0, 0)))

    def happens(self, *events: Event) -> "World":
        for event in events:
            step = decide(self.state, event)
            self.tally(self.state, event, step)
            self.timeline(self.state, event, step)
            self.state, self.now = step.state, event.now
        return self

    def lines(self, since: int = 0, runs: int = 1000) -> list[RunLine]:
        return self.timeline.lately("epoch", self.now, since, runs).runs

    def changes(self, run: str) -> list[tuple[int, str, str]]:
        (line,) = [line for line in self.lines() if line.run == run]
        return [(change.at_ms, change.phase, change.detail) for change in line.changes]


def asks(now: float, turn: str, run: str, turn_class: TurnClass = TurnClass.INTERACTIVE) -> TurnRequested:
    return TurnRequested(now, "d", turn, 1, "fresh-" + run, "m", turn_class, "ann", run=run, parent="above")


def ends(now: float, turn: str, *, tools: tuple[str, ...] = (), ids: tuple[str, ...] = ()) -> TurnFinished:
    return TurnFinished(now, "d", turn, 1, "tool_calls" if ids else "stop", Usage(10, 5, 4), bool(ids), ids, tools)


def test_a_run_is_followed_from_its_hold_through_its_tools_to_its_end() -> None:
    world = World().happens(
        asks(101.0, "t0", "other"),
        asks(102.0, "t1", "run"),
        FirstToken(102.5, "d", "t0"),
        ends(103.0, "t0"),
        FirstToken(104.25, "d", "t1"),
        ends(105.0, "t1", tools=("search", "search", "read"), ids=("call_1",)),
        asks(109.0, "t2", "run"),
        TurnFailed(110.0, "d", "t2", 1, "engine_died"),
        RunEnded(111.0, "run"),
    )
    assert world.changes("run") == [
        (2000, "held", "capped"),
        (3000, "prefill", "a"),
        (4250, "decode", "a"),
        (5000, "tool", "search, read"),
        (9000, "prefill", "a"),
        (10000, "idle", "engine_died"),
        (11000, "over", ""),
    ]
    assert world.changes("other") == [(1000, "prefill", "a"), (2500, "decode", "a"), (3000, "idle", "stop")]
    line = world.lines()[0]
    assert (line.run, line.parent, line.caller, line.turn_class, line.model, line.replica) == (
        "run", "above", "ann", "interactive", "m", "a",
    )  # fmt: skip
    assert line.turns == 2


def test_a_run_whose_held_turn_went_with_its_dataplane_is_not_shown_as_held() -> None:
    world = World().happens(Resync(100.5, "d", "session", "boot"), asks(101.0, "t0", "run"), ends(102.0, "t0"))
    world.happens(asks(103.0, "t1", "other"), asks(104.0, "t2", "run"), DataplaneLost(105.0, "d", "session"))
    assert world.changes("run")[2:] == [(4000, "held", "capped"), (5000, "idle", "")]


def test_turns_that_a_dataplane_brings_along_are_shown_as_they_are() -> None:
    turns = [TurnMemory(f"t{n}", 1, f"r{n}", "m", "a", 3, TurnClass.BATCH, "ann", 90.0, first_token=n == 1) for n in range(2)]
    world = World().happens(Resync(101.0, "d", "session", "boot", (), tuple(turns)))
    assert (world.changes("r0"), world.changes("r1")) == ([(1000, "prefill", "a")], [(1000, "decode", "a")])
    assert world.lines()[0].turns == 3


def test_an_answer_has_what_changed_after_the_cursor_of_the_one_before() -> None:
    world = World().happens(asks(101.0, "t0", "one"), asks(102.0, "t1", "two"))
    first = world.timeline.lately("epoch", 102.0, 0, 1000)
    assert [line.run for line in first.runs] == ["two", "one"]
    world.happens(FirstToken(103.0, "d", "t0"))
    second = world.timeline.lately("epoch", 103.0, first.cursor, 1000)
    assert [(line.run, line.changes) for line in second.runs] == [("one", [Change(3000, "decode", "a")])]
    assert second.now_ms == 3000
    assert world.timeline.lately("epoch", 103.0, second.cursor, 1000).runs == []


def test_a_cursor_of_another_scheduler_gets_everything() -> None:
    world = World().happens(asks(101.0, "t0", "one"))
    answer = world.timeline.lately("epoch", 102.0, 10**9, 1000)
    assert (answer.since, [line.run for line in answer.runs]) == (0, ["one"])


def test_as_many_lines_as_asked_are_told_those_that_changed_last() -> None:
    world = World().happens(*[asks(101.0 + n, f"t{n}", f"r{n}") for n in range(6)])
    assert [line.run for line in world.lines(runs=2)] == ["r5", "r4"]
    assert world.lines(runs=0) == []


def test_beyond_its_limit_a_line_of_a_run_that_does_nothing_goes_first() -> None:
    world = World(runs_max=3)
    world.happens(asks(101.0, "t0", "busy"), asks(102.0, "t1", "idle"), asks(103.0, "t2", "held"))
    world.happens(TurnFailed(104.0, "d", "t1", 1, "client_left"), FirstToken(105.0, "d", "t0"), asks(106.0, "t3", "new"))
    assert {line.run for line in world.lines()} == {"busy", "held", "new"}
    world.happens(asks(107.0, "t4", "newer"))
    assert {line.run for line in world.lines()} == {"busy", "new", "newer"}


def test_of_a_long_life_the_newest_changes_are_kept() -> None:
    world = World()
    for number in range(CHANGES_MAX):
        world.happens(asks(101.0 + number, f"t{number}", "run"), ends(101.5 + number, f"t{number}"))
    changes = world.changes("run")
    assert len(changes) == CHANGES_MAX
    assert changes[-1] == (1000 * CHANGES_MAX + 500, "idle", "stop")


@pytest.mark.parametrize("ticks", [1, 5])
def test_how_busy_it_was_is_sampled_every_two_seconds(ticks: int) -> None:
    world = World().happens(asks(101.0, "t0", "one"), asks(101.0, "t1", "two", TurnClass.BATCH), asks(101.0, "t2", "three"))
    world.happens(Tick(102.0), ends(102.5, "t0"), *[Tick(103.0 + tick / ticks) for tick in range(ticks)], Tick(104.0))
    samples = [tuple(getattr(each, name) for name in each.__struct_fields__) for each in world.timeline.lately("e", 104.0, 0, 0).samples]
    assert samples == [(2000, 1, 1, 1, 0, 1, 0, 0, 0, 0), (4000, 0, 1, 1, 0, 2, 1, 10, 4, 5)]


def test_samples_of_a_quarter_of_an_hour_are_kept() -> None:
    world = World().happens(*[Tick(101.0 + 2 * number) for number in range(SAMPLES_MAX + 5)])
    assert len(world.timeline.lately("e", 9999.0, 0, 0).samples) == SAMPLES_MAX == 450
