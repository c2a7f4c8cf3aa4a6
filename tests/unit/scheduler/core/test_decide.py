"""What are the limits of one step, and what does the start state need?"""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from luftpause.kit.config import SchedulerConfig
from luftpause.scheduler.core.decide import ABSORB, decide, initial
from luftpause.scheduler.core.decisions import Expire, Forget, Held, Place
from luftpause.scheduler.core.events import (
    Continue,
    Event,
    Load,
    ProbeOutcome,
    ReplicaProbed,
    ReplicaSpec,
    Tick,
    TurnClass,
    TurnFinished,
    TurnRequested,
)
from luftpause.scheduler.core.model import Settings, State
from luftpause.scheduler.core.order import FLOWS_COMPARED_MAX
from luftpause.scheduler.core.policies import POLICIES
from luftpause_bench.sim.recount import recount

SPEC = ReplicaSpec("a", "http://a", models=("m",))
NOW = Settings(start_grace_seconds=0.0, burst_turns_max=0)


def ask(state: State, turn: str, now: float = 1.0, **more: object) -> State:
    return decide(state, TurnRequested(now, "d", turn, 1, f"run-{turn}", "m", **more)).state


def healthy(state: State, running: int = 0, waiting: int = 0, now: float = 1.0) -> State:
    return decide(state, ReplicaProbed(now, "a", ProbeOutcome.OK, Load(running, waiting))).state


def test_a_step_places_at_most_64_turns_and_says_that_there_is_more() -> None:
    state = initial(NOW, (SPEC,), 0.0)
    for number in range(150):
        state = ask(state, f"t{number:03}")
    step = decide(state, ReplicaProbed(2.0, "a", ProbeOutcome.OK, Load(0, 0)))
    places = [sum(isinstance(decision, Place) for decision in step.decisions)]
    while step.more:
        step = decide(step.state, Continue(2.0))
        places.append(sum(isinstance(decision, Place) for decision in step.decisions))
    assert places == [64, 64, 22]
    assert step.state.replicas["a"].in_flight == 150


def test_a_step_expires_at_most_1000_records() -> None:
    state = healthy(initial(NOW, (SPEC,), 0.0))
    for number in range(1100):
        state = ask(state, f"t{number:04}")
    step = decide(state, Tick(602.0))
    expired = sum(isinstance(decision, Expire) for decision in step.decisions)
    assert 900 < expired <= 1000
    assert step.more
    step = decide(step.state, Continue(602.0))
    assert expired + sum(isinstance(decision, Expire) for decision in step.decisions) == 1100
    assert not step.more


def test_the_step_says_when_it_wants_to_be_woken() -> None:
    state = initial(Settings(start_grace_seconds=3.0), (SPEC,), 10.0)
    step = decide(state, Tick(10.0))
    assert step.wake_at == 13.0
    assert not step.more


def test_time_never_goes_back() -> None:
    state = decide(initial(NOW, (SPEC,), 5.0), Tick(9.0)).state
    assert decide(state, Tick(3.0)).state.now == 9.0


def test_an_old_state_stays_as_it_was() -> None:
    state = healthy(initial(NOW, (SPEC,), 0.0))
    before = decide(state, Tick(1.0)).state
    for number in range(50):
        decide(before, TurnRequested(1.0, "d", f"t{number}", 1, f"r{number}", "m"))
    assert before == decide(state, Tick(1.0)).state
    assert not before.turns
    with pytest.raises(AttributeError, match="immutable"):
        before.now = 2.0


def test_among_many_callers_the_one_with_fewest_turns_in_flight_is_next_and_ties_go_by_arrival() -> None:
    state = healthy(initial(NOW, (SPEC,), 0.0), running=FLOWS_COMPARED_MAX * 2, waiting=1)
    callers = [f"c{number:02}" for number in range(FLOWS_COMPARED_MAX * 2)]
    for caller in callers:  # one in flight each
        state = ask(state, f"first-{caller}", caller=caller)
    for number, caller in enumerate(reversed(callers)):  # the last caller asks first
        state = ask(state, f"second-{caller}", now=2.0 + number, caller=caller, arrived=2.0 + number)
    step = decide(state, TurnFinished(90.0, "d", "first-c05", 1))
    assert [decision.turn for decision in step.decisions] == ["second-c05"], "it has none in flight"
    step = decide(step.state, TurnFinished(91.0, "d", "second-c05", 1))
    assert [decision.turn for decision in step.decisions] == [f"second-{callers[-1]}"], "all have one: the oldest"


@given(st.lists(st.tuples(st.integers(0, 39), st.integers(0, 3)), min_size=20, max_size=60), st.sampled_from((2, 5, 40)))
def test_with_any_number_of_callers_the_next_turn_is_the_one_that_comparing_all_would_find(asked: list[tuple[int, int]], cap: int) -> None:
    """Callers with 0 to 3 turns in flight, and many queues: the orders that are walked to find the next turn must not miss it."""
    state = healthy(initial(NOW, (SPEC, ReplicaSpec("b", "http://b", models=("m",))), 0.0), running=cap, waiting=1)
    for number, (caller, before) in enumerate(asked):
        for other in range(before):
            state = ask(state, f"in-flight-{number}-{other}", caller=f"c{caller:02}")
        state = ask(state, f"t{number}", now=2.0, arrived=1.0 + (number * 7 % 60) / 100, caller=f"c{caller:02}")
    recount(state)


def test_interactive_turns_of_a_busy_caller_go_before_batch_turns_of_an_idle_one() -> None:
    state = healthy(initial(NOW, (SPEC,), 0.0), running=1, waiting=1)
    state = ask(state, "running", caller="busy")
    state = ask(state, "batch", caller="idle", turn_class=TurnClass.BATCH)
    state = ask(state, "interactive", caller="busy")
    step = decide(state, TurnFinished(2.0, "d", "running", 1))
    assert [decision.turn for decision in step.decisions] == ["interactive"]


def test_a_turn_that_is_held_again_is_told_only_if_the_reason_changed() -> None:
    state = initial(Settings(start_grace_seconds=1.0), (SPEC,), 0.0)
    held = decide(state, TurnRequested(0.0, "d", "t", 1, "r", "m"))
    assert [type(decision) for decision in held.decisions] == [Held]
    assert not decide(held.state, Tick(0.5)).decisions
    opened = decide(held.state, Tick(1.0))
    assert [decision.reason.value for decision in opened.decisions] == ["no_replica"]


def test_a_run_that_only_ever_waited_is_forgotten_with_its_turn() -> None:
    from luftpause.scheduler.core.events import TurnAbandoned

    state = ask(initial(NOW, (SPEC,), 0.0), "t")
    step = decide(state, TurnAbandoned(2.0, "d", "t", 1))
    assert [type(decision) for decision in step.decisions] == [Forget]
    assert not step.state.runs


def test_two_replicas_with_one_name_are_an_error_that_names_them() -> None:
    with pytest.raises(ValueError, match="replica names must differ: a, a"):
        initial(NOW, (SPEC, SPEC), 0.0)


def test_an_unknown_policy_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown policy 'best'; known: guard, original"):
        initial(Settings(policy="best"), (SPEC,), 0.0)


def test_every_setting_of_the_core_that_is_configured_has_the_same_name_and_default() -> None:
    ours = {name: getattr(Settings(), name) for name in Settings.__struct_fields__}
    theirs = SchedulerConfig().model_dump()
    shared = [name for name in ours if name in theirs and name != "policy"]
    assert len(shared) >= 17
    assert {name: ours[name] for name in shared} == {name: theirs[name] for name in shared}


def test_a_deployment_may_have_every_policy_of_the_core_and_no_other() -> None:
    """Which one it has by default is the configuration's affair alone: tests and recordings have `original` unless they say so."""
    assert set(get_args(SchedulerConfig.model_fields["policy"].annotation)) == set(POLICIES)
    assert Settings().policy == "original"


def test_every_event_is_absorbed_by_something() -> None:
    assert set(ABSORB) == set(get_args(Event))


def test_each_turn_expires_in_its_own_second_although_all_share_one_timer() -> None:
    state = healthy(initial(replace(NOW, turn_timeout_seconds=10.0), (SPEC,), 0.0))
    for turn, now in (("a", 1.0), ("b", 3.5), ("c", 4.0)):
        state = ask(state, turn, now)
    state = decide(state, TurnFinished(5.0, "d", "c", 1)).state
    expired: list[tuple[float, str]] = []
    for now in (10.9, 11.0, 13.9, 14.0, 20.0):
        step = decide(state, Tick(now))
        state = step.state
        expired += [(now, decision.turn) for decision in step.decisions if isinstance(decision, Expire)]
    assert expired == [(11.0, "a"), (14.0, "b")]
    assert state.expiry_at is None
