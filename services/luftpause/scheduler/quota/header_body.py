"""What does the body of a refusal say about limits that its headers hide?

Nothing here raises. Of the body only the first 64 Ki characters are read.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from luftpause.scheduler.quota.header_values import duration, number
from luftpause.scheduler.quota.samples import Sample

BODY_CHARS_MAX: Final = 65_536
_UNIT: Final = r"ms\b|milliseconds?|seconds?|secs?\b|s\b|minutes?|mins?\b|m\b|hours?|h\b|days?|d\b"
_AGAIN: Final = re.compile(
    rf"(?:try again in|retry after|retry in|wait) (\d{{1,9}}(?:\.\d{{1,9}})?)\s?({_UNIT})?", re.IGNORECASE | re.ASCII
)  # fmt: skip
_AGAIN_GO: Final = re.compile(r"(?:try again in|retry in) ((?:\d{1,9}(?:\.\d{1,9})?(?:h|ms|m|s)){1,5})", re.IGNORECASE | re.ASCII)
# GitHub Models: Rate limit of 50 per 86400s exceeded for UserByModelByDay.
_PER: Final = re.compile(r"Rate limit of (\d{1,12}) per (\d{1,9})s exceeded for (\w{1,64})", re.ASCII)
# OpenAI, Groq: on requests per minute (RPM): Limit 30, Used 30, Requested 1.
_PROSE: Final = re.compile(r"on [a-z ]{1,64} \((\w{1,16})\): Limit (\d{1,15}), Used (\d{1,15}), Requested \d{1,15}", re.ASCII)
_LAST_LETTER_SECONDS: Final = {"m": 60.0, "h": 3_600.0, "d": 86_400.0}


def as_json(body: str) -> dict[str, Any]:
    """The body as an object; empty: it is none. An array's first object counts (Google streams)."""
    try:
        read: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return {}
    if isinstance(read, list) and read:
        read = cast("list[Any]", read)[0]
    return cast("dict[str, Any]", read) if isinstance(read, dict) else {}


def within(value: Any, *names: str) -> dict[str, Any]:
    """The object under these names; empty where there is none."""
    for name in names:
        value = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def nested_headers(said: Mapping[str, Any]) -> dict[str, str]:
    """OpenRouter puts the headers of the provider's refusal into the body."""
    return {name.lower(): str(value) for name, value in within(said, "error", "metadata", "headers").items()}


def stated_wait(said: Mapping[str, Any]) -> float | None:
    """Seconds in a field: Google's RetryInfo, Discord's `retry_after`."""
    details: Any = within(said, "error").get("details")
    for detail in cast("list[Any]", details) if isinstance(details, list) else []:
        kind = str(within({"detail": detail}, "detail").get("@type", ""))
        if kind.endswith("RetryInfo") and (wait := duration(str(detail.get("retryDelay", "")))) is not None:
            return wait
    wait = said.get("retry_after")
    return number(str(wait)) if isinstance(wait, int | float) and not isinstance(wait, bool) and wait >= 0 else None


def written_wait(text: str) -> float | None:
    """Seconds in prose: `try again in 6.232s`, `in 1h2m3s`, `retry after 37 seconds`, `wait 4 minutes`."""
    found = _AGAIN_GO.search(text)
    if found and (wait := duration(found[1].lower())):
        return wait
    found = _AGAIN.search(text)
    if not found:
        return None
    return float(found[1]) * _unit_seconds((found[2] or "s").lower()) or None


def _unit_seconds(unit: str) -> float:
    if unit.startswith(("ms", "milli")):
        return 1e-3
    return {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}[unit[0]]


def written_limits(text: str, wait_seconds: float | None, *, refused: bool) -> list[Sample]:
    """The limits that prose names. `refused`: a retry can succeed, so what it names is a limit that is used up."""
    found: list[Sample] = []
    if per := _PER.search(text):
        found.append(Sample(per[3], float(per[1]), 0.0, wait_seconds, float(per[2]) or None))
    if refused and (prose := _PROSE.search(text)):
        limit, name = float(prose[2]), prose[1].lower()
        found.append(Sample(name, limit, max(0.0, limit - float(prose[3])), wait_seconds, _LAST_LETTER_SECONDS.get(name[-1])))
    return found
