"""What does the body of a Chat Completions or a (legacy) Completions request say about its turn?"""

from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from luftpause.dataplane.bodies import HEAD_MESSAGES_MAX, TOOL_CALL_IDS_MAX, Head, Said, content_of, digest_of, request_of
from luftpause.dataplane.identify import Reading
from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.splice import with_member

ASKS_USAGE: Final = b'"stream_options":{"include_usage":true}'


class ToolCall(Struct, gc=False):
    id: str | None = None


class Message(Struct, gc=False):
    role: str = ""
    content: Raw | UnsetType = UNSET
    tool_call_id: str | None = None
    tool_calls: list[ToolCall] | None = None


class Body(Said, gc=False):
    stream_options: Raw | UnsetType = UNSET
    messages: list[Message] | None = None
    tools: Raw | UnsetType = UNSET


class Least(Said, gc=False):
    stream_options: Raw | UnsetType = UNSET


_body: Final = msgspec.json.Decoder(Body)
_least: Final = msgspec.json.Decoder(Least)


def read_chat(body: bytes, key: bytes) -> Reading | Rejection:
    """Read the few fields that are needed. `key` is that of the head digest."""
    found = request_of(body, _body, _least)
    if isinstance(found, Rejection):
        return found
    if isinstance(found, Least):
        return _without_messages(found)
    messages = found.messages or []
    ids = echoed_ids(messages)
    return Reading(
        model=found.model or "",
        stream=found.stream is True,
        mentions_usage=found.stream_options is not UNSET,
        tool_call_ids=ids,
        # Without tools no answer carries ids, and without ids nobody asks for the digest.
        head_digest=digest_of(_head(messages), key) if ids or found.tools is not UNSET else b"",
    )


def read_completion(body: bytes, key: bytes) -> Reading | Rejection:
    """A prompt has no tool calls, so only headers can tell its run."""
    found = request_of(body, _least, _least)
    return found if isinstance(found, Rejection) else _without_messages(found)


def _without_messages(found: Least) -> Reading:
    return Reading(model=found.model or "", stream=found.stream is True, mentions_usage=found.stream_options is not UNSET)


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


def _head(messages: list[Message]) -> Head:
    """System prompt and first user message."""
    head: Head = []
    for message in messages[:HEAD_MESSAGES_MAX]:
        if message.role in {"system", "developer", "user"}:
            head.append(("user" if message.role == "user" else "system", content_of(message.content)))
        if message.role == "user":
            break
    return head


def ask_for_usage(body: bytes) -> bytes:
    """The body with `stream_options.include_usage`; every other byte stays."""
    return with_member(body, ASKS_USAGE)
