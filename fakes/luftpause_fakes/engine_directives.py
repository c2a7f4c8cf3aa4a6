"""Which behaviour does a task order from the fake engine in square brackets? (`luftpause fake-engine --help` explains each.)

`[calls=2 tool=lookup answer=40 args={"query":"x"}]` anywhere in a user message; later messages override earlier ones.
"""

import re
from json import JSONDecoder  # orjson reads no prefix of a text
from typing import Any, Literal, get_args

from msgspec import Struct, structs

Form = Literal["structured", "text", "fenced", "bare", "cut"]


class Directives(Struct, frozen=True):
    """None: not ordered. A new one needs a line in cli/fakes.py."""

    calls: int | None = None
    parallel: int | None = None
    tool: str | None = None
    args: dict[str, Any] | None = None
    form: str | None = None
    malformed: int | None = None
    unknown: int | None = None
    ids: str | None = None
    answer: int | None = None
    say: str | None = None
    finish: str | None = None


NUMBERS_MAX = 100_000
_NAMES = Directives.__struct_fields__
_NUMBERS = {"calls", "parallel", "malformed", "unknown", "answer"}
_OPENING = re.compile(r"\[(?=(?:" + "|".join(_NAMES) + r")=)")
_NAME = re.compile(r"\s*(\w+)=")
_decoder = JSONDecoder()
_WORD = re.compile(r"[^\s\]]+")


class DirectiveError(ValueError):
    """The task orders something that doesn't exist; the message says what does."""


def directives(texts: list[str]) -> Directives:
    """Arguments may hold directives for somebody else, as a sub-agent's task does. Raises DirectiveError."""
    ordered = Directives()
    for text in texts:
        at = 0
        while opening := _OPENING.search(text, at):
            values, at = _read(text, opening.end())
            ordered = structs.replace(ordered, **values)
    return ordered


def without_directives(text: str) -> str:
    """The task as a person would say it. Raises DirectiveError."""
    while opening := _OPENING.search(text):
        text = text[: opening.start()].rstrip() + text[_read(text, opening.end())[1] :]
    return text.strip()


def _read(text: str, at: int) -> tuple[dict[str, Any], int]:
    values: dict[str, Any] = {}
    while match := _NAME.match(text, at):
        name = match.group(1)
        if name not in _NAMES:
            raise DirectiveError(f"the task's directive {name!r} is unknown; there are {', '.join(_NAMES)}")
        value, at = _value(text, match.end(), name)
        values[name] = _checked(name, value)
    closing = re.compile(r"\s*\]").match(text, at)
    if closing is None:
        raise DirectiveError(f"the task's directive is not closed by ]: {text[at : at + 40]!r}")
    return values, closing.end()


def _value(text: str, at: int, name: str) -> tuple[Any, int]:
    if text[at : at + 1] not in {"{", '"'}:
        word = _WORD.match(text, at)
        return (word.group(), word.end()) if word else ("", at)
    try:
        return _decoder.raw_decode(text, at)
    except ValueError as error:
        raise DirectiveError(f"the task's directive {name} is not JSON: {error}") from None


def _checked(name: str, value: Any) -> Any:
    if name in _NUMBERS:
        if not str(value).isdecimal() or int(value) > NUMBERS_MAX:
            raise DirectiveError(f"the task's directive {name}={value} must be a number from 0 to {NUMBERS_MAX}")
        return int(value)
    if name == "form" and value not in get_args(Form):
        raise DirectiveError(f"the task's directive form={value} must be one of {', '.join(get_args(Form))}")
    if name == "args" and value.__class__ is not dict:
        raise DirectiveError('the task\'s directive args must be a JSON object, as in args={"query":"x"}')
    return value
