"""Can any replica serve these turns at all, now or later?

The rules for a model that nobody is known to serve:
- models that are configured are known from the start, whatever the replica's health;
- a replica without configured models that has never answered a probe may serve any model, so turns for unknown models are held until it has
  answered (then placed or refused), is removed, or `no_replica: refuse` ends the wait;
- otherwise the model is refused at once, with the list of what is served.
"""

from msgspec import Struct

from luftpause.kit.model_names import is_pattern
from luftpause.scheduler.core.decisions import HoldReason
from luftpause.scheduler.core.indexes import Draft
from luftpause.scheduler.core.model import Health, QueueKey, Replica, Turn
from luftpause.scheduler.core.queues import bound_home, servers_of
from luftpause.scheduler.core.serving import serves, speaks, takes_kind

MODELS_NAMED_MAX = 50  # in an error message
RETRY_SECONDS_MIN = 1.0


class Refusal(Struct, frozen=True, gc=False):
    status: int
    code: str
    message: str
    retry_after_seconds: float = 0.0


WHY = {
    HoldReason.STARTING: "the scheduler has not heard all dataplanes since its start",
    HoldReason.IDENTITY: "another dataplane may know its tool-call ids",
    HoldReason.NO_REPLICA: "no healthy replica serves the model",
    HoldReason.STICKY: "the replica that has its run's prefix is full",
    HoldReason.CAPPED: "every replica that it may use is full",
    HoldReason.RESERVED: "places are kept for paused interactive runs",
    HoldReason.KV: "the turns that run fill the engine's KV memory",
    HoldReason.QUOTA: "the quota that it needs has no room for it",
    HoldReason.PROTECT: "it would push a run's prefix out of the engine's KV memory shortly before that run comes back",
}
RUN_ENDED = Refusal(409, "run_ended", "the run was ended while this turn was held")


def candidates(d: Draft, key: QueueKey) -> list[Replica]:
    """Healthy replicas that these turns may go to now, in configured order."""
    if key.home and (home := bound_home(d, key)):
        replica = d.replicas[home]
        return [replica] if replica.health is Health.HEALTHY and home not in key.suspect else []
    replicas = [d.replicas[name] for name in servers_of(d, key.kind, key.model)]
    found = [
        replica for replica in replicas if replica.health is Health.HEALTHY and (not replica.apis or speaks(replica, key.kind, key.api))
    ]
    barred = key.without + key.unusable + key.suspect
    return [replica for replica in found if replica.name not in barred] if barred else found


def possible(d: Draft, key: QueueKey) -> tuple[str, ...]:
    """Replicas that these turns may go to now, or once they are healthy."""
    home = bound_home(d, key)
    if home:
        return (home,)
    names = servers_of(d, key.kind, key.model)
    barred = key.without + key.unusable
    return tuple([name for name in names if speaks(d.replicas[name], key.kind, key.api) and name not in barred])


def verdict(d: Draft, key: QueueKey, able: list[Replica]) -> Refusal | HoldReason | None:
    """`able`: its candidates. None: they can serve these turns, as soon as they have room. Else why the turns wait or are refused."""
    if able:
        return None if d.open else HoldReason.STARTING
    servers = [d.replicas[name] for name in servers_of(d, key.kind, key.model)]
    if not servers:
        return _unknown_model(d, key)
    speaking = [replica for replica in servers if serves(replica, key.kind, key.model, key.api)]
    if not speaking:
        return _api_not_served(key, servers)
    usable = [replica for replica in speaking if replica.name not in key.unusable]
    if not usable:
        names = ", ".join(replica.name for replica in speaking)
        message = f"this dataplane can't use any replica that serves model {key.model!r} ({names}): see its log for the missing key"
        return Refusal(503, "replica_unusable", message, d.settings.probe_seconds)
    tried = tuple([name for name in key.without if name not in key.unusable])  # a place that can't be used was no attempt
    if tried and all(replica.name in tried or replica.health is Health.UNHEALTHY for replica in usable):
        return unreachable(tried, d.settings.probe_seconds)
    return _waits(d, key)


def _waits(d: Draft, key: QueueKey) -> HoldReason:
    if not d.open:
        return HoldReason.STARTING
    home = bound_home(d, key)  # a healthy one is suspected: its next probe decides
    return HoldReason.STICKY if home and d.replicas[home].health is Health.HEALTHY else HoldReason.NO_REPLICA


def unreachable(names: tuple[str, ...], retry_seconds: float) -> Refusal:
    message = "; ".join(f"engine {name}: could not be reached" for name in names)
    return Refusal(502, "engine_unreachable", message, max(retry_seconds, RETRY_SECONDS_MIN))


def no_replica(model: str, retry_seconds: float) -> Refusal:
    message = f"every replica that serves model {model!r} is unhealthy; the turn waited for no_replica_seconds"
    return Refusal(503, "no_replica", message, max(retry_seconds, RETRY_SECONDS_MIN))


def too_many(d: Draft, turn: Turn) -> Refusal | None:
    """A turn that would have to be held (or is, as the last), while as many are held as the deployment allows."""
    itself = turn.queue is not None
    most = d.settings.held_turns_per_caller_max
    caller = d.callers.get(turn.flow) if most is not None else None
    if most is not None and (held := caller.held - itself if caller else 0) >= most:
        message = f"{held} turns of this caller are held already; held_turns_per_caller_max allows no more"
        return Refusal(429, "caller_held_too_many", message, _retry_seconds(d))
    most = d.settings.held_turns_max
    if most is not None and (held := d.held - itself) >= most:
        return Refusal(503, "too_many_held", f"{held} turns are held already; held_turns_max allows no more", _retry_seconds(d))
    return None


def held_too_long(d: Draft, turn: Turn) -> Refusal:
    most = d.settings.hold_seconds_max or 0.0
    seconds = d.now - turn.hold_until + most  # of this turn, not of an abandoned twin whose arrival it has inherited
    why = WHY[turn.reason] if turn.reason else "it was about to be placed"
    names = f" ({', '.join(turn.waits_for[:MODELS_NAMED_MAX])})" if turn.waits_for else ""
    message = f"held for {seconds:.0f} s, as {why}{names}; hold_seconds_max is {most:g}"
    return Refusal(503, "held_too_long", message, _retry_seconds(d))


def quota_too_late(d: Draft, turn: Turn, name: str, wait_seconds: float) -> Refusal:
    """`wait_seconds`: what is known of how long nothing will be granted."""
    since = turn.quota.since if turn.quota is not None else 0.0
    waited = max(0.0, d.now - since) if since else 0.0
    message = (
        f"waited {waited:.0f} s for the quota of {name}" + (f", which opens in {wait_seconds:.0f} s" if wait_seconds else "")
        + f"; quota_hold_seconds_max is {d.settings.quota_hold_seconds_max:g}"
    )  # fmt: skip
    return Refusal(429, "quota_wait_too_long", message, max(wait_seconds, RETRY_SECONDS_MIN))


def _retry_seconds(d: Draft) -> float:
    return max(d.settings.probe_seconds, RETRY_SECONDS_MIN)


def _unknown_model(d: Draft, key: QueueKey) -> Refusal | HoldReason:
    mine = [replica for name in d.names if takes_kind(replica := d.replicas[name], key.kind)]
    if any(replica.models is None for replica in mine):
        return _waits(d, key)
    names = {model for replica in mine for model in replica.models or ()}
    served = sorted(names, key=lambda name: (is_pattern(name), name))  # patterns come last
    shown = ", ".join(served[:MODELS_NAMED_MAX]) + (f" and {len(served) - MODELS_NAMED_MAX} more" if len(served) > MODELS_NAMED_MAX else "")
    message = f"no {key.kind} replica serves model '{key.model}'" + (f"; served: {shown}" if served else "; none serves any model")
    return Refusal(404, "model_not_found", message)


def _api_not_served(key: QueueKey, servers: list[Replica]) -> Refusal:
    shown = "; ".join(f"{replica.name} serves {', '.join(replica.apis)}" for replica in servers[:MODELS_NAMED_MAX])
    message = f"model '{key.model}' is served only by replicas without the {key.api} API ({shown})"
    return Refusal(404, "api_not_served", message)
