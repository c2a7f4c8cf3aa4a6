"""Does a call that asks first cost the governor's core as much work as before, however many wait and however many targets there are?

Counted in calls of functions, which no other program on the machine changes. `luftpause bench quota_cost` measures time.
"""

import sys
from types import FrameType

from luftpause.scheduler.quota.core import govern
from luftpause_bench.quota_cost import Play, Scene, broken, measure

CALLS = 100
STEPS_MAX = 700  # per call that nobody else waits beside; it was 605 when this was written


def steps(scene: Scene) -> float:
    """Calls, of Python and C functions, for a wish and its report."""
    play = Play(scene)
    state, made = play.state, 0
    log = [event for _ in range(CALLS) for event in (play.tell(play.wish()), play.tell(play.report()))]

    def count(frame: FrameType, what: str, argument: object) -> None:
        nonlocal made
        made += what in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        for event in log:
            state = govern(state, event).state
    finally:
        sys.setprofile(before)
    return made / CALLS


def test_a_call_takes_no_more_steps_than_it_did() -> None:
    assert steps(Scene("alone")) < STEPS_MAX


def test_other_targets_and_those_that_wait_behind_add_hardly_any() -> None:
    assert steps(Scene("targets", targets=300)) < 1.2 * steps(Scene("alone"))
    assert steps(Scene("many", waiters=2_000)) < 1.3 * steps(Scene("few", waiters=200))


def test_a_bound_that_is_not_held_is_named() -> None:
    cost = measure(Scene("alone", bound_microseconds=1e-9), calls=3, passes=1)
    (line,) = broken([cost])
    assert "alone" in line
    assert not broken([measure(Scene("alone", bound_microseconds=1e9), calls=3, passes=1)])
