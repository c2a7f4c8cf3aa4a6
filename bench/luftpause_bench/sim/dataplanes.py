"""How does a dataplane process live on the virtual clock?

Ledger, memory, snapshot and messages are the real ones. Modelled is what awaits: the session's reader, writer and watch
(`dataplane/session.py`), and the reconnecting (`dataplane/link.py`).
"""

from collections.abc import Callable, Iterator
from typing import Final

from luftpause.dataplane import orders, wire
from luftpause.dataplane.hello import Snapshot
from luftpause.dataplane.ledger import Ledger, Line
from luftpause.dataplane.memory import Memory
from luftpause.dataplane.outbox import SOON_SECONDS, batches
from luftpause.kit import protocol
from luftpause.kit.wire.v1 import scheduler_pb2 as pb
from luftpause_bench.sim.engines import EngineProcess
from luftpause_bench.sim.links import Link
from luftpause_bench.sim.turns import Exchange
from luftpause_bench.sim.world import Process, World

RECONNECT_SECONDS: Final = 1.0
LIST_SECONDS: Final = 30.0
WRITE_SECONDS: Final = 0.002  # one part of a Hello
PART_BYTES: Final = 1_000  # small, so that a Hello has several parts and runs change between them

Dial = Callable[["Stream"], Link | None]  # None: nobody listens


class Dataplane(Process):
    """One life (one boot) of a dataplane."""

    def __init__(
        self, world: World, name: str, *, engines: dict[str, EngineProcess], dial: Dial, environ: dict[str, str], unreported: set[str]
    ) -> None:
        super().__init__(world, name)
        self.unreported = unreported
        self.boot = world.name("boot")
        self.engines = engines
        self.stream: Stream | None = None
        self.exchanges: dict[str, Exchange] = {}
        self.knocking: dict[str, Callable[[], None]] = {}  # clients whose request it has not read yet, and what they do if it dies
        self.faulty_finishes: list[str] = []  # what happens to the next ones: lost, twice
        self.memory = Memory(seconds=1800.0, runs_max=100_000)
        self.ledger = Ledger(self.memory, world.clock, words=wire, send=self._put, send_soon=self._put_soon, environ=environ)
        self._dial = dial
        self.every(60.0, lambda: self.memory.sweep(world.now))
        self.connect()

    def connect(self) -> None:
        stream = Stream(self)
        link = self._dial(stream)
        if link is None:
            self.at(RECONNECT_SECONDS, self.connect)
            return
        self.stream = stream
        stream.begin(link)

    def disconnected(self) -> None:
        self.stream = None
        self.at(RECONNECT_SECONDS, self.connect)

    def dies(self) -> None:
        """kill -9: its streams break, its clients and engines see closed connections."""
        self.dead = True
        if self.stream is not None:
            self.stream.link.break_off()
        for exchange in tuple(self.exchanges.values()):
            exchange.process_died()
        for hang_up in self.knocking.values():
            hang_up()

    def _put(self, fact: pb.Fact) -> None:
        if fact.WhichOneof("fact") == "turn_finished" and self.faulty_finishes:
            fault = self.faulty_finishes.pop()
            self.world.note(self.name, f"finish of {fact.turn_finished.turn} goes {fault}")
            if fault == "lost":
                self.unreported.add(fact.turn_finished.turn)
                return
            self._queue(fact, 0.0)
        self._queue(fact, 0.0)

    def _put_soon(self, fact: pb.Fact) -> None:
        self._queue(fact, SOON_SECONDS)

    def _queue(self, fact: pb.Fact, seconds: float) -> None:
        if self.stream is not None:
            self.stream.put(fact, seconds)


class Stream:
    """One session from Hello to its end, as `dataplane.session.Session`."""

    def __init__(self, dataplane: Dataplane) -> None:
        self.dataplane = dataplane
        self.ended = False
        self.welcomed = False
        self.delivering: set[str] = set()
        self.link: Link
        self._world = dataplane.world
        self._facts: list[pb.Fact] = []
        self._leaves_at = float("inf")
        self._introduced = False
        self._open = False
        self._heard = self._wrote = self._listed = self._world.now
        self._parts: Iterator[pb.HelloPart]

    def begin(self, link: Link) -> None:
        self.link = link
        self.dataplane.ledger.opening()
        self._snapshot = Snapshot(self.dataplane.memory, self._world.now, part_bytes=PART_BYTES)
        self._parts = self._snapshot.parts()
        version = pb.Protocol(major=protocol.MAJOR, minor=protocol.MINOR)
        self._send([pb.Fact(hello=pb.Hello(dataplane=self.dataplane.name, boot=self.dataplane.boot, protocol=version))])
        self._later(WRITE_SECONDS, self._introduce)
        self._later(protocol.ALIVE_SECONDS / 2, self._watch)

    # ---- writing

    def put(self, fact: pb.Fact, seconds: float) -> None:
        """It leaves in so many seconds, with all that waits by then."""
        self._facts.append(fact)
        if self._open and self._world.now + seconds < self._leaves_at:
            self._leaves_at = self._world.now + seconds
            self._later(seconds, self._leave)

    def _introduce(self) -> None:
        """The parts of a Hello, each written on its own; other things happen in between."""
        part = next(self._parts, None)
        self._heard = self._world.now
        if part is not None:
            self._send([pb.Fact(hello_part=part)])
            self._later(WRITE_SECONDS, self._introduce)
            return
        self._send([pb.Fact(hello_end=pb.HelloEnd())])
        self._snapshot.close()
        self._introduced = True
        self._opens()

    def _opens(self) -> None:
        """Once the memory is sent and the Welcome is here."""
        if self._introduced and self.welcomed and not self._open:
            self._open = True
            self.dataplane.ledger.opened()
            self._leave()

    def _leave(self) -> None:
        self._leaves_at = float("inf")
        facts, self._facts = self._facts, []
        for batch in batches(facts):
            self._send(list(batch.facts))

    def _send(self, facts: list[pb.Fact]) -> None:
        self._wrote = self._world.now
        self.link.up.send(pb.FactBatch(facts=facts))

    # ---- reading

    def arrived(self, batch: pb.OrderBatch) -> None:
        if self.ended:
            return
        for order in batch.orders:
            match order.WhichOneof("order"):
                case "welcome":
                    self.welcomed = True
                    self._later(0.0, self._opens)
                case "alive":
                    pass
                case _ if self.welcomed:
                    orders.absorb(self.dataplane.ledger, order)
                case _:
                    self.dataplane.ledger.counts["early_order"] += 1
        self._heard = self._world.now

    def end(self) -> None:
        """It broke, was ended by the scheduler, or was given up."""
        if self.ended:
            return
        self.ended = True
        self._snapshot.close()
        self.dataplane.ledger.closed()
        self.link.up.close()
        self._world.note(self.dataplane.name, "session over")
        self.dataplane.disconnected()

    # ---- watching

    def _watch(self) -> None:
        if self._world.now - self._heard >= protocol.SILENCE_SECONDS:
            self.end()
            return
        self.dataplane.ledger.tick()
        if self.welcomed:
            self._alive()
        self._later(protocol.ALIVE_SECONDS / 2, self._watch)

    def _alive(self) -> None:
        lists = self._world.now - self._listed >= LIST_SECONDS
        if not (lists or self.delivering or self._world.now - self._wrote >= protocol.ALIVE_SECONDS / 2.5):
            return
        self.put(wire.alive(sorted(self.delivering), list(self.dataplane.memory.in_flight) if lists else None), 0.0)
        self.delivering.clear()
        if lists:
            self._listed = self._world.now

    def _later(self, seconds: float, happening: Callable[[], None]) -> None:
        self.dataplane.at(seconds, lambda: None if self.ended else happening())

    @property
    def tells(self) -> bool:
        """Is there a fact that has not arrived?"""
        return bool(self._facts) or self.link.up.carries

    @property
    def open(self) -> bool:
        return self._open and self.dataplane.ledger.line is Line.OPEN
