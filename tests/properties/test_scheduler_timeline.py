"""Does each run's line say what the run does, whatever happens?"""

from collections import Counter

from hypothesis import given, settings

from luftpause.scheduler.core.decide import decide
from luftpause.scheduler.core.events import FirstToken, Resync, TurnAbandoned, TurnFailed, TurnFinished, TurnRequested, TurnReturned
from luftpause.scheduler.core.model import Settings, State, TurnPhase
from luftpause.scheduler.tally import Tally
from luftpause.scheduler.timeline import CHANGES_MAX, Change, Lately, Timeline
from tests.properties.scheduler_world import World
from tests.properties.test_scheduler_tally import STEPS, TUNINGS

WHOLE = 1000


def phases(state: State, streaming: set[str]) -> Counter[tuple[str, str]]:
    """What each run does, by a walk over all turns: (run, phase), as often as there are such runs of different principals."""
    found = {run.key: "tool" if run.phase == "paused" else "idle" for run in state.runs.values()}
    for turn in state.turns.values():
        if turn.run and turn.phase is not TurnPhase.IN_FLIGHT:
            found[turn.run] = "held"
    moving = [turn for turn in state.turns.values() if turn.run and turn.phase is TurnPhase.IN_FLIGHT]
    found |= {turn.run: "prefill" for turn in moving}
    found |= {turn.run: "decode" for turn in moving if turn.id in streaming}
    return Counter((state.runs[key].id, phase) for key, phase in found.items())


def merged(known: dict[int, list[Change]], lately: Lately) -> None:
    """What a page does with an answer."""
    for line in lately.runs:
        known[line.number] = (known.get(line.number, []) + line.changes)[-CHANGES_MAX:]


@settings(max_examples=80, deadline=None)
@given(TUNINGS, STEPS)
def test_each_line_ends_in_what_the_run_does_and_pieces_make_the_whole(tuning: Settings, steps: list[tuple[str, int, int, float]]) -> None:
    world = World(tuning)
    world.checks = False
    for step in steps:
        world.apply(*step)
    timeline = Timeline(Tally(), 0.0)
    state = world.start()
    streaming: set[str] = set()
    known: dict[int, list[Change]] = {}
    cursor = 0
    for number, event in enumerate(world.log):
        made = decide(state, event)
        timeline(state, event, made)
        state = made.state
        if isinstance(event, FirstToken):
            streaming.add(event.turn)
        if isinstance(event, TurnReturned | TurnRequested | TurnFinished | TurnFailed | TurnAbandoned):
            streaming.discard(event.turn)
        if isinstance(event, Resync):
            streaming |= {turn.turn for turn in event.turns if turn.first_token}
        if made.absorbing:
            continue
        whole = timeline.lately("e", event.now, 0, WHOLE)
        lasting = Counter((line.run, line.changes[-1].phase) for line in whole.runs if line.changes[-1].phase != "over")
        expected = phases(state, streaming)
        assert lasting <= expected
        assert Counter({run: count for run, count in expected.items() if run[1] in {"held", "prefill", "decode"}}) <= lasting
        if number % 7 == 0:
            piece = timeline.lately("e", event.now, cursor, WHOLE)
            cursor = piece.cursor
            merged(known, piece)
            assert known == {line.number: line.changes for line in whole.runs}
