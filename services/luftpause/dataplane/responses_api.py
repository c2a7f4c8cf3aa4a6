"""What does the body of an OpenAI Responses request say about its turn?"""

from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from luftpause.dataplane.bodies import HEAD_MESSAGES_MAX, TOOL_CALL_IDS_MAX, Head, Said, content_of, digest_of, request_of
from luftpause.dataplane.identify import Reading
from luftpause.dataplane.rejection import Rejection

NO_BACKGROUND: Final = Rejection(
    400, "background", "`background: true` is not served here: nobody would place the turn; leave it out, and stream the answer"
)


class Item(Struct, gc=False):
    """Of the input: a message, a call or its output. A message may come without `type`."""

    type: str = "message"
    role: str = ""
    content: Raw | UnsetType = UNSET
    call_id: str | None = None


class Body(Said, gc=False):
    store: bool | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    instructions: Raw | UnsetType = UNSET
    input: list[Item] | str | None = None
    tools: Raw | UnsetType = UNSET


class Least(Said, gc=False):
    store: Raw | UnsetType = UNSET
    background: Raw | UnsetType = UNSET
    previous_response_id: Raw | UnsetType = UNSET


_body: Final = msgspec.json.Decoder(Body)
_least: Final = msgspec.json.Decoder(Least)


def read_responses(body: bytes, key: bytes) -> Reading | Rejection:
    """Read the few fields that are needed. `key` is that of the head digest."""
    found = request_of(body, _body, _least)
    if isinstance(found, Rejection):
        return found
    if isinstance(found, Least):
        return _least_reading(found)
    if found.background:
        return NO_BACKGROUND
    items = found.input if isinstance(found.input, list) else []
    ids = echoed_ids(items)
    previous = found.previous_response_id or ""
    return Reading(
        model=found.model or "",
        stream=found.stream is True,
        mentions_usage=True,  # each answer has it
        tool_call_ids=ids,
        # Behind a stored response the head is the engine's to know.
        head_digest=digest_of(_head(found), key) if (ids or found.tools is not UNSET) and not previous else b"",
        previous_response=previous,
        stores=found.store is not False,
    )


def _least_reading(found: Least) -> Reading | Rejection:
    if _json(found.background) is True:
        return NO_BACKGROUND
    previous = _json(found.previous_response_id)
    return Reading(
        model=found.model or "",
        stream=found.stream is True,
        mentions_usage=True,
        previous_response=previous if isinstance(previous, str) else "",
        stores=_json(found.store) is not False,
    )


def _json(raw: Raw | UnsetType) -> object:
    return None if raw is UNSET else msgspec.json.decode(raw)


def echoed_ids(items: list[Item]) -> tuple[str, ...]:
    """The ids of the newest outputs and of the calls that they answer, newest first; none that is empty."""
    found: dict[str, None] = {}
    calls = False
    for item in reversed(items):
        if item.call_id and item.type.endswith("_output"):
            if calls:
                break
            found.setdefault(item.call_id)
        elif item.call_id:
            calls = True
            found.setdefault(item.call_id)
        elif calls and item.type == "message":
            break
        if len(found) >= TOOL_CALL_IDS_MAX:
            break
    return tuple(found)


def _head(body: Body) -> Head:
    """Instructions, system and developer messages, first user message."""
    head: Head = [] if body.instructions is UNSET else [("system", content_of(body.instructions))]
    if isinstance(body.input, str):
        head.append(("user", msgspec.json.encode(body.input)))
        return head
    for item in (body.input or [])[:HEAD_MESSAGES_MAX]:
        if item.role in {"system", "developer", "user"}:
            head.append(("user" if item.role == "user" else "system", content_of(item.content)))
        if item.role == "user":
            break
    return head
