"""A raw gRPC client of the session, and a server around a stand-in core."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable

import grpc
import grpc.aio
from msgspec import Struct

from luftpause.kit import protocol
from luftpause.kit.auth import Tokens
from luftpause.kit.wire.v1 import scheduler_pb2 as pb
from luftpause.scheduler.core.decisions import Decision, Place, Step
from luftpause.scheduler.core.events import Event, Kind, Resync, Tick, TurnRequested
from luftpause.scheduler.host import Host
from luftpause.scheduler.server import SERVICE, SessionServer
from luftpause.scheduler.translate import Announced, Replicas

WAIT_SECONDS = 60
OVER = (grpc.aio.AioRpcError, grpc.aio.InternalError, asyncio.InvalidStateError)  # what a write raises when its session has ended


class Peer:
    """One stream; what the scheduler says is read into `orders` unless the peer is told not to read."""

    def __init__(self, address: str, *, reads: bool = True, metadata: tuple[tuple[str, str], ...] = ()) -> None:
        options = [("grpc.max_receive_message_length", 16 << 20), ("grpc.max_send_message_length", 16 << 20)]
        self.channel = grpc.aio.insecure_channel(address, options=options)
        session = self.channel.stream_stream(
            f"/{SERVICE}/Session", request_serializer=pb.FactBatch.SerializeToString, response_deserializer=pb.OrderBatch.FromString
        )
        self.call = session(metadata=metadata)
        self.orders: asyncio.Queue[pb.Order] = asyncio.Queue()
        self._reading = asyncio.create_task(self._read()) if reads else None
        self._alive: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()

    async def _read(self) -> None:
        async for batch in self.call:
            for order in batch.orders:
                self.orders.put_nowait(order)

    async def send(self, *facts: pb.Fact) -> None:
        async with self._writing:
            await self.call.write(pb.FactBatch(facts=facts))

    async def hello(self, dataplane: str = "dp", boot: str = "boot", *, major: int = protocol.MAJOR, minor: int = protocol.MINOR) -> None:
        version = pb.Protocol(major=major, minor=minor)
        await self.send(pb.Fact(hello=pb.Hello(dataplane=dataplane, boot=boot, protocol=version)))

    async def open(self, dataplane: str = "dp", boot: str = "boot") -> pb.Welcome:
        """Hello with no memory; returns when the session counts."""
        await self.hello(dataplane, boot)
        await self.send(pb.Fact(hello_end=pb.HelloEnd()))
        welcome = (await self.next("welcome")).welcome
        await self.next("replicas")
        return welcome

    async def next(self, kind: str, seconds: float = WAIT_SECONDS) -> pb.Order:
        """The next order of this kind; others are passed over."""
        async with asyncio.timeout(seconds):
            while (order := await self.orders.get()).WhichOneof("order") != kind:
                pass
        return order

    def stay_alive(self, seconds: float) -> None:
        async def alive() -> None:
            while True:
                await self.send(pb.Fact(alive=pb.Alive()))
                await asyncio.sleep(seconds)

        self._alive = asyncio.create_task(alive())

    async def ended(self, seconds: float = WAIT_SECONDS) -> tuple[grpc.StatusCode, str]:
        async with asyncio.timeout(seconds):
            return await self.call.code(), await self.call.details()

    async def close(self) -> None:
        for task in (self._alive, self._reading):
            if task:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, *OVER):
                    await task
        self.call.cancel()
        await self.channel.close()


class Seen(Struct, frozen=True):
    """A stand-in core's state: nothing."""


class StandIn:
    """Places each turn that is asked for on replica `a`; remembers every event but ticks."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.answer: Callable[[Event], tuple[Decision, ...]] = self.place
        self._changed = asyncio.Condition()

    def decide(self, state: Seen, event: Event) -> Step:
        if not isinstance(event, Tick):
            self.events.append(event)
        return Step(state, self.answer(event))

    @staticmethod
    def place(event: Event) -> tuple[Decision, ...]:
        if isinstance(event, TurnRequested):
            return (Place(event.dataplane, event.turn, event.attempt, event.run or event.fresh_run, "a", 1),)
        return ()

    def of(self, kind: type) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]

    async def until(self, condition: Callable[[], bool], seconds: float = WAIT_SECONDS) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.005)

    async def resynced(self, count: int = 1) -> Resync:
        await self.until(lambda: len(self.of(Resync)) >= count)
        return self.of(Resync)[count - 1]


class Scheduler(Struct):
    core: StandIn
    host: Host
    server: SessionServer
    address: str


@contextlib.asynccontextmanager
async def scheduler(
    *,
    silence: float = 30,
    alive: float = 1,
    orders_max: int = 50_000,
    hello_bytes_max: int = 256 << 20,
    inbox_events_max: int = 20_000,
    go: asyncio.Event | None = None,
    tokens: Tokens | None = None,
    credentials: grpc.ServerCredentials | None = None,
) -> AsyncGenerator[Scheduler]:
    """Its host begins to handle events when `go` is set; None: at once."""
    core = StandIn()
    announced = Replicas((Announced("a", "http://127.0.0.1:9", ("m",), Kind.GENERATIVE, "healthy"),))
    host = Host(core.decide, Seen(), replicas=lambda _: announced, inbox_events_max=inbox_events_max)
    server = SessionServer(
        host, orders_max=orders_max, hello_bytes_max=hello_bytes_max, silence_seconds=silence, alive_seconds=alive, tokens=tokens,
        credentials=credentials,
    )  # fmt: skip
    port = await server.start("127.0.0.1:0")

    async def run() -> None:
        if go:
            await go.wait()
        await host.run()

    running = asyncio.create_task(run())
    try:
        yield Scheduler(core, host, server, f"127.0.0.1:{port}")
    finally:
        await server.stop()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


@contextlib.asynccontextmanager
async def peer(at: Scheduler | str, *, reads: bool = True, metadata: tuple[tuple[str, str], ...] = ()) -> AsyncGenerator[Peer]:
    made = Peer(at if isinstance(at, str) else at.address, reads=reads, metadata=metadata)
    try:
        yield made
    finally:
        await made.close()


def asks(turn: str, **fields: object) -> pb.Fact:
    return pb.Fact(turn_requested=pb.TurnRequested(turn=turn, attempt=1, fresh_run=f"run-{turn}", model="m", **fields))
