"""Is every benchmark found by its name, both ways?"""

from importlib import import_module

import pytest
from typer.testing import CliRunner

from luftpause.cli.app import app
from luftpause_bench.__main__ import main
from luftpause_bench.registry import BENCHES, run


@pytest.mark.parametrize("name", sorted(BENCHES))
def test_each_has_a_function_that_can_be_called(name: str) -> None:
    module, _, function = BENCHES[name].main.partition(":")
    assert callable(getattr(import_module(module), function))


def test_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    shown = CliRunner().invoke(app, ["bench", "--help"]).stdout
    assert [name for name in BENCHES if name not in listed or name not in shown] == []


def test_a_name_that_is_none_gets_the_list_of_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("floods", []) == 2
    told = capsys.readouterr().err
    assert "there is no benchmark 'floods'" in told
    assert "flood, " in told
    assert main([]) == 2


def test_arguments_and_exit_status_go_through(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--seeds", "1", "--first-seed", "3", "--jobs", "1"]) == 0
    assert "1 seeds from 3: 0 failed" in capsys.readouterr().out
    assert main(["sim", "--seed", "none"]) == 2
    called = CliRunner().invoke(app, ["bench", "sim", "--seed", "none"])
    assert called.exit_code == 2
