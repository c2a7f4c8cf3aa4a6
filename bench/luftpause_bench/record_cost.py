"""What does recording cost the scheduler?

The events of `decide_cost` go through `decide` without a recorder, with one (names hashed, then clear), and with one whose thread is not
there: then its work is done on the loop. Per event: processor time of the loop's thread, of the whole process, and time that passed. As
fast as possible, so the two threads want the interpreter all the time, which is the worst case. Rounds are interleaved; the least counts.

    python -m luftpause_bench.record_cost --runs 1000 --events 20000
"""

import argparse
import gc
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from luftpause.scheduler.core.decide import decide, initial
from luftpause.scheduler.core.decisions import Step
from luftpause.scheduler.core.events import Event, Tick
from luftpause.scheduler.core.model import State
from luftpause.scheduler.core.settings import Settings
from luftpause.scheduler.record import Recorder
from luftpause.scheduler.record_log import event_line
from luftpause.scheduler.record_names import Names
from luftpause.scheduler.record_values import encode, to_bytes
from luftpause_bench.decide_cost import Loop

TINY = initial(Settings(), (), 0.0)
Observe = Callable[[State, Event, Step], None]
Cost = tuple[float, float, float]  # us per event: loop's thread, process, passed


def passed(start: State, log: Sequence[Event], observe: Observe | None, close: Callable[[], None]) -> Cost:
    """One round; what is still to be written at the end counts for the process."""
    state = start
    began = (time.thread_time(), time.process_time(), time.perf_counter())
    for event in log:
        step = decide(state, event)
        if observe is not None:
            observe(state, event, step)
        state = step.state
    thread, wall = time.thread_time() - began[0], time.perf_counter() - began[2]
    close()
    process = time.process_time() - began[1]
    return tuple(seconds / len(log) * 1e6 for seconds in (thread, process, wall))  # pyright: ignore[reportReturnType]


def on_the_loop(names: Names) -> Observe:
    def observe(state: State, event: Event, step: Step) -> None:
        del state
        event_line(names.hide(event), [names.hide(each) for each in step.decisions])

    return observe


def measure(runs: int, events: int, rounds: int) -> None:
    loop = Loop(runs, 0.2, 200, 1)
    for _ in range(runs * 12):
        loop.step()
    start = loop.state
    log = [loop.step() for _ in range(events)]
    gc.collect()
    gc.freeze()
    folder = Path(tempfile.mkdtemp(prefix="luftpause-record-"))
    best: dict[str, list[Cost]] = {}
    try:
        for number in range(rounds):
            for name in ("without", "recorded, names hashed", "recorded, names clear", "hashed and encoded on the loop"):
                best.setdefault(name, []).append(_round(name, start, log, folder / f"{number}"))
        written = sum(path.stat().st_size for path in folder.rglob("*.jsonl")) / (2 * rounds * len(log))
    finally:
        shutil.rmtree(folder)
    print(f"{len(start.runs):,} runs, {events:,} events, least of {rounds} rounds; {written:.0f} bytes per event; us per event:")
    for name, costs in best.items():
        print(
            f"  {name:32} "
            + "  ".join(f"{what} {min(cost[at] for cost in costs):6.2f}" for at, what in enumerate(("loop", "process", "passed")))
        )
    _snapshot(start)


def _round(name: str, start: State, log: Sequence[Event], folder: Path) -> Cost:
    if name == "without":
        return passed(start, log, None, lambda: None)
    if not name.startswith("recorded"):
        return passed(start, log, on_the_loop(Names(b"k")), lambda: None)
    recorder = Recorder(folder, clear=name.endswith("clear"), queue_events_max=2 * len(log))
    recorder.start("BENCH")
    recorder.observe(TINY, Tick(0.0), decide(TINY, Tick(0.0)))  # its first line holds a state: a small one
    cost = passed(start, log, recorder.observe, recorder.close)
    if recorder.lost:
        raise RuntimeError(f"{recorder.lost} events were lost: {folder} is too slow for this")
    return cost


def _snapshot(state: State) -> None:
    began = time.process_time()
    size = len(to_bytes(encode(Names(b"k").hide(state))))
    seconds = time.process_time() - began
    print(f"  a snapshot of this state: {seconds:.2f} s in the thread, {size / 1e6:.1f} MB")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, nargs="+", default=[1_000])
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    for runs in options.runs:
        measure(runs, options.events, options.rounds)


if __name__ == "__main__":
    main()
