"""What does the status page show?"""

from luftpause.scheduler.core.decide import decide, initial
from luftpause.scheduler.core.events import (
    ConfigChanged,
    Load,
    ProbeOutcome,
    ReplicaProbed,
    ReplicaSpec,
    ReplicaSuspected,
    TurnClass,
    TurnFinished,
    TurnRequested,
)  # fmt: skip
from luftpause.scheduler.core.model import Settings, State
from luftpause.scheduler.core.view import CALLERS_SHOWN_MAX, HELD_SHOWN_MAX, Shown, overview


def crowded(turns: int) -> State:
    state = initial(Settings(start_grace_seconds=0.0), (ReplicaSpec("a", "http://a", models=("m",)),), 10.0)
    state = decide(state, ReplicaProbed(19.0, "a", ProbeOutcome.OK, Load(1, 3))).state
    for number in range(turns):
        turn_class = TurnClass.BATCH if number % 2 else TurnClass.INTERACTIVE
        state = decide(
            state, TurnRequested(20.0 + number, "d", f"t{number:04}", 1, f"r{number}", "m", turn_class, f"c{number % 300}")
        ).state
    return state


def test_it_shows_each_replica_with_its_turns_its_cap_and_what_it_reported() -> None:
    seen = overview(crowded(3), 23.0)
    (replica,) = seen.replicas
    assert (replica.health, replica.in_flight, replica.cap, replica.load, replica.running, replica.waiting) == (
        "healthy",
        1,
        1,
        "known",
        1,
        3,
    )
    assert replica.load_age_seconds == 4.0
    assert replica.models == ("m",)


def test_it_shows_held_turns_by_class_and_caller_with_the_longest_wait() -> None:
    seen = overview(crowded(5), 30.0)
    assert seen.held == 4
    assert [(count.name, count.held, count.longest_wait_seconds) for count in seen.held_by_class] == [
        ("interactive", 2, 8.0),
        ("batch", 2, 9.0),
    ]
    assert [(count.name, count.held, count.in_flight) for count in seen.held_by_caller] == [(f"c{n}", 1, 0) for n in range(1, 5)]


def test_it_shows_why_each_turn_is_held_oldest_first_and_cuts_the_list() -> None:
    seen = overview(crowded(500), 1000.0)
    assert seen.held == 499
    assert len(seen.held_turns) == HELD_SHOWN_MAX
    assert len(seen.held_by_caller) == CALLERS_SHOWN_MAX
    first = seen.held_turns[0]
    assert (first.turn, first.reason, first.waits_for, first.held_seconds) == ("t0001", "capped", "room on a", 979.0)
    assert (first.replicas, first.home) == (("a",), "")


def test_it_counts_runs_by_phase_and_class_and_what_happened_since_the_start() -> None:
    state = crowded(2)
    state = decide(state, TurnFinished(40.0, "d", "t0000", 1, paused=True, tool_call_ids=("call_9f8e7d6c5b4a3f2e",))).state
    seen = overview(state, 41.0)
    assert seen.runs == {
        "generating": {"interactive": 0, "batch": 0},
        "paused": {"interactive": 1, "batch": 0},
        "idle": {"interactive": 0, "batch": 1},
    }
    assert seen.counters["finished/paused"] == 1
    assert seen.counters["held/capped"] == 1
    assert seen.replicas[0].paused_interactive == 1
    assert seen.uptime_seconds == 31.0


def test_it_shows_who_has_most_in_flight_and_what_each_replica_has_of_each_class() -> None:
    state = initial(Settings(start_grace_seconds=0.0), (ReplicaSpec("a", "http://a", models=("m",), max_in_flight=6),), 10.0)
    state = decide(state, ReplicaProbed(19.0, "a", ProbeOutcome.OK, Load(1, 0))).state
    for number, caller in enumerate(("few", "many", "many", "some", "many", "some", "many")):
        turn_class = TurnClass.BATCH if caller == "some" else TurnClass.INTERACTIVE
        state = decide(state, TurnRequested(20.0, "d", f"t{number}", 1, f"r{number}", "m", turn_class, caller)).state
    seen = overview(state, 25.0, None, Shown(callers=2))
    assert [(each.name, each.in_flight, each.held) for each in seen.callers_busiest] == [("many", 3, 1), ("some", 2, 0)]
    assert seen.callers_busiest[1].by_class == {"interactive": {"held": 0, "in_flight": 0}, "batch": {"held": 0, "in_flight": 2}}
    assert (seen.callers, seen.held_by_reason["capped"]) == (3, {"interactive": 1, "batch": 0})
    (replica,) = seen.replicas
    assert (replica.in_flight, replica.in_flight_by_class) == (6, {"interactive": 4, "batch": 2})
    assert (replica.cap, replica.max_in_flight, replica.burst, replica.burst_max, replica.misses) == (6, 6, 6, 8, 0)


def test_it_shows_who_suspects_a_replica_and_what_is_left_on_one_that_was_removed() -> None:
    state = decide(crowded(2), ReplicaSuspected(30.0, "d", "a")).state
    seen = overview(state, 31.0)
    assert seen.replicas[0].suspected_by == ("d",)
    assert [(each.name, each.turns, each.suspects) for each in seen.dataplanes] == [("d", 2, ("a",))]
    state = decide(state, ConfigChanged(32.0, (ReplicaSpec("b", "http://b", models=("m",)),))).state
    seen = overview(state, 33.0)
    assert [each.name for each in seen.replicas] == ["b"]
    assert [(each.name, each.in_flight) for each in seen.replicas_removed] == [("a", 1)]


def test_what_was_suspected_of_a_replica_is_over_when_it_is_removed_or_moves() -> None:
    here, gone, moved = (ReplicaSpec(name, f"http://{name}", models=("m",)) for name in ("here", "gone", "moved"))
    state = initial(Settings(start_grace_seconds=0.0), (here, gone, moved), 10.0)
    for spec in (here, gone, moved):
        state = decide(state, ReplicaProbed(11.0, spec.name, ProbeOutcome.OK)).state
        state = decide(state, ReplicaSuspected(12.0, "d", spec.name)).state
    state = decide(state, TurnRequested(13.0, "d", "t1", 1, "r1", "m")).state
    assert overview(state, 14.0).dataplanes[0].suspects == ("gone", "here", "moved")
    state = decide(state, ConfigChanged(14.0, (here, ReplicaSpec("moved", "http://elsewhere", models=("m",))))).state
    assert overview(state, 15.0).dataplanes[0].suspects == ("here",)
    state = decide(state, ReplicaProbed(16.0, "moved", ProbeOutcome.OK)).state
    assert state.turns["t1"].replica == "moved"
