"""In which ways is guard broken, and which test notices each?"""

# pyright: reportPrivateUsage=false

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

from luftpause.scheduler.core import (
    admission,
    guard,
    guard_accounts,
    guard_family,
    guard_flights,
    guard_learn,
    guard_order,
    guard_pauses,
    guard_shadow,
    policies,
)
from luftpause.scheduler.core.decisions import HoldReason
from luftpause.scheduler.core.events import Load, TurnClass
from luftpause.scheduler.core.frame import Facts
from luftpause.scheduler.core.guard_model import RUN, Above, Engine, Guarded, Lane
from luftpause.scheduler.core.model import Caller, Replica, Turn
from luftpause_bench.sim.mutations import Change
from tests.properties import guard_promises as promises
from tests.unit.scheduler.core import test_guard as rules
from tests.unit.scheduler.core import test_guard_family as families
from tests.unit.scheduler.core import test_guard_pauses as pause_rules

Test = Callable[[], object]


class GuardMutant(Struct, frozen=True):
    """`caught_by`: a test that passes with the right core."""

    what: str
    changes: tuple[Change, ...]
    caught_by: Test


def _policy(**changed: Any) -> tuple[Change, ...]:
    return ((policies, "POLICIES", {**policies.POLICIES, "guard": replace(guard.GUARD, **changed)}),)


def _instead(module: object, name: str, value: object) -> tuple[Change, ...]:
    return ((module, name, value),)


# ---- what is broken ---------------------------------------------------------------------------------------------


def _but(reason: HoldReason) -> Callable[[Facts, Replica, Turn], HoldReason | None]:
    def admits(facts: Facts, replica: Replica, turn: Turn) -> HoldReason | None:
        found = guard._admits(facts, replica, turn)
        return None if found is reason else found

    return admits


def _even_when_idle(facts: Facts, replica: Replica, turn: Turn) -> HoldReason | None:
    return guard._admits(facts, replica if replica.in_flight else replace(replica, in_flight=1), turn)


def _interactive_too(facts: Facts, replica: Replica, turn: Turn) -> HoldReason | None:
    return guard._admits(facts, replica, replace(turn, turn_class=TurnClass.BATCH))


def _warm_by_the_new_prompt(facts: Facts, replica: Replica, turn: Turn) -> HoldReason | None:
    """The fault that once made all held runs cold: growth counts as lost. The idle engine's rule is gone with it, as it was then."""
    g: Guarded = facts.policy_state
    engine = g.engines.get(replica.name)
    lane = guard_flights.lane_of_turn(turn)
    prefix = engine.prefixes.get(lane) if engine is not None else None
    if engine is None or prefix is None:
        return _even_when_idle(facts, replica, turn)
    grown = replace(prefix, whole=turn.body_bytes / 4)
    engine = replace(engine, prefixes=engine.prefixes.set(lane, grown))

    class Broken:
        policy_state = replace(g, engines=g.engines.set(replica.name, engine))

        def __getattr__(self, name: str) -> Any:
            return getattr(facts, name)

    return _even_when_idle(Broken(), replica, turn)  # pyright: ignore[reportArgumentType]


def _without_share(facts: Facts, g: Guarded, engine: Engine, lane: Lane, need: float, own: float) -> bool:
    class Broken:
        settings = replace(facts.settings, batch_kv_share=1.0)

        def __getattr__(self, name: str) -> Any:
            return getattr(facts, name)

    return _pushes_out(Broken(), g, engine, lane, need, own)  # pyright: ignore[reportArgumentType]


_pushes_out, _protected, _surprised = guard._pushes_out, guard._protected, guard_learn._surprised
_with_report = guard_learn.with_report


def _only_batch_is_protected(facts: Facts, g: Guarded, engine: Engine, lane: Lane, price: float) -> bool:
    account = g.lanes.get(lane)
    return account is not None and account.turn_class == TurnClass.BATCH and _protected(facts, g, engine, lane, price)


def _what_waits_is_not_protected(facts: Facts, g: Guarded, engine: Engine, lane: Lane, price: float) -> bool:
    account = g.lanes.get(lane)
    return not (account is not None and account.waiting) and _protected(facts, g, engine, lane, price)


def _what_is_shared_counts_as_lost(engine: Engine, own: float, said: float, got: float, now: float | None) -> Engine:
    """The fault of the spiral: what was expected is counted with what all runs share, what was found without."""
    return _surprised(engine, own + engine.shared, said + engine.shared, got, now)


def _beyond_what_is_reported(engine: Engine, *rest: Any) -> Engine:
    found = _surprised(replace(engine, kv_reported=float("inf")), *rest)
    return replace(found, kv_reported=engine.kv_reported)


def _falls_each_time(engine: Engine, own: float, said: float, got: float, now: float | None) -> Engine:
    return _surprised(engine, own, said, got, 1.0 if now is None else now)


def _most_runs_first(facts: Facts, flow: str, caller: Caller) -> int:
    return -guard_order.flow_key(facts, flow, caller)


def _where_most_run(facts: Facts, turn: Turn, home: str, replicas: Any) -> Replica:
    return max(replicas, key=lambda replica: replica.in_flight) if not home else guard._choose(facts, turn, home, replicas)


def _one_sign_for_all(facts: Facts, turn: Turn) -> Any:
    found = guard._priority(facts, turn)
    return abs(found) if isinstance(found, int) else UNSET


def _same(engine: Engine, *_: Any) -> Engine:
    return engine


def _with_what_waits(engine: Engine, load: Load, running_tokens: float) -> Engine:
    return _with_report(engine, load, running_tokens * (1 + load.waiting / max(1, load.running)))


def _nothing_lost(engine: Engine) -> tuple[Engine, list[Lane]]:
    return engine, []


def _no_cap(facts: Facts, replica: Replica, _: Any) -> HoldReason | None:
    del facts
    return admission.takes(replica)


def _the_parents(facts: Facts, g: Guarded, turn: Turn, above: Above) -> str:
    del facts, turn
    return g.lanes[above[0][0]].replica


def _counted_for_each(engine: Engine | None, above: Above) -> float:
    del above
    return engine.shared if engine is not None else 0.0


# ---- what notices it --------------------------------------------------------------------------------------------

protect = rules.test_a_prefix_that_is_about_to_be_used_is_not_pushed_out_and_its_run_passes
cap = rules.test_the_cap_stays_for_batch_and_engines_that_serve_interactive_first_keep_nobody_of_those_waiting
worth: Test = partial(rules.test_a_pause_is_worth_its_place_while_it_is_shorter_than_a_refill_with_some_hysteresis, 12.0, True, True)
floods: Test = partial(promises.nobody_is_held_while_every_engine_is_idle, 2000, 1, [(300, 150, 4)] * 8, Random(3))

MUTANTS: Final = {
    "running turns may hold more than K": GuardMutant(
        "rule C", _policy(admits=_but(HoldReason.KV)), rules.test_running_turns_never_hold_more_than_the_memory),
    "nothing is protected": GuardMutant("rule B", _policy(admits=_but(HoldReason.PROTECT)), protect),
    "an idle engine takes nobody": GuardMutant("progress", _policy(admits=_even_when_idle),
        rules.test_an_idle_engine_takes_the_first_whatever_it_protects),
    "growth makes a run cold": GuardMutant("mutual protection", _policy(admits=_warm_by_the_new_prompt), floods),
    "no run is warm": GuardMutant("warm turns pass", _instead(guard, "WARM", 2.0),
        rules.test_a_run_whose_prefix_is_there_passes_although_another_is_protected),
    "interactive is held for memory": GuardMutant(
        "class", _policy(admits=_interactive_too), rules.test_interactive_turns_are_never_held_for_memory),
    "protection has no end": GuardMutant("residual pause", _instead(guard, "residual_seconds", lambda *_: 0.0),
        rules.test_a_prefix_is_protected_no_longer_than_its_tool_may_take),
    "all pauses are worth it": GuardMutant("rule A", _instead(guard_learn, "HYSTERESIS", 1e9), partial(
        rules.test_a_pause_is_worth_its_place_while_it_is_shorter_than_a_refill_with_some_hysteresis, 13.0, True, False)),
    "no hysteresis": GuardMutant("rule A", _instead(guard_learn, "HYSTERESIS", 1.0), worth),
    "batch leaves no room": GuardMutant("spare", _instead(guard, "spare", lambda *_: 0.0),
        rules.test_a_new_batch_run_waits_if_it_would_take_that_room_until_no_interactive_one_is_expected),
    "a pause costs its mean": GuardMutant("rule A", _instead(guard_pauses, "IN_TIME_LEAST", 1.0),
        pause_rules.test_pauses_of_all_tools_of_batch_runs_are_judged_as_one_and_not_by_their_mean),
    "paused interactive runs are not protected": GuardMutant("rule B", _instead(guard, "_protected", _only_batch_is_protected),
        promises.a_paused_interactive_run_keeps_its_prefix),
    "what waits is not protected": GuardMutant("rule B", _instead(guard, "_protected", _what_waits_is_not_protected),
        promises.a_prefix_whose_turn_waits_is_kept),
    "ended runs stay protected": GuardMutant("rubbish", _instead(guard_shadow, "left_behind", _same),
        rules.test_a_run_that_goes_on_takes_its_prefix_out_and_one_that_ended_leaves_it_as_rubbish),
    "a run that goes on leaves its prefix": GuardMutant("shadow", _instead(guard_shadow, "taken", _same),
        rules.test_a_run_that_goes_on_takes_its_prefix_out_and_one_that_ended_leaves_it_as_rubbish),
    "the shadow is never cut": GuardMutant("shadow", _instead(guard_shadow, "cut", _nothing_lost), promises.what_does_not_fit_is_gone),
    "batch gets all of the memory": GuardMutant("batch_kv_share", _instead(guard, "_pushes_out", _without_share),
        promises.batch_keeps_to_its_share_of_the_memory),
    "hold_bias is ignored": GuardMutant("hold_bias", _instead(guard_learn, "refill_seconds", lambda _: None),
        rules.test_the_hold_bias_moves_the_break_even),
    "K spirals down": GuardMutant("K", _instead(guard_learn, "_surprised", _what_is_shared_counts_as_lost),
        promises.what_was_found_cached_never_lowers_k),
    "K goes beyond what is reported": GuardMutant("K", _instead(guard_learn, "_surprised", _beyond_what_is_reported),
        rules.test_k_never_goes_beyond_what_the_engine_reports),
    "one burst of lost prefixes lowers K often": GuardMutant("K", _instead(guard_learn, "_surprised", _falls_each_time),
        rules.test_turns_that_were_on_their_way_when_k_fell_do_not_lower_it_again),
    "K never falls": GuardMutant("K", _instead(guard_learn, "GONE", 1.0), promises.k_that_is_told_too_high_falls_to_the_truth),
    "K never recovers": GuardMutant("K", (*_instead(guard_learn, "CREEP", 1.0), *_instead(guard_learn, "HERE", 1.0)),
        promises.k_that_fell_too_far_comes_back),
    "an unknown K stays unknown": GuardMutant("K", _instead(guard_accounts, "with_report", _same),
        promises.k_that_nobody_tells_is_learned_from_a_queue),
    "turns wait in the engine for a slot": GuardMutant("slots", _instead(guard, "_is_full", lambda *_: False),
        rules.test_batch_turns_wait_for_a_slot_here_and_not_in_the_engine),
    "slots hold any number of prefixes": GuardMutant("slots", _instead(guard_shadow, "places", lambda _: guard_shadow.PREFIXES_MAX),
        rules.test_the_oldest_prefixes_go_where_slots_run_out_and_the_length_of_none_matters),
    "short prefixes need no slot": GuardMutant("slots", _instead(guard, "places", lambda _: guard_shadow.PREFIXES_MAX),
        rules.test_a_slot_that_a_run_is_about_to_come_back_to_is_not_taken_however_small_its_prefix_is),
    "no prefix stays but in slots": GuardMutant("slots", _instead(guard_learn, "_surprised_in_slots", _same), partial(
        promises.how_many_prefixes_stay_is_learned, 12, 11.0, 14.0)),
    "slots are never short of memory": GuardMutant("slots", _instead(guard_learn, "_surprised_in_slots", _same),
        rules.test_slots_whose_prefixes_are_mostly_gone_share_a_memory_that_is_short),
    "each prefix that is lost costs a place": GuardMutant("slots", _instead(guard_learn, "JUDGES", 0), partial(
        rules.test_how_many_prefixes_stay_is_learned_from_what_most_turns_say, 950.0, 0, {"gone": rules.ONE, "kept": 20.0}, 20.0)),
    "what waits counts as what fits": GuardMutant("K", _instead(guard_accounts, "with_report", _with_what_waits),
        promises.k_that_nobody_tells_is_learned_from_a_queue),
    "who has most goes first": GuardMutant("rule D", _policy(flow_key=_most_runs_first),
        rules.test_a_caller_with_many_runs_there_waits_for_one_with_few),
    "nobody moves up": GuardMutant("starvation", _instead(guard_order, "_moved_up", lambda _, g, __: replace(g, steps=type(g.steps)())),
        promises.a_caller_that_waits_moves_up_by_one_each_run_time),
    "one step of placements goes to one caller": GuardMutant("rule D", _instead(guard_order, "told", guard_order.Learned),
        promises.places_that_come_at_once_are_shared),
    "new runs go where most run": GuardMutant("choose", _policy(choose=_where_most_run), promises.new_runs_are_spread),
    "a sub-agent goes anywhere": GuardMutant("families", _instead(guard, "home_of", lambda *_: ""), partial(
        families.test_a_sub_agent_goes_where_its_parents_context_is_though_more_runs_there, TurnClass.BATCH)),
    "a sub-agent is held for its parent's engine alone": GuardMutant("families", _instead(guard, "is_strange", lambda *_: True),
        families.test_it_is_held_for_that_engine_but_an_idle_one_takes_it),
    "a sub-agent waits for an engine that it can't use": GuardMutant("families", _instead(guard, "home_of", _the_parents),
        families.test_it_does_not_wait_for_an_engine_that_it_can_not_go_to),
    "all of a crowd of siblings go to one engine": GuardMutant("families", _instead(guard, "crowded", lambda *_: False),
        families.test_a_crowd_of_siblings_goes_to_an_idle_engine_as_well),
    "what siblings share counts for each": GuardMutant("families", (
        *_instead(guard_flights, "inherited", _counted_for_each), *_instead(guard, "inherited", _counted_for_each)),
        families.test_what_siblings_share_counts_once_against_the_memory),
    "each sibling counts as a run": GuardMutant("families", _instead(guard_flights, "weight_of", lambda *_: RUN),
        families.test_a_family_counts_by_what_it_holds_among_its_callers_runs),
    "others come between siblings": GuardMutant("families", _instead(guard_order, "above_of", lambda *_: ()),
        families.test_siblings_go_before_runs_that_came_between_their_parent_and_them),
    "sub-agents always have their parent's context": GuardMutant("families", _instead(guard_family, "_believed", lambda *_: True),
        families.test_callers_whose_sub_agents_find_nothing_are_not_taken_for_families_until_some_do),
    "a task of its own is taken for a fork": GuardMutant("families", _instead(guard_family, "BODY_LEAST", 0.0),
        families.test_a_task_of_its_own_goes_where_fewest_turns_run),
    "a parent that goes on pushes its context out": GuardMutant("families", _instead(guard_accounts, "rested", guard_shadow.put),
        families.test_a_parent_that_goes_on_stands_on_its_own_context),
    "the sign is the same for all engines": GuardMutant("priority", _policy(priority=_one_sign_for_all), partial(
        rules.test_a_turn_says_its_class_in_the_sign_of_its_engine, "sglang", TurnClass.BATCH, -1)),
    "no cap": GuardMutant("queue", _policy(opens=_no_cap), cap),
    "any number of batch turns may wait in the engine": GuardMutant("queue", _instead(guard, "BATCH_WAITING_MAX", 9),
        rules.test_one_batch_turn_may_wait_where_it_is_in_nobodys_way),
    "heavy callers may wait in the engine": GuardMutant("queue", _instead(guard, "_has_many", lambda *_: False),
        rules.test_none_of_a_caller_with_several_runs_there_may_wait_in_the_engine),
    "one slow report of a queue is enough": GuardMutant("queue", _policy(queue_reports=lambda _: 1), partial(
        rules.test_with_slow_probes_a_queue_counts_when_two_in_a_row_show_it, 2.0, 2)),
    "a router is taken for an engine": GuardMutant("routers", _policy(admits=lambda facts, replica, turn: guard._admits(
        facts, replace(replica, spec=replace(replica.spec, router=False)), turn)),
        rules.test_behind_a_router_the_rules_are_those_of_original),
    "paused runs keep no place behind a router": GuardMutant("routers", _policy(reserve=lambda *_: 0.0), partial(
        rules.test_a_paused_run_keeps_its_place_behind_a_router_alone, router=True)),
}  # fmt: skip
