"""What does guard learn, keep and decide, rule by rule?"""

from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from luftpause.scheduler.core import guard_learn as learn
from luftpause.scheduler.core import guard_shadow as shadow
from luftpause.scheduler.core.decide import decide, initial
from luftpause.scheduler.core.decisions import Decision, Held, HoldReason, Place
from luftpause.scheduler.core.events import (
    Continue,
    Event,
    FirstToken,
    Kind,
    Load,
    ProbeOutcome,
    ReplicaProbed,
    ReplicaSpec,
    Resync,
    ReturnReason,
    Tick,
    TurnAbandoned,
    TurnClass,
    TurnFailed,
    TurnFinished,
    TurnRequested,
    TurnReturned,
    Usage,
)
from luftpause.scheduler.core.guard_model import Engine, Flying, Guarded, LowDecile, Mean
from luftpause.scheduler.core.model import State
from luftpause.scheduler.core.settings import Settings

INTERACTIVE, BATCH = TurnClass.INTERACTIVE, TurnClass.BATCH
# 1 ms per token, whose whole prompt is lost: a pool of 10,000 is refilled in 10 s.
MEASURED = Engine(kv=10_000.0, kv_reported=10_000.0, prompt=Mean(1000.0, 9), context=Mean(1000.0, 9), token_seconds=LowDecile(0.001, 9))


# ---- learning ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "holding", "worth"), [(12.0, True, True), (12.0, False, False), (13.0, True, False), (7.9, False, True)]
)
def test_a_pause_is_worth_its_place_while_it_is_shorter_than_a_refill_with_some_hysteresis(
    seconds: float, holding: bool, worth: bool
) -> None:
    assert learn.worth(MEASURED, seconds, 1.0, holding=holding) is worth


def test_the_hold_bias_moves_the_break_even() -> None:
    assert not learn.worth(MEASURED, 1.0, 0.0, holding=True)
    assert learn.worth(MEASURED, 24.0, 2.0, holding=True)


def test_before_anything_was_measured_prefixes_are_kept() -> None:
    assert learn.worth(Engine(kv=10_000.0), 1e9, 1.0, holding=False)


def flying(said: float, *, later: bool = True) -> Flying:
    return Flying(("r", "m"), "a", ("u", later), 1000.0, 50.0, said, 0.0)


@pytest.mark.parametrize(
    ("said", "cached", "factor"),
    [
        (950.0, 0, learn.GONE),  # said to be here, was gone
        (0.0, 900, learn.HERE),  # said to be gone, was here
        (950.0, 950, learn.CREEP),  # no surprise
        (0.0, 0, 1.0),  # says nothing
        (300.0, 300, 1.0),
    ],
)
def test_k_follows_surprises(said: float, cached: int, factor: float) -> None:
    engine = replace(MEASURED, kv_reported=20_000.0)
    assert learn.with_usage(engine, flying(said), Usage(1000, 50, cached), 1.0).kv == pytest.approx(10_000 * factor)


def test_k_never_goes_beyond_what_the_engine_reports() -> None:
    assert learn.with_usage(MEASURED, flying(950.0), Usage(1000, 50, 950), 1.0).kv == 10_000


def test_turns_that_were_on_their_way_when_k_fell_do_not_lower_it_again() -> None:
    """Else one burst of lost prefixes would make it much too small, and holding would seem not to pay."""
    engine = learn.with_usage(MEASURED, flying(950.0), Usage(1000, 50, 0), 5.0)
    assert learn.with_usage(engine, flying(950.0), Usage(1000, 50, 0), 6.0).kv == engine.kv
    later = replace(flying(950.0), placed=5.5)
    assert learn.with_usage(engine, later, Usage(1000, 50, 0), 7.0).kv < engine.kv


def test_what_all_runs_share_is_no_surprise() -> None:
    """A prompt of 2,000 shared and 300 own tokens, of which the engine found only the shared part."""
    engine = replace(MEASURED, firsts=(2000.0,) * 8, shared=2000.0)
    assert learn.with_usage(engine, flying(0.0), Usage(2300, 50, 2000), 1.0).kv == engine.kv
    assert learn.with_usage(engine, flying(290.0), Usage(2300, 50, 2000), 1.0).kv < engine.kv


def test_sub_agents_that_find_all_of_their_parents_prefix_do_not_make_it_one_that_all_share() -> None:
    engine = MEASURED
    for cached in (250, 250, 9000, 250, 250, 250, 8000, 250):
        engine = learn.with_usage(engine, flying(0.0, later=False), Usage(10_000, 50, cached), 1.0)
    assert engine.shared == 250


def test_an_engine_that_does_not_tell_k_is_open_until_it_shows_a_queue() -> None:
    engine = learn.with_report(Engine(shared=100.0), Load(3, 0), running_tokens=5000.0)
    assert engine.kv == 0
    assert learn.with_report(engine, Load(0, 2), running_tokens=6000.0).kv == 0  # none runs yet
    engine = learn.with_report(engine, Load(4, 2), running_tokens=6000.0)
    assert engine.kv == 4100  # what waits is not in the memory
    assert learn.with_report(engine, Load(3, 3), running_tokens=4000.0).kv == 4100
    assert learn.with_report(engine, Load(5, 0), running_tokens=7000.0).kv == 7100


def test_a_k_that_nobody_tells_rises_only_while_the_memory_is_not_known_to_be_half_empty() -> None:
    engine = replace(MEASURED, kv_reported=0.0, prompts=4000.0)
    for _ in range(50_000):
        engine = learn.with_usage(engine, flying(950.0), Usage(1000, 50, 950), 1.0)
    assert engine.kv == 10_000
    engine = replace(engine, prompts=6000.0)
    for _ in range(50_000):
        engine = learn.with_usage(engine, flying(950.0), Usage(1000, 50, 950), 1.0)
    assert 12_000 < engine.kv <= learn.RUSH * 12_000


# ---- slots ------------------------------------------------------------------------------------------------------


def slots(kept: float = 4.0, *, turns: int = 0, prefixes: int = 0) -> Engine:
    engine = replace(MEASURED, kv=0.0, kv_reported=0.0, slots=4, kept=kept, turns=turns)
    for number in range(prefixes):
        engine = shadow.put(engine, (f"r{number}", "m"), number + 1, 500.0, int(BATCH))
    return engine


def test_an_engine_that_tells_slots_keeps_as_many_prefixes_whatever_waits_there() -> None:
    engine = learn.with_report(replace(Engine(), kv=900.0), Load(2, 1, slots=4), running_tokens=3000.0)
    assert (engine.slots, engine.kept, engine.kv) == (4, 4.0, 0.0)
    learned = replace(engine, kept=5.5)
    assert learn.with_report(learned, Load(4, 3, slots=4), running_tokens=9000.0) is learned
    assert learn.with_report(learned, Load(4, 3), running_tokens=9000.0) is learned
    assert learn.with_report(learned, Load(4, 3, slots=8), running_tokens=9000.0).kept == 8.0


def test_the_oldest_prefixes_go_where_slots_run_out_and_the_length_of_none_matters() -> None:
    engine, lost = shadow.cut(slots(turns=2, prefixes=3))
    assert lost == [("r0", "m")]
    assert engine.cached == 1000
    engine, lost = shadow.cut(replace(engine, turns=6))
    assert (lost, len(engine.prefixes)) == ([("r1", "m"), ("r2", "m")], 0)


def test_where_tokens_and_slots_are_short_both_are_seen_to() -> None:
    engine, lost = shadow.cut(replace(slots(turns=2, prefixes=3), kv=1300.0))
    assert lost == [("r0", "m")]
    assert engine.cached == 1000
    engine, lost = shadow.cut(replace(slots(turns=2, prefixes=2), kv=800.0))
    assert (lost, engine.cached) == ([], 800)


MOST, FEW, ONE = Mean(0.8, 20), Mean(0.2, 20), Mean(1.0, 1)


@pytest.mark.parametrize(
    ("said", "cached", "before", "kept"),
    [
        (950.0, 0, {"gone": MOST, "kept": 20.0}, 19.4),
        (950.0, 0, {"gone": MOST, "kept": 4.1}, 4.0),
        (950.0, 0, {"gone": MOST, "kept": 4.0}, 4.0),
        (950.0, 0, {"gone": FEW, "kept": 20.0}, 20.0),  # which slot a turn is given is a matter of likeness too
        (950.0, 0, {"gone": ONE, "kept": 20.0}, 20.0),
        (950.0, 950, {"gone": MOST, "kept": 20.0}, 20.0),
        (0.0, 900, {"here": MOST}, 4.25),  # it was there, from another memory than the slots'
        (0.0, 900, {"here": FEW}, 4.0),
        (0.0, 900, {"here": ONE}, 4.0),
        (0.0, 0, {"here": MOST}, 4.0),
        (300.0, 0, {"gone": MOST, "here": MOST}, 4.0),
    ],
)
def test_how_many_prefixes_stay_is_learned_from_what_most_turns_say(
    said: float, cached: int, before: dict[str, object], kept: float
) -> None:
    engine = learn.with_usage(replace(slots(), **before), flying(said), Usage(1000, 50, cached), 1.0)
    assert engine.kept == pytest.approx(kept)


def test_turns_that_were_on_their_way_when_places_were_taken_off_take_off_no_more() -> None:
    engine = learn.with_usage(replace(slots(kept=8.0), gone=MOST), flying(950.0), Usage(1000, 50, 0), 5.0)
    engine = learn.with_usage(engine, flying(950.0), Usage(1000, 50, 0), 6.0)
    assert engine.kept == 7.75
    assert learn.with_usage(engine, replace(flying(950.0), placed=5.0), Usage(1000, 50, 0), 7.0).kept == 7.5


def test_slots_whose_prefixes_are_mostly_gone_share_a_memory_that_is_short() -> None:
    """Then that has a K, which begins with what was thought to be there."""
    engine = replace(slots(prefixes=2), prompts=700.0, shared=100.0, gone=MOST)
    lost = Usage(1000, 50, 100)
    assert learn.with_usage(replace(engine, gone=FEW), flying(900.0), lost, 1.0).kv == 0
    engine = learn.with_usage(engine, flying(900.0), lost, 1.0)
    assert engine.kv == pytest.approx(learn.GONE * (100 + 700 + 2 * 500 + 900))
    assert learn.with_usage(engine, replace(flying(900.0), placed=2.0), lost, 3.0).kv == pytest.approx(learn.GONE * engine.kv)
    assert learn.with_report(engine, Load(4, 2, slots=4), 0.0) is engine


@pytest.mark.parametrize(("seconds", "worth"), [(2.5, True), (4.0, True), (6.0, False)])
def test_slots_are_worth_what_refilling_their_usual_contexts_takes(seconds: float, worth: bool) -> None:
    assert learn.worth(slots(), seconds, 1.0, holding=True) is worth


def test_first_tokens_tell_the_seconds_per_token_without_their_fixed_part() -> None:
    engine = replace(Engine(), prompt=Mean(1000.0, 9))
    for _ in range(60):
        engine = learn.with_first_token(engine, 0.05, 1000, uncached=10.0)
        engine = learn.with_first_token(engine, 1.05, 1000, uncached=1000.0)
    assert engine.fixed_seconds.value == pytest.approx(0.05, rel=0.2)
    assert engine.token_seconds.value == pytest.approx(0.001, rel=0.2)


def test_a_fixed_part_that_is_old_does_not_make_prefill_seem_free() -> None:
    engine = replace(Engine(), prompt=Mean(1000.0, 9), fixed_seconds=LowDecile(5.0, 9))
    for _ in range(60):
        engine = learn.with_first_token(engine, 1.0, 1000, uncached=1000.0)
    assert engine.token_seconds.value == pytest.approx(0.00067, rel=0.25)


# ---- shadow -----------------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_pushed_out_from_the_oldest_on_and_the_last_one_in_part() -> None:
    engine = replace(MEASURED, prompts=4000.0)
    for number in range(1, 5):
        engine = shadow.put(engine, (f"r{number}", "m"), number, 2000.0, int(BATCH) if number % 2 else -1)
    engine, lost = shadow.cut(engine)
    assert lost == [("r1", "m")]
    assert engine.cached == 6000
    engine, lost = shadow.cut(replace(engine, prompts=5000.0))
    assert lost == []
    assert engine.prefixes["r2", "m"].tokens == 1000
    assert engine.paused[BATCH].tokens == 2000


def test_a_run_that_goes_on_takes_its_prefix_out_and_one_that_ended_leaves_it_as_rubbish() -> None:
    engine = shadow.put(shadow.put(MEASURED, ("a", "m"), 1, 500.0, 0), ("b", "m"), 2, 700.0, 1)
    engine = shadow.taken(engine, ("a", "m"))
    assert (engine.cached, engine.paused[0].runs, engine.paused[1].runs) == (700, 0, 1)
    engine = shadow.left_behind(engine, ("b", "m"))
    assert (engine.cached, engine.paused[1].runs, engine.paused[1].tokens) == (700, 0, 0)


# ---- deciding ---------------------------------------------------------------------------------------------------


class Core:
    def __init__(self, *specs: ReplicaSpec, kv_tokens: int | None = 3000, slots: int | None = None, **settings: object) -> None:
        made = Settings(policy="guard", start_grace_seconds=0.0, **settings)  # pyright: ignore[reportArgumentType]
        self.state: State = initial(made, specs or (ReplicaSpec("a", "http://a", ("m",)),), 0.0)
        self.now = 1.0
        self.kv_tokens, self.slots = kv_tokens, slots
        self.tell(Resync(1.0, "d", "s", "b"))
        for name in self.state.names:
            self.probe(name)

    def tell(self, event: Event) -> list[Decision]:
        step = decide(self.state, event)
        self.state = step.state
        return [*step.decisions, *(self.tell(Continue(self.now)) if step.more else [])]

    def probe(self, name: str = "a", running: int = 0, waiting: int = 0) -> list[Decision]:
        return self.tell(ReplicaProbed(self.now, name, ProbeOutcome.OK, Load(running, waiting, self.kv_tokens, slots=self.slots)))

    def ask(self, turn: str, tokens: int = 1000, turn_class: TurnClass = BATCH, **more: object) -> Decision:
        run = turn.partition(".")[0]
        fields = {"caller": run, "run": run, "body_bytes": 4 * tokens, "arrived": self.now} | more
        model = str(fields.pop("model", "m"))
        event = TurnRequested(self.now, "d", turn, 1, run, model, turn_class, **fields)  # pyright: ignore[reportArgumentType]
        return next(each for each in self.tell(event) if isinstance(each, Place | Held) and each.turn == turn)

    def end(self, turn: str, tokens: int = 1000, *, paused: bool = True, seconds: float = 1.0, cached: int = 0) -> list[Decision]:
        self.now += seconds
        usage = Usage(tokens, 50, cached)
        return self.tell(TurnFinished(self.now, "d", turn, 1, usage=usage, paused=paused, tools=("search",) if paused else ()))


def placed(decisions: list[Decision]) -> list[str]:
    return [each.turn for each in decisions if isinstance(each, Place)]


def test_running_turns_never_hold_more_than_the_memory() -> None:
    core = Core()
    assert isinstance(core.ask("a.0"), Place)
    assert isinstance(core.ask("b.0"), Place)
    third = core.ask("c.0")
    assert isinstance(third, Held)
    assert third.reason is HoldReason.KV


BUSY = replace(
    MEASURED, interactive=Mean(1000.0, 9), interactive_at=100.0, interactive_gap=Mean(19.0, 9), prompts=5000.0, cached=1000.0
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "now", "tokens"),
    [
        ({}, 101.0, 1000.0),  # one comes each 19 s, a refill takes 10
        ({"interactive_gap": Mean(21.0, 9)}, 101.0, 0.0),
        ({}, 121.0, 0.0),  # none has come for longer than that
        ({"interactive_gap": Mean(19.0, 1)}, 101.0, 0.0),  # not known yet
        ({"token_seconds": LowDecile()}, 101.0, 0.0),
        ({"holding": False}, 101.0, 0.0),
        ({"interactive": Mean(9000.0, 9)}, 101.0, 2500.0),  # a quarter at most
    ],
)
def test_batch_leaves_room_for_an_interactive_run_that_comes_sooner_than_two_refills(
    changes: dict[str, Any], now: float, tokens: float
) -> None:
    assert learn.spare(replace(BUSY, **changes), now) == tokens


def test_each_new_interactive_run_says_how_often_they_come_and_later_turns_do_not() -> None:
    core = Core()
    for name in ("i", "j", "k"):
        core.ask(f"{name}.0", turn_class=INTERACTIVE)
        core.end(f"{name}.0", seconds=2.0)
        core.ask(f"{name}.1", turn_class=INTERACTIVE)
        core.end(f"{name}.1", seconds=3.0, paused=False)
        core.ask(f"batch-{name}.0")
        core.end(f"batch-{name}.0", seconds=1.0, paused=False)
    engine = core.state.policy_state.engines["a"]
    assert engine.interactive_gap == Mean(6.0, 2)
    assert engine.interactive.value == pytest.approx(1050)


def beside_interactive(prompts: float, at: float) -> Core:
    """Turns with so many tokens run there; a new interactive run came at that time, and one comes each 19 s."""
    core = Core(kv_tokens=10_000)
    core.ask("x.0", tokens=round(prompts))
    g: Guarded = core.state.policy_state
    engine = replace(g.engines["a"], **{name: getattr(BUSY, name) for name in ("prompt", "context", "token_seconds", "interactive",
        "interactive_gap")}, interactive_at=at)  # fmt: skip
    core.state = replace(core.state, policy_state=replace(g, engines=g.engines.set("a", engine)))
    return core


def test_a_new_batch_run_waits_if_it_would_take_that_room_until_no_interactive_one_is_expected() -> None:
    assert isinstance(beside_interactive(7000, 1.0).ask("c.0"), Place)
    core = beside_interactive(8000, 1.0)
    waits = core.ask("c.0")
    assert isinstance(waits, Held)
    assert waits.reason is HoldReason.KV
    core.now = 20.5
    assert placed(core.tell(Tick(core.now))) == []
    core.now = 22.0
    assert placed(core.tell(Tick(core.now))) == ["c.0"]


def test_a_batch_run_whose_prefix_is_there_needs_no_such_room() -> None:
    core = beside_interactive(5500, 1.0)
    core.ask("c.0", tokens=2000)
    core.end("c.0", tokens=2000)
    core.ask("y.0", tokens=1000)
    assert isinstance(core.ask("z.0", tokens=2100), Held)
    assert isinstance(core.ask("c.1", tokens=2100), Place)


def test_an_answer_that_comes_back_in_the_next_request_counts_once() -> None:
    core = Core()
    core.ask("a.0")
    core.end("a.0")  # an answer of 50 tokens
    core.ask("a.1", tokens=1120)  # the prompt, that answer, and what the tool gave: 70
    assert core.state.policy_state.flying["a.1"].prompt == pytest.approx(1120)
    core.end("a.1", tokens=1120)
    core.ask("a.2", tokens=900)  # shortened: nobody knows what is gone
    assert core.state.policy_state.flying["a.2"].prompt == pytest.approx(1120)


def test_batch_turns_wait_for_a_slot_here_and_not_in_the_engine() -> None:
    core = Core(kv_tokens=None, slots=2)
    assert isinstance(core.ask("a.0"), Place)
    assert isinstance(core.ask("b.0"), Place)
    third = core.ask("c.0")
    assert isinstance(third, Held)
    assert third.reason is HoldReason.KV
    assert isinstance(core.ask("i.0", turn_class=INTERACTIVE), Place)
    core.end("b.0", paused=False)
    core.end("i.0", paused=False)
    assert core.state.policy_state.engines["a"].turns == 2


def test_a_slot_that_a_run_is_about_to_come_back_to_is_not_taken_however_small_its_prefix_is() -> None:
    core = Core(kv_tokens=None, slots=2)
    core.ask("a.0", tokens=10)
    core.ask("b.0", tokens=10)
    core.end("a.0", tokens=10)
    third = core.ask("c.0", tokens=10)
    assert isinstance(third, Held)
    assert third.reason is HoldReason.PROTECT
    assert isinstance(core.ask("a.1", tokens=20), Place)
    assert placed(core.end("a.1", tokens=20, paused=False, cached=10)) == ["c.0"]


def test_a_slot_that_batch_turns_may_not_have_stays_free() -> None:
    core = Core(kv_tokens=None, slots=4, batch_kv_share=0.75)
    for name in ("a.0", "b.0", "c.0"):
        assert isinstance(core.ask(name), Place)
    core.end("a.0")
    assert isinstance(core.ask("d.0"), Held)  # it would have the fourth


def test_a_prefix_that_is_about_to_be_used_is_not_pushed_out_and_its_run_passes() -> None:
    core = Core()
    core.ask("a.0")
    core.ask("b.0")
    core.end("a.0")
    third = core.ask("c.0", tokens=900)
    assert isinstance(third, Held)
    assert third.reason is HoldReason.PROTECT
    assert isinstance(core.ask("a.1", tokens=1100), Place)


def test_a_run_whose_prefix_is_there_passes_although_another_is_protected() -> None:
    """Else runs that grow would protect each other from each other, and nobody would run."""
    core = Core(kv_tokens=3400)
    core.ask("a.0")
    core.ask("b.0")
    assert isinstance(core.ask("c.0", tokens=900), Place)
    core.end("a.0")
    core.end("c.0", tokens=900)
    stranger = core.ask("d.0", tokens=1100)
    assert isinstance(stranger, Held)
    assert stranger.reason is HoldReason.PROTECT
    assert isinstance(core.ask("a.1", tokens=1100), Place)


def test_a_run_that_ends_without_an_answer_leaves_no_prefix_that_somebody_will_come_back_for() -> None:
    """It had paused, was asked for again, and that turn was given up while it was held."""
    core = Core()
    core.ask("a.0")
    core.ask("a.1")
    core.end("a.0")
    assert isinstance(core.ask("a.2", tokens=3000), Held)
    core.tell(TurnAbandoned(core.now, "d", "a.2", 1))
    assert core.state.policy_state.engines["a"].paused[BATCH].runs == 1
    core.tell(TurnFailed(core.now, "d", "a.1", 1, "engine_error"))
    g: Guarded = core.state.policy_state
    assert not g.lanes
    assert [prefix.coming for prefix in g.engines["a"].prefixes.values()] == [-1]
    assert g.engines["a"].paused[BATCH].runs == 0


def test_what_an_ended_run_left_protects_nobody() -> None:
    core = Core()
    core.ask("a.0")
    core.ask("b.0")
    core.end("a.0", paused=False)
    assert isinstance(core.ask("c.0", tokens=900), Place)


def test_an_idle_engine_takes_the_first_whatever_it_protects() -> None:
    core = Core()
    core.ask("a.0", tokens=2500)
    core.end("a.0", tokens=2500)
    assert isinstance(core.ask("b.0", tokens=2900), Place)


def measured() -> Core:
    """Eight pauses of a second, eight cold prompts that took a second each; then `b` runs and `a` is paused."""
    core = Core()
    for number in range(8):
        core.ask(f"a.{number}")
        core.now += 1.0
        core.tell(FirstToken(core.now, "d", f"a.{number}"))
        core.end(f"a.{number}", seconds=0.0)
        core.now += 1.0
    core.ask("b.0")
    core.ask("a.8")
    core.end("a.8")
    return core


def test_a_prefix_is_protected_no_longer_than_its_tool_may_take() -> None:
    core = measured()
    assert isinstance(core.ask("c.0", tokens=900), Held)
    core.now += 1.0
    assert placed(core.tell(Tick(core.now))) == []
    core.now += 4.0  # older than any pause was, and as long again is longer than two refills of what runs
    assert placed(core.tell(Tick(core.now))) == ["c.0"]


def test_where_nothing_was_measured_an_agent_that_died_keeps_others_out_for_half_a_minute() -> None:
    core = Core()
    core.ask("a.0")
    core.ask("b.0")
    core.end("a.0")
    assert isinstance(core.ask("c.0", tokens=900), Held)
    core.now += 20.0
    assert placed(core.tell(Tick(core.now))) == []
    core.now += 45.0
    assert placed(core.tell(Tick(core.now))) == ["c.0"]


def test_interactive_turns_are_never_held_for_memory() -> None:
    core = Core()
    for number in range(5):
        assert isinstance(core.ask(f"i{number}.0", turn_class=INTERACTIVE), Place)


@pytest.mark.parametrize(
    ("flavour", "turn_class", "priority"),
    [("vllm", INTERACTIVE, 0), ("vllm", BATCH, 1), ("sglang", INTERACTIVE, 0), ("sglang", BATCH, -1), ("off", BATCH, UNSET)],
)
def test_a_turn_says_its_class_in_the_sign_of_its_engine(flavour: str, turn_class: TurnClass, priority: object) -> None:
    core = Core(ReplicaSpec("a", "http://a", ("m",), priority=flavour))  # pyright: ignore[reportArgumentType]
    found = core.ask("a.0", turn_class=turn_class)
    assert isinstance(found, Place)
    assert found.priority == priority


def test_a_single_pass_says_no_priority() -> None:
    core = Core(ReplicaSpec("k", "http://k", ("m",), kind=Kind.CLASSIFIER, priority="vllm"))
    found = core.ask("a.0", kind=Kind.CLASSIFIER)
    assert isinstance(found, Place)
    assert found.priority is UNSET


def queued(priority: str) -> Core:
    """An engine that runs one and says that another waits."""
    core = Core(ReplicaSpec("a", "http://a", ("m",), priority=priority), kv_tokens=100_000, probe_seconds=0.25)  # pyright: ignore[reportArgumentType]
    core.ask("b.0")
    core.probe(running=1, waiting=1)
    return core


def test_the_cap_stays_for_batch_and_engines_that_serve_interactive_first_keep_nobody_of_those_waiting() -> None:
    first, fifo = queued("vllm"), queued("off")
    for number in range(3):
        assert isinstance(first.ask(f"i{number}.0", turn_class=INTERACTIVE), Place)
    assert isinstance(first.ask("b2.0"), Held)
    held = fifo.ask("i.0", turn_class=INTERACTIVE)
    assert isinstance(held, Held)
    assert held.reason is HoldReason.CAPPED


def test_one_batch_turn_may_wait_where_it_is_in_nobodys_way() -> None:
    core = queued("sglang")
    assert isinstance(core.ask("b2.0"), Place)
    assert isinstance(core.ask("b3.0"), Held)


def test_none_of_a_caller_with_several_runs_there_may_wait_in_the_engine() -> None:
    """Where there are other batch callers: it would be in the way of those who have few."""
    core = Core(ReplicaSpec("a", "http://a", ("m",), priority="vllm"), kv_tokens=100_000, probe_seconds=0.25)
    for name in ("b0.0", "b1.0"):
        core.ask(name, caller="many")
    core.probe(running=2, waiting=1)
    assert isinstance(core.ask("b2.0", caller="many"), Place)
    core = Core(ReplicaSpec("a", "http://a", ("m",), priority="vllm"), kv_tokens=100_000, probe_seconds=0.25)
    for name, caller in (("b0.0", "many"), ("b1.0", "many"), ("c0.0", "few")):
        core.ask(name, caller=caller)
    core.probe(running=3, waiting=1)
    held = core.ask("b2.0", caller="many")
    assert isinstance(held, Held)
    assert held.reason is HoldReason.CAPPED
    assert isinstance(core.ask("d0.0", caller="other"), Place)


def test_an_engine_that_refuses_is_left_alone_by_all() -> None:
    core = queued("vllm")
    core.tell(TurnReturned(core.now, "d", "b.0", 1, "a", ReturnReason.BUSY))
    assert isinstance(core.ask("i.0", turn_class=INTERACTIVE), Held)


@pytest.mark.parametrize(("probe_seconds", "reports"), [(0.25, 1), (1.0, 2), (2.0, 2)])
def test_with_slow_probes_a_queue_counts_when_two_in_a_row_show_it(probe_seconds: float, reports: int) -> None:
    core = Core(kv_tokens=100_000, probe_seconds=probe_seconds)
    core.ask("a.0")
    for number in range(1, 3):
        core.probe(running=1, waiting=1)
        assert (core.state.replicas["a"].cap == 1) is (number >= reports)
    core.probe(running=1, waiting=0)
    core.probe(running=1, waiting=1)
    assert core.state.replicas["a"].queued == 1


def test_behind_a_router_the_rules_are_those_of_original() -> None:
    core = Core(ReplicaSpec("a", "http://a", ("m",), router=True), kv_tokens=1000)
    for number in range(5):
        assert isinstance(core.ask(f"b{number}.0"), Place)


@pytest.mark.parametrize("router", [True, False])
def test_a_paused_run_keeps_its_place_behind_a_router_alone(router: bool) -> None:
    core = Core(ReplicaSpec("a", "http://a", ("m",), max_in_flight=2, router=router), kv_tokens=None)
    core.ask("a.0", turn_class=INTERACTIVE)
    core.end("a.0")
    assert isinstance(core.ask("b.0"), Place)
    third = core.ask("c.0")
    assert isinstance(third, Held if router else Place)
    assert not isinstance(third, Held) or third.reason is HoldReason.RESERVED
    assert isinstance(core.ask("a.1", turn_class=INTERACTIVE), Place if router else Held)


def test_a_caller_with_many_runs_there_waits_for_one_with_few() -> None:
    core = Core(kv_tokens=2500)
    core.ask("a.0", tokens=1000, caller="many")
    core.ask("b.0", tokens=1000, caller="many")
    assert isinstance(core.ask("c.0", tokens=1000, caller="many"), Held)
    assert isinstance(core.ask("d.0", tokens=1000, caller="few"), Held)
    assert placed(core.end("a.0", paused=False)) == ["d.0"]
    assert placed(core.end("b.0", paused=False)) == ["c.0"]


# ---- what it remembers is bounded -------------------------------------------------------------------------------


def test_where_k_is_unknown_only_prefixes_that_runs_come_back_for_are_kept() -> None:
    core = Core(kv_tokens=None)
    for number in range(50):
        core.ask(f"b{number}.0")
        core.end(f"b{number}.0", paused=number == 0)
    g: Guarded = core.state.policy_state
    assert list(g.engines["a"].prefixes) == [("b0", "m")]
    core.ask("b0.1")
    core.end("b0.1", paused=False)
    g = core.state.policy_state
    assert not g.engines["a"].prefixes
    assert not list(shadow.oldest_first(g.engines["a"]))
    assert not g.engines["a"].cached


def test_prefixes_that_take_next_to_no_memory_are_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shadow, "PREFIXES_MAX", 10)
    core = Core(kv_tokens=1_000_000)
    for number in range(50):
        core.ask(f"b{number}.0", tokens=1)
        core.end(f"b{number}.0", tokens=1, paused=False)
    g: Guarded = core.state.policy_state
    assert [lane for lane, _ in shadow.oldest_first(g.engines["a"])] == [(f"b{number}", "m") for number in range(40, 50)]


def test_models_that_callers_invent_are_not_all_remembered() -> None:
    core = Core(ReplicaSpec("a", "http://a", ("*",)), kv_tokens=None)
    for number in range(learn.MODELS_MAX + 5):
        core.ask(f"b{number}.0", model=f"m{number}")
        core.end(f"b{number}.0", paused=False)
    assert len(core.state.policy_state.tokens_per_byte) == learn.MODELS_MAX
