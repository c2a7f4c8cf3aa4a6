"""How does a scheduler process live on the virtual clock?

Core, host, session, outbox and translation are the real ones. Modelled is what awaits: reading and writing streams, timers, probes.
"""

# pyright: reportPrivateUsage=false
# The session server's synchronous half is driven here; what awaits it is modelled.

from grpc import StatusCode

from luftpause.kit.protocol import ALIVE_SECONDS, BATCH_BYTES, SILENCE_SECONDS
from luftpause.kit.wire.v1 import scheduler_pb2 as pb
from luftpause.scheduler.core.decide import decide, initial
from luftpause.scheduler.core.decisions import Step
from luftpause.scheduler.core.events import ConfigChanged, Event, ProbeOutcome, ReplicaProbed, ReplicaSpec
from luftpause.scheduler.core.model import State
from luftpause.scheduler.core.settings import Settings
from luftpause.scheduler.host import Host
from luftpause.scheduler.replicas import announced
from luftpause.scheduler.server import WATCH_TICKS, SessionServer
from luftpause.scheduler.session import Session
from luftpause_bench.sim.engines import EngineProcess
from luftpause_bench.sim.invariants import Watcher
from luftpause_bench.sim.links import Way
from luftpause_bench.sim.world import Process, World


class Scheduler(Process):
    """One life of the scheduler. `dies_after`: it is killed right after so many events, before their orders leave."""

    def __init__(
        self,
        world: World,
        settings: Settings,
        specs: tuple[ReplicaSpec, ...],
        engines: dict[str, EngineProcess],
        watcher: Watcher,
    ) -> None:
        super().__init__(world, world.name("scheduler"))
        self.dies_after: int | None = None
        self.on_death = lambda: None
        self._engines = engines
        self._watcher = watcher
        self._ways: dict[Session, Way[pb.OrderBatch]] = {}
        self._welcomed: set[Session] = set()
        self._sent_at: dict[Session, float] = {}
        self._wakes = 0
        state = initial(settings, specs, world.now)
        watcher.starts(state)
        self.host = Host(self._decide, state, replicas=announced, probe=self._probe_now, clock=world.clock)
        self.server = SessionServer(self.host, orders_max=50_000, hello_bytes_max=2**26, clock=world.clock)
        self.server.epoch = self.name
        self._probers: dict[str, Prober] = {}
        self._watch_replicas(specs)
        self.every(SILENCE_SECONDS / WATCH_TICKS, self._look)
        self.every(ALIVE_SECONDS, self._say_alive)
        self._advance()

    # ---- deciding

    def _decide(self, state: State, event: Event) -> Step:
        step = decide(state, event)
        self.world.note(self.name, event)
        for decision in step.decisions:
            self.world.note(self.name, decision)
        self._watcher.decided(state, event, step)
        return step

    def advance(self) -> None:
        """Events were posted."""
        self._advance()

    def _advance(self) -> None:
        if self.dead:
            return
        pause = self.host.advance()
        if self.dies_after is not None and sum(self.host.events.values()) >= self.dies_after:
            self.on_death()
            return
        self._flush()
        self._wakes += 1
        mine = self._wakes
        self.at(pause, lambda: self._advance() if mine == self._wakes else None)

    def configure(self, specs: tuple[ReplicaSpec, ...]) -> None:
        self.host.post(ConfigChanged(self.world.now, specs))
        self._watch_replicas(specs)
        self._advance()

    # ---- sessions

    def accept(self, peer: str, down: Way[pb.OrderBatch]) -> Session:
        session = Session(peer, orders_max=50_000, hello_bytes_max=2**26, clock=self.world.clock)
        session.id = self.world.name("session")
        self.server._open.add(session)
        self._ways[session] = down
        self._sent_at[session] = self.world.now
        return session

    def read(self, session: Session, batch: pb.FactBatch) -> None:
        """As `SessionServer._read`."""
        if session.ended.done():
            return
        session.silent_ticks = 0
        facts = iter(batch.facts)
        if not session.opened.is_set() and (first := next(facts, None)):
            self.server._hello(session, first)
        session.receive(facts, post=self.host.post, attach=self.server._attach)
        self._tend()
        self._advance()

    def left(self, session: Session) -> None:
        """Its stream has ended or broken."""
        if session in self._ways:
            session.end(StatusCode.CANCELLED, "the peer left")
            self._tend()
            self._advance()

    def _tend(self) -> None:
        """Welcome those who have opened, forget those that have ended."""
        for session, way in tuple(self._ways.items()):
            if session.ended.done():
                self.server._forget(session)
                del self._ways[session]
                way.close()
            elif session.opened.is_set() and session not in self._welcomed:
                self._welcomed.add(session)
                self._send(session, pb.OrderBatch(orders=[pb.Order(welcome=self.server._welcome(session))]))

    def _send(self, session: Session, batch: pb.OrderBatch) -> None:
        self._sent_at[session] = self.world.now
        self._ways[session].send(batch)

    def _flush(self) -> None:
        for session in tuple(self._ways):
            while len(session.outbox):
                self._send(session, session.outbox.take(BATCH_BYTES))

    def _say_alive(self) -> None:
        for session in self._ways:
            if session in self._welcomed and self.world.now - self._sent_at[session] >= ALIVE_SECONDS / 2:
                self._send(session, pb.OrderBatch(orders=[pb.Order(alive=pb.Alive())]))

    def _look(self) -> None:
        for session in tuple(self._ways):
            self.server._look_at(session)
        self._tend()
        self._advance()

    # ---- probes

    def _watch_replicas(self, specs: tuple[ReplicaSpec, ...]) -> None:
        wanted = {spec.name: spec for spec in specs}
        for name in tuple(self._probers):
            if self._probers[name].spec != wanted.get(name):
                self._probers.pop(name).over = True
        for name, spec in wanted.items():
            if name not in self._probers:
                self._probers[name] = Prober(self, spec, self._engines[name])

    def _probe_now(self, replica: str) -> None:
        if replica in self._probers:
            self._probers[replica].want()


class Prober:
    """As `probes.Prober` for one replica: one probe per period, one more at once when it is wanted; the load is read at the end."""

    def __init__(self, scheduler: Scheduler, spec: ReplicaSpec, engine: EngineProcess) -> None:
        self.spec = spec
        self.over = False
        self._scheduler = scheduler
        self._engine = engine
        self._probing = False
        self._wanted = False
        self._turn = 0
        scheduler.at(scheduler.world.between(0.0, 0.05), self._start)

    def want(self) -> None:
        self._wanted = True
        if not self._probing:
            self._next(0.1)

    def _next(self, seconds: float) -> None:
        self._turn += 1
        mine = self._turn
        self._scheduler.at(seconds, lambda: self._start() if mine == self._turn else None)

    def _start(self) -> None:
        if self.over:
            return
        self._probing, self._wanted = True, False
        seconds, outcome = self._engine.probe()
        self._scheduler.at(seconds, lambda: self._end(seconds, outcome))

    def _end(self, seconds: float, outcome: ProbeOutcome) -> None:
        if self.over:
            return
        self._probing = False
        scheduler = self._scheduler
        good = outcome is ProbeOutcome.OK
        scheduler.host.post(
            ReplicaProbed(
                scheduler.world.now,
                self.spec.name,
                outcome,
                self._engine.load() if good and self.spec.capped else None,
                self._engine.models if good and self.spec.models is None else None,
            )
        )
        scheduler.advance()
        self._next(0.1 if self._wanted else max(0.1, scheduler.host.state.settings.probe_seconds - seconds))
