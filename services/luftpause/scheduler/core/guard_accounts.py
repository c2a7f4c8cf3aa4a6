"""How do the guard policy's accounts follow turns that wait, run and end, and the runs and callers they belong to?"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec.structs import replace

from luftpause.scheduler.core.events import ConfigChanged, Event, FirstToken, ProbeOutcome, ReplicaProbed, Tick, TurnFinished, Usage
from luftpause.scheduler.core.frame import NOTHING, Facts, Learned
from luftpause.scheduler.core.guard_family import (
    forsaken,
    hopes,
    inherited,
    off_stems,
    rested,
    with_fork,
)
from luftpause.scheduler.core.guard_flights import flight, lane_of_turn, new_lane
from luftpause.scheduler.core.guard_learn import with_first_token, with_interactive, with_lengths, with_report, with_usage, worth
from luftpause.scheduler.core.guard_model import Engine, Flying, Guarded, Lane, LaneAccount
from luftpause.scheduler.core.guard_order import NOBODY, told, waits_in_flow, with_flow, with_steps
from luftpause.scheduler.core.guard_pauses import cost_seconds, with_pause
from luftpause.scheduler.core.guard_shadow import cut, oldest_first, running, taken
from luftpause.scheduler.core.model import GENERATIVE, Turn, TurnPhase

FRESH = Engine()
LOOKS_PER_TICK_MAX = 64
LOOK_SECONDS = 60.0  # so often a paused lane is looked at


# ---- waiting ----------------------------------------------------------------------------------------------------


def waits(facts: Facts, turn: Turn, by: int) -> Learned:
    """A turn begins (1) or ceases (-1) to be held."""
    if turn.kind != GENERATIVE:
        return NOTHING
    g: Guarded = facts.policy_state
    lane = lane_of_turn(turn)
    account = g.lanes.get(lane)
    flow = g.flows.get(turn.flow, NOBODY)
    entry = (turn.arrived, turn.id, lane, int(turn.turn_class))
    g = waits_in_flow(facts, g, turn.flow, flow, flow.waiting.add(entry) if by > 0 else flow.waiting.remove(entry))
    if account is None:
        return told(g)
    paused_at = account.paused_at
    if by > 0 and paused_at >= 0:
        g, paused_at = _came_back(g, account, turn.arrived), -1.0
    account = replace(account, waiting=account.waiting + by, paused_at=paused_at)
    return told(_stored(facts, g, lane, account, goes_on=turn.phase is TurnPhase.IN_FLIGHT))


def _stored(facts: Facts, g: Guarded, lane: Lane, account: LaneAccount, *, goes_on: bool = False) -> Guarded:
    """The account, or none if nothing of the run is known to come. `goes_on`: a turn of it is being placed."""
    if goes_on or account.in_flight or account.waiting or account.paused_at >= 0:
        return replace(g, lanes=g.lanes.set(lane, account))
    if account.resident:
        g = _one_less(facts, g, account)
    g = _left(g, account.replica, lane)
    return replace(g, lanes=g.lanes.delete(lane)) if lane in g.lanes else g


def _came_back(g: Guarded, account: LaneAccount, when: float) -> Guarded:
    """Its pause is over. The account is the caller's affair."""
    return with_pause(g, account.tool, account.turn_class, max(0.0, when - account.paused_at))


# ---- running ----------------------------------------------------------------------------------------------------


def placed(facts: Facts, turn: Turn) -> Learned:
    """A turn comes to be in flight."""
    if turn.kind != GENERATIVE:
        return NOTHING
    g: Guarded = facts.policy_state
    lane, name, turn_class = lane_of_turn(turn), turn.replica, int(turn.turn_class)
    engine, account = g.engines.get(name, FRESH), g.lanes.get(lane)
    hoped = 0.0
    if account is None:
        account = new_lane(facts, g, engine, turn)
        engine = engine if turn_class else with_interactive(engine, facts.now)
        hoped = hopes(g, engine, turn) if turn.parent else 0.0
    elif account.paused_at >= 0:
        g = _came_back(g, account, turn.arrived)
    engine, flying = flight(g, engine, turn, account, hoped)
    if account.replica != name:
        g = _left(g, account.replica, lane)
    g = _resident(facts, g, account, turn.flow, turn_class)
    account = replace(
        account, flow=turn.flow, turn_class=turn_class, replica=name, in_flight=account.in_flight + 1, paused_at=-1.0,
        body_bytes=turn.body_bytes or account.body_bytes, resident=True,
    )  # fmt: skip
    engine = taken(engine, lane)
    engine = replace(engine, turns=engine.turns + 1, prompts=engine.prompts + flying.prompt, answers=engine.answers + flying.answer)
    g = replace(g, lanes=g.lanes.set(lane, account), flying=g.flying.set(turn.id, flying))
    return told(_with_engine(facts, g, name, engine))


def _left(g: Guarded, name: str, lane: Lane) -> Guarded:
    """Its run went elsewhere: the prefix there is of no use any more."""
    engine = g.engines.get(name)
    if engine is None or (left := forsaken(engine, lane)) is engine:
        return g
    return replace(g, engines=g.engines.set(name, left))


def _resident(facts: Facts, g: Guarded, account: LaneAccount, flow: str, turn_class: int) -> Guarded:
    """A run of this class counts among those of its caller from now on. The account is as it was."""
    if account.resident:
        if account.flow == flow and account.turn_class == turn_class:
            return g
        g = _one_less(facts, g, account)
    there = g.flows.get(flow, NOBODY)
    more = replace(there, resident=there.resident + account.weight, batch=there.batch + turn_class * account.weight)
    return with_flow(facts, g, flow, there, more)


def _one_less(facts: Facts, g: Guarded, account: LaneAccount) -> Guarded:
    """A resident run is one no more. The account is the caller's affair."""
    flow = g.flows.get(account.flow, NOBODY)
    less = replace(flow, resident=flow.resident - account.weight, batch=flow.batch - account.turn_class * account.weight)
    return with_flow(facts, g, account.flow, flow, less)


def _with_engine(facts: Facts, g: Guarded, name: str, engine: Engine) -> Guarded:
    """Store it, with what no longer fits pushed out: runs whose whole prefix is gone are resident no more."""
    engine, lost = cut(engine)
    g = replace(g, engines=g.engines.set(name, engine))
    for lane in lost:
        account = g.lanes.get(lane)
        if account is not None and not account.in_flight and account.replica == name:
            g = _not_resident(facts, g, lane, account)
    return g


def _not_resident(facts: Facts, g: Guarded, lane: Lane, account: LaneAccount) -> Guarded:
    if not account.resident:
        return g
    g = _one_less(facts, g, account)
    return replace(g, lanes=g.lanes.set(lane, replace(account, resident=False)))


# ---- the end ----------------------------------------------------------------------------------------------------


def ended(facts: Facts, turn: Turn, finished: TurnFinished | None) -> Learned:
    """It is in flight no more. `finished`: the report of its answer, where there is one."""
    g: Guarded = facts.policy_state
    flying = g.flying.get(turn.id)
    if flying is None:
        return NOTHING
    lane, name = flying.lane, flying.replica
    account, engine = g.lanes[lane], g.engines[name]
    others = engine.turns > 1
    engine = replace(
        engine, turns=engine.turns - 1, prompts=engine.prompts - flying.prompt if others else 0.0,
        answers=engine.answers - flying.answer if others else 0.0,
    )  # fmt: skip
    context, prompt, number, paused_by = account.context, account.prompt, g.number, None
    if finished is not None:
        usage = finished.usage
        if flying.hoped and usage is not None and usage.cached is not None:
            g, forked = with_fork(g, flying, turn.flow, usage.cached - engine.shared)
            account = account if forked else replace(account, above=())
        if usage is not None and usage.prompt:
            engine = _learned(engine, flying, int(turn.turn_class), usage)
            engine = with_usage(engine, flying, usage, facts.now)
            g = with_lengths(g, flying, account, int(turn.turn_class), turn.model, turn.body_bytes, usage)
            context, prompt = float(usage.prompt + usage.completion), float(usage.prompt)
        else:
            prompt = flying.prompt + inherited(engine, flying.above)
            context = prompt + flying.answer
        if finished.paused and not turn.followed:
            paused_by = finished.tools
        number += 1
        coming = -1 if paused_by is None else account.turn_class
        engine = rested(engine, lane, number, max(0.0, context - inherited(engine, account.above)), coming)
    if flying.stems:
        engine = off_stems(engine, flying.stems, number)
        number += len(flying.stems)
    g = replace(g, flying=g.flying.delete(turn.id), number=number)
    g = _rests(facts, g, lane, replace(account, in_flight=account.in_flight - 1, context=context, prompt=prompt), paused_by)
    if finished is None and lane not in g.lanes:
        engine = forsaken(engine, lane)
    return told(_with_engine(facts, g, name, _judged(facts, g, engine)))


def _learned(engine: Engine, flying: Flying, turn_class: int, usage: Usage) -> Engine:
    """How long interactive contexts are; and what a first token's time says, as the computed part of its prompt is known now."""
    if turn_class == 0:
        engine = replace(engine, interactive=engine.interactive.add(max(0.0, usage.prompt + usage.completion - engine.shared)))
    if flying.first_token < 0:
        return engine
    found = usage.cached if usage.cached is not None else min(usage.prompt - 1.0, flying.said + engine.shared)
    return with_first_token(engine, flying.first_token - flying.placed, usage.prompt, usage.prompt - found)


def _judged(facts: Facts, g: Guarded, engine: Engine) -> Engine:
    """Rule A for batch runs as a whole, with hysteresis."""
    holding = worth(engine, cost_seconds(g.batch_pauses, 0.0), facts.settings.hold_bias, holding=engine.holding)
    return engine if holding is engine.holding else replace(engine, holding=holding)


def _rests(facts: Facts, g: Guarded, lane: Lane, account: LaneAccount, paused_by: tuple[str, ...] | None) -> Guarded:
    """A turn of the lane has ended; `paused_by`: in these tools."""
    if paused_by is not None:
        tool = "+".join(sorted(set(paused_by))) or f"class {account.turn_class}"
        account = replace(account, paused_at=facts.now, tool=tool, look_at=facts.now + LOOK_SECONDS)
        return replace(g, looks=g.looks.append((account.look_at, lane)), lanes=g.lanes.set(lane, account))
    if account.born and not (account.in_flight or account.waiting or account.paused_at >= 0):
        seconds = list(g.run_seconds)
        seconds[account.turn_class] = seconds[account.turn_class].add(facts.now - account.born)
        g = replace(g, run_seconds=(seconds[0], seconds[1]))
    return _stored(facts, g, lane, account)


# ---- events that are no turn's ----------------------------------------------------------------------------------


def _first_token(facts: Facts, event: FirstToken) -> Learned:
    g: Guarded = facts.policy_state
    flying = g.flying.get(event.turn)
    if flying is None or flying.first_token >= 0:
        return NOTHING
    return Learned(replace(g, flying=g.flying.set(event.turn, replace(flying, first_token=facts.now))))


def _probed(facts: Facts, event: ReplicaProbed) -> Learned:
    g: Guarded = facts.policy_state
    if event.outcome is not ProbeOutcome.OK or event.load is None or event.replica not in facts.replicas:
        return NOTHING
    engine = g.engines.get(event.replica, FRESH)
    reported = with_report(engine, event.load, running(engine))
    if reported is engine:
        return NOTHING
    return told(_with_engine(facts, g, event.replica, _judged(facts, g, reported)), (event.replica,))


def _configured(facts: Facts, event: ConfigChanged) -> Learned:
    """Engines at other addresses hold other prefixes; turns in flight are counted on."""
    del event
    g: Guarded = facts.policy_state
    for name in facts.names:
        engine = g.engines.get(name)
        if engine is not None and facts.replicas[name].since == facts.now:
            g = _forgotten(facts, g, name, engine)
    for name in tuple(g.engines):
        if name not in facts.replicas:
            g = replace(g, engines=g.engines.delete(name))
    return told(g)


def _forgotten(facts: Facts, g: Guarded, name: str, engine: Engine) -> Guarded:
    for lane, _ in oldest_first(engine):
        account = g.lanes.get(lane)
        if account is not None and not account.in_flight and account.replica == name:
            g = _not_resident(facts, g, lane, account)
    fresh = Engine(turns=engine.turns, stems=engine.stems, stem_tokens=engine.stem_tokens, prompts=engine.prompts, answers=engine.answers)
    return replace(g, engines=g.engines.set(name, fresh))


def _ticked(facts: Facts, event: Tick) -> Learned:
    """Time alone ends protection, and moves callers up that have waited."""
    del event
    g: Guarded = _swept(facts, facts.policy_state)
    g, flows = with_steps(facts, g)
    replicas = facts.names if facts.held else ()
    if g is facts.policy_state and not replicas:
        return NOTHING
    return told(g, replicas, flows)


def _swept(facts: Facts, g: Guarded) -> Guarded:
    """Forget paused lanes whose runs are known no more: they were ended, or died in a tool call."""
    passed, left = 0, LOOKS_PER_TICK_MAX
    for look_at, lane in g.looks:
        if look_at > facts.now or not left:
            break
        passed += 1
        account = g.lanes.get(lane)
        if account is None or account.paused_at < 0 or account.look_at != look_at:
            continue  # it has come back since
        left -= 1
        if lane[0] in facts.runs:
            account = replace(account, look_at=facts.now + LOOK_SECONDS)
            g = replace(g, looks=g.looks.append((account.look_at, lane)), lanes=g.lanes.set(lane, account))
        else:
            g = _stored(facts, g, lane, replace(account, paused_at=-1.0))
    return replace(g, looks=g.looks.without_first(passed)) if passed else g


ABSORBS: Final[Mapping[type[Event], Callable[[Facts, Any], Learned]]] = MappingProxyType({
    FirstToken: _first_token, ReplicaProbed: _probed, ConfigChanged: _configured, Tick: _ticked,
})  # fmt: skip
