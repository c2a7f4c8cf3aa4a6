"""By what is a conversation recognised when its tool-call ids are not enough: which text heads it?

The digest covers the text of the system prompt and of the first user message, and leaves out what a harness changes from turn to
turn: structure, `cache_control`, ids, dates.
"""

import functools
import hashlib
import re
import zlib
from collections.abc import Iterable
from typing import Final

DIGEST_BYTES: Final = 16
TEXT_CHARS_MAX: Final = 4096  # from each end of each text: prompts may be long, and each turn pays for this
END_BYTES: Final = 1024
YEARS_MAX: Final = 16  # dates looked at in one text

YEAR: Final = re.compile(r"20[0-9]{2}")
WEEKDAY: Final = r"(?:(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?,? )?"
MONTH: Final = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
TIME: Final = r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?(?: ?[ap]m)?(?: ?(?:z|utc|gmt|[a-z]{3,4}|[+-][0-9]{2}:?[0-9]{2})\b)?"
DATE: Final = re.compile(
    rf"[0-9]{{4}}[-/][0-9]{{2}}[-/][0-9]{{2}}(?:[t ,]+{TIME})?"
    rf"|{WEEKDAY}{MONTH} [0-9]{{1,2}}(?:st|nd|rd|th)?(?: {TIME})?,? [0-9]{{4}}(?:[ ,]+(?:at )?{TIME})?"
    rf"|{WEEKDAY}[0-9]{{1,2}} {MONTH},? [0-9]{{4}}(?:[ ,]+(?:at )?{TIME})?"
    r"|[0-9]{1,2}[./][0-9]{1,2}[./][0-9]{4}",
    re.IGNORECASE,
)
BEFORE, AFTER = 40, 44  # characters around a year that may belong to its date


def head_digest(texts: Iterable[tuple[str, str]], key: bytes) -> bytes:
    """Keyed BLAKE2b-128 of (role, text) pairs; `key` has at most 64 bytes."""
    digest = _keyed(key).copy()
    digest.update("".join(f"\0{role}\0{undated(bounded(text))}" for role, text in texts).encode("utf-8", "surrogatepass"))
    return digest.digest()


def body_hash(body: bytes) -> bytes:
    """Recognises a retry of the same request: length and CRC-32 of both ends. No more than that hangs on it than a place in a queue."""
    ends = body if len(body) <= 2 * END_BYTES else body[:END_BYTES] + body[-END_BYTES:]
    return len(body).to_bytes(4, "big") + zlib.crc32(ends).to_bytes(4, "big")


@functools.lru_cache(maxsize=8)
def _keyed(key: bytes) -> "hashlib.blake2b":
    """To be copied: mixing the key in costs more than a short text."""
    return hashlib.blake2b(digest_size=DIGEST_BYTES, key=key)


def bounded(text: str) -> str:
    return text if len(text) <= 2 * TEXT_CHARS_MAX else text[:TEXT_CHARS_MAX] + text[-TEXT_CHARS_MAX:]


def undated(text: str) -> str:
    """The text without its dates. Only the neighbourhood of years is searched: the full pattern is slow on long text."""
    parts: list[str] = []
    at = 0
    for count, year in enumerate(YEAR.finditer(text)):
        start, end = max(at, year.start() - BEFORE), year.end() + AFTER
        if count == YEARS_MAX:
            break
        date = DATE.search(text, start, end)
        while date is not None and date.end() < year.end():
            date = DATE.search(text, date.end(), end)
        if date is not None and date.start() <= year.start():
            parts.append(text[at : date.start()])
            at = date.end()
    return "".join(parts) + text[at:] if parts else text
