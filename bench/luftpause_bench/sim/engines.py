"""How does an engine take, answer and lose requests, and what does it say of itself?

The engine is the model that the fake engine runs too; here it is on the virtual clock. Its process crashes, hangs, and lies.
"""

from collections.abc import Callable
from enum import Enum
from typing import Final

from luftpause.scheduler.core.events import Load, ProbeOutcome
from luftpause_bench.sim.world import World
from luftpause_fakes.engine_model import Engine, EngineParams, EngineRequest, Finished, Output, Refused, Token

Hear = Callable[[Output | None], None]  # None: the connection broke


class Metrics(Enum):
    """How far its metrics can be believed."""

    TRUE = "true"
    FROZEN = "frozen"  # the last figures for ever
    LYING = "lying"
    MISSING = "missing"


PROBE_SECONDS: Final = (0.002, 0.02)
SLOW_SECONDS: Final = (1.0, 1.9)  # below the probe's time-out
TIMEOUT_SECONDS: Final = 2.0
SLOTS: Final = 4  # an engine that runs so many at once and refuses nobody tells that, and no KV memory, as llama.cpp does


class EngineProcess:
    """One engine behind a port."""

    def __init__(self, world: World, name: str, params: EngineParams, models: tuple[str, ...]) -> None:
        self.world = world
        self.name = name
        self.models = models
        self.up = True
        self.hung_until = 0.0
        self.health = "ok"  # ok, slow, missed
        self.full = False  # it serves others: whatever comes is refused, though its metrics are quiet
        self.metrics = Metrics.TRUE
        self.faulty_at = float("-inf")  # when there last was what makes it unhealthy to the scheduler
        self.hearing: dict[str, Hear] = {}
        self._params = params
        self._engine = Engine(params)
        self._shown = Load(0, 0)
        self._waking_at = float("inf")

    @property
    def hung(self) -> bool:
        return self.hung_until > self.world.now

    # ---- requests

    def take(self, request: EngineRequest, hear: Hear) -> None:
        """A request arrives over an open connection."""
        if not self.up:
            self._tell(hear, None)
            return
        self.hearing[request.id] = hear
        if self.hung:
            self.world.when(self.hung_until, lambda: self._submit(request))
        else:
            self._submit(request)

    def drop(self, request: str) -> None:
        """Its client closed the connection."""
        if self.hearing.pop(request, None) is not None:
            engine = self._engine
            self.world.when(self.hung_until, lambda: self._cancel(engine, request))

    def _cancel(self, engine: Engine, request: str) -> None:
        if engine is self._engine:  # it has not crashed meanwhile
            self._advance()
            engine.cancel(self.world.now, request)
            self._wake_later()

    def _submit(self, request: EngineRequest) -> None:
        if not self.up or request.id not in self.hearing:
            return
        if self.full:
            self._hear(Refused(self.world.now, request.id, "queue_full"))
            return
        self._advance()
        for refused in self._engine.submit(self.world.now, request):
            self._hear(refused)
        self._wake_later()

    # ---- time

    def _advance(self) -> None:
        for output in self._engine.advance(self.world.now):
            self._hear(output)

    def _hear(self, output: Output) -> None:
        hear = self.hearing.get(output.id)
        if hear is not None and isinstance(output, Token | Finished | Refused):
            if not isinstance(output, Token):
                del self.hearing[output.id]
            self._tell(hear, output)

    def _tell(self, hear: Hear, output: Output | None) -> None:
        self.world.at(0.0005, lambda: hear(output))

    def _wake_later(self) -> None:
        due = self._engine.next_event()
        if due is None or due >= self._waking_at:
            return
        self._waking_at = due
        engine = self._engine
        self.world.when(due, lambda: self._wake(engine))

    def _wake(self, engine: Engine) -> None:
        if engine is not self._engine:  # it has crashed meanwhile
            return
        self._waking_at = float("inf")
        if self.hung:
            self._waking_at = self.hung_until
            self.world.when(self.hung_until, lambda: self._wake(engine))
            return
        self._advance()
        self._wake_later()

    # ---- faults

    def crash(self) -> None:
        self.faulty_at = self.world.now
        self.up = False
        lost, self.hearing = self.hearing, {}
        self._engine = Engine(self._params)
        self._waking_at = float("inf")
        for hear in lost.values():
            self._tell(hear, None)

    def start(self) -> None:
        self.up = True
        self.hung_until = 0.0

    def hang(self, seconds: float) -> None:
        self.faulty_at = self.world.now
        self.hung_until = self.world.now + seconds

    def heal(self) -> None:
        self.start()
        self.health, self.metrics, self.full = "ok", Metrics.TRUE, False

    # ---- what it says of itself

    def probe(self) -> tuple[float, ProbeOutcome]:
        """How long a probe that starts now takes, and what comes of it."""
        chance = self.world.between
        if not self.up:
            self.faulty_at = self.world.now
            return chance(*PROBE_SECONDS), ProbeOutcome.REFUSED
        if self.hung or self.health == "missed":
            self.faulty_at = self.world.now
            return TIMEOUT_SECONDS if self.hung else chance(*PROBE_SECONDS), ProbeOutcome.MISSED
        return chance(*(SLOW_SECONDS if self.health == "slow" else PROBE_SECONDS)), ProbeOutcome.OK

    def load(self) -> Load | None:
        match self.metrics:
            case Metrics.TRUE:
                gauges = self._engine.gauges()
                if self._params.running_max == SLOTS and self._params.waiting_max is None:
                    self._shown = Load(gauges.running, gauges.waiting, slots=SLOTS)
                else:
                    self._shown = Load(gauges.running, gauges.waiting, gauges.kv_tokens, gauges.kv_used)
                return self._shown
            case Metrics.FROZEN:
                return self._shown
            case Metrics.LYING:
                return Load(self.world.chance.randrange(20), self.world.chance.randrange(3))
            case Metrics.MISSING:
                return None
