"""Which caller is next under the guard policy, and how does one that has waited move up?"""

from math import floor

from msgspec.structs import replace

from luftpause.scheduler.core.frame import Facts, Learned
from luftpause.scheduler.core.guard_family import above_of
from luftpause.scheduler.core.guard_learn import KNOWN
from luftpause.scheduler.core.guard_model import RUN, FlowAccount, Guarded, Waiter
from luftpause.scheduler.core.model import Caller, PlaceInFlow, Turn
from luftpause.scheduler.core.sorted_set import SortedSet

NOBODY = FlowAccount()
STEP_SECONDS = 60.0  # a run's time, until that is known
STEPS_PER_TICK_MAX = 256  # the others are a second late


def flow_key(facts: Facts, flow: str, caller: Caller) -> int:
    """Fewest whole resident runs first: one less if its oldest turn is of such a run, and for every run time that this has waited."""
    del caller
    g: Guarded = facts.policy_state
    account = g.flows.get(flow)
    if account is None:
        return 0
    if not account.waiting:
        return account.resident // RUN
    lane = g.lanes.get(account.waiting.first()[2])
    own = lane.weight if lane is not None and lane.resident and lane.flow == flow else 0
    return (account.resident - own) // RUN - account.moved_up


def place_in_flow(facts: Facts, turn: Turn) -> PlaceInFlow:
    """The oldest run first; a sub-agent with its parent's context is as old as that one, lest others come between its siblings."""
    run = facts.runs.get(turn.run)
    if turn.parent and (above := above_of(facts.policy_state, turn, facts.policy_state.lanes.get((turn.run, turn.model)))):
        run = facts.runs.get(above[-1][0][0], run)
    return (run.born if run is not None else turn.arrived, turn.arrived, facts.serial)


def waits_in_flow(facts: Facts, g: Guarded, name: str, before: FlowAccount, waiting: SortedSet[Waiter]) -> Guarded:
    """These turns wait there now, `before` was so until now. How far the flow has moved up is the oldest one's affair."""
    if before.waiting.size and waiting.size and before.waiting.first() == waiting.first():
        return with_flow(facts, g, name, before, replace(before, waiting=waiting))
    steps = g.steps.remove((before.step_at, name)) if before.waiting.size else g.steps
    flow = replace(before, waiting=waiting, moved_up=0)
    if not waiting.size:
        return with_flow(facts, replace(g, steps=steps), name, before, flow)
    arrived, _, _, turn_class = waiting.first()
    seconds = _step_seconds(g, turn_class)
    moved_up = floor(max(0.0, facts.now - arrived) / seconds)
    flow = replace(flow, moved_up=moved_up, step_at=max(facts.now, arrived + (moved_up + 1) * seconds))
    return with_flow(facts, replace(g, steps=steps.add((flow.step_at, name))), name, before, flow)


def _step_seconds(g: Guarded, turn_class: int) -> float:
    """So long a turn waits until its flow moves up by one: a run's time, at least a second."""
    seconds = g.run_seconds[turn_class]
    return max(1.0, seconds.value) if seconds.count > KNOWN else STEP_SECONDS


def with_steps(facts: Facts, g: Guarded) -> tuple[Guarded, tuple[str, ...]]:
    """With those moved up whose step is due; and which they are."""
    flows: list[str] = []
    while len(flows) < STEPS_PER_TICK_MAX and g.steps.size and g.steps.first()[0] <= facts.now:
        name = g.steps.first()[1]
        g = _moved_up(facts, g, name)
        flows.append(name)
    return g, tuple(flows)


def _moved_up(facts: Facts, g: Guarded, name: str) -> Guarded:
    flow = g.flows[name]
    step_at = facts.now + _step_seconds(g, flow.waiting.first()[3])
    steps = g.steps.remove((flow.step_at, name)).add((step_at, name))
    return replace(g, steps=steps, flows=g.flows.set(name, replace(flow, moved_up=flow.moved_up + 1, step_at=step_at)))


def with_flow(facts: Facts, g: Guarded, name: str, before: FlowAccount, flow: FlowAccount) -> Guarded:
    """What becomes of `before`, which is NOBODY where the flow was not known. Its residents matter to the core while anybody waits."""
    flows, touched, batch_flows = g.flows, g.touched, g.batch_flows
    if facts.held and flow.resident != before.resident and name not in touched:
        touched = (*touched, name)
    if (flow.batch > 0) is not (before.batch > 0):
        batch_flows += 1 if flow.batch else -1
    if flow.resident or flow.waiting.size:
        flows = flows.set(name, flow)
    elif before is not NOBODY:
        flows = flows.delete(name)
    return replace(g, flows=flows, touched=touched, batch_flows=batch_flows)


def told(g: Guarded, replicas: tuple[str, ...] = (), flows: tuple[str, ...] = ()) -> Learned:
    """The core hears which flows may have another key now."""
    return Learned(replace(g, touched=()), replicas, flows + g.touched) if g.touched else Learned(g, replicas, flows)
