"""Which changes of shared quotas are worth a line in the log?"""

import asyncio
from math import inf
from typing import Final

from luftpause.kit.logs import Log
from luftpause.scheduler.governor.host import Governor
from luftpause.scheduler.quota import ledger
from luftpause.scheduler.quota.decisions import Blocked, CascadeBegan, CascadeOver, Closed, Decision, Disabled, HalfOpened, Levelled

LOOK_SECONDS: Final = 1.0  # lights change with the time too

log = Log("governor")


class QuotaWatch:
    """A listener of one governor. One line per change of a light, a breaker or a cascade; callers by their names, nothing of calls."""

    def __init__(self, governor: Governor) -> None:
        self._governor = governor
        self._lights: dict[tuple[str, str], str] = {}
        self._blocked: set[str] = set()  # each further refusal of those in flight makes the block longer
        governor.listen(self._heard)

    async def run(self) -> None:
        """Look at the lights, until cancelled; a fault ends one look only."""
        while True:
            with self._governor.faults.noted("lights"):
                self.look()
            await asyncio.sleep(LOOK_SECONDS)

    def look(self) -> None:
        now, was, self._lights = self._governor.now, self._lights, {}
        for target in self._governor.state.targets.values():
            for name, scope in target.scopes.items():
                key, light = (target.spec.name, name), ledger.light(ledger.roll(scope, now), now).value
                self._lights[key] = light
                if light != (before := was.get(key, "green")):
                    log.info("traffic light", target=key[0], scope=name, light=light, was=before)

    def _heard(self, decision: Decision) -> None:
        match decision:
            case Blocked():
                if decision.target not in self._blocked:
                    self._blocked.add(decision.target)
                    log.warning("breaker open", target=decision.target, seconds=self._until(decision.until))
            case HalfOpened():
                self._blocked.discard(decision.target)
                log.info("breaker half open", target=decision.target)
            case Closed():
                log.info("breaker closed", target=decision.target)
            case Levelled():
                log.info("load is cut" if decision.level else "load is no longer cut", target=decision.target, level=decision.level)
            case Disabled():
                log.warning("out of credit", target=decision.target, seconds=self._until(decision.until))
            case CascadeBegan() | CascadeOver():
                self._cascade(decision)
            case _:
                pass

    def _cascade(self, decision: CascadeBegan | CascadeOver) -> None:
        if isinstance(decision, CascadeOver):
            log.info("cascade over", target=decision.target)
            return
        limited, behind = ", ".join(decision.callers), ", ".join(decision.downstream)
        seconds = self._until(decision.until)
        log.warning("cascade: one call at a time", target=decision.target, callers=limited, downstream=behind, seconds=seconds)

    def _until(self, moment: float) -> float | None:
        return round(max(0.0, moment - self._governor.now), 1) if moment < inf else None
