"""How is a governor in another process asked?

One stream to the scheduler for all questions of this process. Where there is none within a second a question is answered with
`QuotaUnavailableError`: nothing is granted silently, and nothing waits for a scheduler that may be gone.
"""

import asyncio
import contextlib
import itertools
import os
from collections import Counter, deque
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final, cast

import grpc
import grpc.aio

from luftpause.kit import control, protocol, quota_wire
from luftpause.kit.config import AuthConfig
from luftpause.kit.logs import Log
from luftpause.kit.quota_port import (
    Answer,
    Cost,
    Enabled,
    Gone,
    Granted,
    NotNow,
    QuotaUnavailableError,
    Refused,
    Released,
    Renewed,
    Reported,
)  # fmt: skip
from luftpause.kit.wire.v1 import governor_pb2 as pb

ANSWER_SECONDS: Final = 5.0  # beyond what a question may wait
RECONNECT_SECONDS: Final = 1.0
CONNECT_SECONDS: Final = 1.0  # a question waits so long for a stream: this process may just have started
QUESTIONS_PER_MESSAGE: Final = 256
EVENTS_WAITING_MAX: Final = 1_000
CHANNEL_OPTIONS: Final = (
    ("grpc.max_send_message_length", protocol.MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", protocol.MESSAGE_BYTES_MAX),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
)
AWAY: Final = "the scheduler can't be asked for quota now; nothing was granted, try again"

log = Log("dataplane")


class RemotePort:
    """The `QuotaPort` by gRPC. `run` must be running. Raises ConfigError where the way to the scheduler can't be as safe as it must."""

    def __init__(
        self,
        address: str,
        auth: AuthConfig | None = None,
        *,
        environ: Mapping[str, str] = os.environ,
        answer_seconds: float = ANSWER_SECONDS,
        reconnect_seconds: float = RECONNECT_SECONDS,
        connect_seconds: float = CONNECT_SECONDS,
    ) -> None:
        self._address = address
        self._credentials = control.channel_credentials(auth or AuthConfig(), address)
        self._metadata = control.metadata(auth or AuthConfig(), environ)
        self._answer_seconds = answer_seconds
        self._reconnect_seconds = reconnect_seconds
        self._connect_seconds = connect_seconds
        self._stream: _Stream | None = None
        self._there = asyncio.Event()  # a stream is

    async def run(self) -> None:
        """Keep a stream to the scheduler, until cancelled."""
        said = ""
        while True:
            reason = await self._connect()
            if reason != said:
                log.warning("no way to the rate governor; calls for quota get 503", scheduler=self._address, reason=reason)
                said = reason
            await asyncio.sleep(self._reconnect_seconds)

    async def _connect(self) -> str:
        """One stream on a channel of its own; returns why it ended."""
        channel = self._channel()
        try:
            open_call = channel.stream_stream(
                quota_wire.METHOD, request_serializer=pb.QuotaQuestions.SerializeToString, response_deserializer=pb.QuotaReplies.FromString
            )
            call: Any = open_call(metadata=self._metadata)
            await call.wait_for_connection()
            self._stream = _Stream(call)
            self._there.set()
            return await self._stream.live()
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name.lower()}: {error.details()}"
        except Exception as error:
            log.exception("asking the rate governor failed; please report it with this line")
            return f"{type(error).__name__}: {error}"
        finally:
            self._stream = None
            self._there.clear()
            await channel.close()

    def _channel(self) -> grpc.aio.Channel:
        if self._credentials is None:
            return grpc.aio.insecure_channel(self._address, options=CHANNEL_OPTIONS)
        return grpc.aio.secure_channel(self._address, self._credentials, options=CHANNEL_OPTIONS)

    # ---- questions

    async def reserve(
        self,
        target: str,
        want: str,
        *,
        caller: str,
        priority: int,
        cost: Cost | None = None,
        lease_seconds: float | None = None,
        wait_seconds: float = 0.0,
        retry: bool = False,
    ) -> Granted | NotNow | Refused:
        question = quota_wire.reserve(target, want, caller, priority, cost, lease_seconds, wait_seconds, retry=retry)
        return cast("Granted | NotNow | Refused", await self._said(question, want, wait_seconds))

    async def report(
        self,
        target: str,
        want: str,
        fence: int,
        *,
        status: int | None,
        headers: Mapping[str, str],
        body_excerpt: str = "",
        actual: Cost | None = None,
    ) -> Reported | Refused:
        lease = pb.QuotaLease(target=target, want=want, fence=fence)
        question = quota_wire.report(lease, quota_wire.answer(target, status, headers, body_excerpt), actual)
        return cast("Reported | Refused", await self._said(question, want))

    async def renew(self, target: str, want: str, fence: int) -> Renewed | Gone | Refused:
        question = pb.QuotaQuestion(renew=pb.QuotaLease(target=target, want=want, fence=fence))
        return cast("Renewed | Gone | Refused", await self._said(question, want))

    async def release(self, target: str, want: str, fence: int) -> Released | Gone | Refused:
        question = pb.QuotaQuestion(release=pb.QuotaLease(target=target, want=want, fence=fence))
        return cast("Released | Gone | Refused", await self._said(question, want))

    async def observe(self, target: str, *, status: int, headers: Mapping[str, str], body_excerpt: str = "") -> Reported | Refused:
        question = pb.QuotaQuestion(observe=quota_wire.answer(target, status, headers, body_excerpt))
        return cast("Reported | Refused", await self._said(question, ""))

    async def enable(self, target: str) -> Enabled | Refused:
        question = pb.QuotaQuestion(enable=pb.QuotaEnable(target=target))
        return cast("Enabled | Refused", await self._said(question, ""))

    async def view(self) -> bytes:
        reply = await self._ask(pb.QuotaQuestion(view=pb.QuotaView()))
        if reply.WhichOneof("reply") != "view":
            raise QuotaUnavailableError(_why(reply))
        return reply.view

    async def events(self) -> AsyncGenerator[bytes, None]:
        stream = await self._connected()
        waiting: asyncio.Queue[pb.QuotaReply | None] = asyncio.Queue(EVENTS_WAITING_MAX)
        number = stream.watch(waiting)
        try:
            while (reply := await waiting.get()) is not None:
                yield reply.event
        finally:
            stream.forget(number)

    async def _said(self, question: pb.QuotaQuestion, want: str, wait_seconds: float = 0.0) -> Answer:
        reply = await self._ask(question, wait_seconds)
        answer = quota_wire.said(reply, want)
        if answer is None:
            raise QuotaUnavailableError(_why(reply))
        return answer

    async def _ask(self, question: pb.QuotaQuestion, wait_seconds: float = 0.0) -> pb.QuotaReply:
        stream = self._stream or await self._connected()
        return await stream.ask(question, wait_seconds + self._answer_seconds)

    async def _connected(self) -> "_Stream":
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._connect_seconds):
                await self._there.wait()
        if self._stream is None:
            raise QuotaUnavailableError(AWAY)
        return self._stream


class _Stream:
    """One stream: what was asked on it, and who waits for the answer."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[pb.QuotaReply]] = {}
        self._forgotten: dict[int, pb.QuotaReserve] = {}  # whose grant would come too late
        self._reserving: Counter[tuple[str, str]] = Counter()  # who waits for which target and want: the same lease, if they are several
        self._watching: dict[int, asyncio.Queue[pb.QuotaReply | None]] = {}
        self._outbox: deque[pb.QuotaQuestion] = deque()
        self._filled = asyncio.Event()
        self._over = False

    async def live(self) -> str:
        """Until it breaks; why."""
        tasks = {asyncio.create_task(self._read()), asyncio.create_task(self._write())}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return _reason(next(iter(done)))
        finally:
            self._over = True
            self._call.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._fail()

    def _fail(self) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(QuotaUnavailableError(AWAY))
        for watching in self._watching.values():
            _put(watching, None)

    async def ask(self, question: pb.QuotaQuestion, seconds: float) -> pb.QuotaReply:
        """Raises QuotaUnavailableError, also where no answer comes within `seconds`."""
        wish = question.reserve if question.WhichOneof("question") == "reserve" else None
        if wish is not None:
            self._ask_again(wish)
        number = self._send(question)
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        taken = False
        try:
            async with asyncio.timeout(seconds):
                reply = await waiting
            taken = True
        except TimeoutError:
            raise QuotaUnavailableError(AWAY) from None
        else:
            return reply
        finally:
            del self._waiting[number]
            if wish is not None:
                self._reserving[_key(wish)] -= 1
                if not self._reserving[_key(wish)]:
                    del self._reserving[_key(wish)]
                if not taken and not self._over:
                    self._leave(number, wish, waiting)

    def _ask_again(self, wish: pb.QuotaReserve) -> None:
        """A grant that comes for an earlier, forgotten question about this want is the one that is asked for now."""
        self._reserving[_key(wish)] += 1
        for number in [number for number, each in self._forgotten.items() if each.want == wish.want and each.target == wish.target]:
            del self._forgotten[number]

    def _leave(self, number: int, reserve: pb.QuotaReserve, waiting: "asyncio.Future[pb.QuotaReply]") -> None:
        """Whoever asked has gone: before the grant comes, or in the very moment."""
        if waiting.done() and not waiting.cancelled():
            self._release(reserve, waiting.result())
        else:
            self._forgotten[number] = reserve
            self.forget(number)

    def _release(self, reserve: pb.QuotaReserve, reply: pb.QuotaReply) -> None:
        if reply.WhichOneof("reply") == "granted" and not self._reserving[_key(reserve)]:
            lease = pb.QuotaLease(target=reserve.target, want=reserve.want, fence=reply.granted.fence)
            self._send(pb.QuotaQuestion(release=lease))

    def watch(self, waiting: "asyncio.Queue[pb.QuotaReply | None]") -> int:
        number = self._send(pb.QuotaQuestion(watch=pb.QuotaWatch()))
        self._watching[number] = waiting
        return number

    def forget(self, number: int) -> None:
        self._watching.pop(number, None)
        self._send(pb.QuotaQuestion(forget=pb.QuotaForget(number=number)))

    def _send(self, question: pb.QuotaQuestion) -> int:
        if self._over:
            return 0
        question.number = next(self._numbers)
        self._outbox.append(question)
        self._filled.set()
        return question.number

    async def _write(self) -> str:
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._outbox:
                batch = [self._outbox.popleft() for _ in range(min(len(self._outbox), QUESTIONS_PER_MESSAGE))]
                await self._call.write(pb.QuotaQuestions(questions=batch))

    async def _read(self) -> str:
        while True:
            batch = await self._call.read()
            if not isinstance(batch, pb.QuotaReplies):
                return "the scheduler ended the stream"
            for reply in batch.replies:
                self._take(reply)

    def _take(self, reply: pb.QuotaReply) -> None:
        waiting, watching = self._waiting.get(reply.number), self._watching.get(reply.number)
        forgotten = self._forgotten.pop(reply.number, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(reply)
        elif watching is not None:
            _put(watching, reply if reply.WhichOneof("reply") == "event" else None)
        elif forgotten is not None:
            self._release(forgotten, reply)


def _key(wish: pb.QuotaReserve) -> tuple[str, str]:
    return wish.target, wish.want


def _put(waiting: "asyncio.Queue[pb.QuotaReply | None]", reply: pb.QuotaReply | None) -> None:
    """The oldest make way."""
    if waiting.full():
        with contextlib.suppress(asyncio.QueueEmpty):
            waiting.get_nowait()
    waiting.put_nowait(reply)


def _why(reply: pb.QuotaReply) -> str:
    if reply.WhichOneof("reply") == "unavailable":
        return reply.unavailable
    return "the scheduler does not know this question about quotas; install the same luftpause version on both, the scheduler first"


def _reason(task: "asyncio.Task[str]") -> str:
    if task.cancelled():
        return "the call was cancelled"
    match task.exception():
        case None:
            return task.result()
        case grpc.aio.AioRpcError() as error:
            return f"{error.code().name.lower()}: {error.details()}"
        case error:
            return f"{type(error).__name__}: {error}"
