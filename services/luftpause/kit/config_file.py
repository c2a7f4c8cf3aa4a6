"""How does `luftpause.yaml` become a `Config`, and how is a mistake in it reported?"""

import difflib
import os
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from luftpause.kit import yaml_text
from luftpause.kit.config import Config, Section
from luftpause.kit.errors import ConfigError
from luftpause.kit.yaml_text import Parsed, path_text

PREFIX: Final = "LUFTPAUSE_"
MISTAKES_MAX: Final = 10
SHOWN_CHARS_MAX: Final = 60
FILE_BYTES_MAX: Final = 2**20


def load(path: Path | None, environment: Mapping[str, str] | None = None) -> Config:
    """Read the file (None: all defaults) and the environment; raises ConfigError.

    `LUFTPAUSE_<SERVICE>__<KEY>` variables override scalars of the file.
    """
    environment = os.environ if environment is None else environment
    name = str(path) if path is not None else "luftpause.yaml"
    parsed = yaml_text.parse(_read(path) if path is not None else "", name, environment)
    values: Any = {} if parsed.values is None else parsed.values
    if not isinstance(values, dict):
        raise ConfigError(f"{name}:1: must be a mapping of {_listed(list(Config.model_fields))}")
    overridden, variables = _overridden(values, environment)  # pyright: ignore[reportUnknownArgumentType]
    try:
        return Config.model_validate(overridden)
    except ValidationError as error:
        mistakes = error.errors(include_url=False)
        lines = [_mistake(each, parsed, name, variables) for each in mistakes[:MISTAKES_MAX]]
        more = [f"and {len(mistakes) - MISTAKES_MAX} more"] if len(mistakes) > MISTAKES_MAX else []
        raise ConfigError("\n".join(dict.fromkeys(lines + more))) from None


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ConfigError(f"{path}: longer than {FILE_BYTES_MAX} bytes; is this the right file?")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: can't be read: {error.strerror or error}; name another with --config") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text: {error.reason}") from error


# ---- the environment --------------------------------------------------------------------------------------------


def _overridden(values: dict[str, Any], environment: Mapping[str, str]) -> tuple[dict[str, Any], dict[yaml_text.Path, str]]:
    """The values with those of the environment, and which variable set what."""
    result, variables = dict(values), dict[yaml_text.Path, str]()
    for name in sorted(environment):
        if name.startswith(PREFIX) and "__" in name:
            section, key = _setting(name)
            given: Any = result.get(section) or {}
            result[section] = {**given, key: environment[name]} if isinstance(given, dict) else given
            variables[section, key] = name
    return result, variables


def _setting(name: str) -> tuple[str, str]:
    """Section and key that a variable names. Raises ConfigError when there is none, or it is no scalar."""
    section, _, key = name.removeprefix(PREFIX).lower().partition("__")
    sections = [each for each, field in Config.model_fields.items() if _model(field.annotation) is not None and each != "replicas"]
    if section not in sections:
        raise ConfigError(f"{name}: no section {section}{_near(section, sections)}")
    model = _model(Config.model_fields[section].annotation)
    assert model is not None  # noqa: S101 - one of `sections`
    if key not in model.model_fields:
        raise ConfigError(f"{name}: {section} has no key {key}{_near(key, list(model.model_fields))}")
    if not _scalar(model.model_fields[key].annotation):
        raise ConfigError(f"{name}: {section}.{key} is a list or mapping; set it in the file")
    return section, key


# ---- mistakes ---------------------------------------------------------------------------------------------------


def _mistake(error: ErrorDetails, parsed: Parsed, name: str, variables: Mapping[yaml_text.Path, str]) -> str:
    path: yaml_text.Path = tuple(error["loc"])
    place = f"{name}:{parsed.line(path)}: {path_text(path)}".removesuffix(": ")
    where = variables.get(path, place)
    if error["type"] == "extra_forbidden":
        return f"{where}: unknown key{_near(str(path[-1]), _keys_at(path[:-1]))}"
    if error["type"] == "missing":
        return f"{where}: is missing"
    if error["type"] == "value_error":
        return f"{where}: {error['msg'].removeprefix('Value error, ')}"
    return f"{where}: {_shown(parsed.written(path))}{_allowed(error)}"


def _allowed(error: ErrorDetails) -> str:
    if error["type"] == "literal_error":
        return f"must be {error.get('ctx', {}).get('expected', 'another value')}"
    message = error["msg"]
    return message.replace("Input should", "should", 1) if message.startswith("Input should") else message[:1].lower() + message[1:]


def _shown(value: object) -> str:
    """The value as it is written in the file, so that no secret from a variable is shown; nothing for long or nested ones."""
    if isinstance(value, str | int | float | bool) and len(text := str(value)) <= SHOWN_CHARS_MAX:
        return f"{text!r} " if isinstance(value, str) else f"{text} "
    return ""


def _near(word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; allowed: {_listed(known)}" if known else ""


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words)


def _keys_at(path: yaml_text.Path) -> list[str]:
    annotation: Any = Config
    for step in path:
        model = _model(annotation)
        annotation = model.model_fields[step].annotation if model is not None and step in model.model_fields else _item(annotation)
    model = _model(annotation)
    return list(model.model_fields) if model is not None else []


def _item(annotation: Any) -> Any:
    """Of a tuple its items' type, of a dict its values'."""
    inner = [each for each in get_args(annotation) if each is not Ellipsis]
    return inner[-1] if inner else None


def _model(annotation: Any) -> type[Section] | None:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return None


def _scalar(annotation: Any) -> bool:
    origin = get_origin(annotation)
    if origin is Literal:
        return True
    if origin is Annotated:
        return _scalar(get_args(annotation)[0])
    if origin in {Union, types.UnionType}:
        return all(_scalar(each) for each in get_args(annotation) if each is not type(None))
    return isinstance(annotation, type) and not issubclass(annotation, Section | tuple | dict | list)
