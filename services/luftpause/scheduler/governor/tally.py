"""What has the governor decided since the start, and how long did those wait who were granted?"""

from typing import Final

from luftpause.kit.metrics import Counter, Histogram
from luftpause.scheduler.governor.host import Governor
from luftpause.scheduler.quota.decisions import Blocked, CascadeBegan, Decision, Expired, Grant, Refuse, RefuseCode

P: Final = "luftpause_scheduler_quota_"
CLASSES: Final = ("p0", "p1", "p2")
UNKNOWN: Final = ""  # no target is called so: what was asked for must not become a label
WAIT_BOUNDS_SECONDS: Final = (0.001, 0.01, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600)


class QuotaTally:
    """A listener of one governor."""

    def __init__(self, governor: Governor) -> None:
        self._governor = governor
        self.grants = Counter(P + "grants", "Calls that were let out, by the class that they went as.", ("target", "class"))
        self.refusals = Counter(P + "refusals", "Calls that no wait would have helped, by code.", ("target", "code"))
        self.blocks = Counter(P + "blocks", "Times that a provider's refusal blocked a target, or blocked it for longer.", ("target",))
        self.expiries = Counter(P + "expired_leases", "Leases that nobody renewed; what they reserved counts as used.", ("target",))
        self.cascades = Counter(P + "cascades", "Times that one call at a time began.", ("target",))
        self.waits = Histogram(
            P + "wait_seconds", "How long calls waited that were let out.", WAIT_BOUNDS_SECONDS, ("target", "class")
        )  # fmt: skip
        governor.listen(self._heard)
        governor.waited = self._waited

    def _heard(self, decision: Decision) -> None:
        match decision:
            case Grant():
                self.grants.add((decision.target, CLASSES[decision.priority]))
            case Refuse():
                target = UNKNOWN if decision.code is RefuseCode.UNKNOWN_TARGET else decision.target
                self.refusals.add((target, decision.code.value))
            case Blocked():
                self.blocks.add((decision.target,))
            case Expired():
                self.expiries.add((decision.target,))
            case CascadeBegan():
                self.cascades.add((decision.target,))
            case _:
                pass

    def _waited(self, grant: Grant, seconds: float) -> None:
        self.waits.observe(seconds, (grant.target, CLASSES[grant.priority]))
