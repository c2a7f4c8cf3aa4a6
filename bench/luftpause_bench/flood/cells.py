"""How is one flood played, and how are many?"""

import multiprocessing
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing.process import BaseProcess
from statistics import fmean, stdev

from msgspec import Struct

from luftpause_bench.flood.books import OfCrowd, Outcome
from luftpause_bench.flood.variants import BY_NAME
from luftpause_bench.flood.workload import Workload
from luftpause_bench.flood.world import World

NICE = 10


class Scene(Struct, frozen=True):
    """A workload under a name, and how often engines are probed."""

    name: str
    workload: Workload
    probe_seconds: float = 2.0


class Cell(Struct, frozen=True):
    scene: Scene
    variant: str
    seed: int


class Played(Struct, frozen=True):
    scene: str
    variant: str
    seed: int
    outcome: Outcome


def play(cell: Cell) -> Played:
    variant = BY_NAME[cell.variant]
    world = World(cell.scene.workload, variant.make(cell.scene.probe_seconds), cell.seed, each_priority=variant.priority)
    return Played(cell.scene.name, cell.variant, cell.seed, world.play().outcome())


def play_all(cells: Sequence[Cell], jobs: int) -> Iterator[tuple[Cell, Played]]:
    """In the order in which they are done; over `jobs` processes, which give way to other work."""
    if jobs == 1:
        yield from ((cell, play(cell)) for cell in cells)
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_give_way) as pool:
        asked = {pool.submit(play, cell): cell for cell in cells}
        try:
            for done in as_completed(asked):
                yield asked[done], done.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _give_way() -> None:
    """To other work; and end with the parent, even if that was killed."""
    os.nice(max(0, NICE - os.nice(0)))
    threading.Thread(target=_end_with, args=(multiprocessing.parent_process(),), daemon=True).start()


def _end_with(parent: BaseProcess | None) -> None:
    if parent is not None:
        parent.join()
        os._exit(1)


class Figure(Struct, frozen=True):
    """Mean and standard deviation over seeds."""

    mean: float
    spread: float = 0.0


def figure(values: Iterable[float]) -> Figure:
    listed = list(values)
    return Figure(fmean(listed), stdev(listed) if len(listed) > 1 else 0.0)


class Row(Struct, frozen=True):
    """A variant in a scene, over all seeds."""

    scene: str
    variant: str
    seeds: tuple[int, ...]
    crowds: dict[str, dict[str, Figure]]  # crowd -> figure's name, as in OfCrowd
    hit: Figure
    waiting: Figure
    running: Figure
    held: Figure

    def of(self, crowd: str, name: str = "runs_per_minute") -> float:
        return self.crowds[crowd][name].mean


def rows(played: Iterable[Played]) -> list[Row]:
    """One per scene and variant, in the order in which they come."""
    grouped: dict[tuple[str, str], list[Played]] = {}
    for each in played:
        grouped.setdefault((each.scene, each.variant), []).append(each)
    return [_row(scene, variant, group) for (scene, variant), group in grouped.items()]


def _row(scene: str, variant: str, group: list[Played]) -> Row:
    outcomes = [each.outcome for each in group]
    crowds = {
        crowd: {name: figure(getattr(each.crowds[crowd], name) for each in outcomes) for name in OfCrowd.__struct_fields__}
        for crowd in outcomes[0].crowds
    }
    return Row(
        scene, variant, tuple(each.seed for each in group), crowds, figure(each.hit for each in outcomes),
        figure(each.waiting for each in outcomes), figure(each.running for each in outcomes), figure(each.held for each in outcomes),
    )  # fmt: skip
