"""How does one session with the scheduler begin, live and end?"""

import asyncio
from collections.abc import Awaitable
from typing import Final, Protocol

import grpc
from msgspec import Struct

from luftpause.dataplane import orders, wire
from luftpause.dataplane.hello import Snapshot
from luftpause.dataplane.ledger import Ledger
from luftpause.dataplane.outbox import Outbox, batches
from luftpause.kit import protocol
from luftpause.kit.clock import Clock
from luftpause.kit.logs import Log
from luftpause.kit.wire.v1 import scheduler_pb2 as pb

LIST_SECONDS: Final = 30.0  # turns in flight are listed this often
LINGER_SECONDS: Final = 1.0  # after the last fact the scheduler has this long to end the stream


class Timing(Struct, frozen=True):
    """The protocol's figures; a test takes shorter ones."""

    alive_seconds: float = protocol.ALIVE_SECONDS
    silence_seconds: float = protocol.SILENCE_SECONDS
    list_seconds: float = LIST_SECONDS
    linger_seconds: float = LINGER_SECONDS


class Call(Protocol):
    """The part of a gRPC bidirectional call that is used here."""

    def read(self) -> Awaitable[object]: ...

    def write(self, request: pb.FactBatch) -> Awaitable[None]: ...

    def done_writing(self) -> Awaitable[None]: ...

    def cancel(self) -> bool: ...


class Session:
    """One stream from Hello to its end. Three tasks: one writes, one reads, one watches the silence."""

    def __init__(self, call: Call, ledger: Ledger[pb.Fact], *, hello: pb.Hello, clock: Clock, timing: Timing, facts_max: int) -> None:
        self.outbox = Outbox(facts_max, self._overflow)
        self.delivering: set[str] = set()
        self.welcomed = False
        self._call = call
        self._ledger = ledger
        self._hello = hello
        self._clock = clock
        self._timing = timing
        self._heard = self._wrote = self._listed = clock()
        self._writing_since: float | None = None
        self._introduced = False
        self._answered = asyncio.Event()  # the Welcome has come, or nobody waits for it any more
        self._finishing = False
        self._cut = ""
        self._log = Log("dataplane")

    async def live(self) -> str:
        """Until the stream ends or is given up; returns why."""
        tasks = [asyncio.ensure_future(each) for each in (self._write(), self._read(), self._watch())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return self._cut or _reason(next(task for task in tasks if task.done()))
        finally:
            self._ledger.closed()
            self.outbox.close()
            self._call.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def finish(self) -> None:
        """Send what is pending, then end the stream in good order."""
        self._finishing = True
        self._answered.set()
        self.outbox.wake()

    def cut(self, reason: str) -> None:
        """End the stream now, whatever is pending."""
        self._cut = reason
        self._call.cancel()

    def _overflow(self) -> None:
        self.cut("the scheduler does not keep up with the facts")

    # ---- writing --------------------------------------------------------------------------------------------------

    async def _write(self) -> str:
        # Written once there is a connection: what follows carries ages, and they must not be those of before it was made.
        await self._send(pb.FactBatch(facts=[pb.Fact(hello=self._hello)]))
        self._ledger.opening()
        snapshot = Snapshot(self._ledger.memory, self._clock())
        try:
            await self._introduce(snapshot)
        finally:
            snapshot.close()
        if not self._finishing:
            self._ledger.opened()
            self.outbox.wake()  # what was said meanwhile
        while not self._finishing:
            for batch in batches(await self.outbox.take()):
                await self._send(batch)
        self.outbox.wake()
        for batch in batches(await self.outbox.take()):
            await self._send(batch)
        await self._call.done_writing()
        await asyncio.sleep(self._timing.linger_seconds)
        return "closed"

    async def _introduce(self, snapshot: Snapshot) -> None:
        """The memory in parts, HelloEnd; then wait for the Welcome."""
        for part in snapshot.parts():
            await self._send(pb.FactBatch(facts=[pb.Fact(hello_part=part)]))
        await self._send(pb.FactBatch(facts=[pb.Fact(hello_end=pb.HelloEnd())]))
        self._introduced = True
        await self._answered.wait()

    async def _send(self, batch: pb.FactBatch) -> None:
        self._writing_since = self._clock()
        await self._call.write(batch)
        self._wrote = self._clock()
        self._writing_since = None
        if not self._introduced:  # each part that goes out is a sign of life
            self._heard = self._wrote

    # ---- reading --------------------------------------------------------------------------------------------------

    async def _read(self) -> str:
        while True:
            batch = await self._call.read()
            if not isinstance(batch, pb.OrderBatch):  # grpc.aio.EOF
                return "the scheduler ended the stream"
            for order in batch.orders:
                if mistake := self._absorb(order):
                    return mistake
            if self.welcomed:
                self._heard = self._clock()

    def _absorb(self, order: pb.Order) -> str:
        """Carry out an order; returns why the session can't go on, or nothing."""
        kind = order.WhichOneof("order")
        if kind == "welcome":
            theirs = order.welcome.protocol.major
            if theirs != protocol.MAJOR:
                return f"the scheduler speaks protocol {theirs}, this dataplane {protocol.MAJOR}: start them in the same version"
            self._log.info("welcomed by the scheduler", session=order.welcome.session, epoch=order.welcome.scheduler_epoch)
            self.welcomed = True
            self._answered.set()
        elif kind == "alive":
            pass
        elif self.welcomed:
            orders.absorb(self._ledger, order)
        else:
            self._ledger.counts["early_order"] += 1
        return ""

    # ---- watching -------------------------------------------------------------------------------------------------

    async def _watch(self) -> str:
        silence = self._timing.silence_seconds
        while True:
            await asyncio.sleep(self._timing.alive_seconds / 2)
            now = self._clock()
            if now - self._heard >= silence:
                return f"nothing heard for {silence:g} s" if self.welcomed else f"no welcome within {silence:g} s"
            if self._writing_since is not None and now - self._writing_since >= silence:
                return f"the scheduler read nothing for {silence:g} s"
            self._ledger.tick()
            if self.welcomed and not self._finishing:
                self._alive(now)

    def _alive(self, now: float) -> None:
        """At least once a second, even where a timer is late: hence each half second unless something else just left."""
        lists = now - self._listed >= self._timing.list_seconds
        if not (lists or self.delivering or now - self._wrote >= self._timing.alive_seconds / 2.5):
            return
        turns = self._ledger.in_flight() if lists else None
        self.outbox.put(wire.alive(sorted(self.delivering), turns))
        self.delivering.clear()
        if lists:
            self._listed = now


def _reason(task: "asyncio.Future[str]") -> str:
    if task.cancelled():  # grpc cancels whoever waits on a call that was cancelled
        return "the call was cancelled"
    match task.exception():
        case None:
            return task.result()
        case grpc.aio.AioRpcError() as error:
            return f"{error.code().name.lower()}: {error.details()}"
        case error:
            return f"{type(error).__name__}: {error}"
