"""How do dataplanes connect to the scheduler, and what ends their sessions?"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Final

import grpc
import grpc.aio

from luftpause.kit import control, protocol
from luftpause.kit.auth import Tokens
from luftpause.kit.clock import Clock, monotonic
from luftpause.kit.errors import LuftpauseError
from luftpause.kit.ids import new_boot_id
from luftpause.kit.logs import Log
from luftpause.kit.wire.v1 import scheduler_pb2 as pb
from luftpause.scheduler.core.events import DataplaneLost, Resync
from luftpause.scheduler.host import Host
from luftpause.scheduler.outbox import Orders
from luftpause.scheduler.session import Ended, Session

WATCH_TICKS: Final = 16  # looks at a session in the time that makes its silence an outage
FAREWELL_SECONDS: Final = 1.0  # a peer that does not read can't be told why, and is not waited for
SESSIONS_MAX: Final = 1024
STRANGERS_MAX: Final = 1024  # hosts without a token, each of which is logged once

SERVICE: Final = "luftpause.kit.wire.v1.Scheduler"
OPTIONS: Final = (
    ("grpc.max_receive_message_length", protocol.MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", protocol.MESSAGE_BYTES_MAX),
    ("grpc.so_reuseport", 0),  # else a second scheduler could share the port, and each would get some dataplanes
)

Context = grpc.aio.ServicerContext[pb.FactBatch, pb.OrderBatch]

log = Log("scheduler")


class SessionServer:
    """All open sessions. `silence_seconds` of hearing nothing, or of not being read, end one. `credentials` None: no TLS."""

    def __init__(
        self,
        host: Host,
        *,
        orders_max: int,
        hello_bytes_max: int,
        silence_seconds: float = protocol.SILENCE_SECONDS,
        alive_seconds: float = protocol.ALIVE_SECONDS,
        clock: Clock = monotonic,
        tokens: Tokens | None = None,
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        self.epoch = new_boot_id()
        self.sessions: dict[str, Session] = {}  # by dataplane: the current ones
        self.unknown_facts = 0  # skipped, in sessions that have ended
        self.services: tuple[grpc.GenericRpcHandler, ...] = ()  # others at the same address; to be set before `start`
        self._host = host
        self._orders_max = orders_max
        self._hello_bytes_max = hello_bytes_max
        self._silence_seconds = silence_seconds
        self._alive_seconds = alive_seconds
        self._clock = clock
        self._tokens = tokens or Tokens()
        self._credentials = credentials
        self._strangers: set[str] = set()
        self._here = ""  # the dataplane in this process
        self._open: set[Session] = set()
        self._resynced: dict[str, str] = {}  # by dataplane: the session that the host knows
        self._server: grpc.aio.Server | None = None
        self._watch: asyncio.Task[None] | None = None

    async def start(self, address: str) -> int:
        """Listen on host:port (port 0: a free one); the port. Raises LuftpauseError where it can't."""
        server = grpc.aio.server(options=OPTIONS, maximum_concurrent_rpcs=SESSIONS_MAX)
        server.add_generic_rpc_handlers((_handlers(self._session), *self.services))
        try:
            port = server.add_secure_port(address, self._credentials) if self._credentials else server.add_insecure_port(address)
        except RuntimeError as error:
            raise LuftpauseError(f"can't listen on {address}: {error}", code="cannot_listen") from error
        await server.start()
        self._server = server
        self._watch = asyncio.create_task(self._watch_sessions(), name="watch sessions")
        return port

    async def stop(self) -> None:
        """End all sessions; dataplanes reconnect to whoever listens next."""
        for session in tuple(self._open):
            session.end(grpc.StatusCode.UNAVAILABLE, "the scheduler stops")
        if self._watch:
            self._watch.cancel()
        if self._server:
            await self._server.stop(grace=FAREWELL_SECONDS / 4)

    def join(self, dataplane: str, boot: str, orders: Orders) -> Session:
        """A dataplane in this process: its session is complete at once and ends with the process. Its facts go to the host."""
        session = Session("this process", orders_max=self._orders_max, hello_bytes_max=self._hello_bytes_max, clock=self._clock)
        session.dataplane, session.boot, session.complete = dataplane, boot, True
        self._here = dataplane
        self.sessions[dataplane] = session
        self._attach(Resync(self._clock(), dataplane, session.id, boot), orders)
        return session

    # ---- one session

    async def _session(self, requests: AsyncIterator[pb.FactBatch], context: Context) -> None:
        if self._tokens.access(_authorization(context)) is None:
            self._tell_of_stranger(context.peer())
            await _farewell(context, Ended(grpc.StatusCode.UNAUTHENTICATED, f"a token is needed here: {control.TO_MEND}"))
            return
        session = Session(context.peer(), orders_max=self._orders_max, hello_bytes_max=self._hello_bytes_max, clock=self._clock)
        self._open.add(session)
        tasks = [_spawn(session, self._read(session, requests)), _spawn(session, self._write(session, context))]
        try:
            ended = await asyncio.shield(session.ended)
        finally:
            session.end(grpc.StatusCode.CANCELLED, "the peer left")  # where gRPC cancels this call
            self._forget(session)
            for task in tasks:
                task.cancel()
        await asyncio.wait(tasks)
        await _farewell(context, ended)

    async def _read(self, session: Session, requests: AsyncIterator[pb.FactBatch]) -> None:
        async for batch in requests:
            session.silent_ticks = 0
            facts = iter(batch.facts)
            if not session.opened.is_set() and (first := next(facts, None)):
                self._hello(session, first)
            session.receive(facts, post=self._host.post, attach=self._attach)
            session.held_back = True
            await self._host.room()
            session.held_back = False
        session.end(grpc.StatusCode.OK, "the peer closed the session")

    def _hello(self, session: Session, fact: pb.Fact) -> None:
        if fact.WhichOneof("fact") != "hello":
            session.end(grpc.StatusCode.INVALID_ARGUMENT, "the first fact of a stream must be Hello")
            return
        session.open(fact.hello, here=self._here)
        if session.ended.done():
            return
        older = self.sessions.get(session.dataplane)
        self.sessions[session.dataplane] = session
        log.info("session opened", dataplane=session.dataplane, session=session.id, boot=session.boot, peer=session.peer)
        if older is not None:
            if older.boot != session.boot and older.silent_ticks <= WATCH_TICKS // 2:  # that process was heard within two seconds
                log.warning(
                    "two dataplanes have one name and end each other's sessions; give each its own dataplane.name",
                    dataplane=session.dataplane, peers=[older.peer, session.peer],
                )  # fmt: skip
            older.end(
                grpc.StatusCode.ABORTED,
                f"a newer session of dataplane {session.dataplane!r} supersedes this one; two dataplanes need two names (dataplane.name)",
            )

    def _tell_of_stranger(self, peer: str) -> None:
        """One that tries again and again is logged once."""
        host = peer.rpartition(":")[0]
        if host not in self._strangers and len(self._strangers) < STRANGERS_MAX:
            self._strangers.add(host)
            log.warning("a dataplane without the right token was refused", peer=peer, mend=control.TO_MEND)

    def _attach(self, resync: Resync, outbox: Orders) -> None:
        self._resynced[resync.dataplane] = resync.session
        self._host.attach(resync, outbox)
        log.info("resync", dataplane=resync.dataplane, session=resync.session, runs=len(resync.runs), turns=len(resync.turns))

    def _forget(self, session: Session) -> None:
        self._open.discard(session)
        self.unknown_facts += session.unknown_facts
        why = session.ended.result().details
        if not session.dataplane:
            log.warning("session refused", peer=session.peer, why=why)
            return
        log.info("session ended", dataplane=session.dataplane, session=session.id, why=why)
        if self.sessions.get(session.dataplane) is not session:
            return
        del self.sessions[session.dataplane]
        # The host may know an older session than this one, whose Hello never became complete: then that one is lost.
        known = self._resynced.pop(session.dataplane, None)
        if known is not None:
            self._host.post(DataplaneLost(self._clock(), session.dataplane, known))

    async def _write(self, session: Session, context: Context) -> None:
        """The only task that writes to this stream."""
        await session.opened.wait()
        await _send(session, context, _orders(welcome=self._welcome(session)))
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._alive_seconds):
                    await session.outbox.filled()
            batch = session.outbox.take(protocol.BATCH_BYTES)
            await _send(session, context, batch if batch.orders else _orders(alive=pb.Alive()))

    def _welcome(self, session: Session) -> pb.Welcome:
        version = pb.Protocol(major=protocol.MAJOR, minor=protocol.MINOR)
        return pb.Welcome(session=session.id, scheduler_epoch=self.epoch, protocol=version)

    # ---- silence

    async def _watch_sessions(self) -> None:
        """Count silence in ticks of this task, so that a pause of this process is not taken for a pause of its peers."""
        while True:
            await asyncio.sleep(self._silence_seconds / WATCH_TICKS)
            for session in tuple(self._open):
                self._look_at(session)

    def _look_at(self, session: Session) -> None:
        if not session.held_back:
            session.silent_ticks += 1
        session.blocked_ticks = session.blocked_ticks + 1 if session.writing else 0
        if session.silent_ticks > WATCH_TICKS:
            session.end(grpc.StatusCode.DEADLINE_EXCEEDED, f"nothing came for {self._silence_seconds:g} s")
        elif session.blocked_ticks > WATCH_TICKS:
            session.end(grpc.StatusCode.DEADLINE_EXCEEDED, f"nothing was read for {self._silence_seconds:g} s")


def _handlers(behaviour: Callable[[AsyncIterator[pb.FactBatch], Context], Coroutine[object, object, None]]) -> grpc.GenericRpcHandler:
    session = grpc.stream_stream_rpc_method_handler(behaviour, pb.FactBatch.FromString, pb.OrderBatch.SerializeToString)
    return grpc.method_handlers_generic_handler(SERVICE, {"Session": session})


def _authorization(context: Context) -> bytes | None:
    found = dict(context.invocation_metadata() or ()).get(control.AUTHORIZATION)
    return found.encode() if isinstance(found, str) else found


def _orders(*, welcome: pb.Welcome | None = None, alive: pb.Alive | None = None) -> pb.OrderBatch:
    return pb.OrderBatch(orders=[pb.Order(welcome=welcome, alive=alive)])


async def _send(session: Session, context: Context, batch: pb.OrderBatch) -> None:
    session.writing = True
    await context.write(batch)
    session.writing = False
    session.blocked_ticks = 0


def _spawn(session: Session, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
    """A task without which the session is over."""

    def done(task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            if not session.ended.done():
                log.warning("stream broke", dataplane=session.dataplane, session=session.id, peer=session.peer, error=repr(error))
            session.end(grpc.StatusCode.ABORTED, "the stream broke or held what is not a FactBatch")

    task = asyncio.create_task(work)
    task.add_done_callback(done)
    return task


async def _farewell(context: Context, ended: Ended) -> None:
    """Tell the peer why. Waits for it only so long, as a peer that does not read blocks this too."""
    if ended.code is grpc.StatusCode.OK:
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FAREWELL_SECONDS):
            await context.abort(ended.code, ended.details)
