"""What do all tests share?"""

import os

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("luftpause_bench.sim")  # its assertions show their values, as those of tests do
settings.register_profile("luftpause", deadline=None, derandomize=bool(os.environ.get("CI")), suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("luftpause")

REQUIRED = os.environ.get("LUFTPAUSE_TEST_REQUIRE", "")


def missing(what: str, mend: str) -> None:
    """Skip, saying why; where LUFTPAUSE_TEST_REQUIRE is `all` (.ci/run) the missing part is a failure."""
    if REQUIRED == "all":
        pytest.fail(f"{what} is missing although LUFTPAUSE_TEST_REQUIRE=all: {mend}")
    pytest.skip(f"{what} is not installed: {mend}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="record anew what the scenario files expect; review the diff")
