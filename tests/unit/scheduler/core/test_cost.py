"""Does an event cost the core as much work as before, however many runs there are?

Counted in calls of functions, which no other program on the machine changes. `luftpause bench decide_cost` measures time.
"""

import sys
from types import FrameType

from luftpause.scheduler.core.decide import decide
from luftpause.scheduler.core.model import State
from luftpause_bench.decide_cost import Loop

EVENTS = 600
CALLS_PER_EVENT_MAX = 100  # it was 81 when this was written


def calls_per_event(runs: int) -> float:
    """Calls, of Python and C functions, per event in the steady state of a closed loop with a tenth of its runs held."""
    loop = Loop(runs, held=0.1, callers=50, seed=1)
    for _ in range(runs * 12):
        loop.step()
    state: State = loop.state
    log = [loop.step() for _ in range(EVENTS)]
    calls = 0

    def count(frame: FrameType, what: str, argument: object) -> None:
        nonlocal calls
        calls += what in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        for event in log:
            state = decide(state, event).state
    finally:
        sys.setprofile(before)
    return calls / EVENTS


def test_an_event_takes_no_more_steps_than_it_did_and_hardly_more_with_ten_times_the_runs() -> None:
    few, many = calls_per_event(150), calls_per_event(1_500)
    assert many < CALLS_PER_EVENT_MAX
    assert many < 1.3 * few
