"""Which replica is unhealthy although its probes are good, so that a person should look at its engine?"""

from typing import Final

from luftpause.kit.logs import Log
from luftpause.scheduler.core.decisions import Step
from luftpause.scheduler.core.events import Event, TurnFailed
from luftpause.scheduler.core.faults import ENGINE_FAULT
from luftpause.scheduler.core.model import State

LOG: Final = Log("scheduler")


def tell_rests(before: State, event: Event, step: Step) -> None:
    """An observer of the host. Of faults in a row the first rest is told; it goes on resting until its engine answers something."""
    if not isinstance(event, TurnFailed) or event.reason != ENGINE_FAULT:
        return
    turn = before.turns.get(event.turn)
    old = before.replicas.get(turn.replica) if turn is not None else None
    if old is None or step.state.replicas[old.name].rests_until == old.rests_until:
        return
    settings = before.settings
    if len([each for each in old.faults if each.counts]) < settings.faults_max:
        LOG.warning(
            f"replica rests for {settings.fault_rest_seconds:g} s at a time: it answers its probes, and its engine failed "
            f"{settings.faults_max} turns in a row (5xx, or a 401 to the replica's key); others take its turns",
            replica=old.name,
        )
