"""Does the tally agree with a count from scratch, whatever happens?"""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from luftpause.scheduler.core.decide import decide
from luftpause.scheduler.core.decisions import Refuse
from luftpause.scheduler.core.model import GENERATIVE, Settings, State, TurnPhase
from luftpause.scheduler.core.shares import Shares, shares_of
from luftpause.scheduler.core.view import Shown, overview
from luftpause.scheduler.core.view_held import CLASSES, oldest
from luftpause.scheduler.tally import Tally
from tests.properties.scheduler_world import OPS, World

STEPS = st.lists(
    st.tuples(st.sampled_from(OPS), st.integers(0, 60), st.integers(0, 60), st.sampled_from((0.0, 0.0, 0.005, 0.3, 2.0))),
    min_size=40,
    max_size=120,
)
TUNINGS = st.builds(
    Settings,
    start_grace_seconds=st.sampled_from((0.0, 1.0)),
    no_replica=st.sampled_from(("hold", "refuse")),
    turn_expiry=st.sampled_from(("silent", "always")),
    places_per_step_max=st.sampled_from((64, 1)),
    turn_timeout_seconds=st.sampled_from((600.0, 3.0)),
)


def plain(shares: Shares) -> tuple[object, ...]:
    """What is counted, without zeros and without an order."""
    tables = [{name: number for name, number in table.items() if number} for table in (*shares.in_flight, *shares.held)]
    busiest = [sum(shares.callers[flow][1::2]) for flow in shares.busiest()]
    return (*tables, shares.callers, busiest)


def in_flight(state: State) -> Counter[tuple[str, str]]:
    """All kinds of turns, by class and replica."""
    return Counter((CLASSES[turn.turn_class], turn.replica) for turn in state.turns.values() if turn.phase is TurnPhase.IN_FLIGHT)


def summed(series: dict[tuple[str, ...], float]) -> Counter[tuple[str, str]]:
    total: Counter[tuple[str, str]] = Counter()
    for (turn_class, replica, *_), value in series.items():
        total[turn_class, replica] += int(value)
    return total


def balance(tally: Tally, state: State) -> None:
    """What came to a replica has ended there, was given back, or is in flight."""
    came = summed(tally.placements.series()) + summed(tally.adopted.series())
    ended = Counter({key: value for key, value in summed(tally.turns.series()).items() if key[1]})
    assert came == ended + summed(tally.returns.series()) + in_flight(state)


@settings(max_examples=120, deadline=None)
@given(TUNINGS, STEPS)
def test_what_is_counted_event_by_event_is_what_a_walk_over_all_turns_counts(
    tuning: Settings, steps: list[tuple[str, int, int, float]]
) -> None:
    world = World(tuning)
    world.checks = False
    for step in steps:
        world.apply(*step)
    tally = Tally()
    state = world.start()
    refused = 0
    since = dict.fromkeys(state.names, state.started_at)
    for event in world.log:
        made = decide(state, event)
        tally(state, event, made)
        for name in made.state.names:
            old, new = state.replicas.get(name), made.state.replicas[name]
            if old is None or old.removed or old.health is not new.health:
                since[name] = event.now
        state = made.state
        refused += sum(isinstance(decision, Refuse) for decision in made.decisions)
        assert plain(tally.shares) == plain(shares_of(state))
        balance(tally, state)
    assert sum(value for key, value in tally.turns.series().items() if key[2] == "refused") == refused
    for name in state.names:
        assert tally.shares.health_since.get(name, state.started_at) == since[name]


@settings(max_examples=40, deadline=None)
@given(TUNINGS, STEPS, st.integers(0, 5))
def test_the_held_turns_that_are_shown_are_the_oldest_and_the_callers_those_that_have_waited_longest(
    tuning: Settings, steps: list[tuple[str, int, int, float]], most: int
) -> None:
    world = World(tuning)
    world.checks = False
    for step in steps:
        world.apply(*step)
    state = world.state
    waiting = [turn for turn in state.turns.values() if turn.phase is not TurnPhase.IN_FLIGHT]
    seen = overview(state, state.now, None, Shown(most, most))
    assert [each.held_seconds for each in seen.held_turns] == sorted(
        (round(state.now - turn.arrived, 3) for turn in waiting), reverse=True
    )[:most]
    assert {each.turn for each in oldest(state, len(waiting), state.now)} == {turn.id for turn in waiting}
    assert seen.held == len(waiting) == sum(count.held for count in seen.held_by_class)
    assert seen.held == sum(number for classes in seen.held_by_reason.values() for number in classes.values())
    first: dict[str, float] = {}
    for turn in waiting:
        if turn.phase is TurnPhase.HELD:
            first[turn.flow] = min(turn.arrived, first.get(turn.flow, turn.arrived))
    waits = sorted((round(state.now - arrived, 3) for arrived in first.values()), reverse=True)
    assert [each.longest_wait_seconds for each in seen.held_by_caller] == waits[:most]
    generating = Counter(turn.turn_class for turn in state.turns.values() if turn.phase is TurnPhase.IN_FLIGHT and turn.kind == GENERATIVE)
    assert [count.in_flight for count in seen.held_by_class] == [generating[0], generating[1]]
    for replica in (*seen.replicas, *seen.replicas_removed):
        assert sum(replica.in_flight_by_class.values()) == replica.in_flight
