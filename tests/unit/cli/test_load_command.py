"""Are the options of `luftpause loadgen` understood, and mistakes in them named?"""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from luftpause.cli.app import app
from luftpause.cli.load_agents import Crowd
from luftpause.cli.load_command import crowds_of, range_of


def test_closed_and_open_crowds_can_be_mixed() -> None:
    assert crowds_of(48, None, None, "batch") == (Crowd("batch", agents=48),)
    assert crowds_of(None, "batch=48, interactive=4", None, "batch") == (Crowd("batch", agents=48), Crowd("interactive", agents=4))
    assert crowds_of(None, None, "1.5", "interactive") == (Crowd("interactive", rate=1.5),)
    assert crowds_of(None, "batch=2", "interactive=0.2", "batch") == (Crowd("batch", agents=2), Crowd("interactive", rate=0.2))


@pytest.mark.parametrize(
    ("mix", "rate", "complaint"),
    [
        ("batch=1.5", None, "--mix: 1.5 batch agents are no whole number"),
        ("48", None, "'48' is not CLASS=NUMBER; the classes are interactive and batch"),
        ("urgent=1", None, "'urgent=1' is not CLASS=NUMBER"),
        ("batch=1,batch=2", None, "each once"),
        ("batch=0", None, "'0' must be a number above 0, at most 5000"),
        (None, "x", "--rate: 'x' must be a number above 0"),
        (None, "batch=nan", "--rate: 'nan' must be"),
    ],
)
def test_a_wrong_crowd_is_named(mix: str | None, rate: str | None, complaint: str) -> None:
    with pytest.raises(typer.BadParameter) as raised:
        crowds_of(None, mix, rate, "batch")
    assert complaint in raised.value.message


def test_a_range_is_one_number_or_two() -> None:
    assert range_of("--x", "800", 1000) == (800, 800)
    assert range_of("--x", "800-900", 1000) == (800, 900)
    for text in ("", "a", "9-", "900-800", "5-1001", "-5"):
        with pytest.raises(typer.BadParameter, match="--x: "):
            range_of("--x", text, 1000)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ([], "--spawn N or --agents N"),
        (["--spawn", "1", "--mix", "batch=1"], "--spawn N or --agents N"),
        (["--agents", "1", "--mix", "batch=1"], "either --agents or --mix"),
        (["--agents", "1", "--duration-s", "5", "--warm-up-s", "5"], "leaves nothing of the 5 seconds"),
    ],
)
def test_options_that_do_not_go_together_are_a_usage_error(options: list[str], complaint: str) -> None:
    found = CliRunner().invoke(app, ["loadgen", *options], env={"COLUMNS": "200"})
    assert found.exit_code == 2
    assert complaint in found.output


def test_a_trace_that_is_not_there_is_said(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["loadgen", "--trace", str(tmp_path / "x.csv")])
    assert "can't be read" in str(found.exception)
