"""What does a call that asks the rate governor first cost its core?

A call is a wish and, later, the report of its answer: two events. Each target has the limits of GitHub's profile; callers come by turns.
Where calls wait, as many as may be at once are in flight, so that each report lets the next one go. As `govern` is pure, the same log is
replayed in several passes and each call counts with its least time: what other programs on the machine cost is left out. All of it is CPU
time of this thread.

    luftpause bench quota_cost [--calls 2000] [--passes 5] [--json]
"""

import argparse
import json
import time
from collections.abc import Sequence
from typing import Final

from msgspec import Struct, to_builtins

from luftpause.kit.garbage import Garbage
from luftpause.scheduler.quota.core import govern, initial
from luftpause.scheduler.quota.decisions import Grant
from luftpause.scheduler.quota.events import AnswerReported, Event, QuotaWanted, TargetConfigured
from luftpause.scheduler.quota.model import Settings, State
from luftpause.scheduler.quota.profiles import call_cost, target_spec

CALLERS: Final = 200
AT_ONCE: Final = 100
SPACING_SECONDS: Final = 0.01  # between events
LIMITS: Final = {"core": 1e9, "points": 1e9, "at_once": AT_ONCE}  # what costs time is the waiting, not the limit
COST: Final = call_cost("github")


class Scene(Struct, frozen=True):
    """`shares`: so many callers have a reservation. `bound_microseconds`: what the specification promises, 0: nothing."""

    name: str
    targets: int = 1
    waiters: int = 0
    shares: int = 0
    bound_microseconds: float = 0.0


SCENES: Final = (
    Scene("alone", bound_microseconds=100.0),
    Scene("1,000 targets", targets=1_000, bound_microseconds=100.0),
    Scene("1,000 wait", waiters=1_000, bound_microseconds=300.0),
    Scene("9,000 wait", waiters=9_000),
    Scene("1,000 wait, 20 shares", waiters=1_000, shares=20),
)


class Cost(Struct, frozen=True):
    """Microseconds of a wish and its report together."""

    scene: Scene
    calls: int
    mean: float
    p50: float
    p99: float


class Play:
    """The calls of a scene, one after the other."""

    def __init__(self, scene: Scene) -> None:
        self.state, self.now, self.serial = initial(Settings(), 0.0), 0.0, 0
        self.granted: list[Grant] = []
        self.targets = [f"target-{at}" for at in range(scene.targets)]
        shares = {f"caller-{at}": 0.9 / scene.shares for at in range(scene.shares)}
        for name in self.targets:
            self.tell(TargetConfigured(0.0, target_spec(name, "github", limits=LIMITS, reservations=shares)))
        for _ in range(scene.waiters and AT_ONCE + scene.waiters):
            self.tell(self.wish())

    def wish(self) -> Event:
        self.serial += 1
        target, caller = self.targets[self.serial % len(self.targets)], f"caller-{self.serial % CALLERS}"
        return QuotaWanted(self.now, target, f"want-{self.serial}", caller, self.serial % 3, COST)

    def report(self) -> Event:
        grant = self.granted.pop(0)
        return AnswerReported(self.now, grant.target, grant.want, grant.fence, "ok")

    def tell(self, event: Event) -> Event:
        step = govern(self.state, event)
        self.state = step.state
        self.granted += [decision for decision in step.decisions if isinstance(decision, Grant)]
        self.now += SPACING_SECONDS
        return event


def measure(scene: Scene, calls: int, passes: int) -> Cost:
    play = Play(scene)
    start = play.state
    log = [event for _ in range(calls) for event in (play.tell(play.wish()), play.tell(play.report()))]
    garbage = Garbage()
    times = [replay(start, log) for _ in range(passes)]
    garbage.stop()
    least = [min(each) / 1_000 for each in zip(*times, strict=True)]
    order = sorted(wish + report for wish, report in zip(least[::2], least[1::2], strict=True))
    p50, p99 = (round(order[min(int(len(order) * part), len(order) - 1)], 1) for part in (0.5, 0.99))
    return Cost(scene, calls, round(sum(order) / len(order), 1), p50, p99)


def replay(state: State, log: Sequence[Event]) -> list[int]:
    """Nanoseconds of each event."""
    costs: list[int] = []
    for event in log:
        before = time.thread_time_ns()
        step = govern(state, event)
        costs.append(time.thread_time_ns() - before)
        state = step.state
    return costs


def broken(found: Sequence[Cost]) -> list[str]:
    """The bounds that are not held, by their median."""
    return [
        f"{cost.scene.name}: {cost.p50} us per call, promised are {cost.scene.bound_microseconds:g}"
        for cost in found
        if 0 < cost.scene.bound_microseconds < cost.p50
    ]


def shown(found: Sequence[Cost]) -> str:
    lines = [f"{'microseconds per call':<24} {'mean':>8} {'p50':>8} {'p99':>8} {'promised':>9}"]
    for cost in found:
        bound = f"{cost.scene.bound_microseconds:9g}" if cost.scene.bound_microseconds else f"{'-':>9}"
        lines.append(f"{cost.scene.name:<24} {cost.mean:8} {cost.p50:8} {cost.p99:8} {bound}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 1 where a bound is not held."""
    parser = argparse.ArgumentParser(
        prog="luftpause bench quota_cost", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=2_000)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--scenes", nargs="+", choices=[scene.name for scene in SCENES], default=[scene.name for scene in SCENES])
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(arguments)
    found = [measure(scene, options.calls, options.passes) for scene in SCENES if scene.name in options.scenes]
    late = broken(found)
    print(json.dumps({"costs_microseconds": to_builtins(found), "broken": late}, indent=2) if options.json else shown(found))
    for line in () if options.json else late:
        print(line)
    return 1 if late else 0
