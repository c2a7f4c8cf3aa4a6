"""What follows from one fact?

`decide` absorbs the fact, then settles: it places every held turn that can be placed now. It knows no clock: time comes in with the
event, and all that is due by then happens first.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from immutables import Map

from luftpause.scheduler.core import dataplanes, endings, quota_grants, replicas, requests, responses, timers, turns
from luftpause.scheduler.core.decisions import Step
from luftpause.scheduler.core.events import (
    ConfigChanged,
    Continue,
    DataplaneAlive,
    DataplaneLost,
    Event,
    FirstToken,
    QuotaDeferred,
    QuotaGranted,
    QuotaRefused,
    ReplicaProbed,
    ReplicaSpec,
    ReplicaSuspected,
    ReplicaUnusable,
    ResponseSeen,
    ResponseSought,
    Resync,
    RunEnded,
    Tick,
    ToolCallSeen,
    TurnAbandoned,
    TurnFailed,
    TurnFinished,
    TurnRequested,
    TurnReturned,
    TurnStarted,
)  # fmt: skip
from luftpause.scheduler.core.indexes import Draft, arm, freeze, heed, thaw
from luftpause.scheduler.core.model import State
from luftpause.scheduler.core.placement import settle
from luftpause.scheduler.core.policies import POLICIES
from luftpause.scheduler.core.queues import replicas_changed
from luftpause.scheduler.core.settings import Settings
from luftpause.scheduler.core.timing import Timer

# What these tell was so before they came: who places a turn in ignorance of it sends it to nobody, or counts it in a report without it.
TELLS_OF_BEFORE = frozenset({DataplaneLost, ReplicaProbed, ReplicaSuspected, ReplicaUnusable, Resync})


def initial(settings: Settings, specs: Sequence[ReplicaSpec], now: float) -> State:
    """The state of a scheduler that starts at `now`. ValueError: two replicas have one name, or the policy is unknown."""
    names = tuple(spec.name for spec in specs)
    if len(set(names)) < len(names):
        raise ValueError(f"replica names must differ: {', '.join(names)}")
    if settings.policy not in POLICIES:
        raise ValueError(f"unknown policy {settings.policy!r}; known: {', '.join(sorted(POLICIES))}")
    d = thaw(
        State(
            settings=settings,
            now=now,
            started_at=now,
            open=False,
            replicas=Map({spec.name: replicas.fresh_replica(spec) for spec in specs}),
            names=names,
            urls=Map({spec.name: spec.url for spec in specs}),
            servers=Map(),
            policy_state=POLICIES[settings.policy].initial(settings),
        )
    )
    replicas_changed(d)
    arm(d, now + settings.start_grace_seconds, Timer.GATE, "")
    dataplanes.open_gate(d)
    d.due = timers.next_due(d)
    return freeze(d)


def decide(state: State, event: Event) -> Step:
    """
    The state after `event`, and what to do about it. `state` itself stays as it is.

    The host sends `Tick` at `wake_at`, at the latest after 1 s, and `Continue` behind the other waiting events if `more`.
    """
    d = thaw(state)
    d.now = max(d.now, event.now)
    if d.resyncing is not None:
        _absorb_on(d, d.resyncing.hello, event)
    if d.resyncing is None:
        _happen(d, event)
    if d.timers is not state.timers or d.seconds is not state.seconds:
        d.due = timers.next_due(d)
    absorbing = d.resyncing is not None
    more = absorbing or bool(d.dirty) or d.stale.size > 0 or (d.due is not None and d.due <= d.now)
    decisions = tuple(d.decisions)
    return Step(freeze(d), decisions, d.due, more, absorbing)


def _happen(d: Draft, event: Event) -> None:
    """What was due before, the event, and what follows from both."""
    if d.due is not None and d.due <= d.now:
        timers.fire(d)
    if d.dirty and type(event) not in TELLS_OF_BEFORE:
        settle(d)
    ABSORB[type(event)](d, event)
    if d.resyncing is not None:
        return
    absorb = d.policy.absorbs.get(type(event))
    if absorb is not None:
        heed(d, absorb(d, event))
    if d.dirty:
        settle(d)
    if d.stale.size and not d.dirty:
        timers.retell(d)


def _absorb_on(d: Draft, hello: Resync, event: Event) -> None:
    """Go on with a large Hello. Whatever else happens than `Continue` must find all of it absorbed."""
    dataplanes.resync_on(d, d.settings.records_per_step_max if isinstance(event, Continue) else inf)
    if d.resyncing is None and (absorb := d.policy.absorbs.get(Resync)) is not None:
        heed(d, absorb(d, hello))


def _nothing(d: Draft, event: Event) -> None:
    """No table depends on it."""


# What each fact changes in the tables. A look-up by type costs the same for all; a `match` asks one type after the other.
ABSORB: dict[type[Event], Callable[[Draft, Any], None]] = {
    TurnRequested: requests.requested,
    TurnAbandoned: turns.abandoned,
    TurnReturned: turns.returned,
    TurnStarted: _nothing,
    FirstToken: _nothing,
    ToolCallSeen: requests.tool_call_seen,
    ResponseSeen: responses.response_seen,
    TurnFinished: turns.finished,
    TurnFailed: turns.failed,
    RunEnded: endings.run_ended,
    ResponseSought: responses.response_sought,
    Resync: dataplanes.resync,
    DataplaneLost: dataplanes.lost,
    DataplaneAlive: dataplanes.alive,
    ReplicaSuspected: dataplanes.suspected,
    ReplicaUnusable: dataplanes.unusable,
    ReplicaProbed: replicas.probed,
    ConfigChanged: replicas.configured,
    QuotaGranted: quota_grants.granted,
    QuotaDeferred: quota_grants.deferred,
    QuotaRefused: quota_grants.refused,
    Tick: _nothing,  # what is due has happened already
    Continue: _nothing,
}
