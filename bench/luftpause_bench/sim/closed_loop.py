"""How do agents fare on two saturated engines, with the scheduler between or straight? In virtual time, from one seed.

The engines are fit A of the published testbed; runs have three tool calls. Straight: the least loaded engine first, then always the same.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random
from statistics import median

from luftpause.scheduler.core.decide import decide, initial
from luftpause.scheduler.core.decisions import Place
from luftpause.scheduler.core.events import (
    Continue,
    Event,
    Load,
    ProbeOutcome,
    ReplicaProbed,
    ReplicaSpec,
    Resync,
    Tick,
    TurnClass,
    TurnFinished,
    TurnRequested,
)  # fmt: skip
from luftpause.scheduler.core.settings import Settings
from luftpause_fakes.engine_model import Engine, EngineParams, EngineRequest, Finished, Segment

ENGINES = ("a", "b")
TOOL_CALLS = 3
WARM_UP_SECONDS = 30
HEAD = Segment(0, 250)


@dataclass(eq=False)
class Work:
    """A run on its way."""

    id: str
    agent: int
    turn_class: TurnClass
    caller: str
    began: float
    prompt: tuple[Segment, ...]
    turns: int = 0
    answer: tuple[Segment, ...] = ()


@dataclass
class Loop:
    seed: int
    agents: tuple[tuple[TurnClass, str], ...]  # class and caller
    scheduled: bool = True
    probe_seconds: float = 2.0
    reports_late: int = 0  # gauges trail by so many probes
    dying: bool = False  # interactive agents die in their first tool call, and others come
    seconds: float = 150.0
    now: float = 0.0
    finished: list[tuple[TurnClass, str, float]] = field(default_factory=list)  # and how long the run took
    held: list[float] = field(default_factory=list)
    in_flight: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))  # at each probe

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.numbers = count(1)
        self.agenda: list[tuple[float, int, Callable[[], None]]] = []
        self.engines = {name: Engine(EngineParams()) for name in ENGINES}
        self.due: dict[str, float | None] = dict.fromkeys(ENGINES)
        self.turns: dict[str, tuple[Work, str]] = {}
        self.homes: dict[str, str] = {}
        self.gauges: dict[str, list[Load]] = defaultdict(list)
        specs = tuple(ReplicaSpec(name, f"http://{name}", ("m",)) for name in ENGINES)
        self.state = initial(Settings(start_grace_seconds=0.0, probe_seconds=self.probe_seconds), specs, 0.0)

    def play(self) -> "Loop":
        if self.scheduled:
            self.tell(Resync(0.0, "d", "s", "b"))
            self.at(0.0, self.probe)
            self.at(1.0, self.tick)
        for agent in range(len(self.agents)):
            self.at(self.random.uniform(0, 5), lambda agent=agent: self.begin(agent))
        return self.until(self.seconds)

    def until(self, seconds: float) -> "Loop":
        while self.agenda and self.agenda[0][0] <= seconds:
            self.now, _, act = heapq.heappop(self.agenda)
            act()
            self.watch()
        return self

    def at(self, when: float, act: Callable[[], None]) -> None:
        heapq.heappush(self.agenda, (when, next(self.numbers), act))

    def watch(self) -> None:
        """Wake when an engine's step ends. Both share one GPU: either is slower while the other works."""
        busy = all(engine.next_event() is not None for engine in self.engines.values())
        for name, engine in self.engines.items():
            engine.slowdown = 2.0 if busy else 1.0
            due = engine.next_event()
            if due is not None and due != self.due[name]:
                self.at(max(due, self.now), lambda name=name: self.advance(name))
            self.due[name] = due

    # ---- agents -----------------------------------------------------------------------------------------------

    def begin(self, agent: int) -> None:
        if agent >= len(self.agents):
            return  # it has left
        turn_class, caller = self.agents[agent]
        prompt = (HEAD, Segment(next(self.numbers), self.random.randint(800, 950)))
        self.ask(Work(f"r{next(self.numbers)}", agent, turn_class, caller, self.now, prompt))

    def ask(self, work: Work) -> None:
        turn, answer = f"{work.id}.{work.turns}", (20, 40) if work.turns < TOOL_CALLS else (120, 256)
        work.answer = (Segment(next(self.numbers), self.random.randint(*answer)),)
        self.turns[turn] = (work, "")
        if self.scheduled:
            self.tell(TurnRequested(self.now, "d", turn, 1, work.id, "m", work.turn_class, work.caller, work.id, arrived=self.now))
            return
        least = min(ENGINES, key=lambda name: sum(where == name for _, where in self.turns.values()))
        self.send(turn, self.homes.setdefault(work.id, least))

    def send(self, turn: str, name: str) -> None:
        work, _ = self.turns[turn]
        self.turns[turn] = (work, name)
        self.advance(name)
        assert self.engines[name].submit(self.now, EngineRequest(turn, work.prompt, work.answer, 256)) == ()

    def advance(self, name: str) -> None:
        for output in self.engines[name].advance(self.now):
            if isinstance(output, Finished):
                self.at(self.now, lambda turn=output.id: self.answered(turn))

    def answered(self, turn: str) -> None:
        work, _ = self.turns.pop(turn)
        calls = work.turns < TOOL_CALLS
        work.turns += 1
        work.prompt = (*work.prompt, *work.answer, Segment(next(self.numbers), self.random.randint(150, 330)))
        if self.scheduled:
            self.tell(TurnFinished(self.now, "d", turn, 1, paused=calls))
        if calls and not (self.dying and work.turn_class is TurnClass.INTERACTIVE):
            self.at(self.now + self.random.uniform(0.5, 1.5), lambda: self.ask(work))
            return
        if not calls and self.now > WARM_UP_SECONDS:
            self.finished.append((work.turn_class, work.caller, self.now - work.began))
        self.at(self.now + 0.01, lambda: self.begin(work.agent))

    # ---- scheduler --------------------------------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        step = decide(self.state, event)
        self.state = step.state
        for decision in step.decisions:
            if isinstance(decision, Place):
                self.held.append(decision.held_seconds)
                self.send(decision.turn, decision.replica)
        if step.more:
            self.tell(Continue(self.now))

    def probe(self) -> None:
        for name, engine in self.engines.items():
            gauges = engine.gauges()
            seen = self.gauges[name]
            seen.append(Load(gauges.running, gauges.waiting))
            self.tell(ReplicaProbed(self.now, name, ProbeOutcome.OK, seen[max(0, len(seen) - 1 - self.reports_late)]))
            if self.now > WARM_UP_SECONDS:
                self.in_flight[name].append(self.state.replicas[name].in_flight)
        self.at(self.now + self.probe_seconds, self.probe)

    def tick(self) -> None:
        self.tell(Tick(self.now))
        self.at(self.now + 1.0, self.tick)

    # ---- results ----------------------------------------------------------------------------------------------

    def runs(self, turn_class: TurnClass, caller: str | None = None) -> list[float]:
        """How long each finished run of them took."""
        return [took for each, whose, took in self.finished if each is turn_class and caller in {None, whose}]

    def median_seconds(self, turn_class: TurnClass, caller: str | None = None) -> float:
        return median(self.runs(turn_class, caller))
