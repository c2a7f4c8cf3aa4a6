"""Does the documentation build without a complaint, ask nobody else, and name what there is?"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from luftpause.scheduler.core.decisions import HoldReason

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
FOREIGN = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=\"?(?:https?:)?//(?!github\.com/luftpause)[^\s>\"]*")


def text() -> str:
    return "\n".join(path.read_text() for path in DOCS.glob("*.md"))


@pytest.mark.timeout(300)
def test_the_site_builds_strictly_and_its_pages_ask_nobody_else(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(list(DOCS.glob("*.md")))
    foreign = {match for page in pages for match in FOREIGN.findall(page.read_text()) if 'rel="canonical"' not in match}
    assert not foreign


def test_the_commands_are_those_that_there_are(tmp_path: Path) -> None:
    written = tmp_path / "commands.md"
    subprocess.run([sys.executable, "tools/generate_cli_docs.py", str(written)], cwd=ROOT, check=True, env=wide())
    assert written.read_text() == (DOCS / "commands.md").read_text(), "run: python tools/generate_cli_docs.py"


def wide() -> dict[str, str]:
    return os.environ | {"COLUMNS": "200", "NO_COLOR": "1"}


@pytest.mark.parametrize("reason", [reason.value for reason in HoldReason])
def test_every_reason_to_hold_a_turn_is_explained(reason: str) -> None:
    assert f"| `{reason}` |" in (DOCS / "policies.md").read_text()


def test_every_header_of_ours_is_documented() -> None:
    """Those that stand in the sources, written out."""
    found = {name for path in (ROOT / "services").rglob("*.py") for name in re.findall(r"x-luftpause-[a-z]+(?:-[a-z]+)*", path.read_text())}
    found -= {"x-luftpause-hold", "x-luftpause-run", "x-luftpause-parent-run", "x-luftpause-turn"}  # parts of names, in patterns
    missing = sorted(name for name in found if name not in text() and name.removeprefix("x-luftpause") not in text())
    assert not missing
