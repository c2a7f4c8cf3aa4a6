"""Does a single pass go to a replica unasked only where the scheduler had allowed it, and could not have said anything else?

What a dataplane knows may be as old as a session lasts in silence, and so may be what it tells.
"""

from typing import Final

from luftpause.kit.protocol import ALIVE_SECONDS, SILENCE_SECONDS
from luftpause.scheduler.core.decisions import Place
from luftpause.scheduler.core.model import GENERATIVE, Health, Replica, State
from luftpause.scheduler.core.serving import takes_kind
from luftpause_bench.sim.pools import serves_model

LATE_SECONDS: Final = 2 * (SILENCE_SECONDS + ALIVE_SECONDS)  # silence is noticed within half a second of its end, on each way
NEVER: Final = float("-inf")


class Allowed:
    """Since when each replica serves what it serves, and when it last took any pass, by plain looks at each state."""

    def __init__(self, state: State) -> None:
        self._open: dict[str, float] = {}
        self._since: dict[str, float] = {}
        self.follow(state, state, state.now)

    def follow(self, before: State, after: State, now: float) -> None:
        """To be called after each event, behind `check`."""
        if before.replicas is after.replicas and self._since:
            return
        for name, replica in after.replicas.items():
            old = before.replicas.get(name)
            if old is not None and _takes_any(old):
                self._open[name] = now
            if old is None or (old.health, old.models, old.removed) != (replica.health, replica.models, replica.removed):
                self._since[name] = now
        for name in before.replicas:
            if name not in after.replicas and _takes_any(before.replicas[name]):
                self._open[name] = now

    def check(self, before: State, after: State, place: Place, *, since: float) -> None:
        """`since`: till then something stood still, and what was told waited for longer than in any session that goes on."""
        turn = after.turns[place.turn]
        where = f"turn {place.turn} went to {place.replica} unasked"
        assert turn.kind != GENERATIVE, f"{where}, and is none of a single pass"
        if after.now - since < LATE_SECONDS:
            return
        now = before.replicas.get(place.replica)
        open_ = now is not None and _takes_any(now)
        allowed = after.now if open_ else self._open.get(place.replica, NEVER)
        assert after.now - allowed <= LATE_SECONDS, f"{where}, which takes no pass without a question"
        unusable = after.dataplanes[turn.dataplane].unusable
        for name, other in after.replicas.items():
            if name == place.replica or name in unusable or not _serves(other, turn.kind, turn.model):
                continue
            steady = after.now - self._since.get(name, after.now) > LATE_SECONDS
            assert not steady, f"{where}, although {name} serves {turn.model} as well"


def _takes_any(replica: Replica) -> bool:
    spec = replica.spec
    return _healthy(replica) and not spec.quota and spec.max_in_flight is None and replica.passes_cap is None


def _healthy(replica: Replica) -> bool:
    return replica.health is Health.HEALTHY and not replica.removed


def _serves(replica: Replica, kind: str, model: str) -> bool:
    return _healthy(replica) and takes_kind(replica, kind) and serves_model(replica.models or (), model)
