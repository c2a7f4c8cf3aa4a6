"""How does a call go out from an event loop?"""

import asyncio
import uuid
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

import httpx

from luftpause.client import ends, words
from luftpause.client.asking import AsyncAsking, Outage
from luftpause.client.bodies import AsyncBody
from luftpause.client.flow import Answer, Doing, Done, End, Kept, Lost, Missing, Own, Pause, Raised, Send, Through, Unsent, flow
from luftpause.client.heartbeat import PART
from luftpause.client.settings import Settings, asked_of
from luftpause.client.words import RESERVE, Lease, Question
from luftpause.kit.clock import monotonic
from luftpause.kit.quota_evidence import REFUSALS, excerpt_of

T = TypeVar("T")


class AsyncCalls:
    """What all calls of one transport on one loop share."""

    def __init__(self, settings: Settings, outage: Outage, inner: httpx.AsyncBaseTransport) -> None:
        self.settings = settings
        self.inner = inner
        self.asking = AsyncAsking(settings, outage)
        self.loop = asyncio.get_running_loop()
        self._kept: set[asyncio.Task[Any]] = set()

    async def handle(self, request: httpx.Request) -> httpx.Response:
        return await _Call(self, request).run()

    def keep(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Work that goes on when the call is cancelled."""
        task = asyncio.create_task(work)
        self._kept.add(task)
        task.add_done_callback(self._kept.discard)
        return task

    async def renewing(self, lease: Lease) -> None:
        while True:
            await asyncio.sleep(lease.expires_seconds / PART)
            await self.asking.ask(words.renew(lease))

    async def aclose(self) -> None:
        if self._kept:
            await asyncio.wait(self._kept)
        await self.asking.aclose()
        await self.inner.aclose()


class _Call:
    def __init__(self, calls: AsyncCalls, request: httpx.Request) -> None:
        self._calls = calls
        self._request = request
        self._began = self._sent_at = monotonic()
        self._lease: Lease | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._response: httpx.Response | None = None
        self._body: AsyncBody | None = None

    async def run(self) -> httpx.Response:
        settings, request = self._calls.settings, self._request
        asked = asked_of(settings, request.method, request.extensions)
        steps = flow(settings, asked, uuid.uuid4().hex, monotonic, replayable=ends.replayable(request))
        done: Done = None
        try:
            while True:
                try:
                    doing = steps.send(done)
                except StopIteration as stop:
                    return await self._end(cast("End", stop.value))
                done = await self._do(doing)
        except BaseException:
            await self._drop()
            raise

    async def _do(self, doing: Doing) -> Done:
        match doing:
            case Question() if doing.what == RESERVE:
                return await self._calls.asking.ask(doing)
            case Question():
                return await asyncio.shield(self._calls.keep(self._calls.asking.ask(doing)))
            case Pause(seconds):
                await asyncio.sleep(seconds)
                return None
            case Send(lease):
                await self._drop()
                return await self._send(lease)

    async def _send(self, lease: Lease | None) -> Answer | Unsent | Lost:
        self._sent_at = monotonic()
        self._lease = lease
        if lease is not None:
            self._renewing = asyncio.create_task(self._calls.renewing(lease))
        try:
            outcome = await self._make()
        except BaseException:
            self._over()
            if lease is not None:
                self._calls.keep(self._calls.asking.ask(words.report(lease, None, {}, "")))
            raise
        if not isinstance(outcome, Answer) or outcome.status in REFUSALS:
            self._over()
        return outcome

    async def _make(self) -> Answer | Unsent | Lost:
        try:
            response = await self._calls.inner.handle_async_request(self._request)
            body = AsyncBody(cast("httpx.AsyncByteStream", response.stream), response.headers.get("content-type", ""))
            self._response, self._body = response, body
            headers = list(response.headers.multi_items())
            if response.status_code not in REFUSALS:
                return Answer(response.status_code, headers)
            start, whole = await body.read()
            return Answer(response.status_code, headers, excerpt_of(start, response.headers.get("content-encoding", "")), whole)
        except ends.UNSENT as error:
            return Unsent(error)
        except Exception as error:  # noqa: BLE001 - it is raised again when the lease is settled
            return Lost(error)

    async def _end(self, end: End) -> httpx.Response:
        match end:
            case Own():
                await self._drop()
                return ends.own(end, self._calls.settings.target, self._request)
            case Missing():
                await self._drop()
                raise ends.missing(end, self._calls.settings, self._request)
            case Raised(error):
                await self._drop()
                raise error
            case Through() | Kept():
                return self._pass(end)

    def _pass(self, end: Through | Kept) -> httpx.Response:
        response, body = self._response, self._body
        if response is None or body is None:
            raise AssertionError("nothing passes that was not answered")
        response.stream = body
        response.extensions |= ends.told(self._lease, self._sent_at - self._began, governed=self._lease is not None)
        if isinstance(end, Kept):
            if end.when is not None:
                ends.readvised(response, end.when)
        elif (lease := end.lease) is not None:
            status, limits = response.status_code, end.limits

            async def ended(excerpt: str) -> None:
                self._over()
                await asyncio.shield(self._calls.keep(self._calls.asking.ask(words.report(lease, status, limits, excerpt))))

            body.ended = ended
        return response

    def _over(self) -> None:
        renewing, self._renewing = self._renewing, None
        if renewing is not None:
            renewing.cancel()

    async def _drop(self) -> None:
        """An answer that nobody will read."""
        body, self._body, self._response = self._body, None, None
        if body is not None:
            await body.aclose()
