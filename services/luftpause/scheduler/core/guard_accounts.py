"""How do the guard policy's accounts follow turns that wait, run and end, and the runs and callers they belong to?"""

from msgspec.structs import replace

from luftpause.scheduler.core.events import ConfigChanged, Event, FirstToken, ProbeOutcome, ReplicaProbed, Tick, TurnFinished
from luftpause.scheduler.core.frame import NOTHING, Facts, Learned
from luftpause.scheduler.core.guard_learn import (
    KNOWN,
    answer_tokens,
    prompt_tokens,
    with_first_token,
    with_lengths,
    with_pause,
    with_report,
    with_usage,
    words_of,
    worth,
)
from luftpause.scheduler.core.guard_model import Engine, Flying, Guarded, Lane, LaneAccount
from luftpause.scheduler.core.guard_order import NOBODY, told, waits_in_flow, with_flow, with_steps
from luftpause.scheduler.core.guard_shadow import cut, left_behind, put, running, taken
from luftpause.scheduler.core.model import GENERATIVE, Turn, TurnPhase

LOOKS_PER_TICK_MAX = 64
LOOK_SECONDS = 60.0  # so often a paused lane is looked at


def lane_of_turn(turn: Turn) -> Lane:
    return turn.run, turn.model


# ---- waiting ----------------------------------------------------------------------------------------------------


def waits(facts: Facts, turn: Turn, by: int) -> Guarded:
    """A turn begins (1) or ceases (-1) to be held."""
    g: Guarded = facts.policy_state
    if turn.kind != GENERATIVE:
        return g
    lane = lane_of_turn(turn)
    account = g.lanes.get(lane)
    flow = g.flows.get(turn.flow, NOBODY)
    entry = (turn.arrived, turn.id, lane, int(turn.turn_class))
    g = waits_in_flow(facts, g, turn.flow, flow.waiting.add(entry) if by > 0 else flow.waiting.remove(entry))
    if account is not None:
        if by > 0:
            g, account = _came_back(g, lane, account, turn.arrived)
        g = _stored(g, lane, replace(account, waiting=account.waiting + by), goes_on=turn.phase is TurnPhase.IN_FLIGHT)
    return g


def _stored(g: Guarded, lane: Lane, account: LaneAccount, *, goes_on: bool = False) -> Guarded:
    """The account, or none if nothing of the run is known to come. `goes_on`: a turn of it is being placed."""
    if goes_on or account.in_flight or account.waiting or account.paused_at >= 0:
        return replace(g, lanes=g.lanes.set(lane, account))
    g, account = _not_resident(g, account)
    g = _left(g, account.replica, lane)
    return replace(g, lanes=g.lanes.delete(lane)) if lane in g.lanes else g


def _came_back(g: Guarded, lane: Lane, account: LaneAccount, when: float) -> tuple[Guarded, LaneAccount]:
    """Its pause is over, if it had one. The account is not stored."""
    if account.paused_at < 0:
        return g, account
    g = with_pause(g, account.tool, account.turn_class, max(0.0, when - account.paused_at))
    return replace(g, looks=g.looks.remove((account.look_at, lane))), replace(account, paused_at=-1.0)


# ---- running ----------------------------------------------------------------------------------------------------


def placed(facts: Facts, turn: Turn) -> Learned:
    return told(_placed(facts, turn))


def _placed(facts: Facts, turn: Turn) -> Guarded:
    g: Guarded = facts.policy_state
    if turn.kind != GENERATIVE:
        return g
    lane, name = lane_of_turn(turn), turn.replica
    account = g.lanes.get(lane)
    engine = g.engines.get(name, Engine())
    prefix = engine.prefixes.get(lane)
    said = prefix.tokens if prefix is not None else 0.0
    words = words_of(turn.flow, later=prefix is not None or turn.turn_seq > 1)
    prompt = prompt_tokens(g, engine, account, turn.model, turn.body_bytes)
    answer = answer_tokens(g, words, int(turn.turn_class))
    if account is None:
        account = _new_lane(facts, turn)
    else:
        g, account = _came_back(g, lane, account, turn.arrived)
    if account.replica != name:
        g = _left(g, account.replica, lane)
    if account.turn_class != turn.turn_class:
        g, account = _not_resident(g, account)
        account = replace(account, turn_class=int(turn.turn_class))
    g, account = _resident(g, account, turn.flow)
    account = replace(
        account, replica=name, in_flight=account.in_flight + 1,
        body_bytes=turn.body_bytes or account.body_bytes,
    )  # fmt: skip
    flying = Flying(lane, name, words, max(0.0, prompt - engine.shared), answer, said, turn.placed)
    engine = taken(engine, lane)
    engine = replace(engine, turns=engine.turns + 1, prompts=engine.prompts + flying.prompt, answers=engine.answers + flying.answer)
    g = replace(g, lanes=g.lanes.set(lane, account), flying=g.flying.set(turn.id, flying))
    return _with_engine(g, name, engine)


def _new_lane(facts: Facts, turn: Turn) -> LaneAccount:
    run = facts.runs[turn.run]
    held = [other for id_ in run.held if (other := facts.turns[id_]).model == turn.model and other.queue is not None]
    return LaneAccount(turn.flow, int(turn.turn_class), turn.replica, run.born, waiting=len(held), resident=False)


def _left(g: Guarded, name: str, lane: Lane) -> Guarded:
    """Its run went elsewhere: the prefix there is of no use any more."""
    engine = g.engines.get(name)
    if engine is None or (left := left_behind(engine, lane)) is engine:
        return g
    return replace(g, engines=g.engines.set(name, left))


def _resident(g: Guarded, account: LaneAccount, flow: str) -> tuple[Guarded, LaneAccount]:
    """The run counts among those of its caller from now on. The account is not stored."""
    if account.resident and account.flow == flow:
        return g, account
    g, account = _not_resident(g, account)
    there = g.flows.get(flow, NOBODY)
    there = replace(there, resident=there.resident + 1, batch=there.batch + account.turn_class)
    return with_flow(g, flow, there), replace(account, flow=flow, resident=True)


def _not_resident(g: Guarded, account: LaneAccount) -> tuple[Guarded, LaneAccount]:
    if not account.resident:
        return g, account
    flow = g.flows.get(account.flow, NOBODY)
    flow = replace(flow, resident=flow.resident - 1, batch=flow.batch - account.turn_class)
    return with_flow(g, account.flow, flow), replace(account, resident=False)


def _with_engine(g: Guarded, name: str, engine: Engine) -> Guarded:
    """Store it, with what no longer fits pushed out: runs whose whole prefix is gone are resident no more."""
    engine, lost = cut(engine)
    g = replace(g, engines=g.engines.set(name, engine))
    for lane in lost:
        account = g.lanes.get(lane)
        if account is not None and not account.in_flight and account.replica == name:
            g, account = _not_resident(g, account)
            g = replace(g, lanes=g.lanes.set(lane, account))
    return g


# ---- the end ----------------------------------------------------------------------------------------------------


def ended(facts: Facts, turn: Turn, finished: TurnFinished | None) -> Learned:
    return told(_ended(facts, turn, finished))


def _ended(facts: Facts, turn: Turn, finished: TurnFinished | None) -> Guarded:
    g: Guarded = facts.policy_state
    flying = g.flying.get(turn.id)
    if flying is None:
        return g
    g = replace(g, flying=g.flying.delete(turn.id))
    lane, name = flying.lane, flying.replica
    account = g.lanes[lane]
    account = replace(account, in_flight=account.in_flight - 1)
    engine = g.engines[name]
    engine = replace(
        engine, turns=engine.turns - 1, prompts=engine.prompts - flying.prompt if engine.turns > 1 else 0.0,
        answers=engine.answers - flying.answer if engine.turns > 1 else 0.0,
    )  # fmt: skip
    paused = finished is not None and finished.paused and not turn.followed
    usage = finished.usage if finished is not None else None
    if usage is not None and usage.prompt:
        engine = _learned(facts, engine, flying, usage.prompt, usage.cached)
        engine = with_usage(engine, flying, usage, facts.now)
        g = with_lengths(g, flying, account, int(turn.turn_class), turn.model, turn.body_bytes, usage)
        account = replace(account, context=float(usage.prompt + usage.completion))
    elif finished is not None:
        account = replace(account, context=flying.prompt + engine.shared + flying.answer)
    if finished is not None:
        number = g.number + 1
        own = max(0.0, account.context - engine.shared)
        engine = put(engine, lane, number, own, account.turn_class if paused else -1)
        g = replace(g, number=number)
    g = _rests(facts, g, lane, account, paused_by=finished.tools if paused and finished is not None else None)
    return _with_engine(g, name, _judged(facts, g, engine))


def _learned(facts: Facts, engine: Engine, flying: Flying, prompt: int, cached: int | None) -> Engine:
    """From the first token's time, now that it is known how much of the prompt was computed."""
    del facts
    if flying.first_token < 0:
        return engine
    found = cached if cached is not None else min(prompt - 1.0, flying.said + engine.shared)
    return with_first_token(engine, flying.first_token - flying.placed, prompt, prompt - found)


def _judged(facts: Facts, g: Guarded, engine: Engine) -> Engine:
    """Rule A for batch runs as a whole, with hysteresis."""
    mean = g.batch_pause
    holding = worth(engine, mean.value if mean.count >= KNOWN else 0.0, facts.settings.hold_bias, holding=engine.holding)
    return engine if holding is engine.holding else replace(engine, holding=holding)


def _rests(facts: Facts, g: Guarded, lane: Lane, account: LaneAccount, paused_by: tuple[str, ...] | None) -> Guarded:
    """A turn of the lane has ended; `paused_by`: in these tools."""
    if paused_by is not None:
        if account.paused_at >= 0:
            g = replace(g, looks=g.looks.remove((account.look_at, lane)))
        tool = "+".join(sorted(set(paused_by))) or f"class {account.turn_class}"
        account = replace(account, paused_at=facts.now, tool=tool, look_at=facts.now + LOOK_SECONDS)
        g = replace(g, looks=g.looks.add((account.look_at, lane)))
    elif account.born and not (account.in_flight or account.waiting or account.paused_at >= 0):
        seconds = list(g.run_seconds)
        seconds[account.turn_class] = seconds[account.turn_class].add(facts.now - account.born)
        g = replace(g, run_seconds=(seconds[0], seconds[1]))
    return _stored(g, lane, account)


# ---- events that are no turn's ----------------------------------------------------------------------------------


def absorb(facts: Facts, event: Event) -> Learned:
    learned = _absorbed(facts, event)
    if learned is NOTHING:
        return told(facts.policy_state) if facts.policy_state.touched else NOTHING
    if not learned.policy_state.touched:
        return learned
    rest = told(learned.policy_state)
    return Learned(rest.policy_state, learned.replicas, (*learned.flows, *rest.flows))


def _absorbed(facts: Facts, event: Event) -> Learned:
    match event:
        case FirstToken(turn=id_):
            g: Guarded = facts.policy_state
            flying = g.flying.get(id_)
            if flying is None or flying.first_token >= 0:
                return NOTHING
            return Learned(replace(g, flying=g.flying.set(id_, replace(flying, first_token=facts.now))))
        case ReplicaProbed():
            return _probed(facts, event)
        case ConfigChanged():
            return Learned(_configured(facts))
        case Tick():
            return _ticked(facts)
        case _:
            return NOTHING


def _probed(facts: Facts, event: ReplicaProbed) -> Learned:
    g: Guarded = facts.policy_state
    if event.outcome is not ProbeOutcome.OK or event.load is None or event.replica not in facts.replicas:
        return NOTHING
    engine = g.engines.get(event.replica, Engine())
    reported = with_report(engine, event.load.kv_tokens, event.load.waiting, running(engine))
    if reported is engine:
        return NOTHING
    return Learned(_with_engine(g, event.replica, _judged(facts, g, reported)), (event.replica,))


def _configured(facts: Facts) -> Guarded:
    """Engines at other addresses hold other prefixes; turns in flight are counted on."""
    g: Guarded = facts.policy_state
    for name in facts.names:
        engine = g.engines.get(name)
        if engine is not None and facts.replicas[name].since == facts.now:
            g = _forgotten(g, name, engine)
    for name in tuple(g.engines):
        if name not in facts.replicas:
            g = replace(g, engines=g.engines.delete(name))
    return g


def _forgotten(g: Guarded, name: str, engine: Engine) -> Guarded:
    for _, lane in engine.order:
        account = g.lanes.get(lane)
        if account is not None and not account.in_flight and account.replica == name:
            g, account = _not_resident(g, account)
            g = replace(g, lanes=g.lanes.set(lane, account))
    fresh = Engine(turns=engine.turns, prompts=engine.prompts, answers=engine.answers)
    return replace(g, engines=g.engines.set(name, fresh))


def _ticked(facts: Facts) -> Learned:
    """Time alone ends protection, and moves callers up that have waited."""
    g: Guarded = _swept(facts, facts.policy_state)
    g, flows = with_steps(facts, g)
    replicas = facts.names if facts.held else ()
    if g is facts.policy_state and not replicas:
        return NOTHING
    return Learned(g, replicas, flows)


def _swept(facts: Facts, g: Guarded) -> Guarded:
    """Forget paused lanes whose runs are known no more: they were ended, or died in a tool call."""
    for _ in range(LOOKS_PER_TICK_MAX):
        if not g.looks.size or (look := g.looks.first())[0] > facts.now:
            break
        lane = look[1]
        g = replace(g, looks=g.looks.remove(look))
        account = g.lanes[lane]
        if lane[0] in facts.runs:
            account = replace(account, look_at=facts.now + LOOK_SECONDS)
            g = replace(g, looks=g.looks.add((account.look_at, lane)), lanes=g.lanes.set(lane, account))
        else:
            g = _stored(g, lane, replace(account, paused_at=-1.0))
    return g
