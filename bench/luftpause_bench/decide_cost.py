"""What does one event cost `decide`?

A closed loop in virtual time: each run asks, is placed or held, answers with tool calls, pauses and comes back. The pool is sized so that a given
number of turns is held. Costs are CPU time per event and placement, with the garbage collector as in production (young generations on).

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
    Event, FirstToken, Load, ProbeOutcome, ReplicaProbed, ReplicaSpec, Tick, ToolCallSeen, TurnClass, TurnFinished, TurnRequested,
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
        self.nanos: dict[str, list[float]] = defaultdict(list)
        self.placed = 0
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
            when, "dataplane", turn, 1, f"run_{self.serial:026d}", "m", turn_class, caller, tool_call_ids=ids, head_digest=digest, body_hash=digest
        )
        self.at(when, event)

    def step(self, *, measure: bool) -> None:
        when, _, event = heappop(self.clock)
        before = time.process_time_ns()
        step = decide(self.state, event)
        nanos = time.process_time_ns() - before
        self.state = step.state
        places = sum(isinstance(decision, Place) for decision in step.decisions)
        if measure:
            self.placed += places
            self.nanos[type(event).__name__].append(nanos / (1 + places))
            self.nanos["all"].append(nanos / (1 + places))
        for decision in step.decisions:
            if isinstance(decision, Place):
                self.answer(when, decision.turn)
        if step.more:
            self.at(when, Tick(when))
        self.follow(when, event)

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


def measure(runs: int, held: float, callers: int, events: int, seed: int) -> None:
    loop = Loop(runs, held, callers, seed)
    gc.collect()
    gc.freeze()
    gc.set_threshold(gc.get_threshold()[0], gc.get_threshold()[1], 1_000_000)
    for _ in range(runs * 12):  # until every run has gone round a few times
        loop.step(measure=False)
    for _ in range(events):
        loop.step(measure=True)
    waiting = sum(turn.phase is TurnPhase.HELD for turn in loop.state.turns.values())
    print(f"{len(loop.state.runs):,} runs, {waiting:,} held, {callers:,} callers, {REPLICAS} replicas, {loop.placed:,} placements in {events:,} events")
    for name, nanos in sorted(loop.nanos.items()):
        nanos.sort()
        p50, p99, top = (nanos[min(int(len(nanos) * q), len(nanos) - 1)] / 1000 for q in (0.5, 0.99, 0.999))
        print(f"  {name:16} n {len(nanos):7,}  mean {sum(nanos) / len(nanos) / 1000:6.1f}  p50 {p50:6.1f}  p99 {p99:6.1f}  p99.9 {top:7.1f} us")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--held", type=float, default=0.2, help="part of the runs that is held, about")
    parser.add_argument("--callers", type=int, default=200)
    parser.add_argument("--events", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    for runs in options.runs:
        measure(runs, options.held, options.callers, options.events, options.seed)


if __name__ == "__main__":
    main()
