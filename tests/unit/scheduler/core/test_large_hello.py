"""Is a Hello that is too large for one step absorbed in many as if it were one?"""

import pytest
from msgspec.structs import replace

from luftpause.scheduler.core.decide import decide, initial
from luftpause.scheduler.core.decisions import Decision, Place
from luftpause.scheduler.core.events import (
    Continue,
    Load,
    ProbeOutcome,
    ReplicaProbed,
    ReplicaSpec,
    Resync,
    TurnClass,
    TurnRequested,
)
from luftpause.scheduler.core.memory import LaneMemory, PausedBranch, RunMemory, ToolCallMemory, TurnMemory
from luftpause.scheduler.core.model import State
from luftpause.scheduler.core.settings import Settings
from luftpause_bench.sim.recount import recount

RUNS = 40
DEFAULTS = Settings(start_grace_seconds=0.0)


def runs() -> tuple[RunMemory, ...]:
    made: list[RunMemory] = []
    for run in range(RUNS):
        calls = tuple(ToolCallMemory(f"call_{run:08x}{number:08x}", b"head", 5.0 + number) for number in range(run % 5))
        paused = (PausedBranch((calls[-1].id,), 9.0),) if calls else ()
        lanes = (LaneMemory("m", f"r{run % 2}", 3, paused, 9.0),)
        made.append(RunMemory(f"run-{run}", TurnClass(run % 2), f"c{run % 3}", 3, 9.0, lanes=lanes, tool_calls=calls))
    return tuple(made)


def turns() -> tuple[TurnMemory, ...]:
    return tuple(
        TurnMemory(f"old-{run}", 1, f"run-{run}", "m", f"r{run % 2}", 3, TurnClass(run % 2), f"c{run % 3}", 8.0) for run in range(9)
    )


def hello(session: str) -> Resync:
    return Resync(10.0, "d", session, "boot", runs(), turns())


def started(records_max: int) -> State:
    """Two engines that are full with six turns each, eight turns in flight that no Hello will list, and one held."""
    specs = (ReplicaSpec("r0", "http://r0", models=("m",)), ReplicaSpec("r1", "http://r1", models=("m",)))
    state = initial(replace(DEFAULTS, records_per_step_max=records_max), specs, 0.0)
    for name in ("r0", "r1"):
        state = decide(state, ReplicaProbed(1.0, name, ProbeOutcome.OK, Load(4, 1))).state
    state = decide(state, Resync(1.0, "d", "s1", "boot")).state
    for number in range(9):
        state = decide(state, TurnRequested(2.0, "other" if number == 8 else "d", f"t{number}", 1, f"fresh-{number}", "m")).state
    return state


def absorbed(state: State, event: Resync) -> tuple[State, list[Decision], int]:
    """The state when all of it is absorbed, what was decided, and in how many steps."""
    step = decide(state, event)
    decisions, steps = list(step.decisions), 1
    while step.absorbing:
        assert step.more
        assert not any(isinstance(decision, Place) for decision in step.decisions), "what is only half known decides nothing"
        step = decide(step.state, Continue(10.0))
        decisions += step.decisions
        steps += 1
    return step.state, decisions, steps


@pytest.mark.parametrize("records_max", [1, 7, 50])
def test_in_many_steps_as_in_one(records_max: int) -> None:
    whole, decided, steps = absorbed(started(1_000_000), hello("s2"))
    assert steps == 1
    assert whole.replicas["r0"].in_flight == 5
    pieces, decided_in_pieces, steps = absorbed(started(records_max), hello("s2"))
    assert steps >= (RUNS + sum(run % 5 for run in range(RUNS))) // (records_max + 5)
    assert decided_in_pieces == decided
    assert replace(pieces, settings=whole.settings) == whole
    recount(pieces)
    again, _, _ = absorbed(pieces, hello("s3"))
    assert replace(again, settings=whole.settings) == absorbed(whole, hello("s3"))[0]


def test_what_happens_meanwhile_finds_all_of_it_absorbed() -> None:
    last = runs()[RUNS - 1]
    step = decide(started(5), hello("s2"))
    assert step.absorbing
    asked = TurnRequested(
        10.1, "d", "new", 1, "fresh", "m", tool_call_ids=(last.tool_calls[-1].id,), caller=last.caller, head_digest=b"head"
    )
    step = decide(step.state, asked)
    assert not step.absorbing
    assert step.state.turns["new"].run_id == last.run
    assert step.state.replicas["r0"].in_flight >= 5
    recount(step.state)


def test_a_newer_hello_meanwhile_comes_after_it() -> None:
    step = decide(started(5), hello("s2"))
    state, _, _ = absorbed(step.state, hello("s3"))
    assert state.dataplanes["d"].session == "s3"
    expected = absorbed(absorbed(started(1_000_000), hello("s2"))[0], hello("s3"))[0]
    assert replace(state, settings=expected.settings) == expected
