"""Do scheduler and dataplanes keep their promises in worlds where everything fails?"""

import pytest

from luftpause.scheduler.core import admission
from luftpause_bench.sim import weather
from luftpause_bench.sim.runner import SeedFailedError, run


def test_every_promise_is_kept_in_the_world_of_a_seed(seed: int, pytestconfig: pytest.Config) -> None:
    run(seed, thorough=pytestconfig.getoption("seed", None) is not None)


def test_a_seed_always_gives_the_same_world() -> None:
    assert run(9) == run(9)
    assert run(9) != run(10)


def test_some_worlds_see_every_kind_of_fault_and_clients_that_leave_at_every_stage() -> None:
    wanted = {f"fault: {kind}" for kind in weather.FAULTS}
    wanted |= {"left while held", "left while placed", "left while sent", "left while sent and answering", "came back to its home"}
    for seed in range(222, 262):
        wanted -= run(seed).counts.keys()
        if not wanted:
            break
    assert not wanted


def test_a_broken_promise_names_the_seed_and_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "limit", lambda replica, settings: 1 << 30)
    with pytest.raises(SeedFailedError, match=r"(?s)seed 25: .*has \d+ in flight and a cap of.*luftpause bench sim --seed 25"):
        run(25)
