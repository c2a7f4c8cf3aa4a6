"""Does the scheduler decide what the scenario files record?"""

from pathlib import Path

import pytest

from tests.scenarios.script import play

CASES = sorted((Path(__file__).parent / "cases").glob("*.txt"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_scenario_goes_as_recorded(path: Path, request: pytest.FixtureRequest) -> None:
    played = play(path)
    if request.config.getoption("--rewrite"):
        path.write_text(played)
    assert played == path.read_text(), f"{path.name} differs; if that is intended: pytest tests/scenarios --rewrite, then review the diff"


def test_there_are_scenarios() -> None:
    assert len(CASES) >= 20
