"""How does the scheduler's real core drive a flood?"""

from msgspec import Struct

from luftpause.scheduler.core.decide import decide, initial
from luftpause.scheduler.core.decisions import Place
from luftpause.scheduler.core.events import (
    Continue,
    Event,
    FirstToken,
    Load,
    ProbeOutcome,
    ReplicaProbed,
    ReplicaSpec,
    Resync,
    Tick,
    TurnFinished,
    TurnRequested,
    Usage,
)  # fmt: skip
from luftpause.scheduler.core.settings import Settings
from luftpause_bench.flood.routers import Direct
from luftpause_bench.flood.world import Turn, World
from luftpause_fakes.engine_model import Finished


class Gauges(Struct, frozen=True):
    """What engines tell, and how late. `kv_factor` 1.3: they report 30 % more KV than they have; 0: they report none."""

    late_seconds: float = 0.0
    kv_factor: float = 1.0
    cached: bool = True  # usage says how many tokens were cached


class Scheduled:
    """The core between agents and engines, with probes, ticks, and reports that arrive at once.

    `router`: what it sees is one replica, a cache-aware router before all engines, with the sum of their loads.
    """

    def __init__(self, settings: Settings, gauges: Gauges, *, priority: bool = False, router: bool = False) -> None:
        self.settings = settings
        self.gauges = gauges
        self.priority = priority
        self.router = Direct() if router else None

    def start(self, world: World) -> None:
        self._world = world
        self._asked: dict[str, Turn] = {}
        flavour = world.workload.engine.priority if self.priority else "off"
        self.replicas = {name: (name,) for name in world.names} if self.router is None else {"router": world.names}
        if self.router is not None:
            self.router.start(world)
        specs = tuple(
            ReplicaSpec(name, f"http://{name}", ("m",), priority=flavour, router=self.router is not None) for name in self.replicas
        )
        self.state = initial(self.settings, specs, 0.0)
        self._tell(Resync(0.0, "d", "s", "b"))
        for name in self.replicas:
            self._probe(name)
        world.at(1.0, self._tick)

    @property
    def held(self) -> int:
        return self.state.held

    # ---- from the world

    def ask(self, turn: Turn) -> None:
        run, now = turn.run, self._world.now
        self._asked[turn.id] = turn
        size = round(turn.prompt_tokens * run.bytes_per_token)
        self._tell(
            TurnRequested(
                now, "d", turn.id, 1, run.id, "m", run.agents.turn_class, run.caller, run.id, arrived=now, body_bytes=size,
                parent=run.parent.id if run.parent is not None else "",
            )
        )  # fmt: skip

    def first(self, turn: Turn) -> None:
        self._tell(FirstToken(self._world.now, "d", turn.id))

    def finished(self, turn: Turn, output: Finished) -> None:
        if self.router is not None:
            self.router.finished(turn, output)
        cached = output.cached_tokens if self.gauges.cached else None
        usage = Usage(output.prompt_tokens, output.answer_tokens, cached)
        tools = (turn.tool,) if turn.tool else ()
        self._tell(TurnFinished(self._world.now, "d", turn.id, 1, usage=usage, paused=bool(turn.tool), tools=tools))

    # ---- from the clock

    def _probe(self, name: str) -> None:
        read = [self._world.engines[engine].gauges() for engine in self.replicas[name]]
        factor = self.gauges.kv_factor
        load = Load(
            sum(each.running for each in read),
            sum(each.waiting for each in read),
            round(sum(each.kv_tokens for each in read) * factor) if factor else None,
            sum(each.kv_used for each in read) if factor else None,
        )
        event = lambda: self._tell(ReplicaProbed(self._world.now, name, ProbeOutcome.OK, load))  # noqa: E731
        self._world.at(self._world.now + self.gauges.late_seconds, event)
        self._world.at(self._world.now + self.settings.probe_seconds, self._probe, name)

    def _tick(self) -> None:
        self._tell(Tick(self._world.now))
        self._world.at(self._world.now + 1.0, self._tick)

    # ---- to the core

    def _tell(self, event: Event) -> None:
        step = decide(self.state, event)
        self.state = step.state
        for decision in step.decisions:
            if isinstance(decision, Place):
                priority = decision.priority if isinstance(decision.priority, int) else 0
                turn = self._asked.pop(decision.turn)
                if self.router is not None:
                    self.router.ask(turn)
                else:
                    self._world.send(turn, decision.replica, priority)
        if step.more:
            self._tell(Continue(self._world.now))
