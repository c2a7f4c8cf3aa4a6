"""Does an event cost the core as much work as before, however many runs there are?

Counted in calls of functions, which no other program on the machine changes. `luftpause bench decide_cost` measures time.
"""

import sys
from collections.abc import Sequence
from types import FrameType

import pytest

from luftpause.scheduler.core.decide import decide, initial
from luftpause.scheduler.core.events import (
    Event,
    Load,
    ProbeOutcome,
    ReplicaProbed,
    ReplicaSpec,
    Resync,
    TurnFinished,
    TurnRequested,
)
from luftpause.scheduler.core.model import State
from luftpause.scheduler.core.settings import Settings
from luftpause_bench.decide_cost import Loop

EVENTS = 600
CALLS_PER_EVENT_MAX = {"original": 80, "guard": 122}  # 69 and 112 when this was written


def calls_per_event(runs: int, policy: str) -> float:
    """Calls, of Python and C functions, per event in the steady state of a closed loop with a tenth of its runs held."""
    loop = Loop(runs, held=0.1, callers=50, seed=1, policy=policy)
    for _ in range(runs * 12):
        loop.step()
    state: State = loop.state
    log = [loop.step() for _ in range(EVENTS)]
    return calls(state, log)[0] / EVENTS


def calls(state: State, log: Sequence[Event]) -> tuple[int, State]:
    """Calls, of Python and C functions, that these events take; and the state after them."""
    made = 0

    def count(frame: FrameType, what: str, argument: object) -> None:
        nonlocal made
        made += what in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        for event in log:
            state = decide(state, event).state
    finally:
        sys.setprofile(before)
    return made, state


def one_run(turns: int) -> State:
    """An engine with a cap of four, and one run that asks for so many turns at once."""
    state = initial(Settings(start_grace_seconds=0.0), (ReplicaSpec("a", "http://a", models=("m",)),), 0.0)
    for event in (Resync(1.0, "d", "s", "boot"), ReplicaProbed(1.0, "a", ProbeOutcome.OK, Load(4, 1))):
        state = decide(state, event).state
    for number in range(turns):
        state = decide(state, TurnRequested(2.0, "d", f"t{number}", 1, f"fresh-{number}", "m", run="all")).state
    return state


@pytest.mark.parametrize("policy", CALLS_PER_EVENT_MAX)
def test_an_event_takes_no_more_steps_than_it_did_and_hardly_more_with_ten_times_the_runs(policy: str) -> None:
    few, many = calls_per_event(150, policy), calls_per_event(1_500, policy)
    assert many < CALLS_PER_EVENT_MAX[policy]
    assert many < 1.3 * few


def test_a_run_with_thousands_of_held_turns_costs_each_of_their_ends_no_more() -> None:
    """Somebody gives every request of a large job the same run id."""
    ends = [TurnFinished(3.0, "d", f"t{number}", 1, "stop") for number in range(4)]
    few, _ = calls(one_run(100), ends)
    many, state = calls(one_run(2_000), ends)
    assert state.runs["all"].in_flight == 4
    assert many < 1.3 * few
