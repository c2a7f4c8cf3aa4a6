"""Does the simulation notice when the scheduler's core is broken?"""

import pytest

from luftpause_bench.sim.hunting import hunt
from luftpause_bench.sim.mutants import MUTANTS, Mutant, alive
from luftpause_bench.sim.runner import run


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_a_broken_core_is_caught_by_a_seed_that_the_right_one_lives_through(mutant: Mutant) -> None:
    caught = hunt(mutant, mutant.seeds)
    assert caught.seed is not None, f"{mutant.what}: not noticed by seeds {mutant.seeds}; find others with luftpause bench sim --mutants"


def test_a_mutant_leaves_no_trace() -> None:
    before = run(3)
    for mutant in MUTANTS:
        with alive(mutant):
            pass
    assert run(3) == before
