"""What does a request say about its turn: which run, class and caller, which model, what came before it?

What it says is all that is read here; which run it belongs to is resolved by the scheduler.
"""

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.turns import TurnClass

RUN_ID: Final = re.compile(r"[\x21-\x7e]{1,128}")
TRACEPARENT: Final = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
CALLER_BYTES_MAX: Final = 128
CLASSES: Final = {each.value: each for each in TurnClass}
PRIORITIES: Final = frozenset({"0", "1", "2"})

Headers = Mapping[bytes, bytes]
"""By lower-case name; the last of several with the same name."""


class Identity(Struct, frozen=True, gc=False):
    """What the headers say, and whose own token they hold (`principal`). `run` empty: not stated."""

    run: str = ""
    parent: str = ""
    turn_class: TurnClass = TurnClass.INTERACTIVE
    caller: str = ""
    traceparent: str = ""
    principal: str = ""
    priority: int = -1  # claimed, for quotas; -1: none


NOBODY: Final = Identity()
RUN: Final = b"x-luftpause-run-id"
PARENT: Final = b"x-luftpause-parent-run-id"
TELLING: Final = frozenset({
    RUN, PARENT, b"x-luftpause-class", b"x-luftpause-caller", b"x-luftpause-priority",
    b"traceparent",
    b"x-claude-code-session-id", b"session-id", b"x-session-id",
})  # fmt: skip


class Reading(Struct, frozen=True, gc=False):
    """What the body says. `tool_call_ids` are those it echoes, newest first."""

    model: str
    stream: bool = False
    mentions_usage: bool = False  # `stream_options` is there, whatever it says
    tool_call_ids: tuple[str, ...] = ()
    head_digest: bytes = b""
    previous_response: str = ""
    stores: bool = False  # the engine will store the answer, if it is asked to and can


def identify(headers: Headers, principal: str = "") -> Identity | Rejection:
    """Read the headers of spec/1 "Request headers" and those that harnesses send by themselves. A principal is its own caller."""
    if TELLING.isdisjoint(headers):
        return Identity(caller=principal, principal=principal) if principal else NOBODY
    runs = _runs(headers)
    if isinstance(runs, Rejection):
        return runs
    run, parent = runs
    turn_class = TurnClass.INTERACTIVE
    named = headers.get(b"x-luftpause-class")
    if named is not None:
        found = CLASSES.get(named.decode("latin-1").lower())
        if found is None:
            return _bad_header("bad_class", "x-luftpause-class", f"must be one of {', '.join(CLASSES)}", named)
        turn_class = found
    priority = headers.get(b"x-luftpause-priority")
    if priority is not None and priority.decode("latin-1") not in PRIORITIES:
        return _bad_header("bad_priority", "x-luftpause-priority", "must be 0, 1 or 2", priority)
    traceparent = headers.get(b"traceparent", b"")
    return Identity(
        run=run,
        parent=parent,
        turn_class=turn_class,
        caller=principal or caller_of(headers.get(b"x-luftpause-caller", b"")),
        traceparent=traceparent.decode() if traceparent and TRACEPARENT.fullmatch(traceparent) else "",
        principal=principal,
        priority=-1 if priority is None else int(priority),
    )


def caller_of(value: bytes) -> str:
    """At most 128 bytes, cut at a character boundary; bytes that are no UTF-8 are read as Latin-1."""
    if not value:
        return ""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = value.decode("latin-1")
    encoded = text.encode()
    return text if len(encoded) <= CALLER_BYTES_MAX else encoded[:CALLER_BYTES_MAX].decode(errors="ignore")


def _runs(headers: Headers) -> tuple[str, str] | Rejection:
    """Run and parent: what our own headers say goes before a harness's."""
    run, parent = _harness_run(headers)
    stated, above = headers.get(RUN), headers.get(PARENT)
    for name, value in ((RUN, stated), (PARENT, above)):
        if value is not None and RUN_ID.fullmatch(value.decode("latin-1")) is None:
            return _bad_header("bad_run_id", name.decode(), "must be 1 to 128 visible ASCII characters")
    return run if stated is None else stated.decode("latin-1"), parent if above is None else above.decode("latin-1")


def _harness_run(headers: Headers) -> tuple[str, str]:
    """Run and parent from the headers of Claude Code, Codex or OpenCode; empty where there are none."""
    session = _id(headers, b"x-claude-code-session-id")
    if session:
        agent = _id(headers, b"x-claude-code-agent-id")
        if not agent:
            return session, ""
        above = _id(headers, b"x-claude-code-parent-agent-id")
        return _within(session, agent), _within(session, above) if above else session
    codex = _id(headers, b"session-id")
    if codex:
        return _codex_thread(headers, codex)
    opencode = _id(headers, b"x-session-id")
    return opencode, _id(headers, b"x-parent-session-id") if opencode else ""


def _codex_thread(headers: Headers, session: str) -> tuple[str, str]:
    """A session's sub-agents share its id; each is a thread. The first thread has the session's id."""
    thread = _id(headers, b"thread-id")
    if not thread or thread == session:
        return session, ""
    return thread, _id(headers, b"x-codex-parent-thread-id") or session


def _within(session: str, agent: str) -> str:
    joined = f"{session}:{agent}"
    return joined if len(joined) <= 128 else session


def _id(headers: Headers, name: bytes) -> str:
    """A harness's id; one that can't be a run id is as good as none (it isn't our header, so it is no error)."""
    raw = headers.get(name)
    if not raw:
        return ""
    value = raw.decode("latin-1")
    return value if RUN_ID.fullmatch(value) else ""


def _bad_header(code: str, name: str, rule: str, value: bytes = b"") -> Rejection:
    shown = f", not {value[:40].decode('latin-1')!r}" if value else ""
    return Rejection(400, code, f"header {name} {rule}{shown}")
