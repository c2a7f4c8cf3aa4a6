"""Are the results in README those of the committed JSON?"""

import json
from pathlib import Path

import pytest
from tools.readme_results import BEGIN, END, PRESSURES, README, RESULTS, SHOWN, named, present, replaced, section

from luftpause_bench.quota.play import GOVERNOR, Figures, OfClass
from luftpause_bench.quota.shown import tables
from luftpause_bench.quota.workload import GITHUB
from luftpause_bench.report import Bound, Column, Report, Table, as_json


def test_the_readme_says_what_the_json_says() -> None:
    readme = README.read_text()
    assert named(readme)
    assert replaced(readme, named(readme)) == readme, "README.md is stale: run python tools/readme_results.py"


def test_every_committed_result_is_of_a_whole_run_and_names_what_decided_it() -> None:
    for name in present():
        document = json.loads((RESULTS / f"{name}.json").read_text())
        assert document["bench"] == name
        assert not document["quick"]
        assert document["machine"]["cores"]
        assert document["versions"]["luftpause"]
        assert document["parameters"]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    columns = (
        Column("variant"),
        *(Column(name, crowd) for crowd in ("interactive", "batch") for name in ("runs/min", "±", "× direct")),
        Column("hit"),
    )
    rows = tuple((variant, 6.54, 0.25, 2.0, 80.0, 1.0, 0.9, 0.5) for variant in SHOWN)
    tables = tuple(Table(f"KV x{kv}, 48 batch", columns, rows) for kv in PRESSURES)
    bounds = (Bound("gain", ">= 1.9", 2.0, held=True), Bound("batch", ">= 1.25", 1.2345, held=False))
    report = Report("flood", "engines", {"a": 1}, (101, 102), tables, bounds, 1.0, quick=False)
    (tmp_path / "flood.json").write_text(as_json(report))
    return tmp_path


def test_figures_come_from_the_tables_and_bounds_that_were_missed_are_named(results: Path) -> None:
    made = section(["flood"], results)
    assert made.startswith("<!-- results of: flood -->\n")
    assert "2 seeds from 101" in made
    assert "| x0.75 | 6.5 ±0.2, 80.0 ±1.0 | 6.5 ±0.2 (2.00×), 80.0 ±1.0 (-10 %) |" in made
    assert "| engines | 1 of 2 | batch: 1.23, must be >= 1.25 |" in made
    assert present(results) == ["flood"]


def test_only_its_place_is_replaced(results: Path) -> None:
    readme = f"# Before\n\n{BEGIN} flood -->\n\nold\n\n{END}\n\nAfter.\n"
    made = replaced(readme, ["flood"], results)
    assert made == f"# Before\n\n{section(['flood'], results)}\n\nAfter.\n"
    assert replaced(made, named(made), results) == made
    with pytest.raises(SystemExit, match=r"README\.md needs one place for results"):
        replaced("# Nothing", ["flood"], results)


def test_the_incident_of_a_shared_quota_has_a_row_per_client(tmp_path: Path) -> None:
    policies = ["tenacity", GOVERNOR]
    of = OfClass(served=10, failed=2, open=0, wanted=12, p50=0.5, p99=1_234.56, longest=2.0)
    figures = Figures((of, of, of), 1_000, 25, 3, 2, 0.987, None, 1.0, None, None)
    found = {("github", policy): [figures] for policy in policies}
    report = Report("quota", "time", {"a": 1}, (101,), tables(GITHUB, policies, found), (), 1.0, quick=False)
    (tmp_path / "quota.json").write_text(as_json(report))
    rows = section(["quota"], tmp_path).splitlines()
    assert "| tenacity | 10 of 12 | 2 | 1,234.6 s | 98.7 | 25 of 1,000 |" in rows
    assert any(row.startswith("| governor | 10 of 12 |") for row in rows)
