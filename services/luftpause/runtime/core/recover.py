"""Which tool calls did a model write as text?

Only closed forms that name an offered tool count. Markers (`core.markers`) may have text around them, but not stand in code; bare JSON
must be the whole answer or its end, on lines of its own; JSON in code fences and the pythonic list must be the whole answer, because with
text around them they are as often an explanation.
"""

import re
from collections.abc import Collection, Sequence
from typing import Any, Final

from msgspec import Struct

from luftpause.runtime.core import loose_json
from luftpause.runtime.core.loose_json import NotJson
from luftpause.runtime.core.markers import MARKERS, WRAPPERS, calls_behind
from luftpause.runtime.core.pythonic import python_calls
from luftpause.runtime.core.written import WrittenCall, calls_of

CALLS_MAX: Final = 64
LINES_TRIED_MAX: Final = 64
MARKERS_TRIED_MAX: Final = 256
_CODE: Final = re.compile(r"```.*?(?:```|\Z)|^~~~.*?(?:^~~~|\Z)|``[^\n]+?``|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_FENCE: Final = re.compile(r"```[A-Za-z0-9_+-]*[ \t]*\r?\n?(.*?)```", re.DOTALL)
# How a tool's answer begins in the chat templates, and whoever speaks next: what a model writes from there on it made up.
_RESPONSE: Final = re.compile(
    r"<(?:tool|function)_(?:response|result)s?>|\[TOOL_RESULTS\]|<\|tool_response_start\|>|<\|(?:start_header_id|im_start)\|>"
)
_RESPONSE_LINE: Final = re.compile(rf"^[ \t]*(?:{_RESPONSE.pattern})", re.MULTILINE)
# Templates may open the thought in the prompt, so that only its end is there, on a line's end.
_THOUGHT: Final = re.compile(
    r"\s*(?:<(?P<tag>think|thinking)>.*?</(?P=tag)>\s*)+|(?:(?!<think(?:ing)?>).)*?</think(?:ing)?>[ \t]*(?:\n|\Z)", re.DOTALL
)
_JSON_LINE: Final = re.compile(r"^[ \t]*(?=[{\[])", re.MULTILINE)


class Recovered(Struct, frozen=True):
    """`text` is what remains of the answer; a tool response that the model made up, and all behind it, is gone."""

    text: str
    calls: tuple[WrittenCall, ...]


def recover(content: str, offered: Collection[str]) -> Recovered | None:
    """The calls in `content`; None: it is an answer."""
    if not offered:
        return None
    thought = _THOUGHT.match(content) if "</think" in content else None
    body = content[thought.end() :] if thought else content
    found = _marked(loose_json.unfence(body.strip()), offered) or _found(_RESPONSE.split(body, maxsplit=1)[0].strip(), offered)
    if found is None and _RESPONSE.search(body):  # the mark may stand in an argument
        found = _found(body.strip(), offered)
    if found is None or len(found.calls) > CALLS_MAX or _RESPONSE.search(found.text):
        return None
    return Recovered((thought[0] + found.text if thought else found.text).strip(), found.calls)


def without_response(content: str) -> str:
    """The text beside an engine's own calls, without a tool response that the model made up, and all behind it."""
    return _RESPONSE_LINE.split(content, maxsplit=1)[0].rstrip() if _RESPONSE_LINE.search(content) else content


def _found(text: str, offered: Collection[str]) -> Recovered | None:
    unfenced = loose_json.unfence(text)
    return _marked(unfenced, offered) or _whole(unfenced, offered) or _fences(text, offered) or _end(text, offered)


def _marked(text: str, offered: Collection[str]) -> Recovered | None:
    """Calls behind a marker, up to a made-up response. Markers in code, unclosed ones and those with unknown names stay text."""
    code = [match.span() for match in _CODE.finditer(text)]
    calls: list[WrittenCall] = []
    rest: list[str] = []
    response: int | None = None
    kept = position = 0
    for _ in range(MARKERS_TRIED_MAX):
        opening = MARKERS.search(text, position)
        if opening is None or (response := _next_response(text, position, opening.start(), code)) is not None:
            break
        position = opening.end()
        if _within(opening.start(), code):
            continue
        found = calls_behind(text, opening)
        if found is None or any(call.name not in offered for call in found.calls):
            continue
        calls.extend(found.calls)
        rest.append(text[kept : opening.start()])
        kept = position = found.end
    if not calls:
        return None
    if response is None:
        response = _next_response(text, position, len(text), code)
    rest.append(text[kept:response])
    return Recovered(WRAPPERS.sub("", "".join(rest)), tuple(calls))


def _next_response(text: str, start: int, end: int, code: Sequence[tuple[int, int]]) -> int | None:
    """Where the first made-up response that is not in code begins."""
    return next((each.start() for each in _RESPONSE.finditer(text, start, end) if not _within(each.start(), code)), None)


def _within(index: int, spans: Sequence[tuple[int, int]]) -> bool:
    return any(start <= index < end for start, end in spans)


def _whole(text: str, offered: Collection[str]) -> Recovered | None:
    """The whole text is JSON or a pythonic list."""
    if text[:1] not in {"{", "["}:
        return None
    calls = _json_calls(text, offered)
    if calls is None and text.startswith("["):
        written = python_calls(text) or ()
        calls = _offered(tuple(WrittenCall(name, arguments) for name, arguments in written), offered)
    return Recovered("", calls) if calls else None


def _fences(text: str, offered: Collection[str]) -> Recovered | None:
    """Several code fences, nothing between them, each a call."""
    if not text.startswith("```") or _FENCE.sub("", text).strip():
        return None
    calls: list[WrittenCall] = []
    for fence in _FENCE.finditer(text):
        found = _json_calls(fence[1].strip(), offered)
        if not found:
            return None
        calls.extend(found)
    return Recovered("", tuple(calls)) if calls else None


def _end(text: str, offered: Collection[str]) -> Recovered | None:
    """Text, then bare JSON on lines of its own up to the end."""
    if "```" in text or not text.endswith(("}", "]")):
        return None
    for count, line in enumerate(_JSON_LINE.finditer(text)):
        if count == LINES_TRIED_MAX:
            return None
        if calls := _json_calls(text[line.end() :], offered):
            return Recovered(text[: line.start()], calls)
    return None


def _json_calls(text: str, offered: Collection[str]) -> tuple[WrittenCall, ...] | None:
    """The calls of a text that is one JSON value, or several behind each other, and nothing else."""
    try:
        values = [loose_json.parse(text)]
    except NotJson:
        values = _values(text)
    calls: list[WrittenCall] = []
    for value in values:
        found = calls_of(value)
        if not found:
            return None
        calls.extend(found)
    return _offered(tuple(calls), offered)


def _values(text: str) -> list[Any]:
    """JSON values with blanks, commas or semicolons between them; [] if there is anything else."""
    values: list[Any] = []
    position = 0
    while position < len(text):
        try:
            value, position = loose_json.parse_at(text, position)
        except NotJson:
            return []
        values.append(value)
        while position < len(text) and text[position] in " \t\r\n,;":
            position += 1
    return values


def _offered(calls: tuple[WrittenCall, ...], offered: Collection[str]) -> tuple[WrittenCall, ...] | None:
    return calls if calls and all(call.name in offered for call in calls) else None
