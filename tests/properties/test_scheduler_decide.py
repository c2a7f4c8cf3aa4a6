"""What holds after every event, whatever happens?"""

import os
import subprocess
import sys
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from luftpause.scheduler.core.decide import decide
from luftpause.scheduler.core.model import Settings
from luftpause_bench.sim.recount import recount
from tests.properties.scheduler_world import OPS, World

STEPS = st.lists(
    st.tuples(st.sampled_from(OPS), st.integers(0, 60), st.integers(0, 60), st.sampled_from((0.0, 0.0, 0.005, 0.3, 2.0))),
    min_size=40,
    max_size=120,
)
TUNINGS = st.builds(
    Settings,
    policy=st.sampled_from(("original", "guard")),
    asked_turns_max=st.sampled_from((64, 1)),
    probe_seconds=st.sampled_from((2.0, 0.25)),
    start_grace_seconds=st.sampled_from((0.0, 1.0)),
    dataplanes_expected=st.sampled_from(((), ("d", "e"))),
    burst_turns_max=st.sampled_from((None, 2, 0)),
    cap_release=st.sampled_from(("stepwise", "at_once")),
    reserve_seconds_max=st.sampled_from((120.0, 0.0, 3.0)),
    no_replica=st.sampled_from(("hold", "refuse")),
    turn_expiry=st.sampled_from(("silent", "always")),
    places_per_step_max=st.sampled_from((64, 1)),
    expiries_per_step_max=st.sampled_from((1000, 2)),
    runs_per_id_max=st.sampled_from((4, 1)),
    ids_per_run_max=st.sampled_from((256, 2)),
    batch_min_share=st.sampled_from((0.0, 0.0, 0.3)),
    hold_seconds_max=st.sampled_from((None, None, 20.0)),
    held_turns_max=st.sampled_from((None, None, 4)),
    held_turns_per_caller_max=st.sampled_from((None, None, 2)),
    ended_runs_max=st.sampled_from((100_000, 2)),
)


@settings(max_examples=150)
@given(TUNINGS, STEPS)
def test_every_count_index_and_promise_holds_after_every_event(tuning: Settings, steps: list[tuple[str, int, int, float]]) -> None:
    world = World(tuning)
    for step in steps:
        world.apply(*step)


@settings(max_examples=60)
@given(TUNINGS, STEPS)
def test_when_all_turns_have_ended_nothing_stays_counted_reserved_or_remembered(
    tuning: Settings, steps: list[tuple[str, int, int, float]]
) -> None:
    world = World(tuning)
    world.checks = False
    for step in steps:
        world.apply(*step)
    world.drain()
    state = world.state
    recount(state)
    assert not state.turns
    assert not state.runs
    assert not state.callers
    assert not state.queues
    assert not state.ids
    assert not state.responses
    assert not state.twins
    assert not state.ended_runs
    assert not any(state.phases)
    assert not state.ranks
    assert not state.timers
    assert not state.wheel
    assert all(replica.in_flight == replica.passes == replica.reserved == 0 for replica in state.replicas.values())


@settings(max_examples=60)
@given(TUNINGS, STEPS)
def test_the_same_log_gives_the_same_states_and_decisions_and_an_old_state_stays_valid(
    tuning: Settings, steps: list[tuple[str, int, int, float]]
) -> None:
    world = World(tuning)
    world.checks = False
    for step in steps:
        world.apply(*step)
    state = world.start()
    decisions = []
    middle = state
    for number, event in enumerate(world.log):
        step = decide(state, event)
        state = step.state
        decisions += step.decisions
        if number == len(world.log) // 2:
            middle = state
    assert state == world.state
    assert decisions == world.decisions
    recount(middle)


def test_two_processes_with_different_hash_seeds_decide_the_same() -> None:
    """No decision may depend on the order of a hash map."""
    program = "from tests.properties.scheduler_world import digest_of_a_long_run as run; print(run(7, 400), run(8, 400))"
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            check=True,
            text=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2", "77")
    }
    assert len(digests) == 1
    assert len(digests.pop().split()) == 4
