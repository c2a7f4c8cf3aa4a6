"""How is a transport set up, and what may a single call say otherwise?"""

import os
from collections.abc import Mapping
from typing import Any, Final, Literal, cast

from msgspec import Struct

URL: Final = "LUFTPAUSE_URL"
TOKEN: Final = "LUFTPAUSE_TOKEN"  # noqa: S105 (the variable's name)
DEFAULT_URL: Final = "http://127.0.0.1:8080"
EXTENSION: Final = "luftpause"  # of a request: {"priority": 0, "caller": "…", "cost": …}; of a response: what was decided

Cost = float | Mapping[str, float]
WhenAway = Literal["wait", "send"]


class Settings(Struct, frozen=True):
    """`wait_seconds` None: a call waits as long as its own `pool` time-out allows."""

    target: str
    url: str
    token: str
    caller: str | None
    priority: int | None
    batch: bool
    cost: Cost | None
    wait_seconds: float | None
    when_away: WhenAway


class Asked(Struct, frozen=True):
    """What one call wants. `wait_seconds` None: it waits without an end."""

    method: str
    caller: str | None
    priority: int | None
    cost: Cost | None
    wait_seconds: float | None


def settings_of(
    target: str,
    url: str | None,
    token: str | None,
    caller: str | None,
    priority: int | None,
    batch: bool,
    cost: Cost | None,
    wait_seconds: float | None,
    when_away: WhenAway,
) -> Settings:
    """Raises ValueError that names the mistake."""
    if not target or "/" in target:
        raise ValueError(f"target must be the name of one of governor.targets, not {target!r}")
    if priority not in {None, 0, 1, 2}:
        raise ValueError(f"priority must be 0, 1 or 2, not {priority!r}")
    if when_away not in {"wait", "send"}:
        raise ValueError(f"when_away must be 'wait' or 'send', not {when_away!r}")
    if wait_seconds is not None and wait_seconds < 0:
        raise ValueError(f"wait_seconds must be 0 or more, not {wait_seconds!r}")
    base = (url or os.environ.get(URL) or DEFAULT_URL).rstrip("/").removesuffix("/v1")
    if not base.startswith(("http://", "https://")):
        raise ValueError(f"url must begin with http:// or https://, not {base!r}")
    own = os.environ.get(TOKEN, "") if token is None else token
    return Settings(target, base, own.strip(), caller, priority, batch, cost, wait_seconds, when_away)


def asked_of(settings: Settings, method: str, extensions: Mapping[str, Any]) -> Asked:
    """The call's own words go before the transport's."""
    said: object = extensions.get(EXTENSION)
    own: Mapping[str, Any] = cast("Mapping[str, Any]", said) if isinstance(said, Mapping) else {}
    timeouts: object = extensions.get("timeout")
    pool = cast("Mapping[str, float | None]", timeouts).get("pool") if isinstance(timeouts, Mapping) else None
    wait = settings.wait_seconds if settings.wait_seconds is not None else pool
    return Asked(
        method,
        own.get("caller", settings.caller),
        own.get("priority", settings.priority),
        own.get("cost", settings.cost),
        own.get("wait_seconds", wait),
    )
