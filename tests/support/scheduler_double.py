"""Which scheduler does a test talk to when it wants one that misbehaves on purpose?"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc

from luftpause.kit.wire.v1 import scheduler_pb2 as pb

SERVICE = "luftpause.kit.wire.v1.Scheduler"


@dataclass
class Stream:
    """One session as the scheduler's side sees it."""

    context: Any
    facts: list[pb.Fact] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)  # how many facts each held
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)  # gRPC takes one write at a time

    def kinds(self) -> list[str]:
        return [str(fact.WhichOneof("fact")) for fact in self.facts]

    def of(self, kind: str) -> list[Any]:
        return [getattr(fact, kind) for fact in self.facts if fact.WhichOneof("fact") == kind]

    async def until(self, kind: str, count: int = 1, *, seconds: float = 30.0) -> list[Any]:
        """Wait until `count` facts of this kind have come."""
        async with asyncio.timeout(seconds):
            while len(self.of(kind)) < count:
                self.changed.clear()
                await self.changed.wait()
        return self.of(kind)

    async def order(self, *orders: pb.Order) -> None:
        await self.raw(pb.OrderBatch(orders=orders).SerializeToString())

    async def raw(self, message: bytes) -> None:
        async with self.writing:
            await self.context.write(message)

    async def welcome(self, *, replicas: tuple[str, ...] = ("a",), major: int = 1) -> None:
        await self.order(
            pb.Order(welcome=pb.Welcome(session="s", scheduler_epoch="e", protocol=pb.Protocol(major=major))), a_list_of(*replicas)
        )

    async def place(self, turn: str, replica: str = "a", *, run: str = "r", attempt: int = 1, turn_seq: int = 1) -> None:
        await self.order(pb.Order(placed=pb.Placed(turn=turn, attempt=attempt, run=run, replica=replica, turn_seq=turn_seq)))


def a_list_of(*names: str, **more: Any) -> pb.Order:
    replicas = [pb.Replica(name=name, url=f"http://{name}:1/v1/", models=["m"], kind=pb.KIND_GENERATIVE, **more) for name in names]
    return pb.Order(replicas=pb.Replicas(replicas=replicas))


Script = Callable[[Stream], Awaitable[None]]


class SchedulerDouble(grpc.GenericRpcHandler):
    """A gRPC server whose sessions run `script`; facts are read and written down beside it unless `deaf`."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.streams: list[Stream] = []
        self.opened = asyncio.Event()
        self.deaf = False
        self.port = 0
        self._server: Any = None

    def service(self, handler_call_details: Any) -> Any:
        assert handler_call_details.method == f"/{SERVICE}/Session"
        return grpc.stream_stream_rpc_method_handler(self._session)

    async def _session(self, requests: Any, context: Any) -> None:
        stream = Stream(context)
        self.streams.append(stream)
        self.opened.set()
        reading = asyncio.ensure_future(self._read(requests, stream))
        try:
            await self.script(stream)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, requests: Any, stream: Stream) -> None:
        if self.deaf:
            await asyncio.Event().wait()
        async for message in requests:
            batch = pb.FactBatch.FromString(message)
            stream.batches.append(len(batch.facts))
            stream.facts.extend(batch.facts)
            stream.changed.set()
        stream.ended.set()

    async def start(self, port: int = 0) -> None:
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", 16 * 2**20)])
        self._server.add_generic_rpc_handlers((self,))
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        await self._server.start()

    async def stop(self) -> None:
        """At once, as a crash would."""
        await self._server.stop(None)

    async def stream(self, number: int = 1, *, seconds: float = 30.0) -> Stream:
        """Wait for the session with this number."""
        async with asyncio.timeout(seconds):
            while len(self.streams) < number:
                self.opened.clear()
                await self.opened.wait()
        return self.streams[number - 1]
