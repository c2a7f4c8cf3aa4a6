"""What goes wrong with the fake engine, by order of a test?"""

from typing import Any, Literal

import msgspec
from msgspec import Struct

LIES = Literal["true", "frozen", "zero", "missing"]


class Faults(Struct, forbid_unknown_fields=True):
    """The body of POST /_fake; fields that are left out stay as they are. Counts run down, -1 is for ever.

    `gauges` frozen: running and waiting stay at what they are now. `claim_running`, `claim_waiting` override both, whatever else is lied.
    """

    refuse_status: Literal[400, 401, 403, 404, 429, 500, 502, 503, 504] | None = None  # turns get this status …
    refuse_times: int = -1  # … this often
    refuse_retry_after: str | None = None  # … with this Retry-After
    refuse_text: str | None = None  # … and this body instead of JSON
    die_after_tokens: int | None = None  # the connection breaks after so many tokens; 0: before the head
    die_times: int = -1
    error_after_tokens: int | None = None  # an error event in the stream; 0: as its first event
    error_status: int = 500
    error_times: int = -1
    stall_after_tokens: int | None = None  # silence after so many tokens; 0: before the head
    stall_seconds: float = 3600.0
    stall_times: int = -1
    health_status: int = 200
    health_seconds: float | None = None  # None: as the flavour does
    loading: bool = False  # 503 to everything
    gauges: LIES = "true"
    claim_running: int | None = None
    claim_waiting: int | None = None
    claim_kv_tokens: int | None = None  # the size of the KV memory; 0: it tells none
    gauges_age_seconds: float = 0.0  # they are as they were when last looked at, at least so long ago
    call_ids: str | None = None  # ids of tool calls, as the directive `ids`: engines do reuse them
    usage: Literal["after", "missing_choices", "empty_delta", "every", "none"] = "after"  # the form of the usage chunk


class FaultError(ValueError):
    """The order can't be carried out; the message says what is allowed."""


def changed(faults: Faults, body: bytes) -> Faults:
    """The faults after a POST; `{}` changes nothing. Raises FaultError."""
    try:
        msgspec.json.decode(body, type=Faults)
        given: dict[str, Any] = msgspec.json.decode(body)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise FaultError(f"{error}; the fields are {', '.join(Faults.__struct_fields__)}") from None
    return msgspec.convert({**msgspec.to_builtins(faults), **given}, type=Faults)


def take(faults: Faults, which: Literal["refuse", "die", "error", "stall"]) -> bool:
    """Is this fault due for this turn? Counts it down."""
    ordered: dict[str, Any] = {
        "refuse": faults.refuse_status,
        "die": faults.die_after_tokens,
        "error": faults.error_after_tokens,
        "stall": faults.stall_after_tokens,
    }
    left: int = getattr(faults, f"{which}_times")
    if ordered[which] is None or left == 0:
        return False
    if left > 0:
        setattr(faults, f"{which}_times", left - 1)
    return True
