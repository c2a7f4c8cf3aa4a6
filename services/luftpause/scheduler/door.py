"""Which HTTP requests may read the scheduler's pages?"""

from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from luftpause.kit.auth import CHALLENGE, Tokens, unauthorized
from luftpause.kit.config import SchedulerConfig
from luftpause.kit.errors import LuftpauseError
from luftpause.kit.urls import host_of
from luftpause.scheduler.static import PREFIX

OPEN_PATHS: Final = frozenset({"/health"})  # asked by load balancers under any name
PAGES: Final = frozenset({"/"})  # needs no token, nor what it loads (below PREFIX): what it shows does
METRICS: Final = "/metrics"


class Door:
    """The ASGI app before the pages: refuses foreign hosts (a web page whose name was made to point here) and callers without a token."""

    def __init__(self, app: ASGIApp, config: SchedulerConfig, tokens: Tokens, *, metrics_open: bool) -> None:
        self._app = app
        self._tokens = tokens
        self._hosts = frozenset(host.lower().strip("[]") for host in (*config.allowed_hosts, config.host))
        self._free = PAGES | {METRICS} if metrics_open else PAGES

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        error = None if scope["path"] in OPEN_PATHS else self._refusal(scope)
        app = self._app if error is None else _answer(error)
        await app(scope, receive, send)

    def _refusal(self, scope: Scope) -> LuftpauseError | None:
        headers = Headers(scope=scope)
        host = host_of(headers.get("host", ""))
        if "*" not in self._hosts and host.strip("[]") not in self._hosts:
            message = f"Host `{host[:100]}` is not served here; to allow it, add it to scheduler.allowed_hosts"
            return LuftpauseError(message, code="host_not_allowed", status=421)
        if scope["path"] in self._free or scope["path"].startswith(PREFIX):
            return None
        shown = _bytes(headers.get("authorization")), _bytes(headers.get("x-api-key"))
        return unauthorized(*shown) if self._tokens.access(*shown) is None else None


def _bytes(value: str | None) -> bytes | None:
    return value.encode("latin-1") if value is not None else None


def _answer(error: LuftpauseError) -> Response:
    headers = {"www-authenticate": CHALLENGE} if error.status == 401 else None
    return Response(error.body(), error.status, headers, media_type="application/json")
