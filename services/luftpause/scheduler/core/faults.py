"""Does a replica fail its turns although it answers its probes, so that others should have them for a while?

An engine that fails at once has the most free room of all: without this it would draw nearly every new run.
"""

from msgspec.structs import replace

from luftpause.scheduler.core.decisions import ReplicasChanged
from luftpause.scheduler.core.indexes import Draft, bump, put_replica
from luftpause.scheduler.core.model import Fault, Health, Replica, Turn
from luftpause.scheduler.core.queues import replicas_changed, servers_of

ENGINE_FAULT = "engine_fault"  # the engine answered with a 5xx, or does not take its replica's key
FAULTS_KEPT = 16  # at least, so that those which don't count push out no others


def faulted(d: Draft, turn: Turn) -> None:
    """
    Its engine failed a turn. After `faults_max` in a row the replica rests, if others can take its turns.

    What failed elsewhere too, and nothing was answered there since, does not count: it may well be the request, which would make one
    replica after the other rest.
    """
    replica, most = d.replicas.get(turn.replica), d.settings.faults_max
    if replica is None or replica.removed or not most or replica.spec.quota:
        return
    fault = Fault(turn.run, turn.body_hash, counts=not _failed_elsewhere(d, turn))
    replica = replace(replica, faults=(*replica.faults, fault)[-max(most, FAULTS_KEPT) :])
    put_replica(d, replica)
    if not fault.counts or len([each for each in replica.faults if each.counts]) < most:
        return
    if replica.health is not Health.HEALTHY or not _others_serve(d, replica):
        return
    put_replica(d, replace(replica, health=Health.UNHEALTHY, rests_until=d.now + d.settings.fault_rest_seconds))
    bump(d, f"replica/{Health.UNHEALTHY.value}")
    bump(d, "replica/rests")
    replicas_changed(d)
    d.decisions.append(ReplicasChanged())


def _failed_elsewhere(d: Draft, turn: Turn) -> bool:
    """A turn of its run, or the same request."""
    others = [each for name in d.names if name != turn.replica for each in d.replicas[name].faults]
    return any(each.run == turn.run or (turn.body_hash and each.body_hash == turn.body_hash) for each in others)


def rests(d: Draft, replica: Replica) -> bool:
    """Good probes don't make it healthy yet: its turns tell more. Where nobody else is left it is tried all the same."""
    return d.now < replica.rests_until and _others_serve(d, replica)


def _others_serve(d: Draft, replica: Replica) -> bool:
    """Each of its models has another healthy replica."""
    return bool(replica.models) and all(
        any(other != replica.name and d.replicas[other].health is Health.HEALTHY for other in servers_of(d, replica.kind, model))
        for model in replica.models or ()
    )
