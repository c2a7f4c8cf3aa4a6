"""What does a YAML text say, on which line does each value stand, and what do its `${VAR}`s come to?"""

import os
import re
from collections.abc import Mapping
from typing import Any, Final, cast

import yaml
from msgspec import Struct

from luftpause.kit.errors import ConfigError

Path = tuple[str | int, ...]
DEPTH_MAX: Final = 32
MENDS: Final = {
    "mapping values are not allowed here": "a `key: value` can't stand here: there must be a space after each `-` and `:` "
    "of the line before, and this line must be indented as its neighbours",
    "but found another document": "`---` begins a second document, and only one is read",
    "special characters are not allowed": "it holds a control character; is this a text file?",
}
NODES_MAX: Final = 100_000  # aliases count each time they are used

_VARIABLE: Final = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\$\{[^}]*\}?")


class Parsed(Struct, frozen=True):
    """`raw` as it is written, `values` with variables expanded; `lines` count from 1; `mistakes` say what is wrong where."""

    raw: Any
    values: Any
    lines: dict[Path, int]
    mistakes: dict[Path, str] = {}

    def line(self, path: Path) -> int:
        """Where `path` stands, or the nearest part of the file that holds it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def written(self, path: Path) -> Any:
        """The value as it is written, variables unexpanded; None where the file has none."""
        value = self.raw
        for step in path:
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                return None
        return value


def parse(text: str, name: str, environment: Mapping[str, str] | None = None) -> Parsed:
    """Raises ConfigError naming `name` and line where this is no YAML; a key given twice and an unset variable are `mistakes`."""
    mistakes: dict[Path, str] = {}
    lines: dict[Path, int] = {}
    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            if node is not None:
                _walk(node, (), lines, mistakes, name)
            raw = cast("Any", loader.construct_document(node)) if node is not None else None
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}{_at(error)}: not valid YAML: {_why(error, text)}") from error
    except RecursionError as error:
        raise ConfigError(f"{name}: nested deeper than {DEPTH_MAX} levels") from error
    except ValueError as error:  # a date that is none
        raise ConfigError(f"{name}: not valid YAML: {error}") from error
    values = _expanded(raw, (), mistakes, os.environ if environment is None else environment)
    return Parsed(raw=raw, values=values, lines=lines, mistakes=mistakes)


def path_text(path: Path) -> str:
    """`replicas[1].health`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def _walk(node: yaml.Node, path: Path, lines: dict[Path, int], mistakes: dict[Path, str], name: str) -> None:
    line = node.start_mark.line + 1
    if len(path) > DEPTH_MAX:
        raise ConfigError(f"{name}:{line}: nested deeper than {DEPTH_MAX} levels")
    if len(lines) > NODES_MAX:
        raise ConfigError(f"{name}:{line}: more than {NODES_MAX} values, aliases included")
    lines.setdefault(path, line)
    match node:
        case yaml.MappingNode():
            seen = set[str]()
            for key, value in node.value:
                inner = (*path, str(key.value))
                if key.value in seen:
                    mistakes[inner] = "given twice"
                seen.add(key.value)
                lines[inner] = key.start_mark.line + 1
                _walk(value, inner, lines, mistakes, name)
        case yaml.SequenceNode():
            for index, value in enumerate(node.value):
                _walk(value, (*path, index), lines, mistakes, name)
        case _:
            pass


def _expanded(value: Any, path: Path, mistakes: dict[Path, str], environment: Mapping[str, str]) -> Any:
    match value:
        case str():
            return _filled(value, path, mistakes, environment)
        case dict():
            return {key: _expanded(each, (*path, str(key)), mistakes, environment) for key, each in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        case list():
            return [_expanded(each, (*path, index), mistakes, environment) for index, each in enumerate(value)]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        case _:
            return value


def _filled(text: str, path: Path, mistakes: dict[Path, str], environment: Mapping[str, str]) -> str:
    def fill(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        if match[1] is None:
            mistakes[path] = f"{match[0]} is no variable; write ${{NAME}} or ${{NAME:-default}}, and $$ for a plain $"
            return ""
        found = environment.get(match[1], "")
        if found or match[2] is not None:
            return found or match[2]
        mistakes[path] = f"the environment variable {match[1]} is not set; set it, or write ${{{match[1]}:-default}}"
        return ""

    return _VARIABLE.sub(fill, text)


def _at(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    return f":{mark.line + 1}" if mark is not None else ""


def _why(error: yaml.YAMLError, text: str) -> str:
    problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or error)
    mark: yaml.Mark | None = getattr(error, "problem_mark", None)
    line = text.splitlines()[mark.line] if mark is not None and mark.line < len(text.splitlines()) else ""
    if "\\t" in problem and "cannot start" in problem:
        return "a tab at the beginning; YAML is indented with spaces"
    if problem.startswith("expected <block end>"):
        return "this line is not indented as those before it"
    if mark is not None and line[: mark.column].endswith("$") and line[mark.column :].startswith("{"):
        return "within { } or [ ] a value with ${…} must be quoted"
    return MENDS.get(problem, problem)
