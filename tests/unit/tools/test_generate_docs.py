"""Does docs/configuration.md say what the models say?"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from luftpause.kit.config import Config, Section

ROOT = Path(__file__).resolve().parents[3]


def sections(annotation: object) -> Iterator[type[Section]]:
    """All models that a type is made of, at any depth."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
        for field in annotation.model_fields.values():
            yield from sections(field.annotation)
    for each in get_args(annotation):
        yield from sections(each)


def test_the_page_is_the_one_that_the_models_give(tmp_path: Path) -> None:
    target = tmp_path / "configuration.md"
    subprocess.run([sys.executable, str(ROOT / "tools/generate_docs.py"), str(target)], check=True)
    stale = "docs/configuration.md is stale: run python tools/generate_docs.py"
    assert (ROOT / "docs/configuration.md").read_text(encoding="utf-8") == target.read_text(encoding="utf-8"), stale


@pytest.mark.parametrize("model", sorted({*sections(Config)}, key=lambda model: model.__name__))
def test_every_setting_has_its_help_and_its_row(model: type[Section]) -> None:
    page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    for name, field in model.model_fields.items():
        assert field.description, f"{model.__name__}.{name} has no description"
        if model is not Config:
            assert f"| `{name}` |" in page
