"""Does guard hold what it should, and never everything?"""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from luftpause.scheduler.core.decide import decide, initial
from luftpause.scheduler.core.decisions import Held, Place
from luftpause.scheduler.core.events import (
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
from luftpause.scheduler.core.settings import Settings
from luftpause.scheduler.record_values import decode, encode
from luftpause_bench.flood.scheduled import Gauges, Scheduled
from luftpause_bench.flood.workload import Agents, Workload, fit_a
from luftpause_bench.flood.world import World
from luftpause_bench.sim.recount import recount
from luftpause_fakes.engine_model import EngineParams

BATCH = TurnClass.BATCH


class Desk:
    """Runs that each want some turns, on engines that answer in any order. Nothing else happens: what is held waits for these answers."""

    def __init__(self, kv_tokens: int, engines: int, runs: list[tuple[int, int, int]], chance: Random) -> None:
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
            self.tell(ReplicaProbed(0.0, spec.name, ProbeOutcome.OK, Load(0, 0, kv_tokens)))

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
        usage = Usage(state[0], 50, self.chance.choice((0, state[0] // 2, state[0] - 1)))
        state[0] += 50 + state[1]
        state[2] -= 1
        self.tell(TurnFinished(self.now, "d", turn, 1, usage=usage, paused=state[2] > 0, tools=("search",)))
        return run

    def play(self) -> None:
        """All runs come at once, and each comes back sometime: nobody waits for time to pass."""
        for run in self.runs:
            self.ask(run)
        paused: list[str] = []
        while self.placed or paused:
            if paused and (not self.placed or self.chance.random() < 0.4):
                self.ask(paused.pop(self.chance.randrange(len(paused))))
                continue
            run = self.answer()
            busy = {self.state.turns[turn].replica for turn in self.placed}
            assert busy or not self.waiting, "all are held while every engine is idle"
            if self.runs[run][2] > 0:
                paused.append(run)


RUNS = st.lists(st.tuples(st.integers(50, 900), st.integers(0, 400), st.integers(1, 5)), min_size=2, max_size=12)


@settings(max_examples=60)
@given(st.integers(500, 3000), st.integers(1, 2), RUNS, st.randoms(use_true_random=False))
def test_prefixes_that_protect_each_other_never_hold_everybody(
    kv_tokens: int, engines: int, runs: list[tuple[int, int, int]], chance: Random
) -> None:
    desk = Desk(kv_tokens, engines, runs, chance)
    desk.play()
    assert not desk.waiting, "held for ever"
    assert all(left == 0 for _, _, left in desk.runs.values())


def test_both_reasons_of_guard_are_seen() -> None:
    seen: set[str] = set()
    for seed in range(30):
        desk = Desk(2500, 1, [(400, 100, 4)] * 10, Random(seed))
        desk.play()
        seen |= desk.reasons
    assert {"kv", "protect"} <= seen


def test_a_state_in_the_middle_of_a_flood_can_be_recorded() -> None:
    front = Scheduled(Settings(policy="guard", start_grace_seconds=0.0), Gauges())
    World(_short(fit_a(3.0)), front, 1).play()
    assert front.state.policy_state.engines
    assert decode(encode(front.state)) == front.state


def _short(workload: Workload, seconds: float = 60.0) -> Workload:
    from msgspec.structs import replace

    return replace(workload, seconds=seconds, warm_up_seconds=0.0)


# The prefix that all runs share is larger than what each has of its own: once, counting it as the run's made every turn a surprise.
SHARING = Workload(
    EngineParams(kv_tokens=20_000),
    (
        Agents("batch", BATCH, 40, 40, context_tokens=(300, 700)),
        Agents("interactive", TurnClass.INTERACTIVE, 3, 3, context_tokens=(300, 700)),
    ),
    shared_tokens=2000, seconds=400.0, warm_up_seconds=60.0,
)  # fmt: skip


def test_what_is_learned_of_a_kv_memory_stays_near_the_truth_and_never_spirals_down() -> None:
    for factor in (1.0, 1.3):
        front = Scheduled(Settings(policy="guard", start_grace_seconds=0.0, probe_seconds=0.5), Gauges(kv_factor=factor))
        World(SHARING, front, 5).play()
        for engine in front.state.policy_state.engines.values():
            assert 0.85 * 20_000 <= engine.kv <= 1.15 * 20_000, factor


def test_protection_ends_when_a_tool_takes_longer_than_it_is_worth() -> None:
    """Agents that die in their tool call keep nobody out for ever."""
    desk = Desk(2000, 1, [(900, 0, 2), (900, 0, 2), (900, 0, 1), (900, 0, 1)], Random(1))
    for run in desk.runs:
        desk.ask(run)
    for _ in range(8):
        if desk.placed:
            desk.answer()
    desk.now += 3600.0
    desk.tell(Tick(desk.now))
    while desk.placed:
        desk.answer()
    assert not desk.waiting
