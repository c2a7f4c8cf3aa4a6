"""What does the scheduler show of shared quotas?"""

from msgspec import Struct

from luftpause.scheduler.governor.host import Governor
from luftpause.scheduler.governor.store.view import SharingView, sharing_view
from luftpause.scheduler.quota.view import TargetView, view


class Quotas(Struct, frozen=True):
    """All targets by name, each pattern under its own. `policy`: whose rules hold. `store`: of the ledger shared with other nodes."""

    targets: tuple[TargetView, ...] = ()
    policy: str = "governor"
    store: SharingView | None = None


def quotas(governor: Governor) -> Quotas:
    """As of now."""
    state, sharing = governor.state, governor.sharing
    return Quotas(view(state, governor.now), state.settings.policy, sharing_view(sharing) if sharing is not None else None)
