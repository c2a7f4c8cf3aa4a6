"""In which words is a turn told of: to the scheduler before it, to its client in the headers of the answer?"""

import time
from typing import Final

from luftpause.dataplane.formats import Format
from luftpause.dataplane.identify import Identity, Reading
from luftpause.dataplane.sweep import NEVER
from luftpause.dataplane.turns import Ask, Placement

COMPACTS: Final = 2  # the level from which on a runtime is asked to shorten what it sends


def ask_of(
    api: Format, identity: Identity, reading: Reading, *, turn: str, fresh_run: str, body_bytes: int, body_hash: bytes,
    answer_tokens_max: int = 0,
) -> Ask:  # fmt: skip
    return Ask(
        turn=turn,
        fresh_run=fresh_run,
        model=reading.model,
        turn_class=identity.turn_class,
        caller=identity.caller,
        run=identity.run,
        parent=identity.parent,
        kind=api.kind,
        api=api.api,
        tool_call_ids=reading.tool_call_ids,
        head_digest=reading.head_digest,
        previous_response=reading.previous_response,
        body_hash=body_hash,
        traceparent=identity.traceparent,
        principal=identity.principal,
        body_bytes=body_bytes,
        priority=identity.priority,
        answer_tokens_max=answer_tokens_max,
    )


def placed_lines(turn: str, placement: Placement) -> bytes:
    """Header lines of a turn that an engine has."""
    reason = b"x-luftpause-hold-reason: %b\r\n" % placement.hold_reason.encode() if placement.hold_reason else b""
    if placement.lease is not None and placement.lease.level >= COMPACTS:
        reason += b"x-luftpause-compact: 1\r\n"
    return (
        b"x-luftpause-run-id: %b\r\nx-luftpause-turn-id: %b\r\nx-luftpause-replica: %b\r\nx-luftpause-held-ms: %d\r\n"
        b"%bx-accel-buffering: no\r\n"
    ) % (placement.run.encode(), turn.encode(), placement.replica.name.encode(), placement.held_ms, reason)


def name_lines(turn: str, run: str) -> bytes:
    """`run` is empty while nobody knows it."""
    named = b"x-luftpause-run-id: %b\r\n" % run.encode() if run else b""
    return b"%bx-luftpause-turn-id: %b\r\n" % (named, turn.encode())


def held_lines(since: float, reason: str) -> bytes:
    """How long a turn was held that never had a place, and why. `since` in monotonic seconds; NEVER: it was not."""
    if since == NEVER:
        return b""
    held_ms = (time.monotonic() - since) * 1000
    return b"x-luftpause-held-ms: %d\r\nx-luftpause-hold-reason: %b\r\n" % (held_ms, reason.encode())
