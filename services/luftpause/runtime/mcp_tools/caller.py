"""Who calls a tool: for fairness, and for access to runs?"""

from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

CALLER_BYTES_MAX: Final = 128

Context = ServerRequestContext[Any, Any]


def caller_of(ctx: Context) -> str:
    """`x-luftpause-caller`, else the session, else Codex's conversation, else the client's name."""
    said = _clean(header(ctx, "x-luftpause-caller"))
    session = session_of(ctx)
    meta: dict[str, Any] = dict(ctx.meta or {})
    thread = meta.get("threadId")
    client = ctx.session.client_params
    name = _clean(client.client_info.name) if client is not None else ""
    return said or session or _clean(thread if isinstance(thread, str) else "") or f"mcp:{name or 'anonymous'}"


def owner_of(ctx: Context) -> str | None:
    """The session, as long as there is one; None: whoever has the handle."""
    session = session_of(ctx)
    return f"session:{session}" if session else None


def session_of(ctx: Context) -> str:
    """The id of a session of the older protocol; the newer one has none, whatever a client sends."""
    return "" if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else header(ctx, "mcp-session-id")


def header(ctx: Context, name: str) -> str:
    return ctx.request.headers.get(name, "") if ctx.request is not None else ""


def _clean(text: str) -> str:
    """Printable, at most CALLER_BYTES_MAX bytes, cut at a character."""
    printable = "".join(character for character in text if character.isprintable()).strip()
    return printable.encode()[:CALLER_BYTES_MAX].decode(errors="ignore")
