"""Where is it remembered which engine stores an answer, and for how long?"""

from msgspec.structs import replace

from luftpause.scheduler.core.decide import decide, initial
from luftpause.scheduler.core.decisions import Located
from luftpause.scheduler.core.events import (
    Event,
    Load,
    ProbeOutcome,
    ReplicaProbed,
    ReplicaSpec,
    ResponseSeen,
    ResponseSought,
    Resync,
    Tick,
    TurnFinished,
    TurnRequested,
)
from luftpause.scheduler.core.model import State
from luftpause.scheduler.core.settings import Settings
from luftpause_bench.sim.recount import recount

SETTINGS = Settings(start_grace_seconds=0.0, run_idle_seconds=10.0, response_memory_hours=1.0)


def after(state: State, *events: Event) -> State:
    for event in events:
        state = decide(state, event).state
        recount(state)
    return state


def answered(settings: Settings, runs: int) -> State:
    """So many runs with two stored answers each, a second apart."""
    state = initial(settings, (ReplicaSpec("a", "http://a", models=("m",)),), 0.0)
    state = after(state, Resync(1.0, "d", "s", "boot"), ReplicaProbed(1.0, "a", ProbeOutcome.OK, Load(0, 0)))
    for number in range(runs):
        now, turn = 2.0 + number, f"t{number}"
        state = after(state, TurnRequested(now, "d", turn, 1, f"run-{number}", "m"))
        state = after(state, *[ResponseSeen(now, "d", turn, f"resp-{number}-{part}") for part in (0, 1)])
        state = after(state, TurnFinished(now, "d", turn, 1, "stop"))
    return state


def home(state: State, response: str) -> str:
    located = decide(state, ResponseSought(state.now, "d", "q", response)).decisions[0]
    assert isinstance(located, Located)
    return located.replica


def test_beyond_responses_max_the_oldest_are_forgotten_whosever_they_are() -> None:
    state = answered(replace(SETTINGS, responses_max=5), 4)
    assert len(state.responses) == 5
    assert [home(state, f"resp-{number}-{part}") for number in range(4) for part in (0, 1)] == ["", "", "", "a", "a", "a", "a", "a"]


def test_an_answer_that_is_seen_again_is_the_newest() -> None:
    state = answered(replace(SETTINGS, responses_max=4), 2)
    state = after(state, TurnRequested(9.0, "d", "again", 1, "x", "m", run="run-0"), ResponseSeen(9.0, "d", "again", "resp-0-0"))
    state = after(state, ResponseSeen(9.0, "d", "again", "resp-0-2"))
    assert sorted(response for _, response in state.responses) == ["resp-0-0", "resp-0-2", "resp-1-0", "resp-1-1"]


def test_answers_are_remembered_for_their_time_though_their_runs_are_forgotten() -> None:
    state = answered(SETTINGS, 3)
    state = after(state, Tick(60.0))
    assert not state.runs
    state = after(state, Tick(3603.0))
    assert [home(state, f"resp-{number}-1") for number in range(3)] == ["", "", "a"]
    assert not after(state, Tick(3605.0)).responses
