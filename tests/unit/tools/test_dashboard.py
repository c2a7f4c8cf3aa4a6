"""Does the Grafana dashboard ask for metrics that there are, by labels that they have?"""

import asyncio
import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.process_collector import ProcessCollector
from tools.generate_dashboard import FILE, dashboard

from tests.support.metric_catalog import SUFFIX, Known, catalog

DOCS = Path(__file__).parents[3] / "docs" / "operations.md"
SELECTOR = re.compile(r"\b(?P<name>(?:luftpause|process)_[a-z_]+)(?:\{(?P<where>[^}]*)\})?(?P<range>\[\$__rate_interval\])?")
MATCHER = re.compile(r'(\w+)(?:=~|!=|!~|=)"([^"]*)"')
AGGREGATION = re.compile(r"\bby \(([^)]*)\) ")
COLUMNS = 24
OF_PROMETHEUS = {"job", "instance"}

DASHBOARD = json.loads(FILE.read_text())
QUERIES = [
    pytest.param(query["expr"], query["legendFormat"], id=f"{panel['title']} {query['refId']}")
    for panel in DASHBOARD["panels"]
    for query in panel.get("targets", ())
]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Known]:
    """With the parts of histograms, as queries name them."""
    found = asyncio.run(catalog(tmp_path_factory.mktemp("catalog")))
    for family in ProcessCollector(registry=None).collect():
        found[family.name + SUFFIX[family.type]] = Known(family.type, frozenset(OF_PROMETHEUS))
    for name, each in [(name, each) for name, each in found.items() if each.type == "histogram"]:
        del found[name]
        found |= {name + part: Known("counter", each.labels) for part in ("_sum", "_count")}
        found[name + "_bucket"] = Known("counter", each.labels | {"le"})
    return found


def test_the_file_is_what_its_tool_writes() -> None:
    assert json.loads(json.dumps(dashboard())) == DASHBOARD, "run: python tools/generate_dashboard.py"


@pytest.mark.parametrize(("expr", "legend"), QUERIES)
def test_a_query_names_what_there_is(expr: str, legend: str, known: dict[str, Known]) -> None:
    names = [match["name"] for match in SELECTOR.finditer(expr)]
    assert names
    assert set(names) <= known.keys()
    for match in SELECTOR.finditer(expr):
        one = known[match["name"]]
        wanted = MATCHER.findall(match["where"] or "")
        assert {label for label, _ in wanted} <= one.labels
        assert all(f"`{word}`" in DOCS.read_text() for _, value in wanted if "$" not in value for word in value.split("|")), wanted
        rated = expr[: match.start()].endswith("rate(")
        assert rated == bool(match["range"]) == (one.type == "counter"), "counters are rated, gauges are not"
    by = [(set(labels.split(", ")), inner) for labels, inner in aggregated(expr)]
    for labels, inner in by:
        assert all(labels <= known[match["name"]].labels for match in SELECTOR.finditer(inner))
    left = by[0][0] - {"le"} if by else known[names[0]].labels
    assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= left


def aggregated(expr: str) -> Iterator[tuple[str, str]]:
    """The labels of each `by`, and what is in the brackets behind it."""
    for match in AGGREGATION.finditer(expr):
        depth = 0
        for end in range(match.end(), len(expr)):
            depth += {"(": 1, ")": -1}.get(expr[end], 0)
            if depth == 0:
                yield match[1], expr[match.end() : end]
                break
        else:
            raise AssertionError(f"brackets of {expr}")


def test_variables_take_their_values_from_what_there_is(known: dict[str, Known]) -> None:
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$(\w+)", " ".join(param.values[0] for param in QUERIES))) - {"__rate_interval"}
    assert used | {"datasource"} == variables.keys()
    for name, each in variables.items():
        if each["type"] == "query":
            query = each["query"]["query"]
            asked = [match["name"] for match in SELECTOR.finditer(query)]
            assert asked
            assert all(name in known[metric].labels | OF_PROMETHEUS for metric in asked)


def test_each_service_has_a_row_and_panels_lie_side_by_side() -> None:
    panels: list[dict[str, Any]] = DASHBOARD["panels"]
    assert {panel["title"] for panel in panels if panel["type"] == "row"} >= {"Scheduler", "Dataplane", "Runtime", "Quotas"}
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= COLUMNS
        assert panel["type"] == "row" or panel["targets"]
    for one, other in combinations([panel["gridPos"] for panel in panels], 2):
        assert not (overlap(one, other, "x", "w") and overlap(one, other, "y", "h"))


def overlap(one: dict[str, int], other: dict[str, int], at: str, size: str) -> bool:
    return one[at] < other[at] + other[size] and other[at] < one[at] + one[size]
