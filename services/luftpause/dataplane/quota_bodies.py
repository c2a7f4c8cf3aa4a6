"""What does a request about quotas say, and what is wrong with it?"""

import re
from collections.abc import Mapping
from typing import Final, Literal, TypeVar

import msgspec
from msgspec import Struct

from luftpause.dataplane.rejection import Rejection
from luftpause.kit import quota_bounds as bounds
from luftpause.kit.config import CREDENTIALS

LEASE: Final = re.compile(r"[!-~]{1,128}", re.ASCII)
REQUESTS: Final = "requests"
UNREAD: Final = CREDENTIALS | {"set-cookie"}  # of an answer: it says nothing of limits, and is nobody else's business
MILLISECONDS_MAX: Final = round(bounds.WAIT_SECONDS_MAX * 1000)
LEASE_MILLISECONDS_MAX: Final = round(bounds.LEASE_SECONDS_MAX * 1000)


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
    return {name: value for name, value in bounds.readable(headers).items() if name not in UNREAD}


def _mistake(found: Body) -> str:
    """What the types don't say; empty: nothing is wrong."""
    match found:
        case Reserve():
            return _bad_lease(found.lease) or _bad_times(found) or bounds.bad_units("cost", cost_of(found.cost) or {}, above=0.0)
        case Report():
            return _bad_holder(found) or bounds.bad_status(found.status) or bounds.bad_units("actual", found.actual or {}, above=None)
        case Lease():
            return _bad_holder(found)
        case Observe():
            return bounds.bad_status(found.status)
        case _:
            return ""


def _bad_lease(lease: str | None) -> str:
    return "`lease` must be 1 to 128 visible ASCII characters" if lease is not None and LEASE.fullmatch(lease) is None else ""


def _bad_holder(found: Lease | Report) -> str:
    return bounds.bad_fence(found.fence) or _bad_lease(found.lease)


def _bad_times(found: Reserve) -> str:
    if not 0.0 <= found.wait_ms <= MILLISECONDS_MAX:
        return f"`waitMs` is {found.wait_ms:g}; give milliseconds from 0 to {MILLISECONDS_MAX}"
    if found.lease_ms is not None and not 1.0 <= found.lease_ms <= LEASE_MILLISECONDS_MAX:
        return f"`leaseMs` is {found.lease_ms:g}; give milliseconds from 1 to {LEASE_MILLISECONDS_MAX}, and renew it while the call runs"
    return ""


def _lower(text: str) -> str:
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]
