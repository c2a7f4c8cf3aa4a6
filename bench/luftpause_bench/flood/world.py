"""How do agents, a front and engines live together in virtual time, from one seed?

A front is what stands between agents and engines: a router, or the scheduler's core. Nothing here knows which.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any, Protocol

from luftpause_bench.flood.books import Books
from luftpause_bench.flood.workload import Agents, Workload
from luftpause_fakes.engine_model import Engine, EngineRequest, Finished, Output, Segment, Token

BYTES_PER_TOKEN = 4.0
BYTES_SPREAD = 0.08  # from run to run: code and prose take different numbers of bytes per token
HEAD = Segment(0, 1)


@dataclass(eq=False, slots=True)
class Run:
    """One agent's work on its way."""

    id: str
    agents: Agents
    caller: str
    began: float
    tools_left: int
    bytes_per_token: float
    prompt: tuple[Segment, ...]
    chance: Random
    dies: bool = False
    parent: "Run | None" = None
    children: int = 0  # that have not ended
    turns: int = 0
    context_tokens: int = 0
    paused_at: float = 0.0


@dataclass(eq=False, slots=True)
class Turn:
    """One request of a run. `ready`: when its client sent it."""

    id: str
    run: Run
    answer: tuple[Segment, ...]
    answer_tokens: int
    prompt_tokens: int
    ready: float
    replica: str = ""
    sent: float = 0.0
    first: float = -1.0
    tool: str = ""


class Front(Protocol):
    def start(self, world: "World") -> None: ...
    def ask(self, turn: Turn) -> None:
        """A turn is ready; sooner or later the front calls `world.send`."""
        ...

    def first(self, turn: Turn) -> None: ...
    def finished(self, turn: Turn, output: Finished) -> None: ...

    @property
    def held(self) -> int: ...


@dataclass
class World:
    workload: Workload
    front: Front
    seed: int
    each_priority: bool = False  # requests carry the class as a priority, without a scheduler
    now: float = 0.0
    turns: dict[str, Turn] = field(default_factory=dict)  # in flight

    def __post_init__(self) -> None:
        self.arrivals = Random(self.seed * 7907 + 11)  # apart: the same with every front
        self.numbers = count(1)
        self._agents = count(1)
        self.agenda: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self.names = tuple(f"e{number}" for number in range(self.workload.engines))
        self.engines = {name: Engine(self.workload.engine, each_token=False) for name in self.names}
        self.head = Segment(0, self.workload.shared_tokens)
        self.books = Books(self.workload)

    # ---- time

    def play(self) -> Books:
        self.front.start(self)
        for agents in self.workload.crowds:
            if agents.closed:
                for caller in self._callers(agents):
                    chance = self._chance(agents)
                    self.at(chance.uniform(0, self.workload.ramp_seconds), self.begin, agents, caller, chance)
            elif agents.burst_seconds:
                self.at(agents.burst_seconds / 2, self._burst, agents)
            else:
                self.at(self._wait(agents), self._arrival, agents)
        self.at(self.workload.warm_up_seconds, self._sample)
        until = self.workload.seconds
        while True:
            when, engine = self._next()
            if when > until:
                return self.books
            self.now = max(self.now, when)
            if engine:
                self._advance(engine)
            else:
                _, _, act, arguments = heapq.heappop(self.agenda)
                act(*arguments)

    def at(self, when: float, act: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self.agenda, (when, next(self.numbers), act, arguments))

    def _next(self) -> tuple[float, str]:
        best, which = self.agenda[0][0], ""
        for name, engine in self.engines.items():
            due = engine.next_event()
            if due is not None and due < best:
                best, which = due, name
        return best, which

    def _advance(self, name: str) -> None:
        engine = self.engines[name]
        if self.workload.one_gpu:
            engine.slowdown = 1.0 + sum(other is not engine and other.next_event() is not None for other in self.engines.values())
        for output in engine.advance(self.now):
            self._heard(output)

    def _heard(self, output: Output) -> None:
        if isinstance(output, Token):
            turn = self.turns[output.id]
            if turn.first < 0:
                turn.first = self.now
                self.front.first(turn)
        elif isinstance(output, Finished):
            self._answered(self.turns.pop(output.id), output)

    def _sample(self) -> None:
        gauges = [engine.gauges() for engine in self.engines.values()]
        self.books.sample(sum(each.waiting for each in gauges), sum(each.running for each in gauges), self.front.held)
        self.at(self.now + 1.0, self._sample)

    # ---- agents

    @staticmethod
    def _callers(agents: Agents) -> list[str]:
        return [f"{agents.name}{number % agents.callers}" for number in range(agents.agents)]

    def _chance(self, agents: Agents) -> Random:
        """Of one agent alone: what its runs are like is the same with every front, which would be noise between them else."""
        return Random(f"{self.seed} {agents.name} {next(self._agents)}")

    def _wait(self, agents: Agents) -> float:
        return self.arrivals.expovariate(agents.arrivals_per_minute / 60)

    def _arrival(self, agents: Agents) -> None:
        self.begin(agents, self.arrivals.choice(self._callers(agents)), self._chance(agents))
        self.at(self.now + self._wait(agents), self._arrival, agents)

    def _burst(self, agents: Agents) -> None:
        for caller in self._callers(agents):
            self.at(self.now + self.arrivals.uniform(0, 1), self.begin, agents, caller, self._chance(agents))
        self.at(self.now + agents.burst_seconds, self._burst, agents)

    def begin(self, agents: Agents, caller: str, chance: Random, parent: Run | None = None) -> None:
        before = (self.head,) if parent is None else parent.prompt
        room = round(self.workload.context_tokens_max * 0.9) - sum(segment.tokens for segment in before)
        own = min(agents.context(chance), room)
        run = Run(
            f"r{next(self.numbers)}", agents, caller, self.now, agents.tool_calls(chance),
            BYTES_PER_TOKEN * chance.lognormvariate(0, BYTES_SPREAD), (*before, Segment(next(self.numbers), max(1, own))), chance,
            dies=agents.dying > 0 and chance.random() < agents.dying, parent=parent,
        )  # fmt: skip
        self.ready(run)

    def ready(self, run: Run) -> None:
        """Its next turn is asked for."""
        agents = run.agents
        low, high = agents.call_tokens if run.tools_left > 0 else agents.final_tokens
        tokens = max(2, min(self.workload.answer_tokens_max, run.chance.randint(low, max(low, high))))
        answer = (Segment(next(self.numbers), tokens),)
        prompt_tokens = sum(segment.tokens for segment in run.prompt)
        run.context_tokens = prompt_tokens
        self.front.ask(Turn(f"{run.id}.{run.turns}", run, answer, tokens, prompt_tokens, self.now))

    def send(self, turn: Turn, name: str, priority: int = 0) -> None:
        """The front has decided."""
        turn.replica, turn.sent = name, self.now
        self.at(self.now + self.workload.way_seconds, self._arrive, turn, priority)

    def _arrive(self, turn: Turn, priority: int) -> None:
        if self.each_priority:
            sign = 1 if self.workload.engine.priority == "vllm" else -1
            priority = sign * int(turn.run.agents.turn_class)
        self.turns[turn.id] = turn
        self._advance(turn.replica)
        request = EngineRequest(turn.id, turn.run.prompt, turn.answer, self.workload.answer_tokens_max, priority)
        refused = self.engines[turn.replica].submit(self.now, request)
        if refused:
            raise RuntimeError(f"an engine refused {turn.id}: {refused}")

    def _answered(self, turn: Turn, output: Finished) -> None:
        run, agents = turn.run, turn.run.agents
        fork = agents.fork if run.turns == 0 else None
        run.turns += 1
        run.context_tokens = turn.prompt_tokens + turn.answer_tokens
        room = self.workload.context_tokens_max - agents.result_tokens - self.workload.answer_tokens_max
        calls = run.tools_left > 0 and run.context_tokens < room
        seconds = 0.0
        if calls:
            turn.tool, seconds = agents.pause(run.chance) if fork is None else (fork.name, 0.0)
        self.front.finished(turn, output)
        self.books.turn(agents.name, self.now, turn.first - turn.ready, output)
        if not calls:
            self._ended(run)
        elif not run.dies:
            run.tools_left -= 1
            run.prompt = (*run.prompt, *turn.answer)
            if fork is not None:
                self._fork(run, fork)
            else:
                self._result(run)
                self.at(self.now + seconds, self.ready, run)

    def _ended(self, run: Run) -> None:
        agents, parent = run.agents, run.parent
        self.books.run(agents.name, run.caller, self.now, self.now - run.began)
        if parent is not None:
            parent.children -= 1
            self._result(parent)
            if parent.children == 0:
                self.at(self.now, self.ready, parent)
        elif agents.closed:
            think = agents.think_seconds * run.chance.uniform(0.5, 1.5) if agents.think_seconds else 0.001
            self.at(self.now + think, self.begin, agents, run.caller, run.chance)

    def _fork(self, run: Run, fork: Agents) -> None:
        run.children = run.agents.forks
        for _ in range(run.children):
            self.begin(fork, run.caller, Random(run.chance.random()), run)

    def _result(self, run: Run) -> None:
        """What a tool gave back is part of its context now, as far as there is room for it and an answer."""
        room = self.workload.context_tokens_max - self.workload.answer_tokens_max - sum(segment.tokens for segment in run.prompt)
        tokens = min(run.agents.result(run.chance), max(1, room))
        run.prompt = (*run.prompt, Segment(next(self.numbers), tokens))
