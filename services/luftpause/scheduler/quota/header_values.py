"""Which number, duration or moment does a header's value stand for?

Every function gives None for what it cannot read; none raises.
"""

import re
from functools import lru_cache
from math import isfinite
from typing import Final

# Plain ASCII; `float` alone would also take `1_0`, `nan` and the digits of other scripts.
_NUMBER: Final = re.compile(r"[+-]?(?:\d{1,18}(?:\.\d{0,18})?|\.\d{1,18})(?:[eE][+-]?\d{1,3})?", re.ASCII)
_PART: Final = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(ns|us|µs|μs|ms|s|m|h|d)", re.ASCII)
_UNIT_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_RFC3339: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(\.\d{1,18})?\s?(?:[Zz]|(?:([+-])(\d\d):?(\d\d)))?", re.ASCII
)  # fmt: skip
_MONTHS: Final = {
    "jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6, "jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11, "dec": 12,
}  # fmt: skip
_CLOCK: Final = r"(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)"
_DATE: Final = r"(?P<day>\d{1,2})[ -](?P<month>[A-Za-z]{3})[ -](?P<year>\d{4}|\d{2})"
_HTTP_DATE: Final = re.compile(rf"[A-Za-z]{{3,9}},\s*{_DATE}\s+{_CLOCK}\s+(?:GMT|UTC|Z|[+-]0000)", re.ASCII)
_ASCTIME: Final = re.compile(rf"[A-Za-z]{{3}}\s+(?P<month>[A-Za-z]{{3}})\s+(?P<day>\d{{1,2}})\s+{_CLOCK}\s+(?P<year>\d{{4}})", re.ASCII)
MOMENTS_KNOWN_MAX: Final = 64  # the `Date` of all answers of a second is the same
EPOCH_SECONDS_MIN: Final = 1e9  # a reset from here on is a moment (GitHub, GitLab, Anthropic unified), below it is a duration
EPOCH_MILLISECONDS_MIN: Final = 1e11  # OpenRouter
EPOCH_MICROSECONDS_MIN: Final = 1e14


def number(value: str | None) -> float | None:
    """A finite decimal number."""
    if value is None or not _NUMBER.fullmatch(text := value.strip()):
        return None
    read = float(text)
    return read if isfinite(read) else None


def duration(value: str) -> float | None:
    """Seconds of `6m0s`, `2m52.8s`, `547ms`, `1h2m3.5s`: durations as Go writes them (OpenAI, Groq, Google)."""
    text, at, total = value.strip(), 0, 0.0
    for part in _PART.finditer(text):
        if part.start() != at:
            return None
        total += float(part[1]) * _UNIT_SECONDS[part[2]]
        at = part.end()
    return total if at and at == len(text) else None


@lru_cache(maxsize=MOMENTS_KNOWN_MAX)
def moment(value: str | None) -> float | None:
    """Epoch seconds of an RFC 3339 time (without an offset: UTC) or an HTTP-date (RFC 9110: all three forms)."""
    if value is None:
        return None
    text = value.strip()
    if found := _RFC3339.fullmatch(text):
        year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
        offset = (int(found[9]) * 3600 + int(found[10]) * 60) * (-1 if found[8] == "-" else 1) if found[8] else 0
        at = _epoch(year, month, day, hour, minute, second)
        return None if at is None else at - offset + float(found[7] or 0.0)
    if found := _HTTP_DATE.fullmatch(text) or _ASCTIME.fullmatch(text):
        year = int(found["year"])
        if year < 100:
            year += 2000 if year < 70 else 1900
        return _epoch(year, _MONTHS.get(found["month"].lower(), 0), int(found["day"]), int(found["h"]), int(found["m"]), int(found["s"]))
    return None


def _epoch(year: int, month: int, day: int, hour: int, minute: int, second: int) -> float | None:
    """Epoch seconds of a moment in the Gregorian calendar, UTC; None where there is no such day or hour."""
    if not (year >= 1970 and 1 <= month <= 12 and 1 <= day <= _days(year, month) and hour < 24 and minute < 60 and second <= 60):
        return None
    before = year - 1
    days = 365 * before + before // 4 - before // 100 + before // 400 - 719_162  # up to 1970 it is 719,162
    days += sum(_days(year, earlier) for earlier in range(1, month)) + day - 1
    return float(((days * 24 + hour) * 60 + minute) * 60 + second)


def _days(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in {4, 6, 9, 11} else 31


def seconds_until(value: str | None, now: float) -> float | None:
    """
    Seconds, never negative, from `now` (epoch seconds, of the provider's clock) until a reset in any of the forms that are in use.

    A number is a duration in seconds, or from 1e9 on a moment: seconds, milliseconds or microseconds. Else a Go duration, an RFC 3339 time
    or an HTTP-date.
    """
    if value is None:
        return None
    read = number(value)
    if read is not None:
        if read < 0:
            return None
        at = _as_moment(read)
        return read if at is None else max(0.0, at - now)
    read = duration(value)
    if read is not None:
        return read
    at = moment(value)
    return None if at is None else max(0.0, at - now)


def _as_moment(read: float) -> float | None:
    """Epoch seconds; None: too small to be a moment."""
    if read >= EPOCH_MICROSECONDS_MIN:
        return read / 1e6
    if read >= EPOCH_MILLISECONDS_MIN:
        return read / 1e3
    return read if read >= EPOCH_SECONDS_MIN else None
