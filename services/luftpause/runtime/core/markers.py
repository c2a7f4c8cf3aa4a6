"""Which markers announce a tool call in a model's text, and where does the call end?

| written | by |
|---|---|
| `<tool_call>{…}</tool_call>` | Hermes, Qwen; with `<function=…>` inside: Qwen3-Coder; `name<arg_key>…` inside: GLM |
| `<function=name>{…}</function>` | Llama 3.1; the closing tag may be missing at the end of the text |
| `<invoke name="…"><parameter name="…">…</parameter></invoke>` | Claude's older form |
| `[TOOL_CALLS][{…}]`, `[TOOL_CALLS]name[ARGS]{…}` | Mistral |
| `<|python_tag|>{…}`, `<|python_tag|>name.call(arg=1)` | Llama 3 |
| `<|tool_call_start|>[name(arg=1)]<|tool_call_end|>` | LFM2 |
"""

import re
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from luftpause.runtime.core import loose_json
from luftpause.runtime.core.loose_json import NotJson
from luftpause.runtime.core.pythonic import CHARS_MAX, python_calls
from luftpause.runtime.core.written import WrittenCall, calls_of

MARKERS: Final = re.compile(
    r"""(?:(?P<tool_call><tool_call>)
    |(?P<function><function=(?P<called>[^\s<>"]{1,64})>)
    |(?P<invoke><invoke[ ]name="(?P<invoked>[^"<>]{1,64})">)
    |(?P<mistral>\[TOOL_CALLS\])
    |(?P<python><\|python_tag\|>)
    |(?P<lfm><\|tool_call_start\|>))\s*""",
    re.VERBOSE,
)
WRAPPERS: Final = re.compile(r"</?(?:function_calls|tool_calls)>|<\|(?:eom_id|eot_id|im_end)\|>")

_PARAMETER: Final = re.compile(
    r"""<parameter(?:=|\ name=")(?P<name>[^"<>\s]{1,128})"?>\n?(?P<value>.*?)\n?</parameter>\s*""", re.DOTALL | re.VERBOSE
)
_KEYED: Final = re.compile(r"(?P<name>[A-Za-z0-9_.-]{1,64})\s*(?=<arg_key>|</tool_call>)")
_PAIR: Final = re.compile(r"<arg_key>(?P<name>[^<>]{1,128})</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>\s*", re.DOTALL)
_NAMED: Final = re.compile(r"(?P<name>[A-Za-z0-9_.-]{1,64})(?:\[CALL_ID\][A-Za-z0-9]*)?(?:\[ARGS\])?\s*(?=\{)")
_PYTHON_END: Final = re.compile(r"<\|(?:eom_id|eot_id)\|>|\Z")


class Found(Struct, frozen=True):
    """`end` is the index behind the call's last character."""

    calls: tuple[WrittenCall, ...]
    end: int


def calls_behind(text: str, opening: re.Match[str]) -> Found | None:
    """The closed call or calls that begin at this match of `MARKERS`; None: unclosed, or none at all."""
    try:
        found = _READERS[opening.lastgroup or ""](text, opening)
    except NotJson:
        return None
    return found if found and found.calls else None


def _tool_call(text: str, opening: re.Match[str]) -> Found | None:
    start = opening.end()
    if inner := MARKERS.match(text, start):
        within = _function(text, inner) if inner.lastgroup == "function" else None
        return _closed(text, within, "</tool_call>")
    if keyed := _KEYED.match(text, start):
        return _closed(text, _parameters(text, keyed["name"], keyed.end(), _PAIR), "</tool_call>")
    try:
        value, end = loose_json.parse_at(text, start)
    except NotJson:
        end = text.find("</tool_call>", start)
        value = loose_json.parse(text[start : max(end, start)])
    return _closed(text, Found(calls_of(value), end), "</tool_call>")


def _function(text: str, opening: re.Match[str]) -> Found | None:
    name, start = opening["called"], opening.end()
    if text.startswith("{", start):
        value, end = loose_json.parse_at(text, start)
        found = Found((WrittenCall(name, value),), end)
        return _closed(text, found, "</function>") or (found if not text[end:].strip() else None)
    return _closed(text, _parameters(text, name, start), "</function>")


def _invoke(text: str, opening: re.Match[str]) -> Found | None:
    return _closed(text, _parameters(text, opening["invoked"], opening.end()), "</invoke>")


def _mistral(text: str, opening: re.Match[str]) -> Found | None:
    start = opening.end()
    if text.startswith(("[", "{"), start):
        value, end = loose_json.parse_at(text, start)
        return Found(calls_of(value), end)
    calls: list[WrittenCall] = []
    while named := _NAMED.match(text, start):
        value, start = loose_json.parse_at(text, named.end())
        calls.append(WrittenCall(named["name"], value))
    return Found(tuple(calls), start)


def _python(text: str, opening: re.Match[str]) -> Found | None:
    start = opening.end()
    if not text.startswith(("{", "["), start):
        end = _PYTHON_END.search(text, start, start + CHARS_MAX + 1)
        return _pythonic(text, start, end.start() if end else len(text))
    calls: list[WrittenCall] = []
    while text.startswith(("{", "["), start):
        value, start = loose_json.parse_at(text, start)
        calls.extend(calls_of(value))
        start = _skip(text, start, separators="; \t\r\n")
    return Found(tuple(calls), start)


def _lfm(text: str, opening: re.Match[str]) -> Found | None:
    end = text.find("<|tool_call_end|>", opening.end())
    return _closed(text, _pythonic(text, opening.end(), end), "<|tool_call_end|>") if end >= 0 else None


def _pythonic(text: str, start: int, end: int) -> Found | None:
    written = python_calls(text[start:end])
    return Found(tuple(WrittenCall(name, arguments) for name, arguments in written), end) if written else None


def _parameters(text: str, name: str, start: int, form: re.Pattern[str] = _PARAMETER) -> Found:
    arguments: dict[str, str] = {}
    while parameter := form.match(text, start):
        arguments[parameter["name"].strip()] = parameter["value"]
        start = parameter.end()
    return Found((WrittenCall(name, arguments),), start)


def _closed(text: str, found: Found | None, tag: str) -> Found | None:
    """`found` with its closing tag; None if that doesn't follow."""
    if found is None:
        return None
    end = _skip(text, found.end)
    return Found(found.calls, end + len(tag)) if text.startswith(tag, end) else None


def _skip(text: str, start: int, separators: str = " \t\r\n") -> int:
    while start < len(text) and text[start] in separators:
        start += 1
    return start


_READERS: Final[dict[str, Callable[[str, re.Match[str]], Found | None]]] = {
    "tool_call": _tool_call,
    "function": _function,
    "invoke": _invoke,
    "mistral": _mistral,
    "python": _python,
    "lfm": _lfm,
}
