"""What does the scheduler know of one open session, and when does it end?"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import grpc
from msgspec import Struct

from luftpause.kit import protocol
from luftpause.kit.clock import Clock
from luftpause.kit.ids import random_text
from luftpause.kit.logs import Log
from luftpause.kit.wire.v1 import scheduler_pb2 as pb
from luftpause.scheduler import translate
from luftpause.scheduler.core.events import Event, Resync
from luftpause.scheduler.core.memory import RunMemory, TurnMemory
from luftpause.scheduler.outbox import Orders, Outbox
from luftpause.scheduler.quota_told import Told

NAME_CHARS_MAX: Final = 128
UNKNOWN_LOGGED_MAX: Final = 5  # per session; all are counted

log = Log("scheduler")


class Ended(Struct, frozen=True):
    """How a session ended: what the peer is told, unless it is the one who left."""

    code: grpc.StatusCode
    details: str


class Session:
    """One stream. It begins to count when its Hello is complete (`resync` given out), and ends once."""

    def __init__(self, peer: str, *, orders_max: int, hello_bytes_max: int, clock: Clock) -> None:
        self.id = random_text()
        self.peer = peer
        self.dataplane = ""
        self.boot = ""
        self.since = self.heard = clock()
        self.complete = False
        self.facts = 0
        self.unknown_facts = 0
        self.silent_ticks = 0  # of the server's watch; set back when something comes
        self.blocked_ticks = 0  # the peer does not read; set back when a write is through
        self.writing = False
        self.held_back = False  # this side does not read now: its silence is not the peer's
        self.opened = asyncio.Event()
        self.ended: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self.outbox = Outbox(orders_max, self._overflowed)
        self._clock = clock
        self._began = 0.0  # when its Hello came
        self._hello = _Hello(hello_bytes_max)

    def end(self, code: grpc.StatusCode, details: str) -> None:
        """The first reason counts. Nothing is taken from or given to the peer from now on."""
        self.outbox.close()
        if not self.ended.done():
            self.ended.set_result(Ended(code, details))

    def open(self, hello: pb.Hello, *, here: str = "") -> None:
        """Take the first message; ends the session where it can't be served. `here` is the dataplane in this process."""
        if hello.protocol.major != protocol.MAJOR:
            self.end(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"dataplane {hello.dataplane!r} speaks protocol {hello.protocol.major}.{hello.protocol.minor}, this scheduler "
                f"{protocol.MAJOR}.{protocol.MINOR}; install the same luftpause version on both, the scheduler first",
            )
        elif not (0 < len(hello.dataplane) <= NAME_CHARS_MAX and 0 < len(hello.boot) <= NAME_CHARS_MAX):
            self.end(grpc.StatusCode.INVALID_ARGUMENT, f"Hello needs a dataplane name and a boot id of 1 to {NAME_CHARS_MAX} characters")
        elif hello.dataplane == here:
            why = f"dataplane {here!r} runs in this scheduler's own process; give the other one another dataplane.name"
            self.end(grpc.StatusCode.ALREADY_EXISTS, why)
        else:
            self.dataplane, self.boot, self._began = hello.dataplane, hello.boot, self._clock()
            self.opened.set()

    def receive(self, facts: Iterable[pb.Fact], *, post: Callable[[Event | Told], None], attach: Callable[[Resync, Orders], None]) -> None:
        """Give the facts of a batch on as events, in order; what comes before HelloEnd is kept until then."""
        now = self.heard = self._clock()
        for fact in facts:
            if self.ended.done():
                return
            self.facts += 1
            match fact.WhichOneof("fact"):
                case "hello":
                    self.end(grpc.StatusCode.INVALID_ARGUMENT, "a stream has one Hello; open another stream for another")
                case "hello_part":
                    self._keep(fact.hello_part)
                case "hello_end":
                    self._complete(now, post, attach)
                case _:
                    self._event(fact, now, post)

    def _event(self, fact: pb.Fact, now: float, post: Callable[[Event | Told], None]) -> None:
        event = translate.event(fact, dataplane=self.dataplane, now=now)
        if event is None:
            self._skip(fact)
        elif self.complete:
            post(event)
        elif not self._hello.defer(fact):
            self._hello_too_long()

    def _keep(self, part: pb.HelloPart) -> None:
        """Its ages are from when the Hello began, however long its parts take."""
        if self.complete:
            self.end(grpc.StatusCode.INVALID_ARGUMENT, "a HelloPart came after HelloEnd")
        elif not self._hello.keep(part, self._began):
            self._hello_too_long()

    def _hello_too_long(self) -> None:
        self.end(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            f"the Hello of {self.dataplane} is longer than {self._hello.bytes_max} bytes; raise scheduler.hello_bytes_max",
        )

    def _complete(self, now: float, post: Callable[[Event | Told], None], attach: Callable[[Resync, Orders], None]) -> None:
        if self.complete:
            self.end(grpc.StatusCode.INVALID_ARGUMENT, "HelloEnd came twice")
            return
        self.complete = True
        hello, self._hello = self._hello, _Hello(0)
        attach(Resync(now, self.dataplane, self.id, self.boot, tuple(hello.runs), tuple(hello.turns)), self.outbox)
        for fact in hello.deferred:
            self._event(fact, now, post)

    def _skip(self, fact: pb.Fact) -> None:
        """A newer dataplane may say more than this version knows."""
        self.unknown_facts += 1
        if self.unknown_facts <= UNKNOWN_LOGGED_MAX:
            log.warning("unknown fact skipped", dataplane=self.dataplane, bytes=fact.ByteSize(), count=self.unknown_facts)

    def _overflowed(self) -> None:
        self.end(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            f"{self.dataplane} does not read: more orders wait for it than scheduler.orders_max; it may reconnect and resync",
        )


class _Hello:
    """A dataplane's memory while its parts come in; the ages are turned into times part by part."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.runs: list[RunMemory] = []
        self.turns: list[TurnMemory] = []
        self.deferred: list[pb.Fact] = []  # they happened after the memory was written down, so they are applied after it
        self._bytes = 0

    def keep(self, part: pb.HelloPart, now: float) -> bool:
        """False: too long."""
        self._bytes += part.ByteSize()
        if self._bytes > self.bytes_max:
            return False
        self.runs.extend(translate.runs(part, now))
        self.turns.extend(translate.turns(part, now))
        return True

    def defer(self, fact: pb.Fact) -> bool:
        """False: too long."""
        self._bytes += fact.ByteSize()
        if self._bytes > self.bytes_max:
            return False
        self.deferred.append(fact)
        return True
