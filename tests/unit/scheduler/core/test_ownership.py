"""Can a dataplane change what is not its own?"""

import pytest

from luftpause.scheduler.core.decide import decide, initial
from luftpause.scheduler.core.decisions import Decision, Refuse
from luftpause.scheduler.core.events import (
    Event,
    Load,
    ProbeOutcome,
    ReplicaProbed,
    ReplicaSpec,
    ReplicaUnusable,
    ResponseSeen,
    Resync,
    ReturnReason,
    ToolCallSeen,
    TurnAbandoned,
    TurnClass,
    TurnFailed,
    TurnFinished,
    TurnRequested,
    TurnReturned,
)
from luftpause.scheduler.core.memory import TurnMemory
from luftpause.scheduler.core.model import State, TurnPhase
from luftpause.scheduler.core.settings import Settings
from luftpause_bench.sim.recount import recount

NOW = 2.0


def after(state: State, *events: Event) -> tuple[State, list[Decision]]:
    decisions: list[Decision] = []
    for event in events:
        step = decide(state, event)
        state = step.state
        decisions += step.decisions
        recount(state)
    return state, decisions


def two_turns() -> State:
    """`mine` has one turn in flight and one held; `other` is connected."""
    state = initial(Settings(start_grace_seconds=0.0), (ReplicaSpec("a", "http://a", models=("m",)),), 0.0)
    hellos = [Resync(1.0, name, f"s-{name}", "boot") for name in ("mine", "other")]
    asked = [TurnRequested(NOW, "mine", turn, 1, f"run-{turn}", "m") for turn in ("flying", "held")]
    state, _ = after(state, *hellos, ReplicaProbed(1.0, "a", ProbeOutcome.OK, Load(1, 1)), *asked)
    assert [state.turns[turn].phase for turn in ("flying", "held")] == [TurnPhase.IN_FLIGHT, TurnPhase.HELD]
    return state


@pytest.mark.parametrize("turn", ["flying", "held"])
@pytest.mark.parametrize(
    "fact",
    [
        lambda turn: TurnFinished(NOW, "other", turn, 1, "stop"),
        lambda turn: TurnFailed(NOW, "other", turn, 1, "client_left"),
        lambda turn: TurnAbandoned(NOW, "other", turn, 1),
        lambda turn: TurnReturned(NOW, "other", turn, 1, "a", ReturnReason.BUSY),
        lambda turn: ToolCallSeen(NOW, "other", turn, ("call_9f8e7d6c5b4a3f2e1d0c",)),
        lambda turn: ResponseSeen(NOW, "other", turn, "resp_1"),
    ],
)
def test_what_a_dataplane_says_of_another_ones_turn_changes_nothing(fact, turn: str) -> None:
    before = two_turns()
    state, decisions = after(before, fact(turn))
    assert decisions == []
    assert (state.turns, state.runs, state.replicas, state.ids, state.responses) == (
        before.turns, before.runs, before.replicas, before.ids, before.responses,
    )  # fmt: skip


@pytest.mark.parametrize("turn", ["flying", "held"])
@pytest.mark.parametrize("attempt", [1, 2])
def test_a_turn_id_that_another_dataplane_has_is_refused_and_its_turn_goes_on(turn: str, attempt: int) -> None:
    before = two_turns()
    state, decisions = after(before, TurnRequested(NOW, "other", turn, attempt, "fresh", "m"))
    assert [(each.dataplane, each.attempt, each.status, each.code) for each in decisions if isinstance(each, Refuse)] == [
        ("other", attempt, 409, "turn_id_taken")
    ]
    assert len(decisions) == 1
    assert state.turns == before.turns


@pytest.mark.parametrize("turn", ["flying", "held"])
def test_a_hello_does_not_take_over_another_ones_turn(turn: str) -> None:
    before = two_turns()
    told = TurnMemory(turn, 1, "theirs", "m", "a", 7, TurnClass.BATCH, "c", NOW)
    state, _ = after(before, Resync(NOW, "other", "s2", "boot", (), (told,)))
    assert state.turns == before.turns
    assert not state.dataplanes["other"].turns_count


def test_a_replica_that_was_never_configured_is_not_noted_as_unusable() -> None:
    state, _ = after(two_turns(), *[ReplicaUnusable(NOW, "mine", name, "no key") for name in ("nobody", "a")])
    assert state.dataplanes["mine"].unusable == ("a",)
