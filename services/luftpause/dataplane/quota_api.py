"""How do agents that call other APIs themselves share quotas over HTTP (`/v1/quota/…`)?

What they ask about leases stands before each of their calls, so it is answered without the ASGI app; looking on is the app's.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from luftpause.dataplane.quota_call import LEAVING, Endpoint, QuotaCall
from luftpause.dataplane.quota_questions import JSON, QuotaQuestions
from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.responses import PASSING, refusal
from luftpause.kit.config_governor import GovernorConfig
from luftpause.kit.errors import LuftpauseError
from luftpause.kit.quota_port import QuotaPort, QuotaUnavailableError

if TYPE_CHECKING:
    from luftpause.dataplane import exchange
    from luftpause.dataplane.door import Serve
    from luftpause.dataplane.http import Conn

PREFIX: Final = "/v1/quota/"
WATCHING_MAX: Final = 64  # who look on by one process
KEEPALIVE_SECONDS: Final = 15.0

Page = Callable[[Request], Awaitable[Response]]


class QuotaRoutes:
    """The endpoints: `methods` says who serves a question, `add_to` adds the rest to the app. `stop` ends those that wait."""

    def __init__(self, config: GovernorConfig, port: QuotaPort) -> None:
        self._port = port
        self._stopping = asyncio.Event()
        self._watching = 0
        self._waiting: set[QuotaCall] = set()
        self._asked = asked = QuotaQuestions(config, port)
        told = {"report": asked.report, "renew": asked.renew, "release": asked.release, "observe": asked.observe, "enable": asked.enable}
        self._methods: dict[str, Mapping[str, Serve]] = {
            "reserve": {"POST": self._reserve},
            **{name: {"POST": partial(self._serve, endpoint)} for name, endpoint in told.items()},
        }

    def add_to(self, api: Starlette) -> None:
        api.add_route("/v1/quota", _answered(self.view), methods=["GET"])
        api.add_route("/v1/quota/events", _answered(self.events), methods=["GET"])

    def stop(self) -> None:
        self._stopping.set()
        for call in tuple(self._waiting):
            call.stop()

    # ---- leases

    def methods(self, path: str) -> "Mapping[str, Serve]":
        """Who serves a question that is asked at this path, by method; empty: none is."""
        if not path.startswith(PREFIX):
            return {}
        target, _, what = path[len(PREFIX) :].partition("/")
        return self._methods.get(what, {}) if target else {}

    def _serve(self, endpoint: Endpoint, conn: "Conn", request: "exchange.Request") -> None:
        target = unquote_to_bytes(request.head.path[len(PREFIX) :].partition("/")[0].encode("latin-1")).decode(errors="replace")
        QuotaCall(conn, request, target, self._waiting).start(endpoint)

    def _reserve(self, conn: "Conn", request: "exchange.Request") -> None:
        if self._stopping.is_set():
            conn.answer(refusal(LEAVING, more=conn.more, close=not conn.keeps))
        else:
            self._serve(self._asked.reserve, conn, request)

    # ---- looking on

    async def view(self, _: Request) -> Response:
        return Response(await self._port.view(), media_type=JSON, headers={"cache-control": "no-store"})

    async def events(self, request: Request) -> Response:
        await self._port.view()  # there is a governor, or this is a 503
        if self._watching >= WATCHING_MAX:  # nothing is awaited from here until it is counted, so those who come at once are, too
            return _error(Rejection(503, "too_many_watchers", f"{WATCHING_MAX} look on already; try again later", retry_after_s=10))
        stream = self._told(request, self._port.events())
        return StreamingResponse(stream, media_type="text/event-stream", headers={"cache-control": "no-store"})

    async def _told(self, request: Request, told: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
        """Server-sent events; a comment while there is none. Ends when the client leaves, the governor is lost, or the dataplane stops."""
        self._watching += 1
        event = asyncio.ensure_future(anext(told, None))
        ends = [asyncio.ensure_future(_left(request)), asyncio.ensure_future(self._stopping.wait())]
        try:
            yield b": quota events\n\n"
            while not any(end.done() for end in ends):
                await asyncio.wait({event, *ends}, timeout=KEEPALIVE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if not event.done():
                    yield b": \n\n"
                elif (said := event.result()) is None:
                    return
                else:
                    yield b"data: %b\n\n" % said
                    event = asyncio.ensure_future(anext(told, None))
        except QuotaUnavailableError:
            return
        finally:
            self._watching -= 1
            for each in (event, *ends):
                each.cancel()
            await asyncio.gather(event, *ends, return_exceptions=True)
            await told.aclose()


def _answered(page: Page) -> Page:
    """With what goes wrong as the one JSON shape."""

    async def answer(request: Request) -> Response:
        try:
            return await page(request)
        except LuftpauseError as error:
            return _error(Rejection(error.status, error.code, error.message, error.retry_after_s or 0))

    return answer


def _error(rejection: Rejection) -> Response:
    retry = rejection.retry_after_s or (1 if rejection.status in PASSING else 0)
    headers = {"retry-after": str(retry)} if retry else None
    return Response(rejection.body(), rejection.status, headers, media_type=JSON)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
