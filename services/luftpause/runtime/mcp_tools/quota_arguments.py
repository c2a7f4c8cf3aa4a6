"""Which arguments do the tools about quotas take?"""

import json
from typing import Annotated, Any, Final, cast

from pydantic import BeforeValidator, Field

from luftpause.runtime.mcp_tools.arguments import Arguments, Number, Optional

LEASE_PATTERN: Final = r"^[!-~]{1,128}$"
TARGET_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"  # as the names of governor.targets


def _object(value: object) -> object:
    """Clients send objects as JSON text."""
    if isinstance(value, str) and value.strip().startswith("{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _as_headers(value: object) -> object:
    """Values that are numbers or lists, as some HTTP packages give them."""
    value = _object(value)
    if not isinstance(value, dict):
        return value
    return {str(name): _text(each) for name, each in cast("dict[Any, Any]", value).items()}


def _text(value: object) -> object:
    if isinstance(value, list):
        return ", ".join(str(each) for each in cast("list[object]", value))
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Target = Annotated[str, Field(pattern=TARGET_PATTERN, description="The API whose quota is shared: a name of governor.targets.")]
Lease = Annotated[str, Field(pattern=LEASE_PATTERN, description="What quota_reserve named.")]
Units = dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]]


class QuotaReserveArguments(Arguments):
    target: Target
    cost: Annotated[
        Annotated[float, Field(gt=0, allow_inf_nan=False)] | Units | None,
        BeforeValidator(_object),
        Number,
        Field(description="Calls, or units by scope ({`points`: 5}); left out: one call."),
    ] = None
    wait: Annotated[
        Annotated[float, Field(ge=0, allow_inf_nan=False)] | None,
        Optional,
        Number,
        Field(description="Seconds to wait for quota; 0: answer at once."),
    ] = None
    priority: Annotated[
        Annotated[int, Field(ge=0, le=2)] | None,
        Optional,
        Number,
        Field(description="0 critical, 1 standard, 2 background; more urgent than your own needs leave in governor.callers."),
    ] = None
    retry: Annotated[bool | None, Optional, Field(description="true: the provider refused an earlier try of this call.")] = None
    lease: Annotated[
        Annotated[str, Field(pattern=LEASE_PATTERN)] | None,
        Optional,
        Field(description="The same as before, to ask again for the same call; left out: a new one."),
    ] = None


class QuotaReportArguments(Arguments):
    target: Target
    lease: Lease
    fence: Annotated[int, Number, Field(ge=0, description="What quota_reserve said beside the lease.")]
    status: Annotated[
        Annotated[int, Field(ge=100, le=599)] | None,
        Optional,
        Number,
        Field(description="HTTP status of the answer; left out: the call was sent and no answer came."),
    ] = None
    headers: Annotated[
        dict[str, str] | None,
        BeforeValidator(_as_headers),
        Optional,
        Field(description="The answer's headers. Only those that tell of limits are used; leave others out if you can."),
    ] = None
    body: Annotated[str | None, Optional, Field(description="Beginning of the answer's body, if it is an error.")] = None
    actual: Annotated[
        Units | None, BeforeValidator(_object), Optional, Field(description="What the call used by scope, where the answer says so.")
    ] = None
    sent: Annotated[bool | None, Optional, Field(description="false: the call was never made; all that was reserved comes back.")] = None
