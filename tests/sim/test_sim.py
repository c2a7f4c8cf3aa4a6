"""Do scheduler and dataplanes keep their promises in worlds where everything fails?"""

import re

import pytest

from luftpause_bench.sim import weather
from luftpause_bench.sim.hunting import hunt
from luftpause_bench.sim.mutants import MUTANTS, alive
from luftpause_bench.sim.runner import SeedFailedError, run

NO_CAP = next(mutant for mutant in MUTANTS if mutant.name == "no cap")
FIRST_WITH_ALL_FAULTS = 76


def test_every_promise_is_kept_in_the_world_of_a_seed(seed: int, pytestconfig: pytest.Config) -> None:
    run(seed, thorough=pytestconfig.getoption("seed", None) is not None)


@pytest.mark.parametrize("number", range(8))
def test_every_promise_is_kept_under_the_guard_policy(number: int) -> None:
    run(weather.GUARDED_FROM + number)


def test_a_seed_always_gives_the_same_world() -> None:
    assert run(9) == run(9)
    assert run(9) != run(10)


def test_some_worlds_see_every_kind_of_fault_and_clients_that_leave_at_every_stage() -> None:
    wanted = {f"fault: {kind}" for kind in weather.FAULTS}
    wanted |= {"left while held", "left while placed", "left while sent", "left while sent and answering", "came back to its home"}
    wanted |= {"located", "refused held_too_long", "refused too_many_held", "refused caller_held_too_many"}
    for seed in range(FIRST_WITH_ALL_FAULTS, FIRST_WITH_ALL_FAULTS + 60):
        wanted -= run(seed).counts.keys()
        if not wanted:
            break
    assert not wanted


def test_a_broken_promise_names_the_seed_and_how_to_see_it_again() -> None:
    caught = hunt(NO_CAP)
    assert caught.seed is not None
    shown = rf"(?s)seed {caught.seed}: {re.escape(caught.broken)}.*luftpause bench sim --seed {caught.seed}"
    with alive(NO_CAP), pytest.raises(SeedFailedError, match=shown):
        run(caught.seed)
