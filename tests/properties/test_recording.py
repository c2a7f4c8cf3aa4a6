"""Does a log, its names hashed or not, hold all that the core needs to decide the same again?"""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from immutables import Map
from msgspec.structs import replace

from luftpause.scheduler.core.decide import decide
from luftpause.scheduler.core.events import Event
from luftpause.scheduler.core.model import Settings, State
from luftpause.scheduler.record_log import VERSION, Header, event_line, header_line
from luftpause.scheduler.record_names import Names
from luftpause.scheduler.record_values import decode, encode, to_bytes
from luftpause.scheduler.replay import replay
from tests.properties.scheduler_world import SPECS, World
from tests.properties.test_scheduler_decide import STEPS, TUNINGS

Steps = list[tuple[str, int, int, float]]
# Without limits so small that they cut through what is due, or was seen, at one instant: which part is left then depends on the names.
UNCUT = TUNINGS.map(lambda tuning: replace(tuning, expiries_per_step_max=1000, ids_per_run_max=256))
NAMES = Names(b"k" * 32)


def played(tuning: Settings, steps: Steps) -> World:
    world = World(tuning, checks=False)
    for step in steps:
        world.apply(*step)
    return world


def states(world: World) -> list[State]:
    """The state before each event, and the last one."""
    found = [world.start()]
    for event in world.log:
        found.append(decide(found[-1], event).state)
    return found


def logged(start: State, events: list[Event], names: Names | None, *, snapshot: bool) -> list[bytes]:
    """What a recorder writes of these events."""
    header = Header(VERSION, "1", start.settings.policy, "seed", "2026-01-01", start.now, start.settings, SPECS, hashed=names is not None)
    hide = names.hide if names else lambda value: value
    lines = [header_line(header, hide(start) if snapshot else None)]
    state = start
    for event in events:
        step = decide(state, event)
        state = step.state
        lines.append(event_line(hide(event), tuple(hide(each) for each in step.decisions)))
    return lines


@settings(max_examples=60)
@given(TUNINGS, STEPS)
def test_a_state_comes_back_from_json_as_it_was_and_its_json_does_not_depend_on_how_its_maps_grew(tuning: Settings, steps: Steps) -> None:
    for state in states(played(tuning, steps))[:: max(1, len(steps) // 4)]:
        json = to_bytes(encode(state))
        back = decode(msgspec.json.decode(json))
        assert back == state
        assert to_bytes(encode(back)) == json


@settings(max_examples=40)
@given(TUNINGS, STEPS, st.floats(0, 1))
def test_a_log_that_begins_anywhere_leads_to_the_same_decisions_and_state(tuning: Settings, steps: Steps, where: float) -> None:
    world = played(tuning, steps)
    at = int(where * len(world.log))
    start = states(world)[at]
    replayed = replay(logged(start, world.log[at:], None, snapshot=at > 0))
    assert replayed.different == 0
    assert replayed.events == len(world.log) - at
    assert replayed.state == world.state


@settings(max_examples=60)
@given(UNCUT, STEPS, st.floats(0, 1))
def test_a_log_with_hashed_names_that_begins_anywhere_leads_to_the_same_decisions(tuning: Settings, steps: Steps, where: float) -> None:
    world = played(tuning, steps)
    at = int(where * len(world.log))
    start = states(world)[at]
    replayed = replay(logged(start, world.log[at:], NAMES, snapshot=at > 0))
    assert replayed.differences == ()


@settings(max_examples=60)
@given(UNCUT, STEPS)
def test_hiding_a_state_gives_the_state_that_hidden_events_lead_to(tuning: Settings, steps: Steps) -> None:
    world = played(tuning, steps)
    state = NAMES.hide(world.start())
    for event in world.log:
        state = decide(state, NAMES.hide(event)).state
    assert ids_by_name(NAMES.hide(world.state)) == ids_by_name(state)


def ids_by_name(state: State) -> State:
    """Ids that a run was seen with at one instant are kept in the order of their names."""
    return replace(state, runs=Map([(key, replace(run, ids=tuple(sorted(run.ids)))) for key, run in state.runs.items()]))
