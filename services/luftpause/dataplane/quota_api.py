"""How do agents that call other APIs themselves share quotas over HTTP (`/v1/quota/…`)?"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from functools import partial
from math import ceil
from typing import Any, Final, TypeVar

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from luftpause.dataplane import quota_bodies as bodies
from luftpause.dataplane.identify import Identity, identify
from luftpause.dataplane.quota_bodies import Body
from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.turns import TurnClass
from luftpause.kit.config_governor import GovernorConfig
from luftpause.kit.errors import LuftpauseError, error_type
from luftpause.kit.ids import random_text
from luftpause.kit.quota_cost import cost_of_method
from luftpause.kit.quota_port import Gone, Granted, NotNow, QuotaPort, QuotaUnavailableError, Refused, Released, Reported
from luftpause.kit.quota_priority import priority_of

JSON: Final = "application/json"
PRIORITY: Final = b"x-luftpause-priority"
CALLER_BYTES_MAX: Final = 128
WATCHING_MAX: Final = 64  # who look on by one process
KEEPALIVE_SECONDS: Final = 15.0
SOON_SECONDS: Final = 0.02
STATUS_OF_REFUSALS: Final = {
    "unknown_target": 404, "too_large": 413, "queue_full": 503, "out_of_credit": 402, "retry_budget": 429, "target_removed": 404,
}  # fmt: skip
LEAVING: Final = Rejection(503, "stopping", "this dataplane stops; ask again, another one may serve", retry_after_s=1)

B = TypeVar("B", bound=Body)
Endpoint = Callable[[Request], Awaitable[Response]]


class QuotaRoutes:
    """The endpoints. `stop` ends those that wait."""

    def __init__(self, config: GovernorConfig, port: QuotaPort) -> None:
        self._config = config
        self._port = port
        self._stopping = asyncio.Event()
        self._watching = 0

    def add_to(self, api: Starlette) -> None:
        asked: dict[str, Endpoint] = {
            "reserve": self.reserve, "report": self.report, "renew": self.renew, "release": self.release, "observe": self.observe,
            "enable": self.enable,
        }  # fmt: skip
        for name, endpoint in asked.items():
            api.add_route(f"/v1/quota/{{target}}/{name}", _answered(endpoint), methods=["POST"])
        api.add_route("/v1/quota", _answered(self.view), methods=["GET"])
        api.add_route("/v1/quota/events", _answered(self.events), methods=["GET"])

    def stop(self) -> None:
        self._stopping.set()

    # ---- leases

    async def reserve(self, request: Request) -> Response:
        asked = await _read(request, bodies.Reserve)
        said = _identity(request)
        caller = said.caller or _cut(asked.caller or "")
        batch = said.turn_class is TurnClass.BATCH if asked.turn_class is None else asked.turn_class == "batch"
        priority = priority_of(self._config.callers, caller, _claimed(request, asked), batch=batch)
        lease = asked.lease or random_text()
        target, want = request.path_params["target"], _want(request, lease)
        answer = await self._waiting(
            request,
            partial(
                self._port.reserve,
                target,
                want,
                caller=caller,
                priority=priority,
                cost=bodies.cost_of(asked.cost) or cost_of_method(self._profile(target), asked.method),
                lease_seconds=asked.lease_ms / 1000 if asked.lease_ms is not None else None,
                wait_seconds=asked.wait_ms / 1000,
                retry=asked.retry,
            ),
            waits=asked.wait_ms > 0,
        )
        match answer:
            case None:  # nobody reads it
                raise _Refusal(LEAVING)
            case Granted():
                return _json({
                    "lease": lease,
                    "fence": answer.fence,
                    "expiresMs": round(answer.expires_seconds * 1000),
                    "level": answer.level,
                })
            case NotNow():
                return _not_now(target, lease, answer)
            case Refused():
                return _refused(answer)

    def _profile(self, target: str) -> str | None:
        found = self._config.targets.get(target)
        return found.profile if found is not None else None

    async def _waiting(
        self, request: Request, reserve: Callable[[], Coroutine[None, None, Granted | NotNow | Refused]], *, waits: bool
    ) -> Granted | NotNow | Refused | None:
        """The answer; None: the client has left, and nothing was asked."""
        if self._stopping.is_set():
            raise _Refusal(LEAVING)
        if not waits:
            return await reserve()
        asking = asyncio.ensure_future(reserve())
        ends: list[asyncio.Future[Any]] = []
        try:
            await asyncio.wait({asking}, timeout=SOON_SECONDS)  # nearly always it is free, and nobody must be watched
            if not asking.done():
                ends = [asyncio.ensure_future(_left(request)), asyncio.ensure_future(self._stopping.wait())]
                await asyncio.wait({asking, *ends}, return_when=asyncio.FIRST_COMPLETED)
            if self._stopping.is_set() and not asking.done():
                raise _Refusal(LEAVING)
            return asking.result() if asking.done() else None
        finally:
            for each in (asking, *ends):
                each.cancel()
            if ends:
                await asyncio.gather(asking, *ends, return_exceptions=True)

    async def report(self, request: Request) -> Response:
        told = await _read(request, bodies.Report)
        answer = await self._port.report(
            request.path_params["target"],
            _want(request, told.lease),
            told.fence,
            status=told.status,
            headers=bodies.readable(told.headers),
            body_excerpt=told.body,
            actual=told.actual,
        )
        return _reported(answer)

    async def renew(self, request: Request) -> Response:
        told = await _read(request, bodies.Lease)
        answer = await self._port.renew(request.path_params["target"], _want(request, told.lease), told.fence)
        match answer:
            case Gone():
                message = "there is no such lease any more; what it reserved counts as used. Reserve again before the next call"
                raise _Refusal(Rejection(409, "lease_gone", message))
            case Refused():
                return _refused(answer)
            case _:
                return _json({"expiresMs": round(answer.expires_seconds * 1000)})

    async def release(self, request: Request) -> Response:
        told = await _read(request, bodies.Lease)
        answer = await self._port.release(request.path_params["target"], _want(request, told.lease), told.fence)
        return _refused(answer) if isinstance(answer, Refused) else _json({"released": isinstance(answer, Released)})

    async def observe(self, request: Request) -> Response:
        told = await _read(request, bodies.Observe)
        answer = await self._port.observe(
            request.path_params["target"], status=told.status, headers=bodies.readable(told.headers), body_excerpt=told.body
        )
        return _reported(answer)

    async def enable(self, request: Request) -> Response:
        """Anybody who may call may say so: if it is not true, that costs one call."""
        answer = await self._port.enable(request.path_params["target"])
        return _refused(answer) if isinstance(answer, Refused) else Response(status_code=204)

    # ---- looking on

    async def view(self, request: Request) -> Response:
        return Response(await self._port.view(), media_type=JSON, headers={"cache-control": "no-store"})

    async def events(self, request: Request) -> Response:
        await self._port.view()  # there is a governor, or this is a 503
        if self._watching >= WATCHING_MAX:  # nothing is awaited from here until it is counted, so those who come at once are, too
            raise _Refusal(Rejection(503, "too_many_watchers", f"{WATCHING_MAX} look on already; try again later", retry_after_s=10))
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


class _Refusal(Exception):  # noqa: N818 - an answer, not a fault
    def __init__(self, rejection: Rejection) -> None:
        super().__init__(rejection.message)
        self.rejection = rejection


def _answered(endpoint: Endpoint) -> Endpoint:
    """With what goes wrong as the one JSON shape."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except _Refusal as refusal:
            return _error(refusal.rejection)
        except LuftpauseError as error:
            return _error(Rejection(error.status, error.code, error.message, error.retry_after_s or 0))

    return answer


# ---- what was asked ---------------------------------------------------------------------------------------------


async def _read(request: Request, kind: type[B]) -> B:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != JSON and not content_type.endswith("+json"):
        raise _Refusal(Rejection(415, "content_type", "the content type must be JSON: send `Content-Type: application/json`"))
    found = bodies.read(kind, await request.body())
    if isinstance(found, Rejection):
        raise _Refusal(found)
    return found


def _identity(request: Request) -> Identity:
    said = identify(dict(request.headers.raw), request.state.principal)
    if isinstance(said, Rejection):
        raise _Refusal(said)
    return said


def _claimed(request: Request, asked: bodies.Reserve) -> int | None:
    """What the body claims, else the header, which has been checked."""
    if asked.priority is not None:
        if asked.priority not in {0, 1, 2}:
            raise _Refusal(Rejection(400, "bad_priority", f"`priority` is {asked.priority}; it must be 0, 1 or 2"))
        return asked.priority
    header = dict(request.headers.raw).get(PRIORITY)
    return int(header) if header is not None else None


def _want(request: Request, lease: str) -> str:
    """A lease belongs to whoever reserved it, where callers have tokens of their own."""
    owner = request.state.principal
    return f"call:{len(owner)}:{owner}:{lease}"  # names of callers may hold colons too


def _cut(caller: str) -> str:
    return caller.encode()[:CALLER_BYTES_MAX].decode(errors="ignore")


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


# ---- what is answered -------------------------------------------------------------------------------------------


def _json(fields: dict[str, object]) -> Response:
    return Response(orjson.dumps(fields), media_type=JSON)


def _error(rejection: Rejection) -> Response:
    retry = rejection.retry_after_s or (1 if rejection.status in {429, 503} else 0)
    headers = {"retry-after": str(retry)} if retry else None
    return Response(rejection.body(), rejection.status, headers, media_type=JSON)


def _not_now(target: str, lease: str, answer: NotNow) -> Response:
    """The one shape of errors, and when to ask again: in both headers and in the body. With the name that keeps its place."""
    milliseconds = max(1, ceil(answer.retry_seconds * 1000))
    seconds = max(1, ceil(answer.retry_seconds))
    error = {
        "message": f"no quota of {target} now ({answer.reason}); ask again in {milliseconds} ms",
        "type": error_type(429),
        "code": "quota",
        "reason": answer.reason,
        "retryMs": milliseconds,
        "lease": lease,
    }
    headers = {"retry-after": str(seconds), "retry-after-ms": str(milliseconds)}
    return Response(orjson.dumps({"type": "error", "error": error}), 429, headers, media_type=JSON)


def _refused(refused: Refused) -> Response:
    status = STATUS_OF_REFUSALS.get(refused.code, 400)
    answer = _error(Rejection(status, refused.code, refused.message))
    if status == 429:
        answer.headers["x-should-retry"] = "false"
    return answer


def _reported(answer: Reported | Refused) -> Response:
    if isinstance(answer, Refused):
        return _refused(answer)
    fields: dict[str, object] = {"settled": answer.settled, "limited": answer.limited}
    if answer.kind is not None:
        fields["kind"] = answer.kind
    if answer.retry_seconds is not None:
        fields["retryMs"] = ceil(answer.retry_seconds * 1000)
    return _json(fields)
