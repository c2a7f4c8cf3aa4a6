"""What happens when, in a world that comes from one seed?

All time is virtual: a heap of happenings, taken one by one. Nothing sleeps, no thread runs, and chance has one source, so a seed always
gives the same world.
"""

import heapq
import traceback
from collections import Counter, deque
from collections.abc import Callable
from random import Random
from typing import Final

Happening = Callable[[], None]

TRACE_LINES_MAX: Final = 400
HAPPENINGS_MAX: Final = 1_000_000
START: Final = 1_000.0


class BrokenPromiseError(AssertionError):
    """Something happened that the specification rules out."""


def in_words(error: BaseException) -> str:
    """What it says; a bare assertion says nothing, and is told by its line."""
    innermost = traceback.extract_tb(error.__traceback__)[-1]
    return str(error) or f"{innermost.name}: {innermost.line}"


class World:
    """The clock, the chance and the memory of what happened last."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = Random(seed)
        self.now = START
        self.jumped_at = 0.0  # when clocks last jumped
        self.resumed_at = float("-inf")  # when a process that stood still last went on
        self.counts: Counter[str] = Counter()
        self.broken: BrokenPromiseError | None = None
        self._trace: deque[tuple[float, str, object]] = deque(maxlen=TRACE_LINES_MAX)
        self._heap: list[tuple[float, int, Happening]] = []
        self._numbers: Counter[str] = Counter()
        self._happened = 0

    def clock(self) -> float:
        return self.now

    def at(self, seconds: float, happening: Happening) -> None:
        """Let it happen in so many seconds, behind what was put there before for the same moment."""
        self.when(self.now + max(seconds, 0.0), happening)

    def when(self, time: float, happening: Happening) -> None:
        """As `at`, for a moment on this clock: seconds added and taken away again are not the same to the last bit."""
        heapq.heappush(self._heap, (max(time, self.now), self._number(), happening))

    def run(self, until: Callable[[], bool], *, at_most_seconds: float) -> bool:
        """Let things happen until `until()` or for so long; whether it came to that."""
        end = self.now + at_most_seconds
        while not until():
            if not self._heap or self._heap[0][0] > end:
                self.now = max(self.now, end)  # a jump may have gone beyond it
                return until()
            due, _, happening = heapq.heappop(self._heap)
            self.now = max(self.now, due)  # after a jump everything comes late
            happening()
            self._happened += 1
            self.promise(self._happened < HAPPENINGS_MAX, lambda: "the world turns round on one spot")
            if self.broken is not None:  # said where an exception would have been swallowed
                raise self.broken
        return True

    def jump(self, seconds: float) -> None:
        """Every clock goes forward at once, as after a suspend; what was due in between happens now, late, in order."""
        self.note("world", f"clocks jump by {seconds} s")
        self.now += seconds
        self.jumped_at = self.now

    def name(self, prefix: str) -> str:
        """A fresh name."""
        return f"{prefix}{self._number(prefix)}"

    def likely(self, probability: float) -> bool:
        return self.chance.random() < probability

    def between(self, low: float, high: float) -> float:
        return self.chance.uniform(low, high)

    def note(self, who: str, what: object) -> None:
        """Remember it for the trace; it is made text only if the trace is shown."""
        self._trace.append((self.now, who, what))

    def promise(self, kept: bool, otherwise: Callable[[], str]) -> None:
        """Raises BrokenPromiseError unless kept. `run` raises it again if someone catches it."""
        if not kept:
            self.broken = BrokenPromiseError(otherwise())
            raise self.broken

    def trace(self, lines: int) -> str:
        """What happened last."""
        last = list(self._trace)[-lines:]
        return "\n".join(f"{time - START:10.4f} {who:<12} {str(what)[:300]}" for time, who, what in last)

    def _number(self, of: str = "") -> int:
        self._numbers[of] += 1
        return self._numbers[of]


class Process:
    """What happens to it happens now, later if it is paused (in the same order), or never if it is dead."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.dead = False
        self._paused_until = 0.0
        self._backlog: deque[Happening] = deque()

    @property
    def paused(self) -> bool:
        return self._paused_until > self.world.now

    @property
    def lags(self) -> bool:
        """Has it something to do that has happened already?"""
        return self.paused or bool(self._backlog)

    def do(self, happening: Happening) -> None:
        if self.dead:
            return
        if self.paused or self._backlog:
            self._backlog.append(happening)
        else:
            happening()

    def at(self, seconds: float, happening: Happening) -> None:
        self.world.at(seconds, lambda: self.do(happening))

    def every(self, seconds: float, happening: Happening) -> None:
        """As a task that sleeps in between: a pause makes it late, not more frequent."""

        def again() -> None:
            happening()
            self.at(seconds, again)

        self.at(seconds, again)

    def pause(self, seconds: float) -> None:
        """As SIGSTOP and SIGCONT: its clock goes on."""
        self.world.note(self.name, f"paused for {seconds:.2f} s")
        self._paused_until = max(self._paused_until, self.world.now + seconds)
        self.world.at(seconds, self._resume)

    def _resume(self) -> None:
        if self.paused:
            return
        self.world.resumed_at = self.world.now
        while self._backlog and not self.dead:
            self._backlog[0]()
            self._backlog.popleft()
