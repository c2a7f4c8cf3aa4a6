"""Which requests are served, and by what?"""

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from luftpause.dataplane.answers import Answers
from luftpause.dataplane.bridge import Bridge
from luftpause.dataplane.identify import caller_of
from luftpause.dataplane.proxy import gate
from luftpause.dataplane.reader import Reader
from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.request_head import KnownHeads, RequestHead
from luftpause.dataplane.responses import refusal, whole
from luftpause.dataplane.room import Room, usual_bytes_max
from luftpause.dataplane.sweep import Sweep
from luftpause.kit.auth import EVERYBODY, Access, Tokens, unauthorized
from luftpause.kit.config import DataplaneConfig
from luftpause.kit.header_names import is_ours
from luftpause.kit.urls import host_of

if TYPE_CHECKING:
    from luftpause.dataplane.exchange import Request
    from luftpause.dataplane.http import Conn
    from luftpause.dataplane.proxy.proxy import Proxy

OPEN_PATHS: Final = frozenset({"/health", "/ready"})  # asked by load balancers under any name, without a token
METRICS: Final = "/metrics"
QUOTA: Final = "/v1/quota/"
KNOWN_MAX: Final = 64  # header values whose meaning is remembered
SAID_ONCE: Final = frozenset({
    b"authorization", b"x-api-key", b"content-type", b"content-encoding", b"origin",
    b"x-claude-code-session-id", b"session-id", b"x-session-id",
})  # fmt: skip
JSON_TYPE: Final = b"application/json"
EXPOSED: Final = (
    b"x-luftpause-run-id, x-luftpause-replica, x-luftpause-turn-id, x-luftpause-held-ms, x-luftpause-hold-reason, retry-after, "
    b"www-authenticate"
)
FOR_PAGES: Final = b"GET, POST, DELETE"  # methods that web pages may use

Serve = Callable[["Conn", "Request"], None]
MethodsOf = Callable[[str], frozenset[str]]
Others = Callable[[str], Mapping[str, Serve]]


class Door:
    """What all client connections share. `relayed` are the paths (POST only) whose requests have bodies and go to engines.

    `others` says by method who serves a path that is neither a turn's nor the ASGI app's, `methods_of` which methods the app has for a
    path; none: there is no such path. `proxy` serves `/proxy/…`; None: it is off.
    """

    def __init__(
        self,
        config: DataplaneConfig,
        sweep: Sweep,
        relayed: Mapping[str, Serve],
        methods_of: MethodsOf,
        others: Others = lambda _: {},
        tokens: Tokens | None = None,
        *,
        metrics_open: bool = False,
        proxy: "Proxy | None" = None,
    ) -> None:
        self.answers = Answers((*relayed, *OPEN_PATHS, METRICS, "/v1/models"))
        self.config = config
        self.sweep = sweep
        self.stopping = False
        self._heads = KnownHeads()
        self.room = Room(config.held_bytes_max or usual_bytes_max(), config.held_bytes_per_caller_max)
        self._relayed = relayed
        self._unlike_turns = others
        self._methods_of = methods_of
        self._hosts = frozenset(host.lower() for host in config.allowed_hosts)
        self._origins = frozenset(config.cors_origins)
        self._tokens = tokens if tokens is not None and tokens.required else None
        self._free = OPEN_PATHS | {METRICS} if metrics_open else OPEN_PATHS
        self._proxy = proxy

    def reader(self) -> Reader:
        return Reader(self.config.head_bytes_max, self.config.headers_max, self._heads)

    def check(self, reader: Reader) -> Rejection | None:
        """May this request be served? Asked when its head is complete."""
        head = reader.head
        rejection = None if head.allowed else self._check_sender(head)
        if rejection is None and (self._tokens is not None or gate.is_proxied(head)):
            access = self._check_token(head)
            rejection = access if isinstance(access, Rejection) else None
        if rejection is None and not head.allowed:
            rejection = self._check_kind(head) or _contradiction(head)
        if rejection is not None:
            return rejection
        if reader.body_bytes is not None and reader.body_bytes > self.config.max_body_bytes:
            return self.too_large()
        expected = head.named.get(b"expect")
        if expected is not None and expected.lower() != b"100-continue":
            return Rejection(417, "expectation", "the only expectation that is understood is 100-continue")
        head.allowed = True
        return None

    def _check_kind(self, head: RequestHead) -> Rejection | None:
        """What it brings to an engine must be plain JSON."""
        if head.path not in self._relayed or head.method != "POST":
            return None
        if not _is_json(head.named.get(b"content-type", b"")):
            return Rejection(415, "content_type", "the content type must be JSON: send `Content-Type: application/json`")
        if head.named.get(b"content-encoding", b"identity").lower() != b"identity":
            return Rejection(415, "content_encoding", "the body must not be compressed: leave `Content-Encoding` out")
        return None

    def too_large(self) -> Rejection:
        return Rejection(413, "body_too_large", f"the body has more than {self.config.max_body_bytes} bytes (max_body_bytes)")

    def _check_sender(self, head: RequestHead) -> Rejection | None:
        if "*" not in self._hosts and head.path not in OPEN_PATHS:
            host = _host(head.named.get(b"host", b""))
            if host not in self._hosts:
                return Rejection(403, "host", f"host {host[:100]!r} is not in dataplane.allowed_hosts")
        origin = head.named.get(b"origin")
        if origin is not None and origin.decode("latin-1") not in self._origins:
            return Rejection(403, "origin", f"origin {origin[:100].decode('latin-1')!r} is not in dataplane.cors_origins")
        return None

    def _check_token(self, head: RequestHead) -> Rejection | Access:
        """A browser's preflight has no token, and needs none."""
        if gate.is_proxied(head):
            return self._check_proxied(head)
        if self._tokens is None or head.path in self._free or head.method == "OPTIONS":
            return EVERYBODY
        shown = head.named.get(b"authorization"), head.named.get(b"x-api-key")
        access = self._tokens.access(*shown)
        if access is not None:
            return access
        wrong = unauthorized(*shown)
        return Rejection(wrong.status, wrong.code, wrong.message)

    def _check_proxied(self, head: RequestHead) -> Rejection | Access:
        if gate.is_preflight(head):
            return EVERYBODY
        return gate.OFF if self._proxy is None else self._proxy.access(head)

    def caller(self, head: RequestHead) -> str:
        """Whose body it is, where that is counted."""
        if self.room.per_caller_max is None:
            return ""
        access = self._check_token(head)
        principal = access.principal if isinstance(access, Access) else ""
        return principal or caller_of(head.named.get(b"x-luftpause-caller", b""))

    def cors(self, head: RequestHead) -> bytes:
        """Header lines that let the asking page read the answer; none without an Origin."""
        origin = head.named.get(b"origin")
        if origin is None or origin.decode("latin-1") not in self._origins:
            return b""
        return b"access-control-allow-origin: %b\r\naccess-control-expose-headers: %b\r\nvary: origin\r\n" % (origin, EXPOSED)

    def serve(self, conn: "Conn", request: "Request") -> None:
        """Answer a complete request that passed `check`."""
        head = request.head
        access = self._check_token(head)
        if isinstance(access, Rejection):  # it was taken back while the body came
            self._refuse(conn, request, access)
            return
        request.principal = access.principal
        relay = self._relayed.get(head.path)
        if relay is not None and head.method == "POST":
            relay(conn, request)
            return
        by_method = self._others(head)
        if head.method in by_method:
            by_method[head.method](conn, request)
            return
        methods = frozenset({"POST"}) if relay is not None else frozenset(by_method) or self._methods_of(head.path)
        if "GET" in methods and not by_method:
            methods |= {"HEAD"}
        if head.method == "OPTIONS" and (methods or head.path == "*"):
            self._options(conn, request, methods | {"OPTIONS"})
        elif not methods:
            self._refuse(conn, request, Rejection(404, "not_found", self._missing(head.path)))
        elif head.method not in methods:
            allow = ", ".join(sorted(methods | {"OPTIONS"}))
            self._refuse(conn, request, Rejection(405, "method_not_allowed", f"{head.path[:200]} takes {allow}", allow=allow))
        else:
            Bridge(conn, request).start()

    def _others(self, head: RequestHead) -> Mapping[str, Serve]:
        """By method, who serves what is neither a turn nor the app's."""
        return {head.method: self._serve_proxied} if gate.is_proxied(head) else self._unlike_turns(head.path)

    def _serve_proxied(self, conn: "Conn", request: "Request") -> None:
        if gate.is_preflight(request.head):
            self._options(conn, request, gate.METHODS)
        elif self._proxy is not None:
            self._proxy.serve(conn, request)

    def _missing(self, path: str) -> str:
        """Names the path that was meant where only `/v1` is missing or doubled; else where turns go, or calls for quota."""
        if path.startswith(QUOTA):
            return f"there is no {path[:200]} here; {QUOTA}TARGET/ is followed by what is asked of it, as in `reserve` (docs/governor.md)"
        meant = "/v1/" + path.strip("/").removeprefix("v1/").removeprefix("v1/")
        if meant in self._relayed or self._methods_of(meant):
            base = "ANTHROPIC_BASE_URL ends before /v1" if meant.startswith("/v1/messages") else "A client's base_url ends in /v1"
            return f"there is no {path[:200]} here; did you mean {meant[:200]}? {base}"
        return f"there is no {path[:200]} here; turns go to {', '.join(sorted(self._relayed))}"

    @staticmethod
    def _refuse(conn: "Conn", request: "Request", rejection: Rejection) -> None:
        conn.answer(refusal(rejection, more=conn.more, close=not conn.keeps, bodiless=request.head.method == "HEAD"))

    @staticmethod
    def _options(conn: "Conn", request: "Request", methods: frozenset[str]) -> None:
        allow = ", ".join(sorted(methods)).encode()
        more = conn.more + b"allow: %b\r\n" % allow
        if conn.more:
            asked = request.head.named.get(b"access-control-request-headers", b"authorization, content-type")
            more += b"access-control-allow-methods: %b\r\naccess-control-allow-headers: %b\r\naccess-control-max-age: 600\r\n" % (
                FOR_PAGES,
                asked,
            )
        conn.answer(whole(204, b"", more=more, close=not conn.keeps))


def _contradiction(head: RequestHead) -> Rejection | None:
    """A header that says who asks, or for what, came twice and says two things: whoever looked at it before may have read the other one."""
    if len(head.named) == len(head.headers):
        return None
    for name, value in head.headers:
        if (name in SAID_ONCE or is_ours(name)) and value != head.named[name]:
            return Rejection(
                400, "header_twice", f"header {name.decode('latin-1')[:100]} was sent twice with different values; send it once"
            )
    return None


@functools.lru_cache(maxsize=KNOWN_MAX)
def _host(value: bytes) -> str:
    return host_of(value.decode("latin-1"))


@functools.lru_cache(maxsize=KNOWN_MAX)
def _is_json(content_type: bytes) -> bool:
    kind = content_type.partition(b";")[0].strip().lower()
    return kind == JSON_TYPE or (kind.startswith(b"application/") and kind.endswith(b"+json"))
