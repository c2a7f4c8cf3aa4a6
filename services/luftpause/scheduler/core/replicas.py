"""What do probes and configuration say about replicas?"""

from msgspec.structs import replace

from luftpause.scheduler.core.admission import passes_unasked, reported
from luftpause.scheduler.core.dataplanes import trusted
from luftpause.scheduler.core.decisions import ReplicasChanged
from luftpause.scheduler.core.events import ConfigChanged, ProbeOutcome, ReplicaProbed, ReplicaSpec
from luftpause.scheduler.core.faults import rests
from luftpause.scheduler.core.homes import homes_gone
from luftpause.scheduler.core.indexes import Draft, arm, bump, disarm, mark_dirty, put_replica
from luftpause.scheduler.core.model import Health, Replica
from luftpause.scheduler.core.queues import replicas_changed
from luftpause.scheduler.core.quota_wait import quota_changed
from luftpause.scheduler.core.timing import Timer


def fresh_replica(spec: ReplicaSpec) -> Replica:
    return Replica(spec.name, spec, kind=spec.kind.value, models=spec.models, apis=spec.apis)


def probed(d: Draft, e: ReplicaProbed) -> None:
    old = d.replicas.get(e.replica)
    if old is None or old.removed:
        return
    if e.outcome is ProbeOutcome.OK:
        trusted(d, e.replica)
        replica = _answered(d, d.replicas[e.replica], e)
    else:
        replica = _missed(d, old, e.outcome)
    put_replica(d, replace(replica, probed_at=d.now))
    mark_dirty(d, e.replica)
    if (replica.health, replica.models, replica.apis) != (old.health, old.models, old.apis):
        if replica.health is not old.health:
            bump(d, f"replica/{replica.health.value}")
        replicas_changed(d)
        d.decisions.append(ReplicasChanged())
    elif passes_unasked(replica) != passes_unasked(old):
        d.decisions.append(ReplicasChanged())


def _answered(d: Draft, replica: Replica, e: ReplicaProbed) -> Replica:
    replica = replace(
        replica,
        health=Health.UNHEALTHY if rests(d, replica) else Health.HEALTHY,
        misses=0,
        models=replica.models if replica.spec.models is not None or e.models is None else e.models,
        apis=replica.apis if replica.spec.apis or e.apis is None else e.apis,
    )
    before = replica
    replica = reported(
        replica, e.load if replica.spec.capped else None, d.now, d.settings, d.policy.queue_reports(d.settings),
        d.policy.arriving_seconds(d.settings),
    )  # fmt: skip
    if before.load is not None:
        disarm(d, stale_at(d, before), Timer.LOAD, replica.name)
    if replica.load is not None:
        arm(d, stale_at(d, replica), Timer.LOAD, replica.name)
    return replica


def _missed(d: Draft, replica: Replica, outcome: ProbeOutcome) -> Replica:
    """Refused: nobody listens. Else after some misses in a row; a replica that delivers bytes is busy, not dead."""
    if outcome is ProbeOutcome.REFUSED:
        return replace(replica, health=Health.UNHEALTHY, misses=replica.misses + 1)
    if d.now - replica.delivered_at <= d.settings.probe_seconds:
        return replace(replica, misses=0)
    misses = replica.misses + 1
    dead = misses >= d.settings.probe_misses_max
    return replace(replica, misses=misses, health=Health.UNHEALTHY if dead else replica.health)


def stale_at(d: Draft, replica: Replica) -> float:
    return replica.load_at + d.settings.load_stale_periods * d.settings.probe_seconds


def load_too_old(d: Draft, name: str) -> None:
    """No report for some periods: its load is unknown; the last cap holds."""
    replica = d.replicas.get(name)
    if replica is not None and replica.load is not None and d.now >= stale_at(d, replica):
        put_replica(d, replace(replica, load=None))
        mark_dirty(d, name)


def configured(d: Draft, e: ConfigChanged) -> None:
    """The replicas from now on. One that points elsewhere starts anew; counts of turns in flight stay with the name."""
    names = tuple(spec.name for spec in e.replicas)
    gone = [name for name in d.names if name not in names]
    for name in gone:
        _forget_load(d, d.replicas[name])
        put_replica(d, replace(d.replicas[name], removed=True))
    moved = [spec.name for spec in e.replicas if d.urls.get(spec.name, spec.url) != spec.url]
    for spec in e.replicas:
        old = d.replicas.get(spec.name)
        if old is not None and old.spec.quota != spec.quota:
            quota_changed(d, spec.name)
        replica = _configured(d, old, spec)
        put_replica(d, replace(replica, since=d.now) if spec.name in moved else replica)
        d.urls = d.urls.set(spec.name, spec.url)
    d.names = names
    replicas_changed(d)
    for name in moved:  # held turns are queued anew by what the replicas are from now on
        homes_gone(d, name)
    for name in (*gone, *moved):  # a dataplane could not connect to what was there before; nobody probes that any more
        trusted(d, name)
    d.decisions.append(ReplicasChanged())


def _configured(d: Draft, old: Replica | None, spec: ReplicaSpec) -> Replica:
    if old is None:
        return fresh_replica(spec)
    if old.removed or old.spec.url != spec.url or old.spec.kind is not spec.kind:
        _forget_load(d, old)
        fresh = fresh_replica(spec)
        return replace(fresh, in_flight=old.in_flight, passes=old.passes, reserved=old.reserved)
    learned = old.models if old.spec.models is None else None
    spoken = old.apis if not old.spec.apis else ()
    if old.spec.capped != spec.capped:  # what its metrics said says nothing about it any more
        _forget_load(d, old)
        old = replace(old, load=None, has_load=False, cap=None, refused=False, busy=False, peak=0)
    return replace(old, spec=spec, models=spec.models if spec.models is not None else learned, apis=spec.apis or spoken)


def _forget_load(d: Draft, replica: Replica) -> None:
    if replica.load is not None:
        disarm(d, stale_at(d, replica), Timer.LOAD, replica.name)
