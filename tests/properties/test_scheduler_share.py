"""Does batch get the part of the places that it was promised, and no more?"""

from hypothesis import given, settings
from hypothesis import strategies as st

from luftpause.scheduler.core.decide import decide, initial
from luftpause.scheduler.core.decisions import Place
from luftpause.scheduler.core.events import Event, Load, ProbeOutcome, ReplicaProbed, ReplicaSpec, TurnClass, TurnFinished, TurnRequested
from luftpause.scheduler.core.settings import Settings

SPECS = (ReplicaSpec("a", "http://a", models=("m",)), ReplicaSpec("b", "http://b", models=("m",)))
REPORTED = 5  # requests that an engine runs: its cap


class Crowd:
    """Interactive and batch turns always wait. Who ends is chance; most interactive answers pause, and so keep a place for their run."""

    def __init__(self, share: float, specs: tuple[ReplicaSpec, ...]) -> None:
        self.state = initial(Settings(start_grace_seconds=0.0, batch_min_share=share, burst_turns_max=0), specs, 0.0)
        self.asked = 0
        self.flying: list[tuple[str, TurnClass]] = []
        self.placed: list[TurnClass] = []
        for spec in specs:
            self.send(ReplicaProbed(1.0, spec.name, ProbeOutcome.OK, Load(REPORTED, 1)))
        for _ in range(30):
            self.ask(TurnClass.INTERACTIVE)
            self.ask(TurnClass.BATCH)

    def ask(self, turn_class: TurnClass) -> None:
        self.asked += 1
        self.send(TurnRequested(1.0, "d", f"t{self.asked}", 1, f"r{self.asked}", "m", turn_class, caller=f"c{self.asked % 3}"))

    def send(self, event: Event) -> None:
        step = decide(self.state, event)
        self.state = step.state
        for decision in step.decisions:
            if isinstance(decision, Place):
                turn_class = self.state.turns[decision.turn].turn_class
                self.placed.append(turn_class)
                self.flying.append((decision.turn, turn_class))

    def end(self, number: int, *, paused: bool) -> None:
        turn, turn_class = self.flying.pop(number % len(self.flying))
        ids = (f"toolu_{turn}_01AbCdEfGhIj",) if paused else ()
        self.send(TurnFinished(1.0, "d", turn, 1, paused=paused, tool_call_ids=ids))
        self.ask(turn_class)


SHARES = st.sampled_from((0.0, 0.05, 0.1, 0.3, 0.5, 0.9, 1.0))


@settings(max_examples=60)
@given(SHARES, st.lists(st.tuples(st.integers(0, 60), st.sampled_from((True, True, False))), min_size=80, max_size=200))
def test_of_the_places_on_a_replica_where_both_wait_batch_gets_its_share_though_places_are_reserved(
    share: float, ends: list[tuple[int, bool]]
) -> None:
    crowd = Crowd(share, SPECS[:1])
    del crowd.placed[:]
    for number, paused in ends:
        crowd.end(number, paused=paused)
        assert crowd.state.replicas["a"].in_flight <= REPORTED
    batch = sum(turn_class is TurnClass.BATCH for turn_class in crowd.placed)
    assert len(crowd.placed) >= len(ends) - 1, "a reserve kept a place free although batch was owed, or nobody took a place"
    assert abs(batch - share * len(crowd.placed)) <= 1


@settings(max_examples=20)
@given(SHARES, st.lists(st.tuples(st.integers(0, 60), st.sampled_from((True, False))), min_size=80, max_size=150))
def test_the_share_holds_on_several_replicas_together(share: float, ends: list[tuple[int, bool]]) -> None:
    crowd = Crowd(share, SPECS)
    del crowd.placed[:]
    for number, paused in ends:
        crowd.end(number, paused=paused)
    batch = sum(turn_class is TurnClass.BATCH for turn_class in crowd.placed)
    assert abs(batch - share * len(crowd.placed)) <= len(SPECS)


def test_while_no_batch_turn_waits_no_debt_piles_up() -> None:
    crowd = Crowd(0.5, SPECS[:1])
    state = initial(Settings(start_grace_seconds=0.0, batch_min_share=0.5), SPECS[:1], 0.0)
    state = decide(state, ReplicaProbed(1.0, "a", ProbeOutcome.OK, Load(1, 1))).state
    for number in range(50):
        state = decide(state, TurnRequested(1.0, "d", f"i{number}", 1, f"r{number}", "m")).state
        state = decide(state, TurnFinished(1.0, "d", f"i{number}", 1)).state
    assert state.replicas["a"].owed == 0
    for number in range(200):
        crowd.end(number, paused=True)
        assert 0 <= crowd.state.replicas["a"].owed <= 1_000_000
