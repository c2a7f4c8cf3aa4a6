"""What does an answer say about its turn: first token, tokens, how it ended, which tool calls?

Engines send what no schema allows, so everything is read from plain JSON values, and what can't be read is passed over.
"""

import json
import re
from collections.abc import Callable
from typing import Any, ClassVar, Final, cast

import msgspec
import orjson

from luftpause.dataplane.sse import DONE, LineEnds, Lines, data_of
from luftpause.dataplane.turns import Usage
from luftpause.kit.quota_evidence import EXCERPT_BYTES_MAX

TOOL_CALL_IDS_MAX: Final = 256  # per answer
TOOLS_MAX: Final = 16  # different ones per answer
COUNT_MAX: Final = 10**9  # tokens
A_PAGE: Final = "a page instead of an answer"
OPEN, CLOSED = b"{}"
CUT: Final = frozenset({
    "length", "max_tokens", "max_output_tokens", "max_length", "model_length", "model_context_window_exceeded", "content_filter", "refusal",
    "safety", "recitation", "error", "abort", "aborted", "cancelled", "canceled", "timeout", "insufficient_system_resource", "pause_turn",
})  # fmt: skip
"""Why an answer that has tool calls ended before they were all there, or in nothing that its client could carry out."""

Json = dict[str, Any]
Search = Callable[..., re.Match[bytes] | None]  # a pattern's `search`


def as_object(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def as_objects(value: object) -> list[Json]:
    """The objects in a list; everything else in it, or anything but a list, is left out."""
    return [cast("Json", each) for each in cast("list[object]", value) if isinstance(each, dict)] if isinstance(value, list) else []


def as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def as_count(value: object) -> int | None:
    """Also of a number like 8.0, which some languages write; what is longer than any context is no count."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= COUNT_MAX else None


def parse(text: bytes) -> object:
    """The JSON value, or None. `json` reads what orjson refuses: lone surrogates, NaN."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return None


def error_text(answer: Json) -> str:
    """The message of an error object, in any of the forms engines have; empty if it is none."""
    error = answer.get("error")
    if isinstance(error, str):
        return error
    found = as_object(error)
    if found:
        return as_text(found.get("message")) or as_text(found.get("type")) or "error"
    return (as_text(answer.get("message")) or "error") if answer.get("object") == "error" else ""


class Observed:
    """What was seen of one answer so far; each API has its own reader of it.

    `news`: `first_token`, `fresh_ids` or `response` changed; whoever takes them clears it. `telling` finds out whether bytes may hold
    anything that matters after the first token. `known` decodes the fields that are read, where that is cheaper than all of them.
    """

    __slots__ = (
        "calls", "error", "error_told", "events", "finish_reason", "first_token", "fresh_ids", "ids", "news", "response", "tools", "usage",
    )  # fmt: skip

    telling: ClassVar[re.Pattern[bytes]]
    known: ClassVar[msgspec.json.Decoder[Any] | None] = None

    def __init__(self) -> None:
        self.first_token = False
        self.usage: Usage | None = None
        self.finish_reason = ""  # in the engine's words
        self.error = ""
        self.error_told = b""  # what it was first read in
        self.events = 0  # data lines that were looked at
        self.calls = False
        self.ids: list[str] = []
        self.fresh_ids: list[str] = []
        self.tools: list[str] = []  # names of those that were called
        self.response = ""  # the id under which the engine may store the answer
        self.news = False

    @property
    def paused(self) -> bool:
        """Did it end in tool calls, so that their results will come?"""
        return False

    def take(self, answer: object) -> None:
        """A whole answer, or one event of it."""
        raise NotImplementedError

    def take_text(self, text: bytes) -> None:
        if self.known is not None:
            try:
                self.take(self.known.decode(text))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                pass  # something else than the schema says
            else:
                return
        self.take(parse(text))

    def read(self, text: bytes, *, whole: bool = False) -> None:
        """A whole answer, or one event of it, as JSON text."""
        if whole:
            self.take_whole(text)
        else:
            self.take_text(text)
        if self.error and not self.error_told:
            self.error_told = text[:EXCERPT_BYTES_MAX]

    def take_whole(self, text: bytes) -> None:
        """A whole answer as JSON text."""
        self.take_text(text)

    def token(self) -> None:
        if not self.first_token:
            self.first_token = self.news = True

    def call(self, call_id: str, tool: str) -> None:
        """A tool call that the client is to carry out; its id may be missing, and the tool's name."""
        self.calls = True
        if tool and len(self.tools) < TOOLS_MAX and tool not in self.tools:
            self.tools.append(tool)
        if call_id and len(self.ids) < TOOL_CALL_IDS_MAX and call_id not in self.ids:
            self.ids.append(call_id)
            self.fresh_ids.append(call_id)
            self.news = True


class EventStream:
    """Reads an event stream as it passes. Until the first token every event is parsed, later only those with something to tell.

    Where an event has its JSON text in several `data:` lines, each line is read from then on.
    """

    __slots__ = ("_bytes_max", "_ends", "_lines", "_part", "_parts", "_telling", "seen")

    def __init__(self, seen: Observed, event_bytes_max: int) -> None:
        self._bytes_max = event_bytes_max
        self._ends = LineEnds()
        self._lines = Lines(event_bytes_max)
        self._parts = False  # events come in several lines
        self._part = bytearray()  # of one that has no end yet
        self._telling: Search = seen.telling.search
        self.seen = seen

    @property
    def skips(self) -> Search | None:
        """Whole lines in which this finds nothing need not be fed now; None: all must be."""
        return self._telling if self.seen.first_token and self._lines.even and not (self._parts or self._ends.open) else None

    def feed(self, payload: bytes) -> None:
        seen = self.seen
        data, end = self._lines.take(self._ends.plain(payload))
        at = 0
        while at < end and (self._parts or not seen.first_token):
            at = self._line(data, at)
        while at < end and (found := self._telling(data, at, end)) is not None:
            at = self._line(data, max(at, data.rfind(b"\n", at, found.start()) + 1))
            while self._parts and at < end:
                at = self._line(data, at)

    def end(self) -> None:
        """Also the last line may have something to tell."""
        data = self._lines.rest()
        if data and (self._parts or not self.seen.first_token or self._telling(data) is not None):
            self._line(data + b"\n", 0)
        self._whole()

    def _line(self, data: bytes, start: int) -> int:
        """Read the line that begins there; returns where the next one begins."""
        end = data.index(b"\n", start)
        text = data_of(data[start:end])
        if text:
            self.seen.events += 1
            if self._part or (text[0] == OPEN and text[-1] != CLOSED):
                self._join(text)
            elif text != DONE:
                self.seen.read(text)
        elif self._part and start == end:
            self._whole()
        return end + 1

    def _join(self, text: bytes) -> None:
        self._parts = True
        self._part += text + b"\n"
        if len(self._part) > self._bytes_max:
            self._part.clear()

    def _whole(self) -> None:
        """The event of several lines ends here."""
        if self._part:
            text = bytes(self._part)
            self._part.clear()
            self.seen.read(text)


class WholeJson:
    """Reads an answer that is one JSON document, when it is complete; one longer than `bytes_max` passes unread."""

    __slots__ = ("_bytes_max", "_parts", "_size", "seen")

    skips = None

    def __init__(self, seen: Observed, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._parts: list[bytes] = []
        self._size = 0
        self.seen = seen

    def feed(self, payload: bytes) -> None:
        self._size += len(payload)
        if self._size <= self._bytes_max:
            self._parts.append(payload)
        else:
            self._parts.clear()

    def end(self) -> None:
        if self._parts:
            self.seen.read(self._parts[0] if len(self._parts) == 1 else b"".join(self._parts), whole=True)
            self.seen.first_token = False  # it has no time of its own
            self._parts.clear()


class Unread:
    """An answer that nobody looks into: compressed, or of another type."""

    __slots__ = ("seen",)

    skips = None

    def __init__(self) -> None:
        self.seen = Observed()

    def feed(self, payload: bytes) -> None:
        pass

    def end(self) -> None:
        pass


class NoAnswer(Unread):
    """A page of whoever stands before the engine, or of another server."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self.seen.error = A_PAGE


class Excerpt(Unread):
    """Of an error, for whoever counts the limits of its engine."""

    __slots__ = ("start",)

    def __init__(self) -> None:
        super().__init__()
        self.start = b""

    def feed(self, payload: bytes) -> None:
        if len(self.start) < EXCERPT_BYTES_MAX:
            self.start += payload[: EXCERPT_BYTES_MAX - len(self.start)]


Observer = EventStream | WholeJson | Unread


def is_queue_full(status: int, body: bytes) -> bool:
    """Does this answer, or first event, say that the engine's queue is full (vLLM, SGLang, Ollama)?

    A 503 for another reason (loading, shutting down) is not that.
    """
    answer = as_object(parse(body))
    text = error_text(answer).lower()
    code = as_object(answer.get("error")).get("code", answer.get("code"))
    if not text or (code is not None and str(code) != "503") or status not in {200, 503}:
        return False
    return any(known in text for known in QUEUE_FULL)


QUEUE_FULL: Final = (
    "currently busy and cannot accept new requests",  # vLLM --max-num-queued-reqs
    "request queue is full",  # SGLang --max-queued-requests
    "aborted by a higher priority request",  # SGLang, the same with priorities
    "request waiting timeout reached",  # SGLang SGLANG_REQ_WAITING_TIMEOUT
    "maximum pending requests exceeded",  # Ollama OLLAMA_MAX_QUEUE
)
