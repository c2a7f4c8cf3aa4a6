"""What does the body of a Chat Completions request say about its turn?"""

import functools
import json
import re
from typing import Any, Final, cast

import msgspec
import orjson
from msgspec import UNSET, Raw, Struct, UnsetType

from luftpause.dataplane.digest import head_digest
from luftpause.dataplane.identify import Reading
from luftpause.dataplane.rejection import Rejection

TOOL_CALL_IDS_MAX: Final = 64  # echoed ids that are looked up
HEAD_MESSAGES_MAX: Final = 16  # before the first user message
KNOWN_MAX: Final = 256  # heads whose digest is remembered
KNOWN_BYTES_MAX: Final = 16_384  # longer ones are not: they would take memory
SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
ASKS_USAGE: Final = b'"stream_options":{"include_usage":true}'


class ToolCall(Struct, gc=False):
    id: str | None = None


class Message(Struct, gc=False):
    role: str = ""
    content: Raw | UnsetType = UNSET
    tool_call_id: str | None = None
    tool_calls: list[ToolCall] | None = None


class StreamOptions(Struct, gc=False):
    include_usage: bool | None = None


class Body(Struct, gc=False):
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | UnsetType | None = UNSET
    messages: list[Message] | None = None
    tools: Raw | UnsetType = UNSET


class Least(Struct, gc=False):
    """What luftpause can't do without; the rest is the engine's to judge."""

    model: str | None = None
    stream: bool | None = None
    stream_options: Raw | UnsetType = UNSET


_body: Final = msgspec.json.Decoder(Body)
_least: Final = msgspec.json.Decoder(Least)


def read_chat(body: bytes, key: bytes) -> Reading | Rejection:
    """Read the few fields that are needed. `key` is that of the head digest."""
    found = decode(body)
    if isinstance(found, Rejection):
        return found
    if not found.model:
        return Rejection(400, "no_model", "the body has no `model`; name one of those that GET /v1/models lists")
    if isinstance(found, Least):
        return Reading(model=found.model, stream=found.stream is True, mentions_usage=found.stream_options is not UNSET)
    messages = found.messages or []
    ids = echoed_ids(messages)
    return Reading(
        model=found.model,
        stream=found.stream is True,
        asks_usage=isinstance(found.stream_options, StreamOptions) and found.stream_options.include_usage is True,
        mentions_usage=found.stream_options is not UNSET,
        tool_call_ids=ids,
        # Without tools no answer carries ids, and without ids nobody asks for the digest.
        head_digest=digest_of(messages, key) if ids or found.tools is not UNSET else b"",
    )


def decode(body: bytes) -> Body | Least | Rejection:
    """Typed; where a field has an unexpected type, only what luftpause needs is read."""
    try:
        return _body.decode(body)
    except msgspec.ValidationError:
        pass
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        body = SURROGATE.sub(rb"\\ufffd", body)  # lone halves are legal JSON, but no decoder here takes them; this is only read
    try:
        try:
            return _body.decode(body)
        except msgspec.ValidationError:
            return _least.decode(body)
    except msgspec.ValidationError as error:
        return Rejection(400, "bad_field", f"the body has a wrong field: {_plain(error)}")
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return Rejection(400, "not_json", f"the body is not JSON: {_plain(error)}")


def _plain(error: Exception) -> str:
    return str(error).replace(" - at `$.", " at `").replace("Expected `object`, got", "it must be an object, not")


def echoed_ids(messages: list[Message]) -> tuple[str, ...]:
    """The ids of the newest tool messages and of the assistant message they answer, newest first; none that is empty."""
    found: dict[str, None] = {}
    for message in reversed(messages):
        if message.tool_call_id:
            found.setdefault(message.tool_call_id)
        if message.tool_calls:
            for call in reversed(message.tool_calls):
                if call.id:
                    found.setdefault(call.id)
            if found:
                break
        if len(found) >= TOOL_CALL_IDS_MAX:
            break
    return tuple(found)[:TOOL_CALL_IDS_MAX]


def digest_of(messages: list[Message], key: bytes) -> bytes:
    """The digest of system prompt and first user message; remembered, as an agent sends the same head with every turn."""
    head: list[tuple[str, bytes]] = []
    for message in messages[:HEAD_MESSAGES_MAX]:
        if message.role in {"system", "developer", "user"}:
            head.append(("user" if message.role == "user" else "system", b"" if message.content is UNSET else bytes(message.content)))
        if message.role == "user":
            break
    digest = _known_digest if sum(len(content) for _, content in head) <= KNOWN_BYTES_MAX else _digest
    return digest(tuple(head), key)


def _digest(head: tuple[tuple[str, bytes], ...], key: bytes) -> bytes:
    return head_digest([(role, _text(content)) for role, content in head], key)


_known_digest = functools.lru_cache(maxsize=KNOWN_MAX)(_digest)


def _text(raw: bytes) -> str:
    """The text of a message whose content is a string, a list of parts, null or missing (empty)."""
    if not raw:
        return ""
    try:
        value: object = orjson.loads(raw)
    except orjson.JSONDecodeError:
        value = _lenient(raw.decode("utf-8", "replace"))
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return ""
    parts = cast("list[Any]", value)
    return "\n".join(cast("str", part["text"]) for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))  # pyright: ignore[reportUnknownMemberType]


def _lenient(text: str) -> object:
    """Lone surrogates are read as they are. What no decoder takes (an integer of 5,000 digits) is its own text: the engine judges it."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def ask_for_usage(body: bytes) -> bytes:
    """The body with `stream_options.include_usage` spliced in before its last brace; every other byte stays."""
    end = body.rstrip().rfind(b"}")
    return body[:end] + b"," + ASKS_USAGE + body[end:]
