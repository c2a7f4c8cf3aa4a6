"""Can the examples in the documentation be used as they are?"""

import re
from pathlib import Path

import pytest

from luftpause.cli.config_notes import notes
from luftpause.kit.config_file import load

DOCS = Path(__file__).resolve().parents[3] / "docs"
EXAMPLES = [
    pytest.param(text, id=f"{page.name}-{number}")
    for page in sorted(DOCS.glob("*.md"))
    for number, text in enumerate(re.findall(r"```yaml\n(.*?)```", page.read_text(), flags=re.DOTALL))
    if re.search(r"^(replicas|scheduler|dataplane|runtime|log):", text, flags=re.MULTILINE)
]


@pytest.mark.parametrize("text", EXAMPLES)
def test_every_configuration_that_is_shown_is_right_and_holds_no_surprise(text: str, tmp_path: Path):
    path = tmp_path / "luftpause.yaml"
    path.write_text(text)
    config = load(path, {})
    said = [
        note
        for note in notes(config, {"HOSTED_API_KEY": "k", "OPENAI_API_KEY": "k"})
        if "takes any model" not in note and "is the sum of" not in note
    ]
    assert said == []


def test_there_are_examples():
    assert len(EXAMPLES) >= 5
