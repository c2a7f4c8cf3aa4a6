"""How does the dataplane stay connected with the scheduler, whatever happens to either?"""

import asyncio
import contextlib
import os
from collections.abc import Mapping
from typing import Final, cast

import grpc

from luftpause.dataplane import wire
from luftpause.dataplane.ledger import Ledger
from luftpause.dataplane.ledger_link import LedgerLink
from luftpause.dataplane.memory import Memory
from luftpause.dataplane.session import Call, Session, Timing
from luftpause.kit import clock as clocks
from luftpause.kit import control, protocol
from luftpause.kit.config import AuthConfig, DataplaneConfig
from luftpause.kit.ids import new_boot_id
from luftpause.kit.logs import Log
from luftpause.kit.wire.v1 import scheduler_pb2 as pb

METHOD: Final = "/luftpause.kit.wire.v1.Scheduler/Session"
SWEEP_SECONDS: Final = 1.0
REASONS_MAX: Final = 16  # of one outage that are told
CHANNEL_OPTIONS: Final = (
    ("grpc.max_send_message_length", protocol.MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", protocol.MESSAGE_BYTES_MAX),
    ("grpc.use_local_subchannel_pool", 1),  # a fresh channel must not inherit the back-off of its predecessor
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
)


class SessionLink(LedgerLink[pb.Fact]):
    """
    The `turns.Scheduler` that speaks gRPC: one session at a time, a new one `reconnect_seconds` after the last ended.

    Raises ConfigError where the way to the scheduler can't be as safe as it must.
    """

    def __init__(
        self,
        config: DataplaneConfig,
        auth: AuthConfig | None = None,
        *,
        clock: clocks.Clock = clocks.monotonic,
        timing: Timing | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        memory = Memory(seconds=config.memory_seconds, runs_max=config.memory_runs_max)
        super().__init__(Ledger(memory, clock, words=wire, send=self._put, send_soon=self._put_soon, environ=environ))
        self._config = config
        self._credentials = control.channel_credentials(auth or AuthConfig(), config.scheduler)
        self._metadata = control.metadata(auth or AuthConfig(), environ)
        self._clock = clock
        self._timing = timing or Timing()
        self._hello = pb.Hello(dataplane=config.name, boot=new_boot_id(), protocol=pb.Protocol(major=protocol.MAJOR, minor=protocol.MINOR))
        self._session: Session | None = None
        self._contacted = False
        self._closing = asyncio.Event()
        self._ended = asyncio.Event()
        self._running = False
        self._log = Log("dataplane")

    # ---- connecting -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep a session with the scheduler until cancelled or closed."""
        self._running = True
        sweeping = asyncio.ensure_future(self._sweep())
        try:
            said = set[str]()  # since there was a session: one that is refused again and again may break in different ways
            while not self._closing.is_set():
                reason = await self._connect()
                if self._was_welcomed:
                    said.clear()
                if reason not in said and len(said) < REASONS_MAX and not self._closing.is_set():
                    self._log.warning("no session with the scheduler; turns are held", scheduler=self._config.scheduler, reason=reason)
                    said.add(reason)
                await self._pause()
        finally:
            sweeping.cancel()
            await asyncio.gather(sweeping, return_exceptions=True)
            self._running = False
            self._ended.set()

    async def close(self) -> None:
        """Send what is pending, end the session, let `run` return; takes twice `linger_seconds` at most."""
        self._closing.set()
        if self._session is not None:
            self._session.finish()
        if not self._running:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * self._timing.linger_seconds):
                await self._ended.wait()
        if self._session is not None:
            self._session.cut("closed")
        await self._ended.wait()

    async def _connect(self) -> str:
        """One session on a channel of its own; returns why it ended."""
        self._was_welcomed = False
        channel = self._channel()
        try:
            open_call = channel.stream_stream(
                METHOD, request_serializer=pb.FactBatch.SerializeToString, response_deserializer=pb.OrderBatch.FromString
            )
            session = self._session = Session(
                cast("Call", open_call(metadata=self._metadata)),
                self.ledger,
                hello=self._hello,
                clock=self._clock,
                timing=self._timing,
                facts_max=self._config.facts_max,
            )
            reason = await session.live()
            self._was_welcomed = session.welcomed
            return reason
        finally:
            self._session = None
            await channel.close()

    def _channel(self) -> grpc.aio.Channel:
        if self._credentials is None:
            return grpc.aio.insecure_channel(self._config.scheduler, options=CHANNEL_OPTIONS)
        return grpc.aio.secure_channel(self._config.scheduler, self._credentials, options=CHANNEL_OPTIONS)

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._config.reconnect_seconds):
                await self._closing.wait()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self.ledger.sweep()

    def _put(self, fact: pb.Fact) -> None:
        if self._session is not None:
            self._session.outbox.put(fact)

    def _put_soon(self, fact: pb.Fact) -> None:
        if self._session is not None:
            self._session.outbox.put_soon(fact)

    @property
    def facts_waiting(self) -> int:
        """Not sent yet."""
        return len(self._session.outbox) if self._session is not None else 0

    def delivering(self, replica: str) -> None:
        if self._session is not None:
            self._session.delivering.add(replica)
