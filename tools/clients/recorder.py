"""Which requests does a client make of a proxy, and how is each answered?

Stands between the two, passes every request and answer on as it is, and notes their heads.
"""

from collections.abc import AsyncIterator
from typing import Any, Final

import httpx
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

Json = dict[str, Any]

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
OF_A_CONNECTION: Final = frozenset({"connection", "content-length", "host", "keep-alive", "transfer-encoding"})
TELLING: Final = ("session", "-agent-", "thread", "x-luftpause")  # parts of the names of headers that say whose a request is


class Recorder:
    """`seen`: each request that was answered, in that order. `bare`: headers that say whose a request is are not passed on."""

    def __init__(self, target: str, http: httpx.AsyncClient, *, bare: bool = False) -> None:
        self.seen: list[Json] = []
        self._dropped = TELLING if bare else ()
        self._target = target.rstrip("/")
        self._http = http

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/{path:path}", self._pass_on, methods=METHODS)])

    async def _pass_on(self, request: Request) -> Response:
        query = f"?{request.url.query}" if request.url.query else ""
        headers = [
            (name, value)
            for name, value in request.headers.items()
            if name not in OF_A_CONNECTION and not any(part in name for part in self._dropped)
        ]
        asked = self._http.build_request(
            request.method, f"{self._target}{request.url.path}{query}", headers=headers, content=await request.body()
        )
        answer = await self._http.send(asked, stream=True)
        self._note(request, answer)
        passed = {name: value for name, value in answer.headers.items() if name not in OF_A_CONNECTION}
        return StreamingResponse(_raw(answer), answer.status_code, passed, background=BackgroundTask(answer.aclose))

    def _note(self, request: Request, answer: httpx.Response) -> None:
        telling = {name: value for name, value in request.headers.items() if any(part in name for part in TELLING) and len(value) <= 128}
        said = {name.removeprefix("x-luftpause-"): value for name, value in answer.headers.items() if name.startswith("x-luftpause-")}
        self.seen.append({
            "method": request.method, "path": request.url.path, "status": answer.status_code, "headers": telling, **said
        })  # fmt: skip


async def _raw(answer: httpx.Response) -> AsyncIterator[bytes]:
    """A client that leaves closes the answer."""
    try:
        async for part in answer.aiter_raw():
            yield part
    finally:
        await answer.aclose()
