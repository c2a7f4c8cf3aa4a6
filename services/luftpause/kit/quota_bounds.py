"""Within which bounds are the figures and names that somebody tells the rate governor, whichever way they come?"""

from collections.abc import Mapping
from math import isfinite
from typing import Final

LEASE_SECONDS_MIN: Final = 0.001
LEASE_SECONDS_MAX: Final = 3_600.0  # whoever has vanished must not keep what he reserved for days
WAIT_SECONDS_MAX: Final = 30 * 86_400.0
FENCE_MAX: Final = 2**63 - 1
STATUSES: Final = range(100, 1_000)
NAMES_MAX: Final = 64  # of a cost
NAME_CHARS_MAX: Final = 128
UNITS_MAX: Final = 1e15  # as the largest limit that the ledger counts with
HEADERS_MAX: Final = 128
HEADER_CHARS_MAX: Final = 4_096
EXCERPT_CHARS_MAX: Final = 8_192


def bad_fence(fence: int) -> str:
    """What is wrong with it; empty: nothing."""
    return "" if 0 <= fence <= FENCE_MAX else f"`fence` is {fence:.6g}; give the one that `reserve` answered"


def bad_status(status: int | None) -> str:
    if status is None or status in STATUSES:
        return ""
    return f"`status` is {status:.6g}; give the HTTP status of the answer, from {STATUSES[0]} to {STATUSES[-1]}"


def bad_units(field: str, units: Mapping[str, float], *, above: float | None) -> str:
    """`above`: each has to be above it; None: 0 or more."""
    if len(units) > NAMES_MAX or any(len(name) > NAME_CHARS_MAX for name in units):
        return f"`{field}` may name {NAMES_MAX} limits at most, with {NAME_CHARS_MAX} characters each"
    for name, value in units.items():
        if not isfinite(value) or value > UNITS_MAX or (value <= above if above is not None else value < 0):
            least = "from 0" if above is None else f"above {above:g}"
            return f"`{field}` of {name[:40]!r} is {value:g}; give a number {least} up to {UNITS_MAX:g}"
    return ""


def readable(headers: Mapping[str, str]) -> dict[str, str]:
    """As many of an answer's headers as may be read, by lower-case name."""
    kept = {name.lower(): value for name, value in headers.items() if len(name) <= NAME_CHARS_MAX and len(value) <= HEADER_CHARS_MAX}
    return dict(list(kept.items())[:HEADERS_MAX])
