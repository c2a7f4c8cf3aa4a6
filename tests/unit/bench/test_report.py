"""Does a benchmark's end say, write and return what was found?"""

import argparse
import json
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from luftpause_bench.plots import grouped_bars
from luftpause_bench.report import (
    Bound,
    Column,
    Report,
    Table,
    as_json,
    at_least,
    at_most,
    describe_machine,
    describe_versions,
    finish,
    parser,
    text_of,
)  # fmt: skip

TABLE = Table(
    "by variant", (Column("variant"), Column("rate", "1/min", 1), Column("errors")), (("direct", 6.54, 0), ("guard", 13.08, None))
)


def report(*bounds: Bound, quick: bool = False) -> Report:
    return Report("fanout", "engines", {"kv": 1.0, "agents": 48}, (101, 102), (TABLE,), bounds, 61.4, quick)


def options(folder: Path, *arguments: str) -> argparse.Namespace:
    return parser("fanout", "what it shows", seeds=5).parse_args(["--results", str(folder), *arguments])


def test_a_whole_run_is_written_where_results_are_and_exits_with_0_if_every_bound_is_held(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert finish(report(at_least("gain", 2.0, 1.9)), options(tmp_path / "results")) == 0
    shown = capsys.readouterr().out
    assert "simulated: engines · seeds 101 to 102" in shown
    assert "13.1" in shown
    assert "held: gain: 2, must be >= 1.9" in shown
    document = json.loads((tmp_path / "results" / "fanout.json").read_text())
    assert document["tables"][0]["rows"] == [["direct", 6.54, 0], ["guard", 13.08, None]]
    assert document["bounds"] == [{"name": "gain", "reach": ">= 1.9", "value": 2.0, "held": True}]
    assert document["seconds"] == 61


def test_a_missed_bound_is_said_and_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert finish(report(at_least("gain", 1.8, 1.9), at_most("delay", 1.0, 2.0)), options(tmp_path)) == 1
    shown = capsys.readouterr().out
    assert "MISSED: gain: 1.8, must be >= 1.9" in shown
    assert "held: delay: 1, must be <= 2" in shown
    assert "every bound is held" not in shown


@pytest.mark.parametrize(("value", "held"), [(1.9, True), (1.8999, False), (float("nan"), False)])
def test_a_bound_is_held_by_its_own_value_and_never_by_none(value: float, held: bool) -> None:
    assert at_least("gain", value, 1.9).held is held


def test_a_part_of_a_run_writes_only_what_was_asked_for(tmp_path: Path) -> None:
    finish(report(quick=True), options(tmp_path / "results", "--json", str(tmp_path / "mine.json")), lambda figure: None)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.json"]


def test_a_plot_is_drawn_beside_the_figures(tmp_path: Path) -> None:
    finish(
        report(),
        options(tmp_path),
        lambda figure: grouped_bars(figure.subplots(), ["x1", "x3"], {"guard": [1, 2]}, label="runs/min", even=1),
    )
    assert (tmp_path / "fanout.png").read_bytes().startswith(b"\x89PNG")
    again = tmp_path / "again"
    finish(report(), options(again, "--no-plot"), lambda figure: pytest.fail("it was drawn"))
    assert [path.name for path in again.iterdir()] == ["fanout.json"]


def test_without_matplotlib_it_says_how_to_get_it_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert finish(report(), options(tmp_path), lambda figure: pytest.fail("it was drawn")) == 0
    assert "pip install 'luftpause[bench]'" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["fanout.json"]


def test_the_document_is_the_same_for_the_same_figures_with_a_row_on_a_line() -> None:
    one = replace(report(), parameters={"b": 1 / 3, "a": 2, "not a number": float("nan")}, data=[[n, n / 7] for n in range(20)])
    other = replace(one, parameters={"not a number": float("nan"), "a": 2, "b": 1 / 3 + 1e-9})
    assert as_json(one) == as_json(other)
    document = json.loads(as_json(one))
    assert list(document["parameters"].items()) == [("a", 2), ("b", 0.333333), ("not a number", None)]
    assert document["data"][1] == [1, 0.142857]
    assert "  [1, 0.142857]," in as_json(one).splitlines()
    assert json.loads(as_json(report())).get("data") is None


def test_a_row_that_does_not_fit_its_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="by variant: a row has 1 values for 3 columns"):
        Table("by variant", TABLE.columns, (("direct",),))


@pytest.mark.parametrize(("value", "text"), [(1234.56, "1,234.6"), (7, "7"), (None, "–"), ("x", "x")])
def test_a_value_is_shown_as_its_column_says(value: float | str | None, text: str) -> None:
    assert text_of(value, Column("rate", "1/min", 1)) == text


def test_machine_and_versions_name_themselves() -> None:
    assert describe_machine()["cores"]
    found = describe_versions("msgspec", "no-such-package")
    assert found["luftpause"]
    assert found["no-such-package"] == "not installed"
    assert found["msgspec"][0].isdigit()


def test_an_option_that_makes_no_sense_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options(tmp_path, "--seeds", "0")
    assert "0 is no number of seeds; 1 is the least" in capsys.readouterr().err
