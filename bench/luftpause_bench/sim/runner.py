"""Does the world of a seed keep its promises, and if not, how is that told?"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from luftpause.scheduler.core.decide import decide
from luftpause.scheduler.core.events import Tick
from luftpause.scheduler.core.model import State
from luftpause.scheduler.host import CoreFailedError
from luftpause_bench.sim import weather
from luftpause_bench.sim.invariants import NEVER, Watcher
from luftpause_bench.sim.recount import recount
from luftpause_bench.sim.town import Town
from luftpause_bench.sim.world import World, in_words

STORM_SECONDS: Final = 25.0  # people come and things go wrong
DRAIN_SECONDS_MAX: Final = 400.0  # then every turn has this long to end
TRACE_LINES: Final = 40


class Report(Struct, frozen=True):
    """What happened in a world that kept its promises."""

    seed: int
    events: int
    placed: int
    seconds: float  # virtual
    counts: Counter[str]
    trace: str = ""  # what happened last; only of a thorough life


class SeedFailedError(AssertionError):
    """Says which seed, what was broken, what happened just before, and how to see it again."""

    def __init__(self, seed: int, broken: str, trace: str) -> None:
        self.seed = seed
        self.what = f"seed {seed}: {broken}"
        self.trace = trace
        self.again = f"luftpause bench sim --seed {seed}"
        super().__init__(f"{self.what}\n\n{trace}\n\n{self.what}\nagain: {self.again}")


def run(seed: int, *, thorough: bool = False, again: bool = True) -> Report:
    """Live through the world of this seed. Raises SeedFailedError.

    `thorough`: the full recount after every event. A seed that fails without is lived through again, with a recount after each event since
    the last good one, to find the first that broke something (not `again`: it is not).
    """
    if not __debug__:
        raise RuntimeError("python -O leaves out the assertions, so nothing would be checked: run it without -O")
    return _lived(seed, _stormy_world, thorough=thorough, again=again)


def _lived(seed: int, scene: "Scene", *, thorough: bool = False, again: bool = True) -> Report:
    life = _Life(seed, scene, recount_from=0 if thorough else NEVER)
    try:
        report = life.live()
        return replace(report, trace=life.trace) if thorough else report
    except SeedFailedError:
        if again and not thorough:
            _Life(seed, scene, recount_from=life.recounted).live()
        raise


def restarted_after_each_event(seed: int, seconds: float) -> int:
    """
    Live through a small world without any other fault, once for each of its events: right after that one, before its orders leave, the
    scheduler dies; `seconds` later there is another. Returns how many events there were. Raises SeedFailedError.
    """
    events = _lived(seed, _small_world).events
    for number in range(1, events + 1):
        _lived(seed, partial(_small_world, dies_after=number, seconds=seconds))
    return events


Scene = Callable[[World, Watcher], Town]


class _Life:
    """One life of the world of a seed; a seed's lives are the same, whatever is checked."""

    def __init__(self, seed: int, scene: Scene, *, recount_from: int) -> None:
        self._world = World(seed)
        self._scene = scene
        self._watcher = Watcher(self._world, recount_from=recount_from)

    @property
    def recounted(self) -> int:
        """Events until the last recount."""
        return self._watcher.recounted

    @property
    def trace(self) -> str:
        """What happened last."""
        return self._world.trace(TRACE_LINES)

    def live(self) -> Report:
        world = self._world
        try:
            with _quiet():
                # A session keeps its end in a future, and those want a loop; nothing is ever awaited.
                return asyncio.run(_lives(world, self._watcher, self._scene))
        except Exception as error:  # noqa: BLE001 (whatever it is, the seed must be told)
            cause = error.__cause__ if isinstance(error, CoreFailedError) and error.__cause__ is not None else error
            raise SeedFailedError(world.seed, f"{type(cause).__name__}: {in_words(cause)}", world.trace(TRACE_LINES)) from cause


async def _lives(world: World, watcher: Watcher, scene: Scene) -> Report:
    town = scene(world, watcher)
    weather.heal(town)
    world.note("weather", "all is well from now on")
    world.run(town.settled, at_most_seconds=DRAIN_SECONDS_MAX)
    _ends_well(world, town)
    return Report(world.seed, watcher.events, watcher.placed, world.now, world.counts)


def _stormy_world(world: World, watcher: Watcher) -> Town:
    town = Town(world, weather.settings(world), weather.replicas(world), weather.spares(world), watcher)
    weather.people(world, town, STORM_SECONDS)
    weather.faults(world, town, STORM_SECONDS)
    world.run(lambda: False, at_most_seconds=STORM_SECONDS)
    return town


def _small_world(world: World, watcher: Watcher, *, dies_after: int | None = None, seconds: float = 0.0) -> Town:
    town = Town(world, weather.SMALL_SETTINGS, weather.small_replicas(), {}, watcher)
    weather.few_people(world, town)
    if dies_after is not None:
        town.dies_once(dies_after, seconds)
    world.run(lambda: False, at_most_seconds=1.0)  # by then all have come
    world.run(town.settled, at_most_seconds=STORM_SECONDS)
    return town


def _ends_well(world: World, town: Town) -> None:
    """Everyone has an answer, nothing is left, the log leads here again, and time makes an end of all memories."""
    world.promise(all(agent.over for agent in town.agents), lambda: f"not answered: {town.waiting()}; {town.leftovers()}")
    world.promise(town.leftovers() == "", town.leftovers)
    world.promise(town.revived() == "", town.revived)
    assert town.scheduler is not None
    town.watcher.replay(town.scheduler.host.state)
    state = _after_a_week(town.scheduler.host.state)
    recount(state)
    left = {
        name: size
        for name in ("turns", "runs", "callers", "queues", "ids", "responses", "twins", "wheel")
        if (size := len(getattr(state, name)))
    }
    world.promise(not left, lambda: f"left after a week: {left}")
    kept = {replica.name: replica.reserved for replica in state.replicas.values() if replica.reserved}
    world.promise(not kept, lambda: f"places kept for nobody: {kept}")


def _after_a_week(state: State) -> State:
    for _ in range(50):
        step = decide(state, Tick(state.now + 20_000.0))
        state = step.state
        while step.more:
            step = decide(state, Tick(state.now))
            state = step.state
    return state


@contextmanager
def _quiet() -> Generator[None]:
    """What the parts log in a storm is no news."""
    logger = logging.getLogger("luftpause")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
