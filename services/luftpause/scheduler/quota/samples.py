"""What did one answer say about one limit?"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

WINDOW_SECONDS: Final = {
    "second": 1.0, "minute": 60.0, "min": 60.0, "hour": 3_600.0, "day": 86_400.0, "week": 604_800.0, "month": 2_592_000.0,
}  # fmt: skip
UNITS_MIN: Final = 1e-3  # of a limit; beyond these bounds sums and quotients of floats run over or lose single calls
UNITS_MAX: Final = 1e15
PART_MIN: Final = 1e-6
WINDOW_SECONDS_MIN: Final = 1e-3
WINDOW_SECONDS_MAX: Final = 366 * 86_400.0
SCOPES_MAX: Final = 64  # of one answer: a provider tells a handful
SCOPE_CHARS_MAX: Final = 64
UNNAMED: Final = "default"
_CREDIBLE: Final = {
    "limit": (-UNITS_MAX, UNITS_MAX),  # negative: there is no limit, or no figure
    "remaining": (-UNITS_MAX, UNITS_MAX),
    "reset_seconds": (0.0, WINDOW_SECONDS_MAX),
    "window_seconds": (WINDOW_SECONDS_MIN, WINDOW_SECONDS_MAX),
}  # fmt: skip


WITHOUT_NAME: Final = "requests"  # the scope of figures without a name


class Sample(Struct, frozen=True, gc=False):
    """
    `scope`: what is limited, as the provider names it (requests, tokens, input_tokens, core, ...).

    `limit`, `remaining`: units; `remaining` may be negative. `reset_seconds`: until there is (more) quota. `window_seconds`: how long the
    limit's window is. None: not said.
    """

    scope: str
    limit: float | None = None
    remaining: float | None = None
    reset_seconds: float | None = None
    window_seconds: float | None = None


class Gathered:
    """
    Samples as their parts are found. What is said first of a part stays.

    What the ledger can't count with is no figure, whoever tells it: `w=-5`, a limit of 1e-300, a reset in a thousand years.
    """

    def __init__(self) -> None:
        self._parts: dict[str, dict[str, float]] = {}

    def put(self, scope: str, part: str, value: float | None) -> None:
        """`part`: limit, remaining, reset_seconds or window_seconds."""
        scope = _named(scope)
        if scope not in self._parts and len(self._parts) >= SCOPES_MAX:
            return
        parts = self._parts.setdefault(scope, {})
        least, most = _CREDIBLE[part]
        if value is not None and least <= value <= most and not (part == "limit" and 0 < value < UNITS_MIN):
            parts.setdefault(part, value)

    def add(self, samples: Iterable[Sample]) -> None:
        for sample in samples:
            for part in ("limit", "remaining", "reset_seconds", "window_seconds"):
                self.put(sample.scope, part, getattr(sample, part))

    def samples(self) -> tuple[Sample, ...]:
        """Those with a limit or a rest. Azure writes -1 for both where it has no data (openai-dotnet#838): none of these."""
        return tuple(
            Sample(scope, **parts)
            for scope, parts in self._parts.items()
            if ("limit" in parts or "remaining" in parts) and parts.get("limit", 0.0) >= 0 and parts.get("remaining") != -1
        )


def _named(scope: str) -> str:
    """As it can stand in logs, metrics and keys; a scope without a name would stand for the whole target."""
    name = scope if scope.isprintable() else "".join(filter(str.isprintable, scope))
    return name[:SCOPE_CHARS_MAX].strip() or UNNAMED
