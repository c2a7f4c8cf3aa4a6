"""Which HTTP requests reach the MCP server, and in which form do its answers leave?"""

import re
from collections.abc import Callable
from typing import Final

import mcp_types as types
import orjson
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from luftpause.kit.config import RuntimeConfig
from luftpause.runtime import request_body
from luftpause.runtime.gate import Gate, error, principal_of
from luftpause.runtime.mcp_tools.caller import TAKES_EVENTS
from luftpause.runtime.mcp_tools.sessions import LiveSessions, session_name
from luftpause.runtime.sse_json import JsonOnly, SseOnly, WithoutCancelled

PATHS: Final = frozenset({"/mcp", "/mcp/"})
JSON: Final = "application/json"
SSE: Final = "text/event-stream"
VERSION: Final = "mcp-protocol-version"
KNOWN: Final = (*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS)
BEGINS: Final = "luftpause.begins"  # in the request's scope: it asks for a session, whatever session it shows


class Front:
    """The runtime's ASGI app: asks the gate, gives `/mcp` and `/mcp/` to the MCP server, the rest to `others`."""

    def __init__(
        self,
        config: RuntimeConfig,
        mcp: ASGIApp,
        others: ASGIApp,
        sessions: LiveSessions,
        stopping: Callable[[], bool],
        gate: Gate | None = None,
        *,
        replays: bool = False,
    ) -> None:
        self._gate = gate or Gate(config)
        self._mcp = AuthContextMiddleware(mcp)
        self._others = others
        self._sessions = sessions
        self._stopping = stopping
        self._replays = replays
        self._body_bytes_max = config.max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        # RFC 9110 5.5: white space around a value is not part of it; the parser leaves what follows the value.
        scope = {**scope, "headers": [(name, value.strip(b" \t")) for name, value in scope["headers"]]}
        headers = Headers(scope=scope)
        send = self._gate.answering(scope, headers, send)
        refusal = self._gate.admit(scope, headers)
        if refusal is not None:
            await refusal(scope, receive, send)
        elif scope["path"] not in PATHS:
            await self._others(scope, receive, send)
        elif self._stopping():
            await error(503, "stopping", "the runtime is stopping", {"retry-after": "5"})(scope, receive, send)
        else:
            await self._serve_session(scope, headers, receive, send)

    async def _serve_session(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        """Notes whether the request's session lives; only the SDK knows, and its status tells."""
        version = headers.get(VERSION)
        session = headers.get("mcp-session-id", "") if version is None or version in HANDSHAKE_PROTOCOL_VERSIONS else ""
        name = session_name(session) if session and not principal_of(scope) else ""  # a principal's runs are not its session's
        known = False

        async def watched(message: Message) -> None:
            nonlocal known
            if message["type"] == "http.response.start" and name and BEGINS not in scope:
                if message["status"] == 404 or (scope["method"] == "DELETE" and message["status"] < 300):
                    self._sessions.ended(name)
                elif message["status"] < 300 and not known:
                    known = True
                    self._sessions.began(name)
            await send(message)

        try:
            await self._serve_mcp(scope, headers, receive, watched)
        finally:
            if known:
                self._sessions.answered(name)

    async def _serve_mcp(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        json, sse = accepts(headers.get("accept", "*/*"))
        if scope["method"] != "POST":
            await self._mcp(scope if self._replays else {**scope, "headers": _without_replay(headers)}, receive, send)
        elif not (json or sse):
            message = f"answers are {JSON} or {SSE}; accept at least one of them"
            await error(406, "not_acceptable", message)(scope, receive, send)
        else:
            out = WithoutCancelled(send).send if sse else JsonOnly(send).send
            await self._post(scope, headers, receive, out if json else SseOnly(out).send)

    async def _post(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        if refusal := _bad_form(headers):
            await refusal(scope, receive, send)
            return
        try:
            body = await request_body.read(receive, self._body_bytes_max)
        except request_body.LeftError:
            return
        except request_body.BodyTooLongError:
            message = f"the request is longer than {self._body_bytes_max} bytes; shorten it, or raise runtime.max_body_bytes"
            await error(413, "body_too_long", message, {"connection": "close"})(scope, receive, send)
            return
        asked = request_body.understood(body)
        if wrong := asked.wrong or _bad_version(headers, asked):
            answer = {"jsonrpc": "2.0", "id": None, "error": {"code": types.INVALID_REQUEST, "message": wrong}}
            await Response(orjson.dumps(answer), 400, media_type=JSON)(scope, receive, send)
            return
        if asked.begins:
            scope[BEGINS] = True
        takes_events = accepts(headers.get("accept", "*/*"))[1]
        inner = {**scope, "path": "/mcp", "headers": _for_the_sdk(headers, asked), TAKES_EVENTS: takes_events}
        await self._mcp(inner, request_body.replayed(asked.body, receive), send)


def accepts(header: str) -> tuple[bool, bool]:
    """Does an Accept header take JSON, and an event stream? Empty takes both."""
    json = sse = False
    for entry in (header.strip() or "*/*").lower().split(","):
        kind, *parameters = (part.strip() for part in entry.split(";"))
        if any(re.fullmatch(r"q=0(\.0*)?", parameter) for parameter in parameters):
            continue
        json = json or kind in {"*/*", "application/*", JSON}
        sse = sse or kind in {"*/*", "text/*", SSE}
    return json, sse


def _bad_form(headers: Headers) -> Response | None:
    """A body that can't be read, whatever is in it."""
    kind = headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != JSON:
        return error(415, "unsupported_media_type", f"content-type must be {JSON}, not `{kind}`")
    coding = headers.get("content-encoding", "identity").strip().lower()
    if coding not in {"identity", ""}:
        return error(415, "unsupported_coding", f"the body must be sent as it is, not in the content-encoding `{coding}`")
    return None


def _bad_version(headers: Headers, asked: request_body.Asked) -> str:
    """The SDK knows what to say where the message names the version too."""
    version = headers.get(VERSION, "")
    if not version or asked.version or version in KNOWN:
        return ""
    return f"protocol version `{version}` is not spoken here; there are {', '.join(KNOWN)}"


def _for_the_sdk(headers: Headers, asked: request_body.Asked) -> list[tuple[bytes, bytes]]:
    """The SDK insists on both forms; what the client doesn't take is turned into what it takes on the way out.

    Who asks for a new session may still show one that is over, as clients do after a restart of ours.
    """
    changed = MutableHeaders(raw=list(headers.raw))
    changed["accept"] = f"{JSON}, {SSE}"
    changed["content-type"] = JSON
    changed["content-length"] = str(len(asked.body))
    if asked.begins:
        del changed["mcp-session-id"]
    if not changed.get(VERSION, "-"):
        del changed[VERSION]
    return changed.raw


def _without_replay(headers: Headers) -> list[tuple[bytes, bytes]]:
    """We give events no ids, so there is nothing to replay; the SDK would not answer such a request at all."""
    return [(name, value) for name, value in headers.raw if name != b"last-event-id"]
