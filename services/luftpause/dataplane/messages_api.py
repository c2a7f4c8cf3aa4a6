"""What does the body of an Anthropic Messages request say about its turn?"""

from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from luftpause.dataplane.bodies import HEAD_MESSAGES_MAX, TOOL_CALL_IDS_MAX, Head, Said, content_of, digest_of, request_of
from luftpause.dataplane.identify import Reading
from luftpause.dataplane.observe import as_objects, as_text, parse
from luftpause.dataplane.rejection import Rejection

OF_TOOLS: Final = b'"tool_'  # in the content of a message only if it may hold tool_use or tool_result blocks


class Message(Struct, gc=False):
    role: str = ""
    content: Raw | UnsetType = UNSET


class Body(Said, gc=False):
    system: Raw | UnsetType = UNSET
    messages: list[Message] | None = None
    tools: Raw | UnsetType = UNSET


class Block(Struct, gc=False):
    type: str = ""
    id: str | None = None
    tool_use_id: str | None = None


_body: Final = msgspec.json.Decoder(Body)
_least: Final = msgspec.json.Decoder(Said)
_blocks: Final = msgspec.json.Decoder(list[Block])


def read_messages(body: bytes, key: bytes) -> Reading | Rejection:
    """Read the few fields that are needed. `key` is that of the head digest."""
    found = request_of(body, _body, _least)
    if isinstance(found, Rejection):
        return found
    model, stream = found.model or "", found.stream is True
    if not isinstance(found, Body):
        return Reading(model=model, stream=stream, mentions_usage=True)
    ids = echoed_ids(found.messages or [])
    return Reading(
        model=model,
        stream=stream,
        mentions_usage=True,  # each answer has it
        tool_call_ids=ids,
        head_digest=digest_of(_head(found), key) if ids or found.tools is not UNSET else b"",
    )


def read_model(body: bytes, key: bytes) -> Reading | Rejection:
    """A request of which only the model matters."""
    found = request_of(body, _least, _least)
    return found if isinstance(found, Rejection) else Reading(model=found.model or "", mentions_usage=True)


def echoed_ids(messages: list[Message]) -> tuple[str, ...]:
    """The ids of the newest tool results and of the tool uses that they answer, newest first; none that is empty."""
    found: dict[str, None] = {}
    for message in reversed(messages):
        content = b"" if message.content is UNSET else bytes(message.content)
        if OF_TOOLS not in content:
            continue
        calls = False
        for block in reversed(_read_blocks(content)):
            if block.type == "tool_result" and block.tool_use_id:
                found.setdefault(block.tool_use_id)
            elif block.type == "tool_use" and block.id:
                calls = True
                found.setdefault(block.id)
        if calls or len(found) >= TOOL_CALL_IDS_MAX:
            break
    return tuple(found)[:TOOL_CALL_IDS_MAX]


def _read_blocks(content: bytes) -> list[Block]:
    """Typed; what has fields of unexpected types is read one by one."""
    try:
        return _blocks.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        found = as_objects(parse(content))
        return [Block(as_text(each.get("type")), as_text(each.get("id")), as_text(each.get("tool_use_id"))) for each in found]


def _head(body: Body) -> Head:
    """System prompt and first user message."""
    head: Head = [] if body.system is UNSET else [("system", content_of(body.system))]
    for message in (body.messages or [])[:HEAD_MESSAGES_MAX]:
        if message.role == "user":
            head.append(("user", content_of(message.content)))
            break
    return head
