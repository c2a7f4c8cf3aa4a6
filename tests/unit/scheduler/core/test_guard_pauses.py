"""How long does guard take a tool to last, and when is that worth a prefix's place?"""

import pytest

from luftpause.scheduler.core import guard_pauses as pauses
from luftpause.scheduler.core.events import TurnClass
from luftpause.scheduler.core.guard_model import Guarded

MANY = 256  # old judgements are forgotten by then


def with_pauses(*seconds: float, tool: str = "search", turn_class: TurnClass = TurnClass.BATCH, known: Guarded | None = None) -> Guarded:
    g = known if known is not None else Guarded()
    for each in seconds:
        g = pauses.with_pause(g, tool, int(turn_class), each)
    return g


@pytest.mark.parametrize(
    ("elapsed", "rest"),
    [
        (0.0, 2.5 * 1.25),  # the mean of 1, 2, 3, 4, a little more as there are few
        (2.0, 1.5 * 1.5),  # of 3 and 4
        (3.5, 0.5 * 2.0),
        (9.0, 9.0),  # older than all: as long again
    ],
)
def test_the_rest_of_a_pause_is_that_of_calls_that_took_longer(elapsed: float, rest: float) -> None:
    assert pauses.residual_seconds(with_pauses(1, 2, 3, 4), "search", elapsed) == pytest.approx(rest)


def test_the_rest_of_a_pause_of_equal_length_shrinks() -> None:
    g = with_pauses(*[2.0] * 20)
    assert pauses.residual_seconds(g, "search", 0.5) > pauses.residual_seconds(g, "search", 1.5) > 0


def test_only_the_last_64_pauses_of_a_tool_count_and_many_tools_share_an_account() -> None:
    g = with_pauses(*[50.0] * 100, *[1.0] * 64)
    assert g.pauses["search"].last == (1.0,) * 64
    for number in range(pauses.TOOLS_MAX + 5):
        g = pauses.with_pause(g, f"tool-{number}", int(TurnClass.BATCH), 1.0)
    assert len(g.pauses) <= pauses.TOOLS_MAX + 1


@pytest.mark.parametrize(
    ("seconds", "cost", "until"),
    [
        ((2.0,) * 10, 2.0, 2.0),
        ((0.5,) * 9 + (60.0,), 0.5 * 10 / 9, 0.5),  # the mean is 6.45 s: the one that takes a minute is not waited for
        ((1.0,) * 4 + (9.0,) * 6, 5.8, 9.0),  # less than half would be back after 1 s
        ((1.0, 2.0, 3.0, 4.0), 2.5, 4.0),
        ((1.0, 2.0, 3.0, 40.0), 3.0, 3.0),  # (1 + 2 + 3 + 3) / 3
    ],
)
def test_a_pause_costs_what_keeping_costs_per_run_that_comes_in_time(seconds: tuple[float, ...], cost: float, until: float) -> None:
    assert pauses.cheapest(seconds) == (pytest.approx(cost), until)


def test_pauses_of_all_tools_of_batch_runs_are_judged_as_one_and_not_by_their_mean() -> None:
    """A tenth of them in a tool that takes 25 s: nine tenths are worth their place as before."""
    g = Guarded()
    for _ in range(MANY):
        g = with_pauses(*[0.5] * 9, known=g)
        g = with_pauses(25.0, tool="build", known=g)
    assert pauses.cost_seconds(g.batch_pauses) == pytest.approx(0.5 / 0.9, rel=0.05)
    assert pauses.cost_seconds(g.pauses["build"]) == pytest.approx(25.0)
    assert with_pauses(25.0, turn_class=TurnClass.INTERACTIVE, known=g).batch_pauses == g.batch_pauses


def test_a_tool_that_becomes_slow_is_judged_anew() -> None:
    g = with_pauses(*[1.0] * MANY)
    assert pauses.cost_seconds(g.pauses["search"]) == pytest.approx(1.0)
    assert pauses.cost_seconds(with_pauses(*[9.0] * MANY, known=g).pauses["search"]) == pytest.approx(9.0, rel=0.05)


def test_few_pauses_say_nothing_yet() -> None:
    assert pauses.cost_seconds(with_pauses(9.0, 9.0).pauses["search"]) == pauses.PAUSE_SECONDS
    assert pauses.cost_seconds(None, 0.0) == 0.0
    assert pauses.cost_seconds(with_pauses(9.0, 9.0, 9.0).pauses["search"]) == 9.0


def test_within_the_time_in_which_most_are_back_the_slow_ones_do_not_count() -> None:
    """A tool with nine quick calls of ten: what has run for a tenth of a second is back soon, what has run for a second is not."""
    g = with_pauses(*((0.5,) * 9 + (60.0,)) * 6)
    assert pauses.residual_seconds(g, "search", 0.1) < 0.5
    assert pauses.residual_seconds(g, "search", 1.0) > 50
