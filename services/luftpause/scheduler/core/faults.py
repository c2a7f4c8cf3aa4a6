"""Does a replica fail its turns although it answers its probes, so that others should have them for a while?

An engine that fails at once has the most free room of all: without this it would draw nearly every new run.
"""

from msgspec.structs import replace

from luftpause.scheduler.core.decisions import ReplicasChanged
from luftpause.scheduler.core.indexes import Draft, bump, put_replica
from luftpause.scheduler.core.model import Health, Replica
from luftpause.scheduler.core.queues import replicas_changed, servers_of

ENGINE_FAULT = "engine_fault"  # the engine answered with a 5xx, or does not take its replica's key


def faulted(d: Draft, name: str) -> None:
    """A turn failed there and its client is not to blame. After `faults_max` in a row the replica rests, if others can take its turns."""
    replica = d.replicas.get(name)
    if replica is None or replica.removed or not d.settings.faults_max or replica.spec.quota:
        return
    replica = replace(replica, faults=replica.faults + 1)
    put_replica(d, replica)
    if replica.faults < d.settings.faults_max or replica.health is not Health.HEALTHY or not _others_serve(d, replica):
        return
    put_replica(d, replace(replica, health=Health.UNHEALTHY, rests_until=d.now + d.settings.fault_rest_seconds))
    bump(d, f"replica/{Health.UNHEALTHY.value}")
    bump(d, "replica/rests")
    replicas_changed(d)
    d.decisions.append(ReplicasChanged())


def rests(d: Draft, replica: Replica) -> bool:
    """Good probes don't make it healthy yet: its turns tell more. Where nobody else is left it is tried all the same."""
    return d.now < replica.rests_until and _others_serve(d, replica)


def _others_serve(d: Draft, replica: Replica) -> bool:
    """Each of its models has another healthy replica."""
    return bool(replica.models) and all(
        any(other != replica.name and d.replicas[other].health is Health.HEALTHY for other in servers_of(d, replica.kind, model))
        for model in replica.models or ()
    )
