"""What do all tests share?"""

import os
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.alone import machine

pytest.register_assert_rewrite("luftpause_bench.sim")  # its assertions show their values, as those of tests do
settings.register_profile("luftpause", deadline=None, derandomize=bool(os.environ.get("CI")), suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("luftpause")

REQUIRED = os.environ.get("LUFTPAUSE_TEST_REQUIRE", "")


def missing(what: str, mend: str) -> None:
    """Skip, saying why; where LUFTPAUSE_TEST_REQUIRE is `all` (.ci/run) the missing part is a failure."""
    if REQUIRED == "all":
        pytest.fail(f"{what} is missing although LUFTPAUSE_TEST_REQUIRE=all: {mend}")
    pytest.skip(f"{what} is not installed: {mend}")


@pytest.fixture(scope="session", autouse=True)
def _folders(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """What tests make with `tempfile` lies in pytest's folder, of which it keeps three."""
    before, tempfile.tempdir = tempfile.tempdir, str(tmp_path_factory.mktemp("tempfile"))
    yield
    tempfile.tempdir = before


@pytest.hookimpl(wrapper=True, tryfirst=True)  # the wait is outside of the test's time-out
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Where the tests run in several processes, each has a folder of its own in one that they share."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    with machine(Path(item.config.option.basetemp).parent, alone=item.get_closest_marker("alone") is not None):
        return (yield)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="record anew what the scenario files expect; review the diff")
