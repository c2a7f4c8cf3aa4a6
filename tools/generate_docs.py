"""Writes docs/configuration.md from the models in luftpause.kit.config.

Run it with the package installed: `python tools/generate_docs.py`. A test compares the file with what this would write.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from luftpause.kit.config import Config
from luftpause.kit.config_base import Section

TARGET = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"

HEAD = """\
# Configuration

All settings stand in one YAML file, by convention `luftpause.yaml`, which every service takes with `--config`. Each has a default: a file
names only what differs, and without a file everything has its default. `luftpause config check luftpause.yaml` says what a file sets up, or
names every mistake with its line.

- **Variables.** `${VAR}` in a value is replaced by the environment variable; unset is an error. `${VAR:-default}` has a default. `$$` is a
  plain `$`. Within `{ }` and `[ ]` such a value must be quoted.
- **Overrides.** `LUFTPAUSE_<SECTION>__<KEY>` (two underscores) sets a single value over the file's: `LUFTPAUSE_DATAPLANE__PORT=9090`.
  Sections: SCHEDULER, DATAPLANE, RUNTIME, GOVERNOR, AUTH, LOG. Lists and mappings are set in the file only. Names without two underscores
  are reserved.
- **Secrets.** Keys stand in environment variables only; the file names them (`api_key_env`).
- **Paths.** `~` is the user's home; a relative path begins where the service was started.
- **Changes.** `replicas` and `governor.targets` are read again when the file has changed (once it has stopped changing, about two
  seconds) and on SIGHUP, by the scheduler and by `luftpause up`. Turns in flight stay where they are. A file with a mistake is not taken:
  the log names it with its line, and what was read before stays. So does a file without the key `replicas`; `replicas: []` removes all.
  Other keys, a target's `proxy` among them, take effect when the services are started anew; the log names those that have changed.

```yaml
replicas:
  - name: a
    url: http://127.0.0.1:8000
  - name: hosted
    url: https://api.example.com/v1
    models: [large-model]
    load: none
    health: null
    max_in_flight: 32
    api_key_env: HOSTED_API_KEY
dataplane:
  port: ${PORT:-8080}
```

Examples for each kind of replica: [operations](operations.md#replicas).

This page is generated from the models in `services/luftpause/kit/config.py` and `config_governor.py` by `python tools/generate_docs.py`.
"""


def page() -> str:
    """The whole page."""
    return HEAD + "".join(_section(name, field) for name, field in Config.model_fields.items())


def _section(name: str, field: FieldInfo) -> str:
    model = _inner_model(field.annotation)
    if model is None:
        raise TypeError(f"{name} is no section")
    many = get_origin(field.annotation) is tuple
    title = f"`{name}`: a list, one entry per replica" if many else f"`{name}`"
    return f"\n## {title}\n\n{field.description}\n{_table(model)}{''.join(_nested(model, name))}"


def _nested(model: type[Section], path: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        inner = _inner_model(field.annotation)
        if inner is not None:
            where = f"{path}.{name}{_step(field.annotation)}"
            yield f"\n### `{where}`\n\n{(inner.__doc__ or '').strip()}\n{_table(inner)}"
            yield from _nested(inner, where)


def _step(annotation: Any) -> str:
    """How an entry is reached: of a mapping by its name, of a list by its place, a section as it is."""
    origins = {get_origin(each) for each in (annotation, *get_args(annotation))}
    return ".<name>" if dict in origins else "[]" if tuple in origins else ""


def _table(model: type[Section]) -> str:
    rows = [
        f"| `{name}` | {_type(field)} | {_default(field)} | {_cell(field.description or '')} |\n"
        for name, field in model.model_fields.items()
    ]
    return "\n| key | type | default | meaning |\n|---|---|---|---|\n" + "".join(rows)


def _default(field: FieldInfo) -> str:
    value: Any = field.default
    if value is PydanticUndefined:
        return "required"
    if value is None or isinstance(value, Section):
        return "not given" if value is None else "as below"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return ", ".join(f"`{each}`" for each in value) or "none"  # pyright: ignore[reportUnknownVariableType]
    if value in ({}, ""):
        return "none"
    return f"`{value}`"


def _type(field: FieldInfo) -> str:
    bounds = [text for each in field.metadata if (text := _bound(each))]
    kind = _kind(field.annotation)
    return _cell(f"{kind}, {' and '.join(bounds)}" if bounds else kind)


def _kind(annotation: Any) -> str:
    """A type in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        bounds = [text for each in arguments[1:] for part in getattr(each, "metadata", [each]) if (text := _bound(part))]
        return ", ".join([_kind(arguments[0]), " and ".join(bounds)] if bounds else [_kind(arguments[0])])
    if origin is Literal:
        return " or ".join(f"`{each}`" for each in arguments)
    if origin in {Union, UnionType}:
        return _kind(next(each for each in arguments if each is not type(None)))
    if origin is tuple:
        return f"list of {_kind(arguments[0])}"
    if origin is dict:
        return f"mapping of {_kind(arguments[0])} to {_kind(arguments[1])}"
    names: dict[Any, str] = {str: "text", bool: "boolean", int: "integer", float: "number", Path: "path"}
    return names.get(annotation, "an entry as below")


def _bound(constraint: Any) -> str:
    signs = (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<"))
    found = [f"{sign} {getattr(constraint, name)}" for name, sign in signs if getattr(constraint, name, None) is not None]
    return " and ".join(found)


def _inner_model(annotation: Any) -> type[Section] | None:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next((found for each in get_args(annotation) if (found := _inner_model(each))), None)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    target.write_text(page(), encoding="utf-8")
