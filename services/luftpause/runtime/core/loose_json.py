"""Which value did a model mean with text that is nearly JSON?"""

import json
import math
import re
from collections.abc import Iterable
from typing import Any, Final

from luftpause.runtime.core.json_types import is_list, is_object
from luftpause.runtime.ports import Json

CHARS_MAX: Final = 1_000_000
NESTING_MAX: Final = 100  # far below what the interpreter's stack bears
_FENCE: Final = "```"
_FENCE_OPENING: Final = re.compile(r"```[A-Za-z0-9_+-]*[ \t]*\r?\n?")


TOO_DEEP: Final = f"nested too deeply: more than {NESTING_MAX} levels"


class NotJson(ValueError):  # noqa: N818  (what the text is, not a fault of ours)
    """The text is no JSON value that could be passed on; the message says why."""


def unfence(text: str) -> str:
    """The content of a text that is one code fence, else the text."""
    stripped = text.strip()
    opening = _FENCE_OPENING.match(stripped)
    if opening is None or len(stripped) < opening.end() + len(_FENCE) or not stripped.endswith(_FENCE):
        return text
    inner = stripped[opening.end() : -len(_FENCE)]
    return text if _FENCE in inner else inner.rstrip(" \t").removesuffix("\n").removesuffix("\r")


def parse(text: str) -> Any:
    """JSON, also in a code fence, with trailing commas or raw control characters. Raises NotJson."""
    text = unfence(text).strip()
    if len(text) > CHARS_MAX:
        raise NotJson(f"longer than {CHARS_MAX:,} characters")
    try:
        return _load(text)
    except json.JSONDecodeError as error:
        mended = _without_trailing_commas(text)
        if mended == text:
            raise NotJson(f"not valid JSON: {error.msg} at character {error.pos}") from error
    try:
        return _load(mended)
    except json.JSONDecodeError as error:
        raise NotJson(f"not valid JSON: {error.msg} at character {error.pos}") from error


def parse_at(text: str, start: int) -> tuple[Any, int]:
    """The JSON value that begins at `start` and the index behind it. Raises NotJson."""
    if len(text) > CHARS_MAX:
        raise NotJson(f"longer than {CHARS_MAX:,} characters")
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise NotJson(f"not valid JSON: {error.msg}") from error
    except RecursionError as error:
        raise NotJson(TOO_DEEP) from error
    return _shallow(value), end


def dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(", ", ": "))


def _load(text: str) -> Any:
    try:
        return _shallow(_DECODER.decode(text))
    except RecursionError as error:
        raise NotJson(TOO_DEEP) from error


def _shallow(value: Any) -> Any:
    """`value`, whose every part can be reached by recursion. Raises NotJson."""
    level: list[Any] = [value]
    for _ in range(NESTING_MAX):
        level = [each for part in level for each in _parts(part)]
        if not level:
            return value
    raise NotJson(TOO_DEEP)


def _parts(value: Any) -> Iterable[Any]:
    if is_object(value):
        return value.values()
    return value if is_list(value) else ()


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise NotJson(f"the number {digits[:40]} is too big")
    return value


def _int(digits: str) -> int:
    if len(digits) > 308:  # beyond this a double can't hold it, and no tool expects it
        raise NotJson(f"the number {digits[:40]}… is too big")
    return int(digits)


def _constant(name: str) -> Any:
    raise NotJson(f"{name} is no JSON number")


def _pairs(pairs: list[tuple[str, Any]]) -> Json:
    value: Json = {}
    for key, each in pairs:
        if key in value and value[key] != each:
            raise NotJson(f"the key {key!r} is there twice with different values")
        value[key] = each
    return value


_DECODER: Final = json.JSONDecoder(strict=False, parse_float=_float, parse_int=_int, parse_constant=_constant, object_pairs_hook=_pairs)
# The last string may lack its end: else every quote of a broken text would be searched to the end of the text.
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\Z|\\\Z)|,(?=\s{0,1000}[}\]])', re.DOTALL)


def _without_trailing_commas(text: str) -> str:
    return _TOKEN.sub(lambda token: token[0] if token[0] != "," else "", text)
