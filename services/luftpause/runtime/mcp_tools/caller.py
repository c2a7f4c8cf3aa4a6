"""Who calls a tool: for fairness, and for access to runs?"""

import re
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from luftpause.runtime.gate import owner_name, principal_of
from luftpause.runtime.mcp_tools.sessions import session_name

CALLER_BYTES_MAX: Final = 128
TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
TOOL_CALL_ID: Final = re.compile(r"[\x21-\x7e]{1,128}")
TAKES_EVENTS: Final = "luftpause.takes_events"  # in the request's scope

Context = ServerRequestContext[Any, Any]


def caller_of(ctx: Context, spawned_by: str = "") -> str:
    """Token, `x-luftpause-caller`, session, Codex's conversation, the run that asks, the client's name: the first that there is."""
    if principal := _principal(ctx):
        return principal
    thread = (ctx.meta or {}).get("threadId")
    said = _clean(header(ctx, "x-luftpause-caller")) or owner_of(ctx) or _clean(thread if isinstance(thread, str) else "")
    if said:
        return said
    if spawned_by:
        return _clean(f"run:{spawned_by}")
    client = ctx.session.client_params
    name = _clean(client.client_info.name) if client is not None else ""
    return f"mcp:{name or 'anonymous'}"


def owner_of(ctx: Context) -> str | None:
    """Whose token it is, else the session, as long as there is one; None: whoever has the handle."""
    if principal := _principal(ctx):
        return owner_name(principal)
    session = session_of(ctx)
    return f"session:{session}" if session else None


def session_of(ctx: Context) -> str:
    """Names the session of the older protocol; the newer one has none, whatever a client sends."""
    session = "" if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else header(ctx, "mcp-session-id")
    return session_name(session) if session else ""


def traceparent_of(ctx: Context) -> str:
    """Of the request's `_meta`, else its header; a malformed one is none."""
    said = (ctx.meta or {}).get("traceparent") or header(ctx, "traceparent")
    return said if isinstance(said, str) and TRACEPARENT.fullmatch(said) else ""


def tool_call_id_of(ctx: Context) -> str:
    """Of the model's call that became this request, as Claude Code and Codex tell it; the dataplane saw it in that model's answer."""
    meta = ctx.meta or {}
    said = meta.get("claudecode/toolUseId") or meta.get("callId")
    return said if isinstance(said, str) and TOOL_CALL_ID.fullmatch(said) else ""


def takes_events(ctx: Context) -> bool:
    """Does the client read an event stream as the answer? Else only the result reaches it."""
    return ctx.request is None or bool(ctx.request.scope.get(TAKES_EVENTS, True))


def header(ctx: Context, name: str) -> str:
    return ctx.request.headers.get(name, "") if ctx.request is not None else ""


def _principal(ctx: Context) -> str:
    return principal_of(ctx.request.scope) if ctx.request is not None else ""


def _clean(text: str) -> str:
    """Printable, at most CALLER_BYTES_MAX bytes, cut at a character."""
    printable = "".join(character for character in text if character.isprintable()).strip()
    return printable.encode()[:CALLER_BYTES_MAX].decode(errors="ignore")
