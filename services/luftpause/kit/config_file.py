"""How does `luftpause.yaml` become a `Config`, and how is a mistake in it reported?"""

import os
import re
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, cast, get_args, get_origin

from msgspec import Struct
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from luftpause.kit import yaml_text
from luftpause.kit.config import Config
from luftpause.kit.config_base import Section
from luftpause.kit.config_words import message, near
from luftpause.kit.errors import ConfigError
from luftpause.kit.yaml_text import Parsed, path_text

PREFIX: Final = "LUFTPAUSE_"
MISTAKES_MAX: Final = 10
FILE_BYTES_MAX: Final = 2**20

_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def load(path: Path | None, environment: Mapping[str, str] | None = None) -> Config:
    """Read the file (None: all defaults) and the environment; raises ConfigError.

    `LUFTPAUSE_<SERVICE>__<KEY>` variables override scalars of the file.
    """
    environment = os.environ if environment is None else environment
    name = str(path) if path is not None else "luftpause.yaml"
    parsed = yaml_text.parse(_read(path) if path is not None else "", name, environment)
    values: Any = {} if parsed.values is None else parsed.values
    if not isinstance(values, dict):
        raise ConfigError(f"{name}:1: must be a mapping of {', '.join(Config.model_fields)}")
    overrides = _overrides(environment)
    found = _Mistakes(name, parsed, overrides)
    found.of_names(values)  # pyright: ignore[reportUnknownArgumentType]
    config = None
    try:
        config = Config.model_validate(_overridden(values, overrides, environment))  # pyright: ignore[reportUnknownArgumentType]
    except ValidationError as error:
        found.of_values(error.errors(include_url=False))
    if config is None or found.lines:
        raise ConfigError(found.text())
    return config


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise ConfigError(f"{path}: longer than {FILE_BYTES_MAX} bytes; is this the right file?")
        return data.decode()
    except OSError as error:
        raise ConfigError(f"{path}: can't be read: {error.strerror or error}; is the path right?") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text ({error.reason}); save it as UTF-8") from error


# ---- the environment --------------------------------------------------------------------------------------------


class _Overrides(Struct, frozen=True):
    """Which variable sets what, and which can't."""

    variables: dict[yaml_text.Path, str]
    mistakes: list[str]


def _overrides(environment: Mapping[str, str]) -> _Overrides:
    variables: dict[yaml_text.Path, str] = {}
    mistakes: list[str] = []
    for name in sorted(environment):
        if name.startswith(PREFIX) and "__" in name:
            section, _, key = name.removeprefix(PREFIX).lower().partition("__")
            if mistake := _unknown(section, key):
                mistakes.append(f"{name}: {mistake}")
            else:
                variables[section, key] = name
    return _Overrides(variables, mistakes)


def overlooked(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Variables that set nothing, and those that were meant: one underscore, or small letters, where two and capitals count."""
    meant = {
        f"{section}_{key}": f"{PREFIX}{section.upper()}__{key.upper()}"
        for section, model in _sections().items()
        for key in model.model_fields
    }
    found: list[tuple[str, str]] = []
    for name in sorted(environment):
        plain = name.lower().removeprefix(PREFIX.lower()).replace("__", "_")
        if name.upper().startswith(PREFIX) and plain in meant and name != meant[plain]:
            found.append((name, meant[plain]))
    return found


def _sections() -> dict[str, type[Section]]:
    return {each: model for each, field in Config.model_fields.items() if (model := _model(field.annotation)) is not None}


def _unknown(section: str, key: str) -> str:
    """Why there is no such setting, or it is no scalar; empty: there is."""
    models = _sections()
    model = models.get(section)
    if model is None:
        return f"no section {section}{near(section, list(models))}"
    if key not in model.model_fields:
        return f"{section} has no key {key}{near(key, list(model.model_fields))}"
    if not _scalar(model.model_fields[key].annotation):
        return f"{section}.{key} is a list or mapping; set it in the file"
    return ""


def _overridden(values: dict[str, Any], overrides: _Overrides, environment: Mapping[str, str]) -> dict[str, Any]:
    result = dict(values)
    for path, variable in overrides.variables.items():
        section, key = str(path[0]), str(path[1])
        given: Any = result.get(section) or {}
        if isinstance(given, dict):
            result[section] = {**given, key: environment[variable]}
    return result


# ---- mistakes ---------------------------------------------------------------------------------------------------


class _Mistakes:
    """All mistakes of one file and its environment; `lines` are for a person, those of the file in its order."""

    def __init__(self, name: str, parsed: Parsed, overrides: _Overrides) -> None:
        self._name = name
        self._parsed = parsed
        self._variables = overrides.variables
        self._at = {path: _no_value(path, parsed) or mistake for path, mistake in parsed.mistakes.items()}
        self._elsewhere = list(overrides.mistakes)

    @property
    def lines(self) -> list[str]:
        placed = sorted(self._at.items(), key=lambda item: self._parsed.line(item[0]))
        return [*(f"{self._place(path)}: {message}" for path, message in placed), *self._elsewhere]

    def text(self) -> str:
        lines = self.lines
        return "\n".join([*lines[:MISTAKES_MAX], *([f"and {len(lines) - MISTAKES_MAX} more"] if len(lines) > MISTAKES_MAX else [])])

    def of_names(self, values: dict[str, Any]) -> None:
        """Two replicas with one name."""
        replicas = values.get("replicas")
        seen = set[str]()
        for index, replica in enumerate(cast("list[object]", replicas) if isinstance(replicas, list) else []):
            name = cast("dict[str, object]", replica).get("name") if isinstance(replica, dict) else None
            if isinstance(name, str):
                if name in seen:
                    self._at["replicas", index, "name"] = f"{name!r} is taken; each replica needs a name of its own"
                seen.add(name)

    def of_values(self, errors: Sequence[ErrorDetails]) -> None:
        for error in errors:
            path = tuple(error["loc"])
            told = not path and self._at  # what is wrong as a whole was said of a part
            if told or any(path[: len(known)] == known for known in self._at):
                continue
            if variable := self._variables.get(path):
                self._elsewhere.append(f"{variable}: {message(error, None, ())}")
            else:
                self._at[path] = message(error, self._parsed.written(path), _keys_at(path[:-1]))

    def _place(self, path: yaml_text.Path) -> str:
        return f"{self._name}:{self._parsed.line(path)}: {path_text(path)}".removesuffix(": ")


def _no_value(path: yaml_text.Path, parsed: Parsed) -> str:
    """Of `api_key_env: ${KEY}`, where KEY is not set; setting it would make the key itself stand where a name belongs."""
    found = _REFERENCE.fullmatch(str(parsed.written(path)))
    key = str(path[-1]) if path else ""
    return f"{key} takes the name of a variable, not its value: write `{key}: {found[1]}`" if found and key.endswith("_env") else ""


def _keys_at(path: yaml_text.Path) -> list[str]:
    annotation: Any = Config
    for step in path:
        model = _model(annotation)
        annotation = model.model_fields[step].annotation if model is not None and step in model.model_fields else _item(annotation)
    model = _model(annotation)
    return list(model.model_fields) if model is not None else []


def _item(annotation: Any) -> Any:
    """Of a tuple its items' type, of a dict its values', also where None may be instead."""
    inner = [each for each in get_args(annotation) if each is not Ellipsis and each is not type(None)]
    if get_origin(annotation) in {Union, types.UnionType}:
        return _item(inner[-1]) if inner else None
    return inner[-1] if inner else None


def _model(annotation: Any) -> type[Section] | None:
    """The section that this is, or may be."""
    if get_origin(annotation) in {Union, types.UnionType}:
        return next((found for each in get_args(annotation) if (found := _model(each)) is not None), None)
    return annotation if isinstance(annotation, type) and issubclass(annotation, Section) else None


def _scalar(annotation: Any) -> bool:
    origin = get_origin(annotation)
    if origin is Literal:
        return True
    if origin is Annotated:
        return _scalar(get_args(annotation)[0])
    if origin in {Union, types.UnionType}:
        return all(_scalar(each) for each in get_args(annotation) if each is not type(None))
    return isinstance(annotation, type) and not issubclass(annotation, Section | tuple | dict | list)
