"""What does one event cost `decide`, and what does one run weigh?

A closed loop in virtual time: each run asks, is placed or held, answers with tool calls, pauses and comes back. The pool is sized so that
a given part of the runs is held. As `decide` is pure, the same log is replayed in several passes and each event counts with its least time:
what other programs on the machine cost is left out. The figure of an event with placements is divided by 1 + placements. Garbage is
collected as in production; "whole passes" are the quietest pass as it was, with its collections. All of it is CPU time of this thread.

    luftpause bench decide_cost [--policy guard] [--runs 100 1000 10000 100000] [--held 0.1] [--json]
"""

import argparse
import gc
import json
import random
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Sequence
from heapq import heappop, heappush

from msgspec import Struct, to_builtins

from luftpause.kit.garbage import Garbage
from luftpause.scheduler.core.decide import decide, initial
from luftpause.scheduler.core.decisions import Place
from luftpause.scheduler.core.events import (
    Event,
    FirstToken,
    Load,
    ProbeOutcome,
    ReplicaProbed,
    ReplicaSpec,
    Tick,
    ToolCallSeen,
    TurnClass,
    TurnFinished,
    TurnRequested,
    TurnStarted,
    Usage,
)  # fmt: skip
from luftpause.scheduler.core.model import State, TurnPhase
from luftpause.scheduler.core.policies import POLICIES
from luftpause.scheduler.core.settings import Settings

REPLICAS = 8
ANSWER_SECONDS, TOOL_SECONDS = 4.0, 1.0
PROMPT_TOKENS, ANSWER_TOKENS = 600, 64
CACHED_TOKENS_FIRST, CACHED_TOKENS_LATER = 300, 560  # of a run's prompts
PROBE_SECONDS = 2.0
ROUNDS, EVENTS_PER_ROUND = 2, 6  # of each run before the measurement


class Loop:
    """Runs that come back for ever; `clock` holds what happens next."""

    def __init__(self, runs: int, held: float, callers: int, seed: int, policy: str = "original") -> None:
        self.random = random.Random(seed)
        self.callers = callers
        # Per replica so many turns in flight that the rest of the active runs is held.
        self.cap = max(1, int(runs * (1 - held) * ANSWER_SECONDS / (ANSWER_SECONDS + TOOL_SECONDS) / REPLICAS))
        specs = tuple(ReplicaSpec(f"replica-{n}", f"http://replica-{n}", models=("m",)) for n in range(REPLICAS))
        self.state: State = initial(Settings(policy=policy, start_grace_seconds=0.0), specs, 0.0)
        # Engines have room for twice the prefixes of all runs.
        self.load = Load(self.cap, 1, kv_tokens=2 * (PROMPT_TOKENS + ANSWER_TOKENS) * runs // REPLICAS)
        self.answered: set[int] = set()  # runs
        self.serial = 0
        self.clock: list[tuple[float, int, Event]] = []
        self.run_of: dict[str, tuple[int, TurnClass]] = {}
        for n in range(REPLICAS):
            self.at(0.001, ReplicaProbed(0.001, f"replica-{n}", ProbeOutcome.OK, self.load))
        for run in range(runs):
            turn_class = TurnClass.BATCH if run % 4 else TurnClass.INTERACTIVE
            self.ask(self.random.uniform(0.01, ANSWER_SECONDS), run, turn_class, ())

    def at(self, when: float, event: Event) -> None:
        self.serial += 1
        heappush(self.clock, (when, self.serial, event))

    def ask(self, when: float, run: int, turn_class: TurnClass, ids: tuple[str, ...]) -> None:
        self.serial += 1
        turn = f"turn_{self.serial:026d}"
        self.run_of[turn] = (run, turn_class)
        caller = f"caller-{run % self.callers}"
        digest = run.to_bytes(16, "big")
        event = TurnRequested(
            when,
            "dataplane",
            turn,
            1,
            f"run_{self.serial:026d}",
            "m",
            turn_class,
            caller,
            tool_call_ids=ids,
            head_digest=digest,
            body_hash=digest,
            body_bytes=4 * PROMPT_TOKENS,
        )
        self.at(when, event)

    def step(self) -> Event:
        when, _, event = heappop(self.clock)
        step = decide(self.state, event)
        self.state = step.state
        for decision in step.decisions:
            if isinstance(decision, Place):
                self.answer(when, decision.turn)
        if step.more:
            self.at(when, Tick(when))
        self.follow(when, event)
        return event

    def answer(self, when: float, turn: str) -> None:
        first = when + self.random.uniform(0.05, 0.5)
        last = first + self.random.expovariate(1 / ANSWER_SECONDS)
        ids = (f"call_{self.random.getrandbits(96):024x}",)
        self.at(when + 0.001, TurnStarted(when + 0.001, "dataplane", turn, 1))
        self.at(first, FirstToken(first, "dataplane", turn))
        self.at(last, ToolCallSeen(last, "dataplane", turn, ids))
        run, _ = self.run_of[turn]
        usage = Usage(PROMPT_TOKENS, ANSWER_TOKENS, CACHED_TOKENS_LATER if run in self.answered else CACHED_TOKENS_FIRST)
        self.answered.add(run)
        self.at(
            last + 0.01,
            TurnFinished(last + 0.01, "dataplane", turn, 1, "tool_calls", usage=usage, paused=True, tool_call_ids=ids, tools=("search",)),
        )

    def follow(self, when: float, event: Event) -> None:
        if isinstance(event, TurnFinished):
            run, turn_class = self.run_of.pop(event.turn)
            self.ask(when + self.random.expovariate(1 / TOOL_SECONDS), run, turn_class, event.tool_call_ids)
        elif isinstance(event, ReplicaProbed):
            again = when + PROBE_SECONDS
            self.at(again, ReplicaProbed(again, event.replica, ProbeOutcome.OK, self.load))


class Cost(Struct, frozen=True):
    """Microseconds per event, where one with placements is divided by 1 + placements."""

    events: int
    mean: float
    p50: float
    p99: float
    p999: float


class Measured(Struct, frozen=True):
    """`whole_mean`, `whole_p99`: of the quietest pass, collections of garbage included."""

    runs: int
    held: int
    callers: int
    events: int
    placements: int
    all: Cost
    whole_mean: float
    whole_p99: float
    by_event: dict[str, Cost]


class Weight(Struct, frozen=True):
    """Bytes that the state keeps (tracemalloc), strings that came with the events included."""

    runs: int
    bytes_per_run: int
    bytes_per_held_turn: int


# ---- time -------------------------------------------------------------------------------------------------------


def measure(runs: int, held: float, callers: int, events: int, passes: int, seed: int, policy: str) -> Measured:
    loop = Loop(runs, held, callers, seed, policy)
    for _ in range(runs * ROUNDS * EVENTS_PER_ROUND):
        loop.step()
    start = loop.state
    log = [loop.step() for _ in range(events)]
    garbage = Garbage()
    times, places = replay(start, log, passes)
    garbage.stop()
    shares = [1000 * (1 + count) for count in places]
    least = [min(each) / share for each, share in zip(zip(*times, strict=True), shares, strict=True)]
    whole = [[cost / share for cost, share in zip(each, shares, strict=True)] for each in times]
    kinds: dict[str, list[float]] = defaultdict(list)
    for event, cost in zip(log, least, strict=True):
        kinds[type(event).__name__].append(cost)
    return Measured(
        runs=len(start.runs),
        held=sum(turn.phase is TurnPhase.HELD for turn in start.turns.values()),
        callers=callers,
        events=events,
        placements=sum(places),
        all=_cost(least),
        whole_mean=round(min(sum(each) for each in whole) / events, 1),
        whole_p99=min(_cost(each).p99 for each in whole),
        by_event={name: _cost(figures) for name, figures in sorted(kinds.items())},
    )


def replay(start: State, log: list[Event], passes: int) -> tuple[list[list[int]], list[int]]:
    """Nanoseconds of each event, pass by pass, and its placements."""
    times: list[list[int]] = []
    places: list[int] = []
    for _ in range(passes):
        state, costs, places = start, list[int](), list[int]()
        for event in log:
            before = time.thread_time_ns()
            step = decide(state, event)
            costs.append(time.thread_time_ns() - before)
            state = step.state
            places.append(sum(isinstance(decision, Place) for decision in step.decisions))
        times.append(costs)
    return times, places


def _cost(figures: list[float]) -> Cost:
    order = sorted(figures)
    p50, p99, p999 = (round(order[min(int(len(order) * part), len(order) - 1)], 1) for part in (0.5, 0.99, 0.999))
    return Cost(len(order), round(sum(order) / len(order), 1), p50, p99, p999)


# ---- memory -----------------------------------------------------------------------------------------------------


def weigh(runs: int, callers: int) -> Weight:
    """Runs that are paused after one turn with a tool call; then every tenth asks again, of engines that take nothing more."""
    tracemalloc.start()
    specs = tuple(ReplicaSpec(f"replica-{n}", f"http://replica-{n}", models=("m",)) for n in range(REPLICAS))
    state = initial(Settings(start_grace_seconds=0.0), specs, 0.0)
    for spec in specs:
        state = decide(state, ReplicaProbed(0.001, spec.name, ProbeOutcome.OK)).state
    empty = _traced()
    for run in range(runs):
        state = _paused(state, run, callers)
    paused = _traced()
    for spec in specs:
        state = decide(state, ReplicaProbed(2.0, spec.name, ProbeOutcome.OK, Load(0, 1))).state
    # The first turn on each replica makes it full.
    for run in range(0, runs, 10):
        state = decide(state, _ask(3.0, f"turn_{runs + run:026d}", run, callers, (f"call_{run:024x}",))).state
    held = sum(turn.phase is TurnPhase.HELD for turn in state.turns.values())
    weight = Weight(runs, (paused - empty) // runs, (_traced() - paused) // max(held, 1))
    tracemalloc.stop()
    return weight


def _paused(state: State, run: int, callers: int) -> State:
    turn, call = f"turn_{run:026d}", (f"call_{run:024x}",)
    state = decide(state, _ask(1.0, turn, run, callers, ())).state
    state = decide(state, ToolCallSeen(1.0, "dataplane", turn, call)).state
    return decide(state, TurnFinished(1.0, "dataplane", turn, 1, "tool_calls", paused=True, tool_call_ids=call)).state


def _ask(when: float, turn: str, run: int, callers: int, ids: tuple[str, ...]) -> TurnRequested:
    digest, turn_class = run.to_bytes(16, "big"), TurnClass.BATCH if run % 4 else TurnClass.INTERACTIVE
    return TurnRequested(
        when, "dataplane", turn, 1, f"run_{run:026d}", "m", turn_class, f"caller-{run % callers}", tool_call_ids=ids, head_digest=digest,
        body_hash=digest,
    )  # fmt: skip


def _traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


# ---- what is shown ----------------------------------------------------------------------------------------------


def shown(found: Sequence[Measured], weight: Weight) -> str:
    lines = ["microseconds per event and placement   each event at its least   whole passes"]
    lines.append(f"{'runs':>9} {'held':>7}   {'placed':>8}  {'mean':>6} {'p50':>6} {'p99':>6} {'p99.9':>6}   {'mean':>6} {'p99':>6}")
    for row in found:
        cost = row.all
        counts = f"{row.runs:9,} {row.held:7,}   {row.placements:8,}"
        lines.append(f"{counts}  {cost.mean:6} {cost.p50:6} {cost.p99:6} {cost.p999:6}   {row.whole_mean:6} {row.whole_p99:6}")
    names = sorted({name for row in found for name in row.by_event})
    lines.append("\np50 / p99 by event")
    lines.append(f"{'runs':>9} " + "".join(f"{name:>16}" for name in names))
    for row in found:
        costs = [row.by_event.get(name) for name in names]
        lines.append(f"{row.runs:9,} " + "".join(f"{cost.p50:>8} /{cost.p99:>6}" if cost else f"{'-':>16}" for cost in costs))
    lines.append(
        f"\n{weight.bytes_per_run:,} bytes per paused run and {weight.bytes_per_held_turn:,} more per held turn, at {weight.runs:,} runs"
    )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="luftpause bench decide_cost", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--policy", choices=sorted(POLICIES), default="guard")
    parser.add_argument("--runs", type=int, nargs="+", default=[100, 1_000, 10_000, 100_000])
    parser.add_argument("--held", type=float, default=0.1, help="part of the runs that is held, about")
    parser.add_argument("--callers", type=int, default=200)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--memory-runs", type=int, default=10_000, help="weigh the state at so many runs")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(arguments)
    found = [
        measure(runs, options.held, options.callers, options.events, options.passes, options.seed, options.policy) for runs in options.runs
    ]
    weight = weigh(options.memory_runs, options.callers)
    if options.json:
        print(json.dumps({"costs_microseconds": to_builtins(found), "memory": to_builtins(weight)}, indent=2))
    else:
        print(shown(found, weight))


if __name__ == "__main__":
    main()
