"""Does guard hold what it should, and never everything?"""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from luftpause.scheduler.core import guard_learn as learn
from luftpause.scheduler.core.events import TurnClass, Usage
from luftpause.scheduler.core.guard_model import Engine
from luftpause.scheduler.core.settings import Settings
from luftpause.scheduler.record_values import decode, encode
from luftpause_bench.flood.scheduled import Gauges, Scheduled
from luftpause_bench.flood.workload import Agents, Workload, fit_a
from luftpause_bench.flood.world import World
from luftpause_bench.sim.mutants import Mutant, alive
from luftpause_fakes.engine_model import EngineParams
from tests.properties import guard_promises as promises
from tests.properties.guard_mutants import MUTANTS
from tests.properties.guard_promises import Desk
from tests.unit.scheduler.core.test_guard import MEASURED, flying

BATCH = TurnClass.BATCH
RUNS = st.lists(st.tuples(st.integers(50, 900), st.integers(0, 400), st.integers(1, 5)), min_size=2, max_size=12)


@settings(max_examples=40)
@given(st.integers(500, 3000), st.integers(1, 2), RUNS, st.randoms(use_true_random=False))
def test_prefixes_that_protect_each_other_never_hold_everybody(
    kv_tokens: int, engines: int, runs: list[tuple[int, int, int]], chance: Random
) -> None:
    promises.nobody_is_held_while_every_engine_is_idle(kv_tokens, engines, runs, chance)


@settings(max_examples=40)
@given(st.integers(1, 5), st.integers(1, 2), RUNS, st.randoms(use_true_random=False))
def test_slots_that_runs_are_about_to_come_back_to_never_hold_everybody(
    slots: int, engines: int, runs: list[tuple[int, int, int]], chance: Random
) -> None:
    promises.nobody_is_held_while_every_engine_is_idle(0, engines, runs, chance, slots=slots)


@settings(max_examples=40)
@given(st.integers(500, 3000), st.integers(1, 3), RUNS, st.integers(1, 5), st.booleans(), st.randoms(use_true_random=False))
def test_sub_agents_that_wait_for_their_parents_engine_never_hold_everybody(
    kv_tokens: int, engines: int, runs: list[tuple[int, int, int]], children: int, forks: bool, chance: Random
) -> None:
    promises.families_are_never_all_held(kv_tokens, engines, runs[:5], children, chance, forks=forks)


@pytest.mark.parametrize("name", MUTANTS)
def test_each_rule_of_guard_has_a_test_that_notices_when_it_is_broken(name: str) -> None:
    mutant = MUTANTS[name]
    mutant.caught_by()
    with alive(Mutant(name, mutant.what, lambda: mutant.changes)), pytest.raises(AssertionError):
        mutant.caught_by()


def test_both_reasons_of_guard_are_seen() -> None:
    desk = Desk(2500, 1, [(400, 100, 4)] * 10, Random(0))
    desk.play()
    assert {"kv", "protect"} <= desk.reasons


def test_a_state_in_the_middle_of_a_flood_can_be_recorded() -> None:
    front = Scheduled(Settings(policy="guard", start_grace_seconds=0.0), Gauges())
    World(replace(fit_a(3.0), seconds=60.0, warm_up_seconds=0.0), front, 1).play()
    assert front.state.policy_state.engines
    assert decode(encode(front.state)) == front.state


# ---- K ----------------------------------------------------------------------------------------------------------

TURNS = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 3), st.integers(1, 4000)), max_size=60)


@given(st.integers(0, 4000), st.sampled_from((0.0, 10_000.0)), TURNS)
def test_whatever_is_found_k_moves_by_small_steps_and_never_beyond_what_is_reported(
    shared: int, reported: float, turns: list[tuple[float, float, float, int]]
) -> None:
    """`turns`: which parts of its own prompt were expected and found, how long it took, how large that is."""
    engine = replace(MEASURED, kv_reported=reported, shared=float(shared), firsts=(float(shared),) * learn.FIRSTS_KEPT)
    now, fell = 0.0, -1.0
    for said, found, seconds, own in turns:
        began, now = now, now + seconds
        usage = Usage(shared + own, 50, round(shared + found * own))
        before, engine = engine, learn.with_usage(engine, replace(flying(said * own), placed=began), usage, now)
        assert learn.GONE * before.kv <= engine.kv * (1 + 1e-9)
        assert engine.kv <= max(learn.HERE, learn.RUSH) * before.kv * (1 + 1e-9)
        assert engine.kv <= (reported or float("inf"))
        if engine.kv < before.kv:
            assert began >= fell, "turns that were on their way when it fell lowered it again"
            fell = now


@pytest.mark.parametrize(("truth", "least", "most"), [(3, 4.0, 4.0), (4, 4.0, 4.0), (12, 11.0, 14.0)])
def test_how_many_prefixes_stay_with_slots_is_learned(truth: int, least: float, most: float) -> None:
    promises.how_many_prefixes_stay_is_learned(truth, least, most)


@given(st.integers(0, 9000), st.integers(1, 5000))
def test_what_was_found_cached_never_lowers_k(shared: int, own: int) -> None:
    promises.what_was_found_cached_never_lowers_k(shared, own)


# The prefix that all runs share is larger than what each has of its own: once, counting it as the run's made every turn a surprise.
SHARING = Workload(
    EngineParams(kv_tokens=20_000),
    (
        Agents("batch", BATCH, 40, 40, context_tokens=(300, 700)),
        Agents("interactive", TurnClass.INTERACTIVE, 3, 3, context_tokens=(300, 700)),
    ),
    shared_tokens=2000, seconds=240.0, warm_up_seconds=60.0,
)  # fmt: skip


def test_what_is_learned_of_a_kv_memory_comes_near_the_truth_and_never_spirals_down() -> None:
    front = Scheduled(Settings(policy="guard", start_grace_seconds=0.0, probe_seconds=0.5), Gauges(kv_factor=1.3))
    World(SHARING, front, 5).play()
    engines: list[Engine] = list(front.state.policy_state.engines.values())
    assert all(0.85 * 20_000 <= engine.kv <= 1.15 * 20_000 for engine in engines)
