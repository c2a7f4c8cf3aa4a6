"""What does an answer say about the limits of the API that gave it?

One pure parser for all families of providers, gateways and drafts. Bad input is left out; nothing raises.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final

from msgspec import Struct

from luftpause.scheduler.quota.header_body import (
    BODY_CHARS_MAX,
    as_json,
    nested_headers,
    stated_wait,
    within,
    written_limits,
    written_wait,
)  # fmt: skip
from luftpause.scheduler.quota.header_families import ietf_limits, told_limits
from luftpause.scheduler.quota.header_values import moment, number, seconds_until
from luftpause.scheduler.quota.samples import Gathered, Sample

CREDIBLE_SECONDS: Final = 1.0  # a shorter Retry-After of an exhausted limit is no promise (Azure says 0 or 1 while 60 s must pass)


class LimitKind(Enum):
    """Why an answer is a refusal by quota."""

    PRIMARY = "primary"  # an allowance is used up
    SECONDARY = "secondary"  # a limit nobody tells: the sender is too fast
    CONCURRENCY = "concurrency"  # too many at once: no time to wait for
    CAPACITY = "capacity"  # the provider is full: seconds
    CREDIT = "credit"  # no money left: waiting doesn't help
    TOO_LARGE = "too_large"  # this one request is above the limit: never retry


class Observation(Struct, frozen=True, gc=False):
    """
    `samples`: the limits that the answer tells. `limited`: it is a refusal that a later try may not get.

    `wait_seconds`: how long to believe that it lasts; None: nobody said. `kind`: which refusal; None: it is none.
    """

    samples: tuple[Sample, ...] = ()
    limited: bool = False
    wait_seconds: float | None = None
    kind: LimitKind | None = None


def observe(status: int, headers: Mapping[str, str], body: str = "", now: float = 0.0) -> Observation:
    """
    What this answer says. `body`: its beginning, where it is an error or the first event of a stream.

    `now`: epoch seconds here. Moments are read against the answer's own `Date` where it has one, so that a wrong clock here does no harm.
    """
    named = {name.lower(): value for name, value in headers.items()}
    date = moment(named.get("date"))
    clock = now if date is None else date
    text = body[:BODY_CHARS_MAX]
    said = as_json(text) if text else {}
    wait = _waits(named, said, text, clock)
    kind = _too_large_or_credit(status, text.lower())
    samples = _samples(named, said, text, clock, wait, refused=kind is not LimitKind.TOO_LARGE)
    if kind is not None:
        return Observation(samples, kind is LimitKind.CREDIT, wait if kind is LimitKind.CREDIT else None, kind)
    if not _is_limited(status, named, said, text.lower(), samples, wait):
        return Observation(samples)
    kind = _kind(status, named, text.lower())
    return Observation(samples, limited=True, wait_seconds=_believed(kind, samples, wait), kind=kind)


# ---- limits -----------------------------------------------------------------------------------------------------


def _samples(
    headers: Mapping[str, str], said: Mapping[str, Any], text: str, now: float, wait: float | None, *, refused: bool
) -> tuple[Sample, ...]:  # fmt: skip
    found = told_limits(headers, now)
    found.add(ietf_limits(headers, now))
    if nested := nested_headers(said):
        found.add(told_limits(nested, now).samples())
    samples = found.samples()
    if not text:
        return samples
    written = Gathered()
    written.add(samples)
    written.add(written_limits(text, wait, refused=refused))
    return written.samples()


# ---- how long ---------------------------------------------------------------------------------------------------


def _waits(headers: Mapping[str, str], said: Mapping[str, Any], text: str, now: float) -> float | None:
    """Retry-After in its forms, then fields of the body, then its prose: the first that says more than nothing; else 0, or None."""
    told = _retry_after(headers, now)
    for wait in (told, stated_wait(said), written_wait(text)):
        if wait:
            return wait
    return told


def _retry_after(headers: Mapping[str, str], now: float) -> float | None:
    for name in ("retry-after-ms", "x-ms-retry-after-ms"):
        if (wait := number(headers.get(name))) is not None and wait >= 0:
            return wait / 1000.0 or _retry_after_seconds(headers, now) or 0.0  # Azure: 0 ms beside a Retry-After of 1 s
    return _retry_after_seconds(headers, now)


def _retry_after_seconds(headers: Mapping[str, str], now: float) -> float | None:
    """RFC 9110, with fractions (Groq). A number is always a duration, however large."""
    value = headers.get("retry-after", headers.get("x-ratelimit-retry-after"))
    wait = number(value)
    if wait is not None:
        return wait if wait >= 0 else None
    return seconds_until(value, now)


def _believed(kind: LimitKind, samples: Sequence[Sample], wait: float | None) -> float | None:
    """The longest credible wait: what is used up must renew first, whatever Retry-After says."""
    if kind not in {LimitKind.PRIMARY, LimitKind.SECONDARY}:
        return wait
    empty = [sample for sample in samples if sample.remaining is not None and sample.remaining <= 0]
    waits = [sample.reset_seconds for sample in empty if sample.reset_seconds]
    if kind is LimitKind.SECONDARY:
        return wait if wait is not None else max(waits, default=None)
    if not (wait and wait > CREDIBLE_SECONDS):
        waits += [sample.window_seconds for sample in empty if sample.window_seconds and not sample.reset_seconds]
    return max([*waits, *([] if wait is None else [wait])], default=None)


# ---- which refusal ----------------------------------------------------------------------------------------------


def _too_large_or_credit(status: int, low: str) -> LimitKind | None:
    if (status == 413 and "rate_limit" in low) or (status == 429 and "request too large" in low):  # Groq; OpenAI
        return LimitKind.TOO_LARGE
    if status == 402 or (status in {403, 429} and "insufficient_quota" in low):
        return LimitKind.CREDIT
    return None


def _is_limited(
    status: int, headers: Mapping[str, str], said: Mapping[str, Any], low: str, samples: Sequence[Sample], wait: float | None
) -> bool:  # fmt: skip
    if status in {429, 529}:  # 529: Anthropic is overloaded
        return True
    if status in {403, 503}:  # a 403 alone is a matter of rights
        return wait is not None or "rate limit" in low or headers.get("x-ratelimit-remaining", "").strip() == "0"
    if status == 200 and wait is not None:  # Azure refuses inside a stream
        return any(sample.remaining is not None and sample.remaining < 0 for sample in samples)
    return status in {200, 400} and _graphql_limited(said)


def _graphql_limited(said: Mapping[str, Any]) -> bool:
    """GraphQL refuses in a 200 (GitHub: type RATE_LIMITED) or a 400 (Linear: extensions.code RATELIMITED)."""
    errors: Any = said.get("errors")
    if not isinstance(errors, list):
        return False
    for error in errors:  # pyright: ignore[reportUnknownVariableType]
        names = {str(within({"": error}, "").get("type", "")), str(within({"": error}, "", "extensions").get("code", ""))}
        if names & {"RATE_LIMITED", "RATELIMITED"}:
            return True
    return False


def _kind(status: int, headers: Mapping[str, str], low: str) -> LimitKind:
    if "concurrent" in headers.get("x-ratelimit-type", "").lower() or "concurrent" in low:
        return LimitKind.CONCURRENCY
    if "queue_exceeded" in low or "overloaded" in low or status in {503, 529}:
        return LimitKind.CAPACITY
    if "secondary rate limit" in low or headers.get("x-ratelimit-abusepenalty-active", "").strip().lower() == "true":
        return LimitKind.SECONDARY
    if status == 403 and headers.get("x-ratelimit-remaining", "0").strip() != "0":
        return LimitKind.SECONDARY
    return LimitKind.PRIMARY
