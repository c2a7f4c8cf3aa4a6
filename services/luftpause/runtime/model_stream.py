"""What did the engine answer, once all chunks of its stream are put together?"""

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar, cast

from luftpause.runtime.ports import Json, ModelAnswer, ModelCall

T = TypeVar("T")

EVENT_BYTES_MAX: Final = 16 * 2**20
CALLS_MAX: Final = 10_000
LOOKS_MAX: Final = 16
COUNT_MAX: Final = 2**53  # what JSON readers keep exactly


class StreamError(Exception):
    """The engine said, within a 200 answer, that it failed. `status` as an HTTP status; 0: it did not say."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


class EventSplitter:
    """Bytes of an event stream in, the `data` of complete events out. Raises StreamError beyond EVENT_BYTES_MAX."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._held = 0  # bytes of the event whose lines are in _data

    def feed(self, chunk: bytes) -> list[bytes]:
        self._rest += chunk
        if len(self._rest) + self._held > EVENT_BYTES_MAX:
            raise StreamError(f"an event of the stream is longer than {EVENT_BYTES_MAX} bytes", 0)
        if b"\n" not in chunk:
            return []
        *lines, rest = self._rest.split(b"\n")
        self._rest = rest
        events: list[bytes] = []
        for line in lines:
            self._line(bytes(line.rstrip(b"\r")), events)
        return events

    def end(self) -> list[bytes]:
        """The stream is over; engines forget the last blank line."""
        events: list[bytes] = []
        self._line(bytes(self._rest.rstrip(b"\r")), events)
        self._line(b"", events)
        self._rest.clear()
        return events

    def _line(self, line: bytes, events: list[bytes]) -> None:
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
            self._held += len(line)
        elif not line and self._data:
            events.append(b"\n".join(self._data))
            self._data.clear()
            self._held = 0


@dataclass
class _Call:
    id: str = ""
    name: str = ""
    given: Any = None  # by engines that don't send text
    text: list[str] = field(default_factory=list[str])
    looks: int = 0

    @property
    def arguments(self) -> Any:
        """None: there were none."""
        return "".join(self.text) if self.given is None and self.text else self.given

    def add(self, arguments: Any) -> None:
        if isinstance(arguments, str):
            self.text.append(arguments)
        elif arguments is not None:
            self.given = arguments

    def meets(self, call_id: str, name: str, arguments: Any, *, indexed: bool) -> Literal["more", "again", "another"]:
        """Is a delta with a `name` more of this call, the whole of it once more, or the beginning of another one?

        Some engines send index 0 for every call, or none, or one id for all. Without both, a call said again can't be told from a second
        one of its kind.
        """
        if not self.name:
            return "more"
        same = bool(call_id and call_id == self.id)
        if (call_id and self.id and not same) or (not indexed and not same and name != self.name):
            return "another"
        if not self._is_over(name, arguments):
            return "more"
        return "again" if (indexed or same) and name == self.name and arguments == self.arguments else "another"

    def _is_over(self, name: str, arguments: Any) -> bool:
        """Are its arguments complete, and are these no more of them? Looked at a few times only: it costs as much as there is."""
        begins = arguments.startswith("{") if isinstance(arguments, str) else arguments is not None
        ends = self.given is not None or (bool(self.text) and self.text[-1].endswith("}"))
        if not ends or not (begins or name != self.name) or self.looks == LOOKS_MAX:
            return False
        self.looks += 1
        return _whole(self.arguments)


class AnswerBuilder:
    """Takes the JSON of chunks one by one. Tolerates what engines get wrong: no index, no id, arguments as an object.

    A refusal is the answer where there is no other.

    `chars_max`: the most that it keeps, so that an engine that never stops can't take all memory.
    """

    def __init__(self, chars_max: int = 1_000_000) -> None:
        self._chars_max = chars_max
        self._chars = 0
        self._content: list[str] = []
        self._refusal: list[str] = []
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._usage: Json = {}
        self.finish_reason = ""
        self.done = False  # [DONE] was seen
        self._begun = False

    @property
    def complete(self) -> bool:
        """Did the answer come to its end, with at least one choice in it?"""
        return (self.done and self._begun) or bool(self.finish_reason)

    def event(self, data: bytes) -> None:
        """One event's data. Raises StreamError for an error object, for what is not JSON, and for an answer that is too long."""
        if data.strip() == b"[DONE]":
            self.done = True
            return
        try:
            chunk: object = json.loads(data)
        except (ValueError, RecursionError):
            raise StreamError(f"a chunk of the stream is not JSON: {data[:100].decode(errors='replace')}", 0) from None
        if isinstance(chunk, dict):
            self.chunk(cast("Json", chunk))

    def chunk(self, chunk: Json) -> None:
        """A `chat.completion.chunk`, or a whole `chat.completion` where an engine does not stream. Raises StreamError."""
        _raise_error(chunk)
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self._usage = cast("Json", usage)
        for choice in _dicts(chunk.get("choices")):
            if choice.get("index") in (0, None):  # a tuple: an engine may put a list there, which has no hash
                self._choice(choice)

    def answer(self) -> ModelAnswer:
        details = self._usage.get("prompt_tokens_details")
        cached = cast("Json", details).get("cached_tokens") if isinstance(details, dict) else 0
        return ModelAnswer(
            content=_joined("".join(self._content) or "".join(self._refusal)),
            calls=tuple(ModelCall(call.id, _joined(call.name), _cleaned(call.arguments)) for call in self._calls),
            finish_reason=self.finish_reason,
            prompt_tokens=_count(self._usage.get("prompt_tokens")),
            completion_tokens=_count(self._usage.get("completion_tokens")),
            cached_tokens=_count(cached),
        )

    def _choice(self, choice: Json) -> None:
        self._begun = True
        message = choice.get("delta") or choice.get("message")
        if isinstance(message, dict):
            body = cast("Json", message)
            self._content.append(self._counted(_text(body.get("content"))))
            self._refusal.append(self._counted(_text(body.get("refusal"))))
            for call in _dicts(body.get("tool_calls")) or _older_form(body):
                self._call(call)
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self.finish_reason = reason

    def _call(self, delta: Json) -> None:
        function = delta.get("function")
        body = cast("Json", function) if isinstance(function, dict) else {}
        call_id, name, arguments = _str(delta.get("id")), _str(body.get("name")), self._counted(body.get("arguments"))
        index = _index(delta.get("index"))
        known = self._known(index)
        meets = known.meets(call_id, name, arguments, indexed=index is not None) if known is not None and name else "more"
        if meets == "again":
            return
        if known is None or meets == "another":
            known = self._begin(index)
        known.id = known.id or call_id
        known.name = known.name or name
        known.add(arguments)

    def _counted(self, piece: T) -> T:
        """Raises StreamError when the answer becomes too long."""
        self._chars += len(piece) if isinstance(piece, str) else 0
        if self._chars > self._chars_max or len(self._calls) > CALLS_MAX:
            limits = f"{self._chars_max} characters (runtime.answer_chars_max) or {CALLS_MAX} tool calls"
            raise StreamError(f"the answer is longer than {limits}, so it was broken off", 413)
        return piece

    def _known(self, index: int | None) -> _Call | None:
        """The call that a delta belongs to, if it begins none."""
        if index is not None:
            return self._by_index.get(index)
        return self._calls[-1] if self._calls else None

    def _begin(self, index: int | None) -> _Call:
        call = _Call()
        self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        return call


def _older_form(message: Json) -> list[Json]:
    """The one call of an engine that has not learnt of `tool_calls`."""
    function = message.get("function_call")
    return [{"index": 0, "function": cast("Json", function)}] if isinstance(function, dict) and any(cast("Json", function).values()) else []


def _raise_error(chunk: Json) -> None:
    error = chunk.get("error")
    if error is None and (chunk.get("object") == "error" or _is_bare_error(chunk)):
        error = chunk
    if error is None or error is False:
        return
    body = cast("Json", error) if isinstance(error, dict) else {"message": error}
    message = body.get("message") or body.get("detail") or body.get("type") or "the engine gave no reason"
    raise StreamError(str(message), _status(body))


def _is_bare_error(chunk: Json) -> bool:
    """As frameworks below the engines write their own: `{"detail": "…"}`, `{"message": "…", "code": 500}`."""
    return "choices" not in chunk and any(isinstance(chunk.get(key), str) for key in ("detail", "message"))


def _status(error: Json) -> int:
    for key in ("code", "status", "status_code"):
        text = str(error.get(key) or "")
        if re.fullmatch(r"[45]\d\d", text):
            return int(text)
    kind = str(error.get("type") or "").lower()
    if "rate_limit" in kind:
        return 429
    return 400 if kind in {"invalid_request_error", "badrequesterror", "not_found_error"} else 0


def _dicts(value: object) -> list[Json]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("Json", item) for item in items if isinstance(item, dict)]


def _index(value: object) -> int | None:
    """Some engines write it as a text, or as 1.0."""
    if isinstance(value, str) and value.isdecimal():
        value = float(value)
    return int(value) if isinstance(value, int | float) and value == value and abs(value) < COUNT_MAX else None  # noqa: PLR0124  (NaN)


def _str(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int:
    """A number that every reader of the journal and of the status page can take; engines do write -1, 1e308 and NaN."""
    return int(min(max(0, value), COUNT_MAX)) if isinstance(value, int | float) and value == value else 0  # noqa: PLR0124  (NaN)


def _text(content: object) -> str:
    """Content is a string, or a list of parts."""
    if isinstance(content, list):
        return "".join(_str(part.get("text")) for part in _dicts(cast("list[object]", content)))
    return _str(content)


def _whole(arguments: Any) -> bool:
    """Are these arguments complete already?"""
    if not isinstance(arguments, str):
        return arguments is not None
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return False
    return True


def _joined(text: str) -> str:
    """A surrogate pair may be split over two chunks; a lone surrogate is nothing that UTF-8 can carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _cleaned(arguments: Any) -> Any:
    if isinstance(arguments, str):
        return _joined(arguments)
    try:
        return json.loads(_joined(json.dumps(arguments, ensure_ascii=False)))
    except RecursionError:
        return "(nested too deeply)"  # which is no JSON, and the model is told so
