"""How do runs, their lanes and their paused branches change?"""

from msgspec.structs import replace

from luftpause.scheduler.core.decisions import BranchFollowed, Forget
from luftpause.scheduler.core.indexes import Draft, arm, bump, disarm, reserve_places
from luftpause.scheduler.core.model import PHASES, Branch, IdKey, Lane, Phase, Run, Turn
from luftpause.scheduler.core.timing import Timer

INFINITE = float("inf")
SLOTS = {phase: number * 2 for number, phase in enumerate(PHASES)}


def lane_of(run: Run, model: str) -> Lane | None:
    for lane in run.lanes:
        if lane.model == model:
            return lane
    return None


def with_lane(run: Run, lane: Lane) -> tuple[Lane, ...]:
    """Its lanes, with this one for its model."""
    if not run.lanes or (len(run.lanes) == 1 and run.lanes[0].model == lane.model):
        return (lane,)
    others = [other for other in run.lanes if other.model != lane.model]
    return tuple(sorted((*others, lane), key=lambda other: other.model))


def put_run(d: Draft, run: Run) -> Run:
    """Store it, with its phase worked out and counted."""
    old = d.runs.get(run.key)
    phase = phase_of(run.in_flight, run.lanes)
    if phase != run.phase:
        run = replace(run, phase=phase)
    if old is None or old.phase != phase or old.turn_class is not run.turn_class:
        _count_phase(d, old, run)
    if old is None:
        run = replace(run, due=run.seen + d.settings.run_idle_seconds)
        arm(d, run.due, Timer.RUN, run.key)
    d.runs = d.runs.set(run.key, run)
    return run


def store_run(d: Draft, run: Run) -> None:
    """As `put_run`, for a known run whose phase can't have changed."""
    old = d.runs[run.key]
    if old.turn_class is run.turn_class:
        d.runs = d.runs.set(run.key, run)
    else:
        put_run(d, run)


def phase_of(in_flight: int, lanes: tuple[Lane, ...]) -> Phase:
    """Generating wins over paused, paused over idle."""
    if in_flight:
        return "generating"
    for lane in lanes:
        if lane.branches:
            return "paused"
    return "idle"


def _count_phase(d: Draft, old: Run | None, new: Run | None) -> None:
    counts = list(d.phases)
    if old is not None:
        counts[SLOTS[old.phase] + old.turn_class] -= 1
    if new is not None:
        counts[SLOTS[new.phase] + new.turn_class] += 1
    d.phases = tuple(counts)


def phase_slot(phase: Phase, turn_class: int) -> int:
    """Where `State.phases` counts such runs."""
    return SLOTS[phase] + turn_class


def forget(d: Draft, run: Run) -> None:
    """The run is no longer known: its places and ids are given back. It must have no turns."""
    forget_memory(d, run)
    disarm(d, run.due, Timer.RUN, run.key)
    _count_phase(d, d.runs[run.key], None)
    d.runs = d.runs.delete(run.key)
    if d.run_quotas and run.key in d.run_quotas:
        d.run_quotas = d.run_quotas.delete(run.key)
    bump(d, "runs_forgotten")
    d.decisions.append(Forget(run.id))


def over(d: Draft, key: str) -> None:
    """Forget a run that was ended once its last turn is over."""
    run = d.runs.get(key)
    if run is not None and run.ended and not run.in_flight and not run.held:
        forget(d, run)


def forget_unused(d: Draft, key: str) -> None:
    """A run whose only turn was never placed leaves nothing behind."""
    run = d.runs.get(key)
    if run is not None and not run.lanes and not run.held and not run.in_flight and not run.responses:
        forget(d, run)


def prolong(d: Draft, run: Run, due: float) -> None:
    """The run was seen lately: its idle timer, which has fired, is set anew."""
    arm(d, due, Timer.RUN, run.key)
    d.runs = d.runs.set(run.key, replace(run, due=due))


def forget_memory(d: Draft, run: Run) -> Run:
    """End all that would bring a later turn back to this run: branches, tool-call ids. Returns it without them, not stored."""
    for lane in run.lanes:
        for branch in lane.branches:
            drop_branch(d, run, lane, branch)
    if run.ids:
        disarm_ids(d, run)
    for _, key in run.ids:
        known = d.ids.get(key)
        if known is None:
            continue
        left = tuple(sighting for sighting in known.sightings if sighting.run != run.key)
        d.ids = d.ids.set(key, replace(known, sightings=left)) if left else d.ids.delete(key)
    return replace(run, ids=(), lanes=tuple(replace(lane, branches=()) for lane in run.lanes))


def disarm_ids(d: Draft, run: Run) -> None:
    disarm(d, ids_due(d, run.ids), Timer.IDS, run.key)


def ids_due(d: Draft, ids: tuple[tuple[float, IdKey], ...]) -> float:
    """When the oldest of a run's ids is swept."""
    return ids[0][0] + d.settings.tool_call_memory_seconds + d.settings.tool_call_sweep_seconds


# ---- branches ---------------------------------------------------------------------------------------------------


def pause(d: Draft, run: Run, lane: Lane, turn: Turn, now: float) -> Lane:
    """An answer of this lane ended in tool calls. Returns the lane with that branch, not stored."""
    until = now + d.policy.reserve(d, turn.turn_class, lane.home)
    return add_branch(d, run, lane, Branch(turn.id, turn.answer_ids, now, turn.head_digest, until > now, until, turn.dataplane))


def add_branch(d: Draft, run: Run, lane: Lane, branch: Branch) -> Lane:
    if len(lane.branches) >= d.settings.branches_per_lane_max:
        drop_branch(d, run, lane, lane.branches[0])
        lane = replace(lane, branches=lane.branches[1:])
    if branch.reserves:
        reserve_places(d, lane.home, 1)
        if branch.until < INFINITE:
            arm(d, branch.until, Timer.RESERVE, run.key, f"{branch.turn}\x1f{lane.model}")
    return replace(lane, branches=(*lane.branches, branch))


def drop_branch(d: Draft, run: Run, lane: Lane, branch: Branch) -> None:
    """Give back what the branch held. The caller takes it out of the lane."""
    if branch.reserves:
        reserve_places(d, lane.home, -1)
        if branch.until < INFINITE:
            disarm(d, branch.until, Timer.RESERVE, run.key, f"{branch.turn}\x1f{lane.model}")


def move_home(d: Draft, lane: Lane, home: str) -> Lane:
    """The lane's prefix is elsewhere now: its paused branches will return there. Returns the lane, not stored."""
    if lane.home == home:
        return lane
    if lane.branches:
        held = sum(branch.reserves for branch in lane.branches)
        reserve_places(d, lane.home, -held)
        reserve_places(d, home, held)
    return replace(lane, home=home)


def follow(d: Draft, run: Run, turn: Turn) -> Run:
    """
    End the branches that this turn follows: those of any lane that gave one of the ids it carries.

    A branch without ids, and every branch when the turn carries none (a new message instead of tool results), is ended by the next turn in
    its lane with the same conversation head; where either head is unknown they count as the same. So a sub-agent that starts under the
    same run id does not end its sibling's branch.
    """
    if run.phase != "paused" and not _pauses(run):
        return run
    lanes: list[Lane] = []
    for lane in run.lanes:
        kept: list[Branch] = []
        for branch in lane.branches:
            if _follows(turn, lane, branch):
                drop_branch(d, run, lane, branch)
                if branch.dataplane != turn.dataplane:
                    d.decisions.append(BranchFollowed(branch.dataplane, run.id, run.principal, lane.model, branch.ids))
            else:
                kept.append(branch)
        lanes.append(lane if len(kept) == len(lane.branches) else replace(lane, branches=tuple(kept)))
    return replace(run, lanes=tuple(lanes))


def _pauses(run: Run) -> bool:
    """One of its lanes has a branch, whatever else generates."""
    for lane in run.lanes:  # noqa: SIM110 (a generator costs three times as much)
        if lane.branches:
            return True
    return False


def _follows(turn: Turn, lane: Lane, branch: Branch) -> bool:
    if branch.ids and turn.ids:
        return not set(branch.ids).isdisjoint(turn.ids)
    if lane.model != turn.model:
        return False
    return not branch.head_digest or not turn.head_digest or branch.head_digest == turn.head_digest


def reserve_ended(d: Draft, key: str, detail: str) -> None:
    """A paused branch has held its place for long enough; its lane keeps its stickiness."""
    run = d.runs.get(key)
    turn, _, model = detail.partition("\x1f")
    lane = lane_of(run, model) if run else None
    if run is None or lane is None:
        return
    branches: list[Branch] = []
    for branch in lane.branches:
        if branch.turn == turn and branch.reserves:
            reserve_places(d, lane.home, -1)
            branches.append(replace(branch, reserves=False))
        else:
            branches.append(branch)
    put_run(d, replace(run, lanes=with_lane(run, replace(lane, branches=tuple(branches)))))
