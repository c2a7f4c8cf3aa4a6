"""How is a mistake in one value of the configuration told to a person?"""

import difflib
from collections.abc import Sequence
from typing import Final

from pydantic_core import ErrorDetails

from luftpause.kit.config_base import NAME_PATTERN, PATH_PATTERN, URL_PATTERN, VARIABLE_PATTERN

SHOWN_CHARS_MAX: Final = 60
PATTERNS: Final = {
    URL_PATTERN: "must begin with http:// or https:// and hold no spaces",
    NAME_PATTERN: "must be letters, digits, `.`, `_` and `-`, at most 64, the first a letter or digit",
    PATH_PATTERN: "must be a path alone, as in /health",
    VARIABLE_PATTERN: "must be the name of an environment variable (letters, digits and `_`); the key itself stands in that variable",
}
NUMBER: Final = "must be a number"
FINITE: Final = "must be a finite number"
WHOLE: Final = "must be a whole number"
LIST: Final = "must be a list: entries within [ ], or each on a line of its own that begins with `- `"
MAPPING: Final = "must be a mapping: lines of `key: value`, indented below it"
KINDS: Final = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": MAPPING,
    "finite_number": FINITE,
    "float_parsing": NUMBER,
    "float_type": NUMBER,
    "int_from_float": WHOLE,
    "int_parsing": WHOLE,
    "int_parsing_size": WHOLE,
    "int_type": WHOLE,
    "list_type": LIST,
    "model_type": MAPPING,
    "path_type": "must be a path",
    "string_type": "must be text: write it in quotes",
    "tuple_type": LIST,
}


def message(error: ErrorDetails, written: object, known: Sequence[str]) -> str:
    """What is wrong, and what is allowed. `written`: the value as the file has it, or None; `known`: the keys that may stand there."""
    kind, key = error["type"], str(error["loc"][-1] if error["loc"] else "")
    if kind == "extra_forbidden":
        return f"unknown key{near(key, known)}"
    if kind == "missing":
        return "is missing"
    if kind == "value_error":
        return error["msg"].removeprefix("Value error, ")
    if error["input"] is None:
        return "is empty; give it a value, or leave it out"
    if error["input"] == "" and written is None:
        return "is empty; give it a value, or unset it"
    return f"{'' if key.endswith('_env') else _shown(written)}{_allowed(error)}"  # where a name belongs, a key may stand by mistake


def near(word: str, known: Sequence[str]) -> str:
    """What was meant, or all that is allowed; empty where nothing is."""
    close = difflib.get_close_matches(word.lower().replace("-", "_"), known, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; allowed: {', '.join(known)}" if known else ""


def _allowed(error: ErrorDetails) -> str:
    if error["type"] == "literal_error":
        return f"must be {error.get('ctx', {}).get('expected', 'another value')}"
    if error["type"] == "string_pattern_mismatch" and (said := PATTERNS.get(str(error.get("ctx", {}).get("pattern")))):
        return said
    if said := KINDS.get(error["type"]):
        return said
    text = error["msg"]
    return text.replace("Input should", "should", 1) if text.startswith("Input should") else text[:1].lower() + text[1:]


def _shown(value: object) -> str:
    """The value as it is written in the file, so that no secret from a variable is shown; nothing for long or nested ones."""
    if isinstance(value, bool):
        return f"{str(value).lower()} "
    if isinstance(value, str | int | float) and len(text := str(value)) <= SHOWN_CHARS_MAX:
        return f"{text!r} " if isinstance(value, str) else f"{text} "
    return ""
