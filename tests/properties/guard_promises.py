"""What must guard keep, whoever comes and in whatever order engines answer?"""

from random import Random
from statistics import fmean

from msgspec.structs import replace

from luftpause.scheduler.core import guard_learn as learn
from luftpause.scheduler.core.decide import decide, initial
from luftpause.scheduler.core.decisions import Held, HoldReason, Place
from luftpause.scheduler.core.events import (
    ConfigChanged,
    Continue,
    Event,
    FirstToken,
    Load,
    ProbeOutcome,
    ReplicaProbed,
    ReplicaSpec,
    Resync,
    Tick,
    TurnClass,
    TurnFinished,
    TurnRequested,
    Usage,
)
from luftpause.scheduler.core.guard_model import Engine, Flying, Guarded
from luftpause.scheduler.core.guard_order import STEP_SECONDS
from luftpause.scheduler.core.settings import Settings
from luftpause_bench.sim.recount import recount
from tests.unit.scheduler.core.test_guard import MEASURED, Core, flying, placed

BATCH, INTERACTIVE = TurnClass.BATCH, TurnClass.INTERACTIVE
TRUTH = 10_000.0  # KV tokens that an engine really has, in the tests of what is learned of it


class Desk:
    """Runs that each want some turns, on engines that answer in any order. Nothing else happens: what is held waits for these answers."""

    def __init__(self, kv_tokens: int, engines: int, runs: list[tuple[int, int, int]], chance: Random, *, slots: int | None = None) -> None:
        specs = tuple(ReplicaSpec(f"e{number}", f"http://e{number}", ("m",)) for number in range(engines))
        self.state = initial(Settings(policy="guard", start_grace_seconds=0.0), specs, 0.0)
        self.runs = {f"r{number}": [context, growth, turns] for number, (context, growth, turns) in enumerate(runs)}
        self.kv_tokens = kv_tokens
        self.chance = chance
        self.now = 0.0
        self.placed: list[str] = []
        self.waiting: dict[str, None] = {}
        self.reasons: set[str] = set()
        self.tell(Resync(0.0, "d", "s", "b"))
        for spec in specs:
            self.tell(ReplicaProbed(0.0, spec.name, ProbeOutcome.OK, Load(0, 0, None if slots else kv_tokens, slots=slots)))

    def tell(self, event: Event) -> None:
        step = decide(self.state, event)
        self.state = step.state
        for decision in step.decisions:
            if isinstance(decision, Place):
                self.waiting.pop(decision.turn)
                self.placed.append(decision.turn)
            elif isinstance(decision, Held):
                self.reasons.add(decision.reason.value)
        if step.more:
            self.tell(Continue(self.now))
        recount(self.state)

    def ask(self, run: str) -> None:
        context, _, left = self.runs[run]
        self.waiting[f"{run}.{left}"] = None
        self.tell(TurnRequested(self.now, "d", f"{run}.{left}", 1, run, "m", BATCH, run, run, arrived=self.now, body_bytes=context * 4))

    def answer(self) -> str:
        """Any of the turns in flight ends. Returns its run."""
        turn = self.placed.pop(self.chance.randrange(len(self.placed)))
        run = turn.partition(".")[0]
        self.now += self.chance.random()
        self.tell(FirstToken(self.now, "d", turn))
        self.now += self.chance.random()
        state = self.runs[run]
        usage = Usage(state[0], 50, self.found(run, state[0]))
        state[0] += 50 + state[1]
        state[2] -= 1
        self.tell(TurnFinished(self.now, "d", turn, 1, usage=usage, paused=state[2] > 0, tools=("search",)))
        return run

    def found(self, run: str, tokens: int) -> int:
        """What the engine had of a prompt."""
        del run
        return self.chance.choice((0, tokens // 2, tokens - 1))

    def comes_back(self, run: str) -> bool:
        return self.runs[run][2] > 0

    def play(self) -> None:
        """All runs come at once, and each comes back sometime: nobody waits for time to pass."""
        for run in tuple(self.runs):
            self.ask(run)
        paused: list[str] = []
        while self.placed or paused:
            if paused and (not self.placed or self.chance.random() < 0.4):
                self.ask(paused.pop(self.chance.randrange(len(paused))))
                continue
            run = self.answer()
            busy = {self.state.turns[turn].replica for turn in self.placed}
            assert busy or not self.waiting, "all are held while every engine is idle"
            if self.comes_back(run):
                paused.append(run)


def nobody_is_held_while_every_engine_is_idle(
    kv_tokens: int, engines: int, runs: list[tuple[int, int, int]], chance: Random, *, slots: int | None = None
) -> None:
    """The deadly fault of mutual protection: runs that grow protect each other from each other, and none runs any more."""
    desk = Desk(kv_tokens, engines, runs, chance, slots=slots)
    desk.play()
    assert not desk.waiting, "held for ever"
    assert all(left == 0 for _, _, left in desk.runs.values())


class Family(Desk):
    """Runs that call sub-agents in their first turn: each begins with their whole context, or (`forks` False) with a task as long."""

    def __init__(
        self, kv_tokens: int, engines: int, runs: list[tuple[int, int, int]], children: int, chance: Random, *, forks: bool
    ) -> None:
        super().__init__(kv_tokens, engines, runs, chance)
        self.children, self.forks = children, forks
        self.left: dict[str, int] = {}  # run -> of its sub-agents have not ended
        self.parents: dict[str, str] = {}

    def ask(self, run: str) -> None:
        context, _, left = self.runs[run]
        parent = self.parents.get(run, "")
        caller = parent or run
        self.waiting[f"{run}.{left}"] = None
        self.tell(
            TurnRequested(
                self.now, "d", f"{run}.{left}", 1, run, "m", BATCH, caller, run, arrived=self.now, body_bytes=context * 4, parent=parent
            )
        )  # fmt: skip

    def answer(self) -> str:
        run = super().answer()
        parent = self.parents.get(run, "")
        if parent and self.runs[run][2] == 0:
            self.left[parent] -= 1
            if not self.left[parent] and self.runs[parent][2] > 0:
                self.ask(parent)
        elif not parent and run not in self.left and self.runs[run][2] > 0:
            self._calls(run)
        return run

    def found(self, run: str, tokens: int) -> int:
        """What the engine had of a prompt."""
        return self.chance.choice((0, tokens - 1)) if self.forks or run not in self.parents else 0

    def _calls(self, run: str) -> None:
        self.left[run] = self.children
        for number in range(self.children):
            child = f"{run}-{number}"
            self.parents[child] = run
            self.runs[child] = [self.runs[run][0] + 20, 10, 2]
            self.ask(child)

    def comes_back(self, run: str) -> bool:
        return super().comes_back(run) and not self.left.get(run)


def families_are_never_all_held(
    kv_tokens: int, engines: int, runs: list[tuple[int, int, int]], children: int, chance: Random, *, forks: bool = True
) -> None:
    """Sub-agents wait for their parent's engine, not for ever; and all accounts are right however its run and theirs go on."""
    desk = Family(kv_tokens, engines, runs, children, chance, forks=forks)
    desk.play()
    assert not desk.waiting, "held for ever"
    assert all(left == 0 for _, _, left in desk.runs.values())
    guarded: Guarded = desk.state.policy_state
    assert not any(engine.stems for engine in guarded.engines.values())


# ---- protection -------------------------------------------------------------------------------------------------


def a_paused_interactive_run_keeps_its_prefix() -> None:
    core = Core()
    core.ask("i.0", turn_class=INTERACTIVE)
    core.ask("b.0")
    core.end("i.0")
    assert isinstance(core.ask("c.0", tokens=900), Held)


def a_prefix_whose_turn_waits_is_kept() -> None:
    """It is about to be used, although its pause is over."""
    core = Core()
    core.ask("a.0", tokens=800)
    core.end("a.0", tokens=800)
    core.ask("x.0", tokens=1900)
    for name, tokens, reason in (("a.1", 1000, HoldReason.KV), ("c.0", 200, HoldReason.PROTECT)):
        found = core.ask(name, tokens=tokens)
        assert isinstance(found, Held)
        assert found.reason is reason


def batch_keeps_to_its_share_of_the_memory() -> None:
    """Three runs of a third each fit; with a share of nine tenths the third would need what is kept for a paused one."""
    for share, held in ((1.0, False), (0.8, True)):
        core = Core(kv_tokens=3600, batch_kv_share=share)
        core.ask("a.0")
        core.ask("b.0")
        core.end("a.0")
        assert isinstance(core.ask("c.0", tokens=900), Held) is held, share


def what_does_not_fit_is_gone() -> None:
    core = Core(kv_tokens=3000)
    for number in range(6):
        core.ask(f"a{number}.0")
        core.end(f"a{number}.0", paused=False)
        engine = core.state.policy_state.engines["a"]
        assert engine.cached + engine.prompts <= 3000


# ---- K ----------------------------------------------------------------------------------------------------------


def what_was_found_cached_never_lowers_k(shared: int = 4000, own: int = 500, turns: int = 40) -> None:
    """The deadly fault of the spiral: the prefix that all runs share, larger than what each has of its own, is found each time."""
    engine = replace(MEASURED, shared=float(shared), firsts=(float(shared),) * learn.FIRSTS_KEPT)
    for number in range(turns):
        engine = learn.with_usage(engine, _expecting(float(own), number), Usage(shared + own + 60, 50, shared + own), float(number))
        engine = learn.with_usage(engine, _expecting(0.0, number), Usage(shared + own, 50, shared), float(number))
        assert engine.kv >= MEASURED.kv


def _expecting(said: float, now: float) -> Flying:
    return replace(flying(said), placed=float(now))


def _learned(engine: Engine, turns: int) -> Engine:
    """Turns whose prefix is there in as many cases as an engine with `TRUTH` tokens has room for of what this one is thought to hold."""
    chance = Random(7)
    for number in range(turns):
        here = chance.random() < TRUTH / engine.kv
        said = chance.random() < engine.kv / TRUTH
        usage = Usage(1000, 50, 950 if here else 0)
        engine = learn.with_usage(engine, _expecting(950.0 if said else 0.0, number), usage, number + 0.5)
    return engine


def k_that_is_told_too_high_falls_to_the_truth() -> None:
    told = replace(MEASURED, kv=1.3 * TRUTH, kv_reported=1.3 * TRUTH)
    assert 0.85 * TRUTH <= _learned(told, 400).kv <= 1.1 * TRUTH


def k_that_fell_too_far_comes_back() -> None:
    fallen = replace(MEASURED, kv=0.5 * TRUTH, kv_reported=TRUTH)
    assert _learned(fallen, 400).kv >= 0.85 * TRUTH


def k_that_nobody_tells_is_learned_from_a_queue() -> None:
    core = Core(kv_tokens=None)
    for number in range(4):
        core.ask(f"a{number}.0")
    core.probe(running=3, waiting=1)
    assert 3000 <= core.state.policy_state.engines["a"].kv <= 3450


def how_many_prefixes_stay_is_learned(truth: int, least: float, most: float) -> None:
    """Of an engine with four slots: more where what loses its slot is brought back."""
    chance = Random(11)
    engine, kept = replace(MEASURED, kv=0.0, kv_reported=0.0, slots=4, kept=4.0), list[float]()
    for number in range(600):
        here, said = chance.random() < truth / engine.kept, chance.random() < engine.kept / truth
        usage = Usage(1000, 50, 950 if here else 0)
        engine = learn.with_usage(engine, _expecting(950.0 if said else 0.0, number), usage, number + 0.5)
        kept.append(engine.kept)
    assert least <= fmean(kept[300:]) <= most


# ---- order ------------------------------------------------------------------------------------------------------


def a_caller_that_waits_moves_up_by_one_each_run_time() -> None:
    """The bound on starvation: one with n runs there waits n run times longer than one without, and no more."""
    core = Core(kv_tokens=1_000_000)
    for number in range(3):
        core.ask(f"old{number}.0", caller="many")
    core.probe(running=1, waiting=1)
    core.probe(running=1, waiting=1)
    assert isinstance(core.ask("late.0", caller="many"), Held)
    assert core.state.callers["many"].rank == 3
    for steps in range(1, 5):
        for _ in range(int(STEP_SECONDS)):
            core.now += 1.0
            core.tell(Tick(core.now))
        assert core.state.callers["many"].rank == 3 - steps
    assert isinstance(core.ask("new.0", caller="few"), Held)
    for name in ("old0.0", "old1.0", "old2.0"):
        found = placed(core.end(name, paused=False))
    assert found == ["late.0"]


def places_that_come_at_once_are_shared() -> None:
    """Two callers without runs there and four turns each: when two places come free in one step, each gets one."""
    core = Core(ReplicaSpec("a", "http://a", ("m",), max_in_flight=1), kv_tokens=1_000_000)
    core.ask("x.0", caller="x")
    for number in range(4):
        core.ask(f"m{number}.0", caller="first")
    for number in range(4):
        core.now += 0.01
        core.ask(f"n{number}.0", caller="second")
    spec = ReplicaSpec("a", "http://a", ("m",), max_in_flight=3)
    assert placed(core.tell(ConfigChanged(core.now, (spec,)))) == ["m0.0", "n0.0"]


def new_runs_are_spread() -> None:
    core = Core(ReplicaSpec("a", "http://a", ("m",)), ReplicaSpec("b", "http://b", ("m",)), kv_tokens=100_000)
    found = [core.ask(f"r{number}.0") for number in range(8)]
    where = [each.replica for each in found if isinstance(each, Place)]
    assert where.count("a") == where.count("b") == 4
