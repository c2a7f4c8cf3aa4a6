"""Which seeds are run?"""

import pytest

SEEDS_USUAL = 50


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("simulation")
    group.addoption("--seed", type=int, default=None, help="run one world, with every check after every event")
    group.addoption("--seeds", type=int, default=SEEDS_USUAL, help="run this many worlds")
    group.addoption("--first-seed", type=int, default=0, help="the first of them")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" not in metafunc.fixturenames:
        return
    one = metafunc.config.getoption("seed", None)
    first = metafunc.config.getoption("first_seed", 0)
    seeds = [one] if one is not None else range(first, first + metafunc.config.getoption("seeds", SEEDS_USUAL))
    metafunc.parametrize("seed", seeds)
