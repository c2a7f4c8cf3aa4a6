"""How does a call go out from a thread?"""

import time
import uuid
from typing import cast

import httpx

from luftpause.client import ends, words
from luftpause.client.asking import Asking, Outage
from luftpause.client.bodies import Body
from luftpause.client.flow import Answer, Doing, Done, End, Kept, Lost, Missing, Own, Pause, Raised, Send, Through, Unsent, flow
from luftpause.client.heartbeat import Heartbeat
from luftpause.client.settings import Settings, asked_of
from luftpause.client.words import Lease, Question
from luftpause.kit.clock import monotonic
from luftpause.kit.quota_evidence import REFUSALS, excerpt_of


class Calls:
    """What all calls of one transport share."""

    def __init__(self, settings: Settings, outage: Outage, inner: httpx.BaseTransport) -> None:
        self.settings = settings
        self.inner = inner
        self.asking = Asking(settings, outage)
        self.heartbeat = Heartbeat(lambda lease: self.asking.ask(words.renew(lease)))

    def handle(self, request: httpx.Request) -> httpx.Response:
        return _Call(self, request).run()

    def close(self) -> None:
        self.heartbeat.close()
        self.asking.close()
        self.inner.close()


class _Call:
    def __init__(self, calls: Calls, request: httpx.Request) -> None:
        self._calls = calls
        self._request = request
        self._began = self._sent_at = monotonic()
        self._lease: Lease | None = None
        self._response: httpx.Response | None = None
        self._body: Body | None = None

    def run(self) -> httpx.Response:
        settings, request = self._calls.settings, self._request
        asked = asked_of(settings, request.method, request.extensions)
        steps = flow(settings, asked, uuid.uuid4().hex, monotonic, replayable=ends.replayable(request))
        done: Done = None
        try:
            while True:
                done = self._do(steps.send(done))
        except StopIteration as stop:
            return self._end(cast("End", stop.value))
        except BaseException:
            self._drop()
            raise

    def _do(self, doing: Doing) -> Done:
        match doing:
            case Question():
                return self._calls.asking.ask(doing)
            case Pause(seconds):
                time.sleep(seconds)
                return None
            case Send(lease):
                self._drop()
                return self._send(lease)

    def _send(self, lease: Lease | None) -> Answer | Unsent | Lost:
        self._sent_at = monotonic()
        self._lease = lease
        if lease is not None:
            self._calls.heartbeat.add(lease)
        try:
            outcome = self._make()
        except BaseException:
            self._over()
            if lease is not None:
                self._calls.asking.ask(words.report(lease, None, {}, ""))
            raise
        if not isinstance(outcome, Answer) or outcome.status in REFUSALS:
            self._over()
        return outcome

    def _make(self) -> Answer | Unsent | Lost:
        try:
            response = self._calls.inner.handle_request(self._request)
            body = Body(cast("httpx.SyncByteStream", response.stream), response.headers.get("content-type", ""))
            self._response, self._body = response, body
            headers = list(response.headers.multi_items())
            if response.status_code not in REFUSALS:
                return Answer(response.status_code, headers)
            start, whole = body.read()
            return Answer(response.status_code, headers, excerpt_of(start, response.headers.get("content-encoding", "")), whole)
        except ends.UNSENT as error:
            return Unsent(error)
        except Exception as error:  # noqa: BLE001 - it is raised again when the lease is settled
            return Lost(error)

    def _end(self, end: End) -> httpx.Response:
        match end:
            case Own():
                self._drop()
                return ends.own(end, self._calls.settings.target, self._request)
            case Missing():
                self._drop()
                raise ends.missing(end, self._calls.settings, self._request)
            case Raised(error):
                self._drop()
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
            body.ended = lambda excerpt: self._settle(words.report(lease, status, limits, excerpt))
        return response

    def _settle(self, report: Question) -> None:
        self._over()
        self._calls.asking.ask(report)

    def _over(self) -> None:
        if self._lease is not None:
            self._calls.heartbeat.remove(self._lease)

    def _drop(self) -> None:
        """An answer that nobody will read."""
        body, self._body, self._response = self._body, None, None
        if body is not None:
            body.close()
