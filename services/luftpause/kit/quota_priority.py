"""How urgent is a call for quotas: what it claims, what its caller is pinned to, or what its class says?"""

from collections.abc import Mapping
from typing import Final

from luftpause.kit.config_governor import EVERYBODY_ELSE, CallerConfig
from luftpause.kit.errors import LuftpauseError

STANDARD: Final = 1  # of `interactive`
BACKGROUND: Final = 2  # of `batch`
_NOBODY: Final = CallerConfig()


class PriorityNotAllowedError(LuftpauseError):
    """This caller may not claim so urgent a priority (403)."""

    def __init__(self, caller: str, claimed: int, own: int) -> None:
        who = f"the caller {caller[:100]!r}" if caller else "a call without a caller"
        super().__init__(
            f"{who} may not claim priority {claimed}, its own is {own}; leave x-luftpause-priority out, or set "
            "may_claim: true for it in governor.callers",
            code="priority_not_allowed",
            status=403,
        )


def priority_of(callers: Mapping[str, CallerConfig], caller: str, claimed: int | None, *, batch: bool) -> int:
    """
    0 critical, 1 standard or 2 background. `callers`: governor.callers; `claimed`: by header or body, None: nothing.

    A call may always make itself less urgent. Raises PriorityNotAllowedError.
    """
    pinned = callers.get(caller) or callers.get(EVERYBODY_ELSE) or _NOBODY
    usual = BACKGROUND if batch else STANDARD
    own = usual if pinned.priority is None else pinned.priority
    if claimed is None:
        return own
    if claimed < own and not pinned.may_claim:
        raise PriorityNotAllowedError(caller, claimed, own)
    return claimed
