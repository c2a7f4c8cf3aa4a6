"""Do the guard policy's accounts say what a count from scratch says?"""

from collections import Counter
from math import isclose

from luftpause.scheduler.core.guard_flights import lane_of_turn
from luftpause.scheduler.core.guard_model import RUN, Engine, Flying, Guarded, Lane, Waiter
from luftpause.scheduler.core.guard_shadow import GONE_KEPT, PREFIXES_MAX, oldest_first, places
from luftpause.scheduler.core.model import GENERATIVE, State, Turn, TurnPhase


def recount_guard(state: State) -> None:
    """Raises AssertionError."""
    g: Guarded = state.policy_state
    turns = [turn for turn in state.turns.values() if turn.kind == GENERATIVE]
    flying = {turn.id: turn for turn in turns if turn.phase is TurnPhase.IN_FLIGHT}
    held = [turn for turn in turns if turn.phase is TurnPhase.HELD]
    assert {id_: each.replica for id_, each in g.flying.items()} == {id_: turn.replica for id_, turn in flying.items()}
    for name, engine in g.engines.items():
        mine = [each for each in g.flying.values() if each.replica == name]
        assert engine.turns == len(mine) == (state.replicas[name].in_flight if name in state.replicas else 0), name
        assert _same(engine.prompts, sum(each.prompt for each in mine)), name
        assert _same(engine.answers, sum(each.answer for each in mine)), name
        _prefixes(engine)
        _stems(engine, mine)
        for lane, prefix in (*engine.prefixes.items(), *engine.stems.items()):
            assert prefix.coming < 0 or (lane in g.lanes and g.lanes[lane].replica == name), f"nobody will come back for {lane} at {name}"
    _lanes(state, g, Counter(each.lane for each in g.flying.values()), Counter(lane_of_turn(turn) for turn in held))
    _flows(state, g, held)


def _same(one: float, other: float) -> bool:
    return isclose(one, other, rel_tol=1e-6, abs_tol=1e-3)


def _prefixes(engine: Engine) -> None:
    assert [(prefix.number, lane) for lane, prefix in oldest_first(engine)] == sorted(
        (prefix.number, lane) for lane, prefix in engine.prefixes.items()
    )
    assert list(engine.order) == sorted(engine.order)
    assert len(engine.order) <= 2 * PREFIXES_MAX + GONE_KEPT
    assert not engine.slots or len(engine.prefixes) <= max(0, places(engine) - engine.turns)
    assert _same(engine.cached, sum(prefix.tokens for prefix in engine.prefixes.values()))
    assert all(0 < prefix.tokens <= prefix.whole or prefix.whole == 0 for prefix in engine.prefixes.values())
    for turn_class, paused in enumerate(engine.paused):
        coming = [prefix.tokens for prefix in engine.prefixes.values() if prefix.coming == turn_class]
        assert paused.runs == len(coming)
        assert _same(paused.tokens, sum(coming))


def _stems(engine: Engine, mine: list[Flying]) -> None:
    """Each has the turns that stand on it, and is no prefix while it has any."""
    assert {lane: stem.turns for lane, stem in engine.stems.items()} == dict(Counter(lane for each in mine for lane in each.stems))
    assert _same(engine.stem_tokens, sum(stem.tokens for stem in engine.stems.values()))
    assert not set(engine.stems) & set(engine.prefixes)


def _lanes(state: State, g: Guarded, flying: Counter[Lane], held: Counter[Lane]) -> None:
    resident: Counter[str] = Counter()
    batch: Counter[str] = Counter()
    looks: list[tuple[float, Lane]] = []
    for lane, account in g.lanes.items():
        assert account.in_flight == flying[lane], lane
        assert account.waiting == held[lane], lane
        assert account.in_flight or account.waiting or account.paused_at >= 0, f"nothing of {lane} is known to come"
        resident[account.flow] += account.resident * account.weight
        batch[account.flow] += account.resident * account.weight * account.turn_class
        if account.paused_at >= 0:
            looks.append((account.look_at, lane))
    assert set(flying) <= set(g.lanes)
    assert set(looks) <= set(g.looks)
    assert [look_at for look_at, _ in g.looks] == sorted(look_at for look_at, _ in g.looks)
    assert {name: flow.resident for name, flow in g.flows.items() if flow.resident} == {name: n for name, n in resident.items() if n}
    assert all(flow.resident > 0 or flow.waiting for flow in g.flows.values())
    assert {name: flow.batch for name, flow in g.flows.items() if flow.batch} == {name: n for name, n in batch.items() if n}
    assert g.batch_flows == sum(flow.batch > 0 for flow in g.flows.values())


def _flows(state: State, g: Guarded, held: list[Turn]) -> None:
    """A flow's rank is exact: which resident runs it has, and how often it has moved up."""
    waiting: dict[str, list[Waiter]] = {}
    for turn in held:
        waiting.setdefault(turn.flow, []).append((turn.arrived, turn.id, lane_of_turn(turn), int(turn.turn_class)))
    assert {name: list(flow.waiting) for name, flow in g.flows.items() if flow.waiting} == {
        name: sorted(entries) for name, entries in waiting.items()
    }
    assert list(g.steps) == sorted((flow.step_at, name) for name, flow in g.flows.items() if flow.waiting)
    for name, entries in waiting.items():
        flow = g.flows[name]
        arrived, _, lane, _ = min(entries)
        account = g.lanes.get(lane)
        own = account.weight if account is not None and account.resident and account.flow == name else 0
        assert state.callers[name].rank == (flow.resident - own) // RUN - flow.moved_up, name
        assert flow.moved_up <= max(0.0, state.now - arrived), f"{name} has moved up more often than once a second"
