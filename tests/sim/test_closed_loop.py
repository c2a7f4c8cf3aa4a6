"""Is what the scheduler exists for there, in simulated minutes on the engine model?"""

import pytest

from luftpause.scheduler.core.events import TurnClass
from luftpause_bench.sim.closed_loop import Loop

INTERACTIVE, BATCH = TurnClass.INTERACTIVE, TurnClass.BATCH
CROWD = ((BATCH, ""),) * 48 + ((INTERACTIVE, ""),) * 4


@pytest.mark.parametrize("probe_seconds", [2.0, 0.25])
def test_on_saturated_engines_interactive_runs_finish_far_more_often_and_batch_loses_little(probe_seconds: float) -> None:
    direct = Loop(1, CROWD, scheduled=False).play()
    loop = Loop(1, CROWD, probe_seconds=probe_seconds).play()
    assert len(loop.runs(INTERACTIVE)) >= 1.7 * len(direct.runs(INTERACTIVE))
    assert loop.median_seconds(INTERACTIVE) <= 0.6 * direct.median_seconds(INTERACTIVE)
    assert len(loop.runs(BATCH)) >= 0.82 * len(direct.runs(BATCH))


def test_with_little_to_do_nothing_waits_long_and_nothing_is_lost() -> None:
    few = ((BATCH, ""),) * 2 + ((INTERACTIVE, ""),) * 2
    direct, loop = Loop(3, few, scheduled=False).play(), Loop(3, few).play()
    assert loop.median_seconds(INTERACTIVE) == pytest.approx(direct.median_seconds(INTERACTIVE), rel=0.05)
    assert len(loop.finished) == pytest.approx(len(direct.finished), rel=0.05)
    assert max(loop.held) < 1


def test_gauges_that_trail_by_two_probes_make_nothing_swing() -> None:
    loop = Loop(1, CROWD, reports_late=2, seconds=300).play()
    for counts in loop.in_flight.values():
        assert max(counts) <= 18, counts
        counts.sort()
        assert counts[-len(counts) // 20] <= 2.2 * counts[len(counts) // 20], counts


def test_a_caller_with_sixty_runs_does_not_slow_down_three_with_one_each() -> None:
    callers = ((BATCH, "heavy"),) * 60 + tuple((BATCH, f"light-{number}") for number in range(3))
    loop = Loop(1, callers).play()
    for number in range(3):
        assert loop.median_seconds(BATCH, f"light-{number}") <= 0.6 * loop.median_seconds(BATCH, "heavy")


def test_agents_that_die_in_a_tool_call_keep_no_place_after_two_minutes() -> None:
    agents = ((BATCH, ""),) * 12 + ((INTERACTIVE, ""),) * 4
    loop = Loop(1, agents, dying=True, seconds=20).play()
    assert sum(replica.reserved for replica in loop.state.replicas.values()) >= 8
    loop.agents = agents[:12]
    loop.until(100)
    assert sum(replica.reserved for replica in loop.state.replicas.values()) >= 8
    loop.until(20 + 121 + 10)
    assert sum(replica.reserved for replica in loop.state.replicas.values()) == 0
