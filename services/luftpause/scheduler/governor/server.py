"""How do other processes ask this governor?"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

import grpc
import grpc.aio

from luftpause.kit import control, quota_wire
from luftpause.kit.auth import Tokens
from luftpause.kit.logs import Log
from luftpause.kit.quota_port import BAD_QUESTION, Answer, Granted, QuotaPort, QuotaUnavailableError, Refused
from luftpause.kit.wire.v1 import governor_pb2 as pb
from luftpause.scheduler.governor.questions import mistake

WAITING_MAX: Final = 20_000  # questions of one stream
REPLIES_PER_MESSAGE: Final = 256
EVENTS_WAITING_MAX: Final = 1_000  # replies that wait; beyond it those who look on miss some

Context = grpc.aio.ServicerContext[pb.QuotaQuestions, pb.QuotaReplies]

log = Log("governor")


class QuotaServer:
    """The gRPC service `Governor`: one stream per peer, one task per question that waits."""

    def __init__(self, port: QuotaPort, tokens: Tokens | None = None) -> None:
        self._port = port
        self._tokens = tokens or Tokens()

    def handlers(self) -> grpc.GenericRpcHandler:
        ask = grpc.stream_stream_rpc_method_handler(self._ask, pb.QuotaQuestions.FromString, pb.QuotaReplies.SerializeToString)
        return grpc.method_handlers_generic_handler(quota_wire.SERVICE, {"Ask": ask})

    async def _ask(self, requests: AsyncIterator[pb.QuotaQuestions], context: Context) -> None:
        if self._tokens.access(_authorization(context)) is None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, f"a token is needed here: {control.TO_MEND}")
        await _Stream(self._port).serve(requests, context)


class _Stream:
    """What one peer has asked and not been told yet."""

    def __init__(self, port: QuotaPort) -> None:
        self._port = port
        self._asked: dict[int, asyncio.Task[None]] = {}
        self._replies: deque[tuple[pb.QuotaReply, pb.QuotaLease | None]] = deque()  # with the lease that it grants
        self._filled = asyncio.Event()

    async def serve(self, requests: AsyncIterator[pb.QuotaQuestions], context: Context) -> None:
        writing = asyncio.create_task(self._write(context))
        reading = asyncio.create_task(self._read(requests))
        try:
            done, _ = await asyncio.wait({writing, reading}, return_when=asyncio.FIRST_COMPLETED)
            for error in [task.exception() for task in done if not task.cancelled()]:
                if error is not None:
                    problem = f"{type(error).__name__}: {error}"
                    log.warning("a stream of questions about quotas broke off; its dataplane connects again", problem=problem)
        finally:
            await _ended({writing, reading, *self._asked.values()})
            await self._release_unsent()

    async def _read(self, requests: AsyncIterator[pb.QuotaQuestions]) -> None:
        async for batch in requests:
            for question in batch.questions:
                self._take(question)

    def _take(self, question: pb.QuotaQuestion) -> None:
        number = question.number
        if question.WhichOneof("question") == "forget":
            if (asked := self._asked.get(question.forget.number)) is not None:
                asked.cancel()
        elif number in self._asked or len(self._asked) >= WAITING_MAX:
            why = f"more than {WAITING_MAX} questions wait" if number not in self._asked else f"question {number} was asked twice"
            self._reply(pb.QuotaReply(number=number, unavailable=why))
        else:
            task = asyncio.create_task(self._answer(question))
            self._asked[number] = task
            task.add_done_callback(lambda _: self._asked.pop(number, None))

    async def _answer(self, question: pb.QuotaQuestion) -> None:
        number = question.number
        try:
            match question.WhichOneof("question"):
                case "view":
                    self._reply(pb.QuotaReply(number=number, view=await self._port.view()))
                case "watch":
                    await self._tell_events(number)
                case None:
                    self._reply(pb.QuotaReply(number=number, unknown=pb.QuotaDone()))
                case _ if why := mistake(question):
                    self._reply(quota_wire.reply(number, Refused(BAD_QUESTION, why)))
                case _:
                    said = await _asked(self._port, question)
                    lease = _lease(question, said) if isinstance(said, Granted) else None
                    self._reply(quota_wire.reply(number, said), lease)
        except asyncio.CancelledError:
            self._reply(pb.QuotaReply(number=number, gone=pb.QuotaDone()))  # so that each question has its reply
            raise
        except QuotaUnavailableError as error:
            self._reply(pb.QuotaReply(number=number, unavailable=error.message))
        except Exception as error:
            log.exception("a question about quotas failed", question=question.WhichOneof("question"))
            why = f"the governor failed to answer ({type(error).__name__}); its log says why"
            self._reply(pb.QuotaReply(number=number, unavailable=why))

    async def _tell_events(self, number: int) -> None:
        async for event in self._port.events():
            if len(self._replies) < EVENTS_WAITING_MAX:
                self._reply(pb.QuotaReply(number=number, event=event))

    def _reply(self, reply: pb.QuotaReply, lease: pb.QuotaLease | None = None) -> None:
        self._replies.append((reply, lease))
        self._filled.set()

    async def _write(self, context: Context) -> None:
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._replies:
                batch = [self._replies[at] for at in range(min(len(self._replies), REPLIES_PER_MESSAGE))]
                await context.write(pb.QuotaReplies(replies=[reply for reply, _ in batch]))
                for _ in batch:
                    self._replies.popleft()

    async def _release_unsent(self) -> None:
        """Nobody can know of these grants."""
        for _, lease in self._replies:
            if lease is not None:
                with contextlib.suppress(QuotaUnavailableError):
                    await self._port.release(lease.target, lease.want, lease.fence)


async def _asked(port: QuotaPort, question: pb.QuotaQuestion) -> Answer:
    match question.WhichOneof("question"):
        case "reserve":
            r = question.reserve
            return await port.reserve(
                r.target, r.want, caller=r.caller, priority=r.priority, cost=dict(r.cost) if r.has_cost else None,
                lease_seconds=r.lease_seconds or None, wait_seconds=r.wait_seconds, retry=r.retry,
            )  # fmt: skip
        case "renew":
            return await port.renew(question.renew.target, question.renew.want, question.renew.fence)
        case "release":
            return await port.release(question.release.target, question.release.want, question.release.fence)
        case "enable":
            return await port.enable(question.enable.target)
        case "observe":
            told = question.observe
            return await port.observe(told.target, status=told.status, headers=dict(told.headers), body_excerpt=told.body_excerpt)
        case _:
            lease, told = question.report.lease, question.report.answer
            return await port.report(
                lease.target, lease.want, lease.fence, status=told.status or None, headers=dict(told.headers),
                body_excerpt=told.body_excerpt, actual=dict(question.report.actual),
            )  # fmt: skip


def _lease(question: pb.QuotaQuestion, granted: Granted) -> pb.QuotaLease:
    return pb.QuotaLease(target=question.reserve.target, want=granted.want, fence=granted.fence)


async def _ended(tasks: set[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _authorization(context: Context) -> bytes | None:
    found = dict(context.invocation_metadata() or ()).get(control.AUTHORIZATION)
    return found.encode() if isinstance(found, str) else found
