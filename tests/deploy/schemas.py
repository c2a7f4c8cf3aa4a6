"""How do these tests come by helm and by schemas of others? tools/get_deploy_tools.py puts them into the environment."""

import functools
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.validators import validator_for

from tests.conftest import missing

FOLDER = Path(sys.prefix) / "deploy"
MEND = "python tools/get_deploy_tools.py"


def helm_program() -> str:
    own = FOLDER / "helm"
    found = str(own) if own.exists() else shutil.which("helm")
    if found is None:
        missing("helm", MEND)
    return str(found)


@functools.cache
def schema(name: str) -> Any:
    path = FOLDER / f"{name}.json"
    if not path.exists():
        missing(f"the schema {name}", MEND)
    return json.loads(path.read_text())


def mistakes(name: str, document: object) -> list[str]:
    """What the schema of that name finds wrong with the document, each with its path."""
    found = validator_for(schema(name))(schema(name))
    return [f"{error.json_path}: {error.message[:300]}" for error in found.iter_errors(document)]


def kubernetes_mistakes(version: str, document: dict[str, Any]) -> list[str]:
    """What a cluster of that version finds wrong with an object, unknown fields too."""
    definitions = schema(f"kubernetes-{version}")["$defs"]
    said = [[document["apiVersion"]], [document["kind"]]]
    (kind,) = [name for name, each in definitions.items() if _constants(each) == said]
    found = Draft202012Validator({"$ref": f"#/$defs/{kind}", "$defs": definitions})
    return [f"{error.json_path}: {error.message[:300]}" for error in found.iter_errors(document)]


def _constants(definition: dict[str, Any]) -> list[Any]:
    return [definition.get("properties", {}).get(key, {}).get("enum") for key in ("apiVersion", "kind")]
