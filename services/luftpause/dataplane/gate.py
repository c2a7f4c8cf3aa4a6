"""May the head of an engine's answer go to the client yet, or could this answer still be one that nobody should see?

As long as nothing has gone on, a full queue or an empty answer can be dealt with; afterwards every byte is the client's.
"""

from enum import Enum
from typing import Final

from luftpause.dataplane.limits import is_refusal
from luftpause.dataplane.observe import is_queue_full
from luftpause.dataplane.sse import BOM, data_of

# How an event that reports an error begins, without white space. Everything else passes at once.
ERROR_EVENTS: Final = (b'data:{"error"', b'data:{"object":"error"', b'data:{"type":"error"', b"event:error")
WHITE: Final = b" \t\r\n"
BEGINS_BYTES: Final = 256
UNKNOWN_FIELD: Final = frozenset({400, 422})  # what engines say of a field that they don't know
USAGE_FIELDS: Final = (b"stream_options", b"include_usage")


EVENT_STREAM: Final = b"text/event-stream"
JSON: Final = b"application/json"
COMPRESSED: Final = b"compressed"
PAGE: Final = b"text/html"
FIELDS: Final = (b"data:", b"event:", b"id:", b"retry:", b":")  # how the first line of an event stream begins


class Verdict(Enum):
    WAIT = "wait"  # not enough was seen
    GO = "go"
    BUSY = "busy"  # the engine's queue is full
    LIMITED = "limited"  # its quota is used up
    UNASKABLE = "unaskable"  # it refuses the question for usage, which its client did not ask
    EMPTY = "empty"  # a good status and nothing else


def needs_look(status: int, *, holds_busy: bool, holds_limits: bool = False, asked_usage: bool = False) -> bool:
    """Must the body be seen before the head goes on? `holds_limits`, `asked_usage`: as of `judge`."""
    return status == 200 or (status == 503 and holds_busy) or holds_limits or (asked_usage and status in UNKNOWN_FIELD)


def kind_of(told: bytes, payload: bytes) -> bytes:
    """What the body is, going by how it begins; `told` is the media type of its head, which counts where that says nothing.

    Engines and what stands before them leave the type out, or say `text/plain` of a stream.
    """
    if told == COMPRESSED:
        return told
    begins = payload[:BEGINS_BYTES].removeprefix(BOM).lstrip()
    if begins.startswith(FIELDS) or (begins and any(field.startswith(begins) for field in FIELDS)):  # it may drip
        return EVENT_STREAM
    if begins.startswith(b"{"):
        return JSON
    return PAGE if begins.startswith(b"<") else told


def judge(
    status: int, payload: bytes, *, stream: bool, done: bool, holds_busy: bool, full: bool, holds_limits: bool = False,
    asked_usage: bool = False,
) -> Verdict:  # fmt: skip
    """
    `payload` is all that came so far; `stream`: it is an event stream; `full`: no more may wait.

    `holds_limits`: a refusal by quota is hidden; a head other than 200 is one. `asked_usage`: we asked for usage, the client did not.
    """
    if full and not done:
        return Verdict.GO
    if status != 200:
        return _of_refusal(status, payload, holds_limits=holds_limits, asked_usage=asked_usage) if done else Verdict.WAIT
    if not payload:
        return Verdict.EMPTY if done else Verdict.WAIT
    if not stream or not (holds_busy or holds_limits):
        return Verdict.GO
    return _first_event(
        payload.removeprefix(BOM).lstrip().replace(b"\r", b"\n"), done=done, holds_busy=holds_busy, holds_limits=holds_limits
    )


def _of_refusal(status: int, payload: bytes, *, holds_limits: bool, asked_usage: bool) -> Verdict:
    if asked_usage and status in UNKNOWN_FIELD and any(field in payload for field in USAGE_FIELDS):
        return Verdict.UNASKABLE
    if holds_limits:
        return Verdict.LIMITED
    return Verdict.BUSY if is_queue_full(status, payload) else Verdict.GO


def _first_event(text: bytes, *, done: bool, holds_busy: bool, holds_limits: bool) -> Verdict:
    begins = text[:64].translate(None, WHITE)
    if not any(error.startswith(begins) or begins.startswith(error) for error in ERROR_EVENTS):
        return Verdict.GO
    line, end, rest = text.partition(b"\n")
    if end and begins.startswith(b"event:"):
        line, end, _ = rest.lstrip().partition(b"\n")
    if not end and not done:
        return Verdict.WAIT
    data = data_of(line)
    if holds_busy and is_queue_full(200, data):
        return Verdict.BUSY
    return Verdict.LIMITED if holds_limits and is_refusal(data) else Verdict.GO
