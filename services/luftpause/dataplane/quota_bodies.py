"""What does a request about quotas say, and what is wrong with it?"""

import re
from collections.abc import Mapping
from math import isfinite
from typing import Final, Literal, TypeVar

import msgspec
from msgspec import Struct

from luftpause.dataplane.rejection import Rejection
from luftpause.kit.config import CREDENTIALS

LEASE: Final = re.compile(r"[!-~]{1,128}", re.ASCII)
REQUESTS: Final = "requests"
HEADERS_MAX: Final = 128
HEADER_CHARS_MAX: Final = 4_096
UNREAD: Final = CREDENTIALS | {"set-cookie"}  # of an answer: it says nothing of limits, and is nobody else's business
MILLISECONDS_MAX: Final = 30 * 86_400_000


class Body(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """JSON with names in camel case."""


class Reserve(Body, frozen=True):
    """
    `lease`: names the wish; asked again with the same name, it stays the same. None: a new one. `cost`: calls, or units by scope.

    `method`: of the HTTP call, which costs more at some providers; a `cost` goes before it.
    `turn_class` and `priority` go before the headers of these names. `retry`: an earlier try of this call was refused by the provider.
    """

    lease: str | None = None
    cost: float | dict[str, float] | None = None
    method: str = "GET"
    turn_class: Literal["interactive", "batch"] | None = msgspec.field(default=None, name="class")
    priority: int | None = None
    caller: str | None = None
    wait_ms: float = 0
    lease_ms: float | None = None
    retry: bool = False


class Lease(Body, frozen=True):
    lease: str
    fence: int


class Report(Body, frozen=True):
    """`status` null: the call failed without an answer. `body`: the beginning of an error's, or of a stream's first event."""

    lease: str
    fence: int
    status: int | None
    headers: dict[str, str] = {}
    body: str = ""
    actual: dict[str, float] | None = None


class Observe(Body, frozen=True):
    status: int
    headers: dict[str, str] = {}
    body: str = ""


T = TypeVar("T", bound=Body)


def read(kind: type[T], body: bytes) -> T | Rejection:
    """The body of a request, or what is wrong with it."""
    try:
        found = msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.MsgspecError as error:
        known = ", ".join(field.encode_name for field in msgspec.structs.fields(kind))
        return Rejection(400, "bad_request", f"{_lower(str(error))}; the body is a JSON object of {known}")
    mistake = _mistake(found)
    return Rejection(400, "bad_request", mistake) if mistake else found


def cost_of(cost: float | Mapping[str, float] | None) -> Mapping[str, float] | None:
    """Units by scope; None: one call."""
    return {REQUESTS: cost} if isinstance(cost, int | float) else cost


def readable(headers: Mapping[str, str]) -> dict[str, str]:
    """What an answer's headers may say of limits."""
    kept = {name.lower(): value for name, value in headers.items() if len(value) <= HEADER_CHARS_MAX}
    return {name: value for name, value in list(kept.items())[:HEADERS_MAX] if name not in UNREAD}


def _mistake(found: Body) -> str:
    """What the types don't say; empty: nothing is wrong."""
    match found:
        case Reserve():
            return _bad_lease(found.lease) or _bad_times(found) or _bad_numbers("cost", cost_of(found.cost) or {}, above=0.0)
        case Report():
            return _bad_lease(found.lease) or _bad_numbers("actual", found.actual or {}, above=None)
        case Lease():
            return _bad_lease(found.lease)
        case _:
            return ""


def _bad_lease(lease: str | None) -> str:
    return "`lease` must be 1 to 128 visible ASCII characters" if lease is not None and LEASE.fullmatch(lease) is None else ""


def _bad_times(found: Reserve) -> str:
    for name, value, least in (("waitMs", found.wait_ms, 0.0), ("leaseMs", found.lease_ms, 1.0)):
        if value is not None and not least <= value <= MILLISECONDS_MAX:
            return f"`{name}` is {value:g}; give milliseconds from {least:g} to {MILLISECONDS_MAX}"
    return ""


def _bad_numbers(field: str, units: Mapping[str, float], *, above: float | None) -> str:
    for name, value in units.items():
        if not isfinite(value) or (value <= above if above is not None else value < 0):
            least = "0 or more" if above is None else f"a number above {above:g}"
            return f"`{field}` of {name[:40]!r} is {value:g}; give {least}"
    return ""


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
