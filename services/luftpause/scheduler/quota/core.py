"""Who may call now? What follows from one fact about quotas.

`govern` absorbs the fact into its target, then grants in order until the next one must wait. It knows no clock: time comes in with the
event.
"""

from collections.abc import Callable, Mapping
from math import inf
from typing import Any, Final

from immutables import Map
from msgspec.structs import replace

from luftpause.scheduler.quota import breaker, cascade, enabling, ledger, rates, shared
from luftpause.scheduler.quota.decisions import Decision, Refuse, RefuseCode, Stale, Step
from luftpause.scheduler.quota.draft import Draft, freeze, leave, lend, thaw
from luftpause.scheduler.quota.events import (
    AnswerReported,
    Event,
    GrantConfirmed,
    GrantDeclined,
    LeaseLost,
    LeaseReleased,
    LeaseRenewed,
    LedgerTold,
    LimitsObserved,
    QuotaWanted,
    QuotaWithdrawn,
    TargetConfigured,
    TargetEnabled,
    TargetRemoved,
    Tick,
)  # fmt: skip
from luftpause.scheduler.quota.model import STANDING, Mode, Origin, Settings, State, Target
from luftpause.scheduler.quota.reports import expire, observed, released, renewed, reported
from luftpause.scheduler.quota.rules import RULES
from luftpause.scheduler.quota.specs import TargetSpec
from luftpause.scheduler.quota.wishes import fit_waiters, forget_retries, grant, wanted, withdrawn


def initial(settings: Settings, now: float, workflows: Mapping[str, cascade.Workflow] | None = None) -> State:
    """The state of a governor that starts at `now` without targets. ValueError: the workflows go in a circle."""
    graph = cascade.edges(workflows or {})
    return State(settings, now, depths=Map(cascade.depths(graph)), downstream=Map(graph))


def govern(state: State, event: Event) -> Step:
    """The state after `event`, and what to do about it. `state` itself stays as it is. The host sends `Tick` at `wake_at`."""
    now = max(state.now, event.now)
    state = replace(state, now=now)
    decisions: list[Decision] = []
    match event:
        case Tick():
            state = _tick(state, decisions)
        case TargetConfigured():
            state = _work(state, state.targets.get(event.spec.name, event.spec), event, decisions)
        case TargetRemoved():
            state = _without(state, event.target, decisions)
        case _:
            target = state.targets.get(event.target)
            state = _strange(state, event, decisions) if target is None else _work(state, target, event, decisions)
    return Step(state, tuple(decisions), state.due.first()[0] if state.due else None)


def _tick(state: State, decisions: list[Decision]) -> State:
    for _ in range(state.settings.steps_max):
        if not state.due or state.due.first()[0] > state.now:
            break
        state = _work(state, state.targets[state.due.first()[1]], None, decisions)
    return state


def _strange(state: State, event: Event, decisions: list[Decision]) -> State:
    """The target is not there (any more)."""
    if isinstance(event, QuotaWanted):
        message = f"no target is called {event.target!r}; known: {', '.join(sorted(state.targets)) or 'none, configure one'}"
        decisions.append(Refuse(event.target, event.want, RefuseCode.UNKNOWN_TARGET, message))
    elif isinstance(event, LeaseRenewed | LeaseReleased | AnswerReported):
        decisions.append(Stale(event.target, event.want, event.fence))
    return state


def _without(state: State, name: str, decisions: list[Decision]) -> State:
    """Nobody is left waiting for what no longer is."""
    target = state.targets.get(name)
    if target is None:
        return state
    waiters = sorted(target.waiters.values(), key=lambda one: one.number)
    decisions += [removed(name, waiter.want) for waiter in waiters]
    due = state.due if target.due == inf else state.due.remove((target.due, name))
    return replace(state, targets=state.targets.delete(name), due=due)


def removed(name: str, want: str) -> Refuse:
    """What those hear who waited for it."""
    message = f"{name!r} is no longer configured; ask for another target, or configure it again"
    return Refuse(name, want, RefuseCode.TARGET_REMOVED, message)


def _work(state: State, target: Target | TargetSpec, event: Event | None, decisions: list[Decision]) -> State:
    """One target: what was due, the event, what follows."""
    d = thaw(state, target)
    d.decisions = decisions
    _elapse(d)
    if event is not None:
        ABSORB[type(event)](d, event)
        breaker.elapse(d)
        cascade.elapse(d)
    _settle(d)
    old, d.due = d.due, _next_due(d)
    name, due = d.spec.name, state.due
    if old != d.due:
        due = due.remove((old, name)) if old < inf else due
        due = due.add((d.due, name)) if d.due < inf else due
    return replace(state, targets=state.targets.set(name, freeze(d)), due=due, fence=d.fence)


# ---- time -------------------------------------------------------------------------------------------------------


def _elapse(d: Draft) -> None:
    if d.breaker.mode not in STANDING:
        d.unblocked += d.now - d.at
    d.at = d.now
    for name, scope in d.scopes.items():
        rolled = ledger.roll(scope, d.now)
        if rolled is not scope:
            d.scopes[name] = rolled
    for _ in range(d.settings.expiries_max):
        if not d.expiries or d.expiries.first()[0] > d.now:
            break
        expire(d, d.leases[d.expiries.first()[1]])
    forget_retries(d)
    breaker.elapse(d)
    cascade.elapse(d)


def _next_due(d: Draft) -> float:
    """When anything may change by itself."""
    due = min(d.wake, breaker.level_due(d), cascade.due(d))
    if d.breaker.mode in {Mode.OPEN, Mode.DISABLED}:
        due = min(due, d.breaker.open_until)
    if d.expiries:
        due = min(due, d.expiries.first()[0])
    return max(min(due, RULES[d.settings.policy].due(d)), d.now)


# ---- events -----------------------------------------------------------------------------------------------------


def _configured(d: Draft, event: TargetConfigured) -> None:
    old = {scope.name: scope for scope in d.spec.scopes} if d.scopes else {}
    d.spec = event.spec
    kept, d.scopes = d.scopes, {}
    for spec in event.spec.scopes:
        scope = kept.get(spec.name)
        if scope is None or scope.spec.kind != spec.kind:
            out = sum(units for lease in d.leases.values() for name, units in lease.cost if name == spec.name)
            d.scopes[spec.name] = replace(ledger.fresh(spec, d.now), out=out)
        else:  # what a provider has said counts until the configuration says another figure
            was = old.get(spec.name)
            limit = spec.limit if was is None or spec.limit != was.limit else scope.limit
            d.scopes[spec.name] = replace(ledger.fitted(scope, spec, limit, d.now), origin=Origin.CONFIGURED)
    if event.spec.learns is not None:
        d.scopes |= {name: scope for name, scope in kept.items() if scope.origin is not Origin.CONFIGURED and name not in d.scopes}
    if event.learning_seconds > 0:
        d.learning_until = max(d.learning_until, d.now + event.learning_seconds)
    fit_waiters(d)


def _enabled(d: Draft, event: TargetEnabled) -> None:
    enabling.enabled(d)


ABSORB: Final[dict[type[Event], Callable[[Draft, Any], None]]] = {
    TargetConfigured: _configured,
    TargetEnabled: _enabled,
    QuotaWanted: wanted,
    QuotaWithdrawn: withdrawn,
    LeaseRenewed: renewed,
    LeaseReleased: released,
    AnswerReported: reported,
    LimitsObserved: observed,
    GrantConfirmed: shared.confirmed,
    GrantDeclined: shared.declined,
    LeaseLost: shared.lost,
    LedgerTold: shared.told,
}


# ---- who may go -------------------------------------------------------------------------------------------------


def _settle(d: Draft) -> None:
    """Grant until nobody may go, or the step is full."""
    rules = RULES[d.settings.policy]
    while d.waiters:
        if d.steps_left <= 0:
            d.wake = d.now
            return
        choice = rules.choose(d)
        if choice is None:
            return
        d.steps_left -= 1
        if choice.refusal is not None:
            leave(d, choice.waiter)
            d.decisions.append(Refuse(d.spec.name, choice.waiter.want, *choice.refusal))
            continue
        rules.spend(d, choice.waiter, choice.rank, promoted=choice.promoted)
        lease = lend(d, choice.waiter, promoted=choice.promoted)
        d.breaker = rates.sent(d.breaker, d.now)
        d.decisions.append(grant(d, lease))
