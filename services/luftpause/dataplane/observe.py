"""What does an answer say about its turn: first token, tokens, how it ended, which tool calls?

Engines send what no schema allows, so everything is read from plain JSON values, and what can't be read is passed over.
"""

import json
import re
from typing import Any, Final, cast

import orjson

from luftpause.dataplane.sse import DONE, Lines, data_of
from luftpause.dataplane.turns import Usage

# In JSON text a quote inside a string is escaped, so these match only where a key with that value stands.
TELLING: Final = re.compile(
    rb'"(?:finish_reason"\s*:\s*"|usage"\s*:\s*\{|tool_calls"\s*:\s*\[|function_call"\s*:\s*\{|error"\s*:\s*[{"])'
).search
TOOL_CALL_IDS_MAX: Final = 256  # per answer
TEXT_KEYS: Final = ("content", "reasoning_content", "reasoning", "refusal")

Json = dict[str, Any]


def as_object(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def as_objects(value: object) -> list[Json]:
    """The objects in a list; everything else in it, or anything but a list, is left out."""
    return [cast("Json", each) for each in cast("list[object]", value) if isinstance(each, dict)] if isinstance(value, list) else []


def as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def as_count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def parse(text: bytes) -> object:
    """The JSON value, or None. `json` reads what orjson refuses: lone surrogates, NaN."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return None


def read_usage(value: object) -> Usage | None:
    """OpenAI's `usage` object; None if it has no counts."""
    usage = as_object(value)
    prompt, completion = as_count(usage.get("prompt_tokens")), as_count(usage.get("completion_tokens"))
    if prompt is None and completion is None:
        return None
    cached = as_count(as_object(usage.get("prompt_tokens_details")).get("cached_tokens"))
    return Usage(prompt or 0, completion or 0, cached)


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
    """What was seen of one answer so far. `news`: `first_token` or `fresh_ids` changed; the reader takes them and clears it."""

    __slots__ = ("calls", "error", "events", "finish_reason", "first_token", "fresh_ids", "ids", "news", "usage")

    def __init__(self) -> None:
        self.first_token = False
        self.usage: Usage | None = None
        self.finish_reason = ""
        self.error = ""
        self.events = 0  # data lines, whatever they say
        self.calls = False
        self.ids: list[str] = []
        self.fresh_ids: list[str] = []
        self.news = False

    @property
    def paused(self) -> bool:
        """Did it end in tool calls? Some engines finish those with `stop`, or say nothing; a cut answer (`length`) has not ended in any."""
        if self.finish_reason in {"tool_calls", "function_call"}:
            return True
        return self.calls and self.finish_reason in {"stop", ""}

    def take_chat(self, answer: object) -> None:
        """A Chat Completions answer, or one chunk of it."""
        found = as_object(answer)
        if not found:
            return
        self.error = error_text(found) or self.error
        self.usage = read_usage(found.get("usage")) or self.usage  # the last one wins; some repeat it in every chunk
        for choice in as_objects(found.get("choices")):
            self._take_choice(choice)

    def _take_choice(self, choice: Json) -> None:
        said = as_object(choice.get("delta") or choice.get("message"))
        calls = as_objects(said.get("tool_calls"))
        if calls or as_object(said.get("function_call")):
            self.calls = True
            for call in calls:
                self._take_id(as_text(call.get("id")))
        if not self.first_token and (self.calls or any(said.get(key) for key in TEXT_KEYS)):
            self.first_token = self.news = True
        reason = as_text(choice.get("finish_reason"))
        if reason and self.finish_reason not in {"tool_calls", "function_call"}:  # of several choices, the one with calls says it
            self.finish_reason = reason

    def _take_id(self, call_id: str) -> None:
        if call_id and len(self.ids) < TOOL_CALL_IDS_MAX and call_id not in self.ids:
            self.ids.append(call_id)
            self.fresh_ids.append(call_id)
            self.news = True


class ChatStream:
    """Reads an event stream as it passes. Until the first token every event is parsed, later only those with something to tell."""

    __slots__ = ("_lines", "seen")

    def __init__(self, event_bytes_max: int) -> None:
        self._lines = Lines(event_bytes_max)
        self.seen = Observed()

    def feed(self, payload: bytes) -> None:
        seen = self.seen
        if seen.first_token and not self._lines.tail and payload.endswith(b"\n") and not TELLING(payload) and not self._lines.given_up:
            return
        for line in self._lines.feed(payload):
            self._line(line)

    def end(self) -> None:
        self._line(self._lines.rest())

    def _line(self, line: bytes) -> None:
        data = data_of(line)
        if not data:
            return
        self.seen.events += 1
        if data == DONE or (self.seen.first_token and not TELLING(data)):
            return
        self.seen.take_chat(parse(data))


class ChatJson:
    """Reads an answer that is one JSON document, when it is complete; one longer than `bytes_max` passes unread."""

    __slots__ = ("_bytes_max", "_parts", "_size", "seen")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._parts: list[bytes] = []
        self._size = 0
        self.seen = Observed()

    def feed(self, payload: bytes) -> None:
        self._size += len(payload)
        if self._size <= self._bytes_max:
            self._parts.append(payload)
        else:
            self._parts.clear()

    def end(self) -> None:
        if self._parts:
            self.seen.take_chat(parse(b"".join(self._parts)))
            self.seen.first_token = False  # it has no time of its own
            self._parts.clear()


class Unread:
    """An answer that nobody looks into: compressed, or of another type."""

    __slots__ = ("seen",)

    def __init__(self) -> None:
        self.seen = Observed()

    def feed(self, payload: bytes) -> None:
        pass

    def end(self) -> None:
        pass


Observer = ChatStream | ChatJson | Unread


def is_usage_only(data: bytes) -> bool:
    """Is this event the extra one that `stream_options.include_usage` asked for?"""
    if b'"usage"' not in data:
        return False
    event = as_object(parse(data))
    if read_usage(event.get("usage")) is None or error_text(event):
        return False
    return all(not choice.get("finish_reason") and not as_object(choice.get("delta")) for choice in as_objects(event.get("choices")))


def is_queue_full(status: int, body: bytes) -> bool:
    """Does this answer, or first event, say that the engine's queue is full (vLLM, SGLang, Ollama)?

    A 503 for another reason (loading, shutting down) is not that.
    """
    answer = as_object(parse(body))
    text = error_text(answer).lower()
    code = as_object(answer.get("error")).get("code", answer.get("code", status))
    if not text or str(code) != "503":
        return False
    return any(known in text for known in QUEUE_FULL)


QUEUE_FULL: Final = (
    "currently busy and cannot accept new requests",  # vLLM --max-num-queued-reqs
    "request queue is full",  # SGLang --max-queued-requests
    "aborted by a higher priority request",  # SGLang, the same with priorities
    "request waiting timeout reached",  # SGLang SGLANG_REQ_WAITING_TIMEOUT
    "maximum pending requests exceeded",  # Ollama OLLAMA_MAX_QUEUE
)
