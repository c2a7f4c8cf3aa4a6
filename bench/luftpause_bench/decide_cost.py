"""What does one event cost `decide`?

A closed loop in virtual time: each run asks, is placed or held, answers with tool calls, pauses and comes back. The pool is sized so that
a given number of turns is held. As `decide` is pure, the same log is replayed in several passes and each event counts with its least time:
what other programs on the machine cost is left out. The figure of an event with placements is divided by 1 + placements.

    python -m luftpause_bench.decide_cost --runs 1000 10000 --held 0.2
"""

import argparse
import gc
import random
import time
from collections import defaultdict
from collections.abc import Sequence
from heapq import heappop, heappush

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
)  # fmt: skip
from luftpause.scheduler.core.model import Settings, State, TurnPhase

REPLICAS = 8
ANSWER_SECONDS, TOOL_SECONDS = 4.0, 1.0
PROBE_SECONDS = 2.0


class Loop:
    """Runs that come back for ever; `clock` holds what happens next."""

    def __init__(self, runs: int, held: float, callers: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.callers = callers
        # Per replica so many turns in flight that the rest of the active runs is held.
        self.cap = max(1, int(runs * (1 - held) * ANSWER_SECONDS / (ANSWER_SECONDS + TOOL_SECONDS) / REPLICAS))
        specs = tuple(ReplicaSpec(f"replica-{n}", f"http://replica-{n}", models=("m",)) for n in range(REPLICAS))
        self.state: State = initial(Settings(start_grace_seconds=0.0), specs, 0.0)
        self.serial = 0
        self.clock: list[tuple[float, int, Event]] = []
        self.run_of: dict[str, tuple[int, TurnClass]] = {}
        for n in range(REPLICAS):
            self.at(0.001, ReplicaProbed(0.001, f"replica-{n}", ProbeOutcome.OK, Load(self.cap, 1)))
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
        self.at(last + 0.01, TurnFinished(last + 0.01, "dataplane", turn, 1, "tool_calls", paused=True, tool_call_ids=ids))

    def follow(self, when: float, event: Event) -> None:
        if isinstance(event, TurnFinished):
            run, turn_class = self.run_of.pop(event.turn)
            self.ask(when + self.random.expovariate(1 / TOOL_SECONDS), run, turn_class, event.tool_call_ids)
        elif isinstance(event, ReplicaProbed):
            again = when + PROBE_SECONDS
            self.at(again, ReplicaProbed(again, event.replica, ProbeOutcome.OK, Load(self.cap, 1)))


def measure(runs: int, held: float, callers: int, events: int, passes: int, seed: int) -> None:
    loop = Loop(runs, held, callers, seed)
    gc.collect()
    gc.freeze()
    gc.set_threshold(gc.get_threshold()[0], gc.get_threshold()[1], 1_000_000)
    for _ in range(runs * 12):  # until every run has gone round a few times
        loop.step()
    start = loop.state
    log = [loop.step() for _ in range(events)]
    costs, places = replay(start, log, passes)
    waiting = sum(turn.phase is TurnPhase.HELD for turn in start.turns.values())
    scene = f"{len(start.runs):,} runs, {waiting:,} held, {callers:,} callers, {REPLICAS} replicas"
    print(f"{scene}; {events:,} events, {sum(places):,} placements")
    kinds: dict[str, list[float]] = defaultdict(list)
    for event, cost, count in zip(log, costs, places, strict=True):
        for name in (type(event).__name__, "all"):
            kinds[name].append(cost / (1 + count))
    for name, figures in sorted(kinds.items()):
        figures.sort()
        p50, p99, top = (figures[min(int(len(figures) * q), len(figures) - 1)] / 1000 for q in (0.5, 0.99, 0.999))
        mean = sum(figures) / len(figures) / 1000
        print(f"  {name:16} n {len(figures):7,}  mean {mean:6.1f}  p50 {p50:6.1f}  p99 {p99:6.1f}  p99.9 {top:7.1f} us")


def replay(start: State, log: list[Event], passes: int) -> tuple[list[float], list[int]]:
    """Least nanoseconds of each event over all passes, and its placements."""
    costs = [float("inf")] * len(log)
    places = [0] * len(log)
    for _ in range(passes):
        state = start
        for number, event in enumerate(log):
            before = time.perf_counter_ns()
            step = decide(state, event)
            costs[number] = min(costs[number], time.perf_counter_ns() - before)
            state = step.state
            places[number] = sum(isinstance(decision, Place) for decision in step.decisions)
    return costs, places


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--held", type=float, default=0.2, help="part of the runs that is held, about")
    parser.add_argument("--callers", type=int, default=200)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    for runs in options.runs:
        measure(runs, options.held, options.callers, options.events, options.passes, options.seed)


if __name__ == "__main__":
    main()
