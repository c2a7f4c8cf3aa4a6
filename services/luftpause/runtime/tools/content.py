"""Which parts of a tool's answer can be read, when some of them are malformed or of a kind that came later?

The SDK throws the whole answer away for one of them, though the call was made and the rest says what came of it.
"""

from typing import Any, Final, cast

import mcp_types as types
from mcp.shared.message import SessionMessage
from pydantic import TypeAdapter, ValidationError

from luftpause.runtime.core.json_types import is_list, is_object

KIND_CHARS_MAX: Final = 50
_PART: Final[TypeAdapter[types.ContentBlock]] = TypeAdapter(types.ContentBlock)


def readable(item: SessionMessage) -> SessionMessage:
    """The message; an answer of a tool with a note in place of each part that the SDK would not take."""
    message: Any = item.message
    if not isinstance(message, types.JSONRPCResponse):
        return item
    given: Any = message.result.get("content", [] if "structuredContent" in message.result else None)
    if isinstance(given, str):
        given = [{"type": "text", "text": given}]
    if not is_list(given):
        return item
    content = [_readable(part) for part in given]
    if content == message.result.get("content"):
        return item
    return SessionMessage(message.model_copy(update={"result": {**message.result, "content": content}}), item.metadata)


def _readable(part: Any) -> Any:
    try:
        _PART.validate_python(part, by_name=False)
    except ValidationError:
        said = cast("object", part.get("type")) if is_object(part) else None
        kind = said[:KIND_CHARS_MAX] if isinstance(said, str) and said else "a part without a kind"
        return {"type": "text", "text": f"[{kind}, not shown: it can't be read]"}
    return part
