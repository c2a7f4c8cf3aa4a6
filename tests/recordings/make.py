"""How are the recorded logs made that `test_recordings.py` replays?

    python -m tests.recordings.make

Makes all of them anew: a real session (two dataplanes, two engines that are too small, agents with and without run ids, the scheduler
killed in the middle), a closed loop of agents on two saturated engines, and random histories in which everything happens. Needed when
events have changed so that the old logs can't be read; where only decisions have changed `pytest tests/recordings --rewrite` does it.
"""

import asyncio
import tempfile
from collections.abc import Iterable
from pathlib import Path
from random import Random

from luftpause import __version__
from luftpause.cli.load_agents import RUN_HEADER, Crowd, Load, run_load
from luftpause.cli.load_run import Shape
from luftpause.scheduler.core.decide import decide
from luftpause.scheduler.core.events import Event, TurnClass
from luftpause.scheduler.core.model import State
from luftpause.scheduler.core.settings import Settings
from luftpause.scheduler.record_log import VERSION, Header, end_line, event_line, header_line
from luftpause_bench.sim.closed_loop import Loop
from tests.properties.scheduler_world import OPS, World
from tests.support.cluster import cluster

HERE = Path(__file__).parent
ENGINE = ("--speed", "1.5", "--max-running", "2")


async def session(folder: Path) -> list[bytes]:
    """What the scheduler recorded in its two lives, names hashed."""
    settings = {"record": str(folder / "logs"), "start_grace_seconds": 1}
    async with cluster(folder, engines=(ENGINE, ENGINE), scheduler=settings, replicas=({"load": "sglang"},) * 2) as whole:
        loads = [
            Load(
                base_url=whole.url(plane), model="fake-1b", crowds=(Crowd(name, agents),), seconds=16, caller=f"caller-{plane}",
                shape=Shape((300, 300), tool_seconds=0.2, tool_calls_max=2, max_tokens=32), run_header=RUN_HEADER if run_ids else "",
            )
            for plane, name, agents, run_ids in ((0, "interactive", 4, True), (1, "interactive", 4, False), (1, "batch", 6, True))
        ]  # fmt: skip
        loading = asyncio.gather(*(run_load(load, lambda _: None) for load in loads))
        await asyncio.sleep(6)  # the load is in full swing
        whole.scheduler.kill()
        await whole.scheduler.process.wait()
        await whole.start_scheduler()
        await loading
        await whole.quiet()
    return [path.read_bytes() for path in sorted((folder / "logs").iterdir())]


class RecordedLoop(Loop):
    """A closed loop that remembers its events."""

    def __post_init__(self) -> None:
        self.log: list[Event] = []
        super().__post_init__()
        self.start = self.state

    def tell(self, event: Event) -> None:
        self.log.append(event)
        super().tell(event)


def closed_loop() -> bytes:
    agents = ((TurnClass.INTERACTIVE, "u"), (TurnClass.BATCH, "v"), (TurnClass.BATCH, "w")) * 6
    loop = RecordedLoop(seed=1, agents=agents, seconds=40.0)
    loop.play()
    return log(loop.start, loop.log, seed="closed_loop-1")


def random_history(seed: int, settings: Settings, steps: int = 250) -> bytes:
    chance = Random(seed)
    world = World(settings, checks=False)
    start = world.state
    for _ in range(steps):
        world.apply(chance.choice(OPS), chance.randrange(61), chance.randrange(61), chance.choice((0.0, 0.005, 0.3, 2.0)))
    return log(start, world.log, seed=f"random-{seed}")


def log(start: State, events: Iterable[Event], *, seed: str) -> bytes:
    """As a recorder would write it with `record_clear`."""
    specs = tuple([start.replicas[name].spec for name in start.names])
    header = Header(VERSION, __version__, start.settings.policy, seed, "", start.now, start.settings, specs, hashed=False)
    lines = [header_line(header, None)]
    state = start
    for event in events:
        step = decide(state, event)
        lines.append(event_line(event, step.decisions))
        state = step.state
    return b"".join([*lines, end_line("stop", len(lines) - 1)])


HISTORIES = {
    "random_default": (1, Settings(start_grace_seconds=1.0, dataplanes_expected=("d", "e"))),
    "random_limits": (
        2,
        Settings(start_grace_seconds=0.0, hold_seconds_max=5.0, held_turns_max=6, held_turns_per_caller_max=4, no_replica="refuse"),
    ),
    "random_loose": (3, Settings(start_grace_seconds=0.0, stickiness="off", cap_release="at_once", burst_turns_max=0, batch_min_share=0.3)),
}


def main() -> None:
    logs = {"closed_loop": closed_loop()} | {name: random_history(*history) for name, history in HISTORIES.items()}
    with tempfile.TemporaryDirectory() as folder:
        before, after = asyncio.run(session(Path(folder)))
    logs |= {"session_killed": before, "session_after": after}
    for name, text in logs.items():
        (HERE / f"{name}.jsonl").write_bytes(text)
        print(f"{name}: {len(text):,} bytes")


if __name__ == "__main__":
    main()
