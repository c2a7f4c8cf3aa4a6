"""How are many seeds lived through at once?

Each worker process takes a few seeds at a time; a world is alone in its process while it lives, so the number of workers changes nothing.
"""

import multiprocessing
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from typing import Any, Final

from msgspec import Struct

from luftpause_bench.sim.runner import SeedFailedError, run

SEEDS_AT_ONCE: Final = 8  # per task of a worker: a task costs about a millisecond
FAILURES_MAX: Final = 20  # then the rest is not lived through: the first of them say enough

Lived = Callable[[int, int], None]  # seeds so far, failures so far


class Failure(Struct, frozen=True):
    """`again`: the command that shows it."""

    seed: int
    what: str
    again: str


class Lives(Struct, frozen=True):
    """What became of a few seeds."""

    seeds: int
    events: int
    placed: int
    counts: dict[str, int]
    failures: tuple[Failure, ...]


class Summary(Struct, frozen=True):
    """What became of all of them. `wanted` is more than `lived` if it was stopped."""

    first: int
    wanted: int
    lived: int
    jobs: int
    seconds: float
    events: int
    placed: int
    counts: Counter[str]  # how often each kind of thing happened
    failures: tuple[Failure, ...]

    @property
    def seeds_per_second(self) -> float:
        return self.lived / self.seconds if self.seconds else 0.0

    def as_json(self) -> dict[str, Any]:
        """As `luftpause bench sim --json` prints it."""
        return {
            "first_seed": self.first,
            "seeds": self.lived,
            "seeds_wanted": self.wanted,
            "failures": [{"seed": each.seed, "broken": each.what, "again": each.again} for each in self.failures],
            "seconds": round(self.seconds, 3),
            "seeds_per_second": round(self.seeds_per_second, 2),
            "jobs": self.jobs,
            "events": self.events,
            "placed": self.placed,
            "seen": dict(sorted(self.counts.items())),
        }


def live_through(seeds: range, *, jobs: int, lived: Lived = lambda _done, _failed: None) -> Summary:
    """Live through all of them, in `jobs` processes (in this one if that is 1)."""
    began = time.monotonic()
    tally = _Tally(lived)
    parts = (seeds[at : at + SEEDS_AT_ONCE] for at in range(0, len(seeds), SEEDS_AT_ONCE))
    if jobs == 1:
        for part in parts:
            if not tally.take(_lives(part)):
                break
    else:
        _in_processes(parts, jobs, tally)
    seconds = time.monotonic() - began
    failures = tuple(sorted(tally.failures, key=lambda failure: failure.seed))
    return Summary(seeds.start, len(seeds), tally.seeds, jobs, seconds, tally.events, tally.placed, tally.counts, failures)


class _Tally:
    """The sum of what has come back."""

    def __init__(self, lived: Lived) -> None:
        self.seeds = self.events = self.placed = 0
        self.counts: Counter[str] = Counter()
        self.failures: list[Failure] = []
        self._lived = lived

    def take(self, lives: Lives) -> bool:
        """Whether to go on."""
        self.seeds += lives.seeds
        self.events += lives.events
        self.placed += lives.placed
        self.counts.update(lives.counts)
        self.failures += lives.failures
        self._lived(self.seeds, len(self.failures))
        return len(self.failures) < FAILURES_MAX


def _in_processes(parts: Iterator[range], jobs: int, tally: _Tally) -> None:
    """A few tasks are kept ahead of the workers, never all: ten million seeds would be a long queue."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_deaf) as pool:
        waiting: set[Future[Lives]] = {pool.submit(_lives, part) for part in islice(parts, 2 * jobs)}
        try:
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    if not tally.take(future.result()):
                        parts = iter(())
                waiting |= {pool.submit(_lives, part) for part in islice(parts, len(done))}
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _deaf() -> None:
    """Ctrl-C is for the process that counts; it stops the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _lives(seeds: Sequence[int]) -> Lives:
    events = placed = 0
    counts: Counter[str] = Counter()
    failures: list[Failure] = []
    for seed in seeds:
        try:
            report = run(seed)
        except SeedFailedError as error:
            failures.append(Failure(seed, error.what, error.again))
            continue
        events += report.events
        placed += report.placed
        counts.update(report.counts)
    return Lives(len(seeds), events, placed, dict(counts), tuple(failures))
