"""Do sub-agents that begin with their parent's context go where that is, and does it count once?"""

import pytest

from luftpause.scheduler.core import guard_family as family
from luftpause.scheduler.core.decisions import Held, HoldReason, Place
from luftpause.scheduler.core.events import ProbeOutcome, ReplicaProbed, ReplicaSpec, ReplicaUnusable, TurnClass
from luftpause.scheduler.core.guard_model import RUN, Engine, Guarded
from luftpause_bench.sim.recount import recount
from tests.unit.scheduler.core.test_guard import Core, placed

A, B = ReplicaSpec("a", "http://a", ("m",)), ReplicaSpec("b", "http://b", ("m",))
P = ("p", "m")


def called(*specs: ReplicaSpec, kv_tokens: int = 20_000) -> Core:
    """A run `p` has called sub-agents at `a`, with a context of 2,050 tokens."""
    core = Core(*(specs or (A, B)), kv_tokens=kv_tokens)
    others = tuple(spec.name for spec in specs[1:]) if specs else ("b",)
    core.ask("p.0", tokens=2000, without=others)
    core.end("p.0", tokens=2000)
    return core


def forks(core: Core, turn: str, tokens: int = 2200, **more: object) -> Place | Held:
    decision = core.ask(turn, tokens=tokens, **{"parent": "p", "caller": "p"} | more)  # pyright: ignore[reportArgumentType]
    assert isinstance(decision, Place | Held)
    return decision


def engine(core: Core, name: str = "a") -> Engine:
    g: Guarded = core.state.policy_state
    recount(core.state)
    return g.engines[name]


# ---- where --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turn_class", list(TurnClass))
def test_a_sub_agent_goes_where_its_parents_context_is_though_more_runs_there(turn_class: TurnClass) -> None:
    core = called()
    for number in range(2):
        core.ask(f"x{number}.0", without=("b",))
    core.ask("y.0", without=("a",))
    stranger = core.ask("z.0", tokens=2200, turn_class=turn_class)
    assert isinstance(stranger, Place)
    assert stranger.replica == "b"
    sub = forks(core, "s.0", turn_class=turn_class)
    assert isinstance(sub, Place)
    assert sub.replica == "a"


def busy() -> Core:
    """`a` is full, and one turn runs at `b`."""
    core = called(kv_tokens=3000)
    core.ask("x.0", tokens=2500, without=("b",))
    core.ask("y.0", tokens=300, without=("a",))
    return core


def test_it_is_held_for_that_engine_but_an_idle_one_takes_it() -> None:
    core = busy()
    sub = forks(core, "s.0")
    assert isinstance(sub, Held)
    assert isinstance(core.ask("z.0", tokens=2200), Place), "a stranger has room at b"
    assert placed(core.end("y.0", tokens=300, paused=False)) == []
    assert placed(core.end("z.0", tokens=2200, paused=False)) == ["s.0"]
    assert core.state.turns["s.0"].replica == "b"
    again = forks(core, "s1.0")
    assert isinstance(again, Place), "part of its family is at b now"
    assert again.replica == "b"


def test_it_does_not_wait_for_an_engine_that_it_can_not_go_to() -> None:
    for happens in ("without", "unhealthy", "unusable"):
        core = busy()
        if happens == "unhealthy":
            for _ in range(4):
                core.now += 2.0
                core.tell(ReplicaProbed(core.now, "a", ProbeOutcome.REFUSED))
        if happens == "unusable":
            core.tell(ReplicaUnusable(core.now, "d", "a", "no key"))
        without = ("a",) if happens == "without" else ()
        forks(core, "s.0", without=without)
        core.tell(ReplicaProbed(core.now, "b", ProbeOutcome.OK, core.state.replicas["b"].load))
        assert core.state.turns["s.0"].replica == "b", happens


def test_a_crowd_of_siblings_goes_to_an_idle_engine_as_well() -> None:
    core = called()
    where = [forks(core, f"s{number}.0") for number in range(8)]
    homes = [each.replica for each in where if isinstance(each, Place)]
    assert homes[:5] == ["a"] * 5
    assert "b" in homes


def test_a_task_of_its_own_goes_where_fewest_turns_run() -> None:
    """Too short for its parent's context, or its parent is not known, or it uses another model."""
    core = called()
    for number in range(2):
        core.ask(f"x{number}.0", without=("b",))
    for more in ({"tokens": 500}, {"parent": "q"}, {"parent": "s"}):
        sub = forks(core, "s.0", **more)  # pyright: ignore[reportArgumentType]
        assert isinstance(sub, Place)
        assert sub.replica == "b"
        core.end("s.0", paused=False)
    assert not engine(core).stems


# ---- how much -----------------------------------------------------------------------------------------------------


def test_what_siblings_share_counts_once_against_the_memory() -> None:
    core = called(A, kv_tokens=3100)
    assert all(isinstance(forks(core, f"s{number}.0"), Place) for number in range(3))
    fourth = forks(core, "s4.0")
    assert isinstance(fourth, Held)
    assert fourth.reason is HoldReason.KV
    there = engine(core)
    assert there.stems[P].turns == 3
    assert there.stem_tokens == 2050
    assert there.prompts == pytest.approx(3 * 150)  # 2,200 less the 2,050, of which 50 are the parent's answer


def test_a_stem_is_the_newest_prefix_when_none_stands_on_it_any_more() -> None:
    core = called(A)
    forks(core, "s.0")
    forks(core, "s1.0")
    core.end("s.0", tokens=2200, cached=2050)
    assert engine(core).prefixes[("s", "m")].tokens == 200
    core.end("s1.0", tokens=2300, cached=2050)
    there = engine(core)
    assert not there.stems
    assert there.prefixes[P].tokens == 2050
    assert [lane for _, lane in there.order][-1] == P
    assert there.prefixes[P].coming == TurnClass.BATCH
    assert there.cached == 2050 + 200 + 300


def test_a_parent_that_goes_on_stands_on_its_own_context() -> None:
    core = called(A)
    forks(core, "s.0")
    core.ask("p.1", tokens=2400, caller="p")
    there = engine(core)
    assert there.stems[P].turns == 2
    assert there.prompts == pytest.approx(150 + 350)  # beyond the 2,050
    core.end("p.1", tokens=2400, paused=False)
    there = engine(core)
    assert (there.stems[P].tokens, there.stems[P].coming) == (2450, -1)
    core.end("s.0", tokens=2200, paused=False)
    assert engine(core).prefixes[P].tokens == 2450


def test_a_sub_agents_sub_agent_stands_on_both() -> None:
    core = called(A)
    forks(core, "s.0")
    core.end("s.0", tokens=2200, cached=2050)
    forks(core, "t.0", tokens=2400, parent="s")
    there = engine(core)
    assert (there.stems[P].tokens, there.stems[("s", "m")].tokens) == (2050, 200)
    assert there.prompts == pytest.approx(150)  # 2,400 less 2,250


def test_a_family_counts_by_what_it_holds_among_its_callers_runs() -> None:
    core = called(A)
    for number in range(4):
        forks(core, f"s{number}.0", tokens=2278)
    resident = core.state.policy_state.flows["p"].resident
    assert resident == RUN + 4 * 100


def test_a_prefix_that_sub_agents_found_is_not_one_that_all_runs_share_and_no_surprise() -> None:
    core = called(A)
    before = engine(core)
    for number in range(20):
        forks(core, f"s{number}.0")
        core.end(f"s{number}.0", tokens=2200, cached=2050)
        forks(core, f"s{number}.1", tokens=2260)
        core.end(f"s{number}.1", tokens=2260, cached=2250, paused=False)
    there = engine(core)
    assert there.shared == before.shared
    assert there.kv == before.kv


def test_a_prefix_of_its_own_that_was_lost_is_a_surprise() -> None:
    core = called(A)
    forks(core, "s.0")
    core.end("s.0", tokens=2200, cached=2050)
    before = engine(core)
    forks(core, "s.1", tokens=2260)
    core.end("s.1", tokens=2260, cached=2050, paused=False)
    assert engine(core).kv < before.kv


# ---- do they? -----------------------------------------------------------------------------------------------------


def test_callers_whose_sub_agents_find_nothing_are_not_taken_for_families_until_some_do() -> None:
    core = called(A)
    for number in range(3):
        forks(core, f"s{number}.0")
        assert engine(core).stems
        core.end(f"s{number}.0", tokens=2200, cached=0, paused=False)
    for number in range(3, 6):
        forks(core, f"s{number}.0")
        assert not engine(core).stems
        core.end(f"s{number}.0", tokens=2200, cached=2050, paused=False)
    forks(core, "t.0")
    assert engine(core).stems, "half of them did"


def test_what_was_not_there_teaches_nothing() -> None:
    core = called(A, B)
    for number in range(5):
        forks(core, f"s{number}.0", without=("a",))
        core.end(f"s{number}.0", tokens=2200, cached=0, paused=False)
        core.ask(f"x{number}.0", tokens=19_000, without=("a",))  # pushes it out
        core.end(f"x{number}.0", tokens=19_000, paused=False)
    assert family.above_of(core.state.policy_state, core.state.turns["s9.0"], None) if forks(core, "s9.0") else False


def test_runs_that_are_each_others_parents_stand_on_nothing_of_their_own() -> None:
    core = Core(A, kv_tokens=20_000)
    core.ask("p.0", tokens=2000, parent="q", caller="p")
    core.end("p.0", tokens=2000)
    core.ask("q.0", tokens=2200, parent="p", caller="p")
    core.end("q.0", tokens=2200, cached=2050)
    core.ask("q.1", tokens=2300, parent="q", caller="p")
    core.ask("p.1", tokens=2100, parent="q", caller="p")
    assert all(stem.turns <= 2 for stem in engine(core).stems.values())


# ---- order --------------------------------------------------------------------------------------------------------


def test_siblings_go_before_runs_that_came_between_their_parent_and_them() -> None:
    core = Core(A, kv_tokens=3600)
    for run in "pn":
        core.now += 1.0
        core.ask(f"{run}.0", tokens=1500, caller="u")
    core.now += 1.0
    assert isinstance(core.ask("o.0", tokens=1600, caller="u"), Held)
    core.end("p.0", tokens=1500)
    core.now += 1.0
    assert isinstance(core.ask("s.0", tokens=2000, parent="p", caller="u"), Held)
    assert placed(core.end("n.0", tokens=1500, paused=False))[0] == "s.0"
