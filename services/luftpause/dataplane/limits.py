"""What does a turn at a hosted API tell of its limits, and how is its request cut where they get tight?

Every byte of a body that is not cut stays.
"""

import re
from math import ceil
from typing import Final

import msgspec
from msgspec import Raw, Struct

from luftpause.dataplane.observe import as_object, error_text, parse
from luftpause.kit.quota_evidence import limits_of

REFUSED: Final = 429  # what a good answer that tells of a refusal should have been
LIMITED: Final = frozenset({REFUSED, 529})  # 529: Anthropic is overloaded
MAYBE_LIMITED: Final = frozenset({403, 503})
SAYS_SO: Final = (b"\r\nretry-after", b"\r\nx-ratelimit-remaining: 0\r\n")
SPLICES_MAX: Final = 16  # fields of one name that are looked at
LENGTHS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens")
LIMIT_WORDS: Final = ("rate_limit", "ratelimit", "rate limit", "too many requests", "too_many_requests", "overloaded", "quota")


class Lengths(Struct, gc=False):
    """How long an answer may be, in the words of all APIs."""

    max_tokens: int | float | None = None
    max_completion_tokens: int | float | None = None
    max_output_tokens: int | float | None = None


_lengths: Final = msgspec.json.Decoder(Lengths)
_members: Final = msgspec.json.Decoder(dict[str, Raw])
_NUMBER: Final = {name: re.compile(rb'"%b"\s*:\s*([0-9]{1,12})(?=[\s,}])' % name.encode()) for name in LENGTHS}
_MODEL: Final = re.compile(rb'"model"\s*:\s*("(?:[^"\\]|\\.)*")')


def answer_tokens_max(body: bytes) -> int:
    """As the request limits its answer; 0: it does not."""
    try:
        found = _lengths.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return 0
    stated = [each for name in LENGTHS if isinstance(each := getattr(found, name), int) and each > 0]
    return min(stated, default=0)


def shortened(body: bytes, share: float, least: int) -> bytes:
    """The body whose answer may be that part as long, but `least` tokens in any case. Where it states no length it stays as it is."""
    for name in LENGTHS:
        for number in list(_NUMBER[name].finditer(body))[:SPLICES_MAX]:
            stated = int(number[1])
            lower = max(ceil(stated * share), min(stated, least))
            cut = _spliced(body, number.span(1), b"%d" % lower)
            if lower != stated and _stated(cut, name) == b"%d" % lower:
                body = cut
                break
    return body


def with_model(body: bytes, model: str) -> bytes:
    """The body that names this model."""
    named = msgspec.json.encode(model)
    for found in list(_MODEL.finditer(body))[:SPLICES_MAX]:
        cut = _spliced(body, found.span(1), named)
        if _stated(cut, "model") == named:
            return cut
    members = _members.decode(body)
    members["model"] = Raw(named)
    return b"{%b}" % b",".join([b"%b:%b" % (msgspec.json.encode(name), memoryview(value)) for name, value in members.items()])


def told(lines: bytes) -> dict[str, str]:
    """What the lines of an answer's head tell of limits, by lower-case name."""
    headers = [line.partition(b":") for line in lines.split(b"\r\n")[1:]]
    return limits_of((name.decode("latin-1").lower(), value.strip().decode("latin-1")) for name, colon, value in headers if colon)


def refuses(status: int, lines: bytes) -> bool:
    """Is this head one of a refusal by quota? Some say so with a 403 or 503, which mean other things too."""
    if status in LIMITED:
        return True
    return status in MAYBE_LIMITED and any(mark in lines.lower() for mark in SAYS_SO)


def is_refusal(data: bytes) -> bool:
    """Does an event of a good stream say that a quota is used up? Responses tell of it in the answer that failed."""
    answer = as_object(parse(data))
    answer = answer if answer.get("error") else as_object(answer.get("response")) or answer
    error = as_object(answer.get("error")) or answer
    if str(error.get("code", "")) in {"429", "529"} or str(error.get("status", "")) in {"429", "529"}:
        return True
    said = " ".join((error_text(answer), str(error.get("type", "")), str(error.get("code", "")))).lower()
    return any(word in said for word in LIMIT_WORDS)


def _stated(body: bytes, name: str) -> bytes:
    """What the request itself, no part of it, has under this name."""
    try:
        return bytes(_members.decode(body).get(name, b""))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return b""


def _spliced(body: bytes, span: tuple[int, int], value: bytes) -> bytes:
    view = memoryview(body)
    return b"".join((view[: span[0]], value, view[span[1] :]))
