"""Do the pages of metrics and the tables about them name the same metrics, with the same labels?"""

import re
from pathlib import Path

import pytest

from tests.support.metric_catalog import SERVICES, catalog

DOCS = Path(__file__).parents[3] / "docs" / "operations.md"
ROW = re.compile(r"^\| (?P<names>`[^|]*) \| (?P<labels>[^|]*) ?\| ", re.MULTILINE)


def table(service: str) -> dict[str, frozenset[str]]:
    """Whole name -> labels. Labels of a row hold for all its names, or with `;` for one each."""
    section = DOCS.read_text().partition(f"\n## The {service}'s metrics\n")[2].partition("\n## ")[0]
    assert f"begin with `luftpause_{service}_`" in section
    found: dict[str, frozenset[str]] = {}
    for row in ROW.finditer(section):
        names = re.findall(r"`([a-z_]+)`", row["names"])
        labels = [frozenset(re.findall(r"\w+", part)) for part in row["labels"].split(";")]
        labels = labels * len(names) if len(labels) == 1 else labels
        found |= {f"luftpause_{service}_{name}": each for name, each in zip(names, labels, strict=True)}
    return found


@pytest.mark.parametrize("service", SERVICES)
async def test_the_table_has_what_the_page_has(service: str, tmp_path: Path) -> None:
    page = {name: known.labels for name, known in (await catalog(tmp_path)).items() if name.startswith(f"luftpause_{service}_")}
    assert len(page) > 15
    assert table(service) == page
