"""What of an answer may tell of limits, so that it goes to the governor, and what does whoever called read about when to come again?"""

import math
import re
import zlib
from collections.abc import Iterable
from typing import Final

REFUSALS: Final = frozenset({402, 403, 413, 429, 503, 529})  # statuses that may be a matter of quotas: their body says so, or not
KEPT_BYTES_MAX: Final = 65_536  # of a refusal that is held back
EXCERPT_BYTES_MAX: Final = 4_096
LIMITS_MAX: Final = 64
LIMIT_CHARS_MAX: Final = 1_024
SDK_SECONDS_MAX: Final = 60.0  # clients' packages ignore a longer Retry-After and try again within seconds

# All families that `quota.headers` reads. Credentials, cookies and the ids of requests are not among them.
_LIMIT: Final = re.compile(r"date|.*(?:limit|quota|retry|trial-endpoint).*|x-error-message|anthropic-(?:priority|fast)-.*", re.IGNORECASE)
_RETRY: Final = re.compile(r"(?:x-ms-)?retry-after(?:-ms)?|x-should-retry|x-ratelimit-retry-after", re.IGNORECASE)
_JSON: Final = re.compile(r"application/(?:[a-z0-9.+-]*\+)?json\b", re.IGNORECASE)
_SAID_LIMITED: Final = (b"RATE_LIMITED", b"RATELIMITED")  # GraphQL refuses with a 200


def limits_of(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """What an answer's headers tell of limits, by lower-case name; of several the last."""
    found: dict[str, str] = {}
    for name, value in headers:
        if _LIMIT.fullmatch(name) and len(value) <= LIMIT_CHARS_MAX and len(found) < LIMITS_MAX:
            found[name.lower()] = value
    return found


def says_when(name: str) -> bool:
    """Does a header of this name say when to try again?"""
    return _RETRY.fullmatch(name) is not None


def advice(seconds: float | None) -> list[tuple[str, str]]:
    """Headers that put clients which retry by themselves into their window. None: no retry can help."""
    never = [("x-should-retry", "false")]
    if seconds is None:
        return never
    told = [("retry-after", str(max(1, math.ceil(seconds)))), ("retry-after-ms", str(max(1, math.ceil(seconds * 1000))))]
    return told + never if seconds > SDK_SECONDS_MAX else told


def excerpt_of(body: bytes, coding: str) -> str:
    """
    The beginning of a refusal's body as text; `coding`: its Content-Encoding.

    What is in a coding that the standard library does not read (br, zstd) tells nothing.
    """
    start = body[:KEPT_BYTES_MAX]
    match coding.strip().lower():
        case "" | "identity":
            plain = start[:EXCERPT_BYTES_MAX]
        case "gzip" | "x-gzip" | "deflate":
            plain = _inflated(start)
        case _:
            plain = b""
    return plain.decode("utf-8", "replace")


def limited_inside(body: bytes, content_type: str) -> str:
    """The beginning of a good answer's body, if it is a refusal by its content; else nothing of it leaves."""
    start = body[:EXCERPT_BYTES_MAX]
    if _JSON.match(content_type) is None or not any(mark in start for mark in _SAID_LIMITED):
        return ""
    return start.decode("utf-8", "replace")


def _inflated(data: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=47).decompress(data, EXCERPT_BYTES_MAX)
    except zlib.error:
        return b""
