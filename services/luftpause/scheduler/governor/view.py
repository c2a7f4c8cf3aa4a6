"""What does the scheduler show of shared quotas?"""

from msgspec import Struct

from luftpause.scheduler.governor.host import Governor
from luftpause.scheduler.quota.view import TargetView, view


class Quotas(Struct, frozen=True):
    """All targets by name, each pattern under its own."""

    targets: tuple[TargetView, ...] = ()


def quotas(governor: Governor) -> Quotas:
    """As of now."""
    return Quotas(view(governor.state, governor.now))
