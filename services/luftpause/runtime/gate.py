"""Who may send this request to the runtime, as whom, and which web page may read the answer?"""

import re
from collections.abc import Sequence
from typing import Final

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Message, Scope, Send

from luftpause.kit.auth import CHALLENGE, Tokens, unauthorized
from luftpause.kit.config import RuntimeConfig
from luftpause.kit.errors import error_body
from luftpause.kit.urls import host_of

METHODS: Final = {"/mcp": "GET, POST, DELETE", "/mcp/": "GET, POST, DELETE", "/status": "GET"}  # that web pages may use
STATUS: Final = "/status"
METRICS: Final = "/metrics"
HEALTH: Final = "/health"  # asked by load balancers under any name
WELL_KNOWN: Final = "/.well-known/"  # where clients look for a login after a 401; there is none
EXPOSED: Final = "mcp-session-id, mcp-protocol-version, www-authenticate, retry-after"
PREFLIGHT_SECONDS: Final = 600

_LOCAL_ORIGIN: Final = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?", re.IGNORECASE)


class Gate:
    """Hosts, origins and tokens, in this order. `status_origins` may read `/status` beside those that may call."""

    def __init__(
        self, config: RuntimeConfig, tokens: Tokens | None = None, *, status_origins: Sequence[str] = (), metrics_open: bool = False
    ) -> None:
        self._tokens = tokens or Tokens()
        self._hosts = frozenset(host.lower().strip("[]") for host in (*config.allowed_hosts, config.host))
        self._origins = frozenset(map(_origin, config.allowed_origins))
        self._status_origins = self._origins | frozenset(map(_origin, status_origins))
        self._free = frozenset({METRICS}) if metrics_open else frozenset[str]()

    def admit(self, scope: Scope, headers: Headers) -> Response | None:
        """None: it may pass; then `scope["user"]` is the caller whose own token it came with. Else what to answer."""
        path = scope["path"]
        if path == HEALTH:
            return None
        refusal = self._foreign(path, headers)
        if refusal is not None:
            return refusal
        if scope["method"] == "OPTIONS" and path in METHODS and "access-control-request-method" in headers:
            return _preflight(METHODS[path], headers)
        if path in self._free or path.startswith(WELL_KNOWN):
            return None
        return self._stranger(scope, headers)

    def answering(self, scope: Scope, headers: Headers, send: Send) -> Send:
        """`send`, which also tells a browser that the page which asked may read the answer."""
        origin = headers.get("origin", "")
        if not origin or _origin(origin) not in (self._status_origins if scope["path"] == STATUS else self._origins):
            return send
        more = [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", EXPOSED.encode()),
            (b"vary", b"origin"),
        ]

        async def with_cors(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *more]}
            await send(message)

        return with_cors

    def _foreign(self, path: str, headers: Headers) -> Response | None:
        host = host_of(headers.get("host", ""))
        if "*" not in self._hosts and host.strip("[]") not in self._hosts:
            return error(421, "host_not_allowed", f"Host `{host}` is not served here; to allow it, add it to runtime.allowed_hosts")
        origin = _origin(headers.get("origin", ""))
        allowed = self._status_origins if path == STATUS else self._origins
        if origin and origin not in allowed and not _LOCAL_ORIGIN.fullmatch(origin):
            key = "status_origins" if path == STATUS else "allowed_origins"
            return error(403, "origin_not_allowed", f"Origin `{origin}` may not call; to allow it, add it to runtime.{key}")
        return None

    def _stranger(self, scope: Scope, headers: Headers) -> Response | None:
        shown = _bytes(headers.get("authorization")), _bytes(headers.get("x-api-key"))
        access = self._tokens.access(*shown)
        if access is None:
            wrong = unauthorized(*shown)
            return error(wrong.status, wrong.code, wrong.message, {"www-authenticate": CHALLENGE})
        if access.principal:
            # The SDK ties sessions and request states to it; what it ties them to must not be the secret.
            scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=access.principal, scopes=[]))
        return None


def principal_of(scope: Scope) -> str:
    """The caller whose own token the request came with; empty: what it says of its caller is believed."""
    user = scope.get("user")
    return user.username if isinstance(user, AuthenticatedUser) else ""


def owner_name(principal: str) -> str:
    """How the journal names a principal as the owner of runs."""
    return f"principal:{principal}"


def error(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Response:
    return Response(error_body(message, code=code, status=status), status, headers, media_type="application/json")


def _preflight(methods: str, headers: Headers) -> Response:
    """Browsers ask without a token; whoever reads the answer is decided by `Gate.answering`."""
    asked = headers.get("access-control-request-headers", "authorization, content-type")
    answer = {
        "access-control-allow-methods": methods,
        "access-control-allow-headers": asked,
        "access-control-max-age": str(PREFLIGHT_SECONDS),
    }
    return Response(status_code=204, headers=answer)


def _origin(origin: str) -> str:
    return origin.lower().rstrip("/")


def _bytes(value: str | None) -> bytes | None:
    return value.encode("latin-1") if value is not None else None
