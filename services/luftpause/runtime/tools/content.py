"""Which parts of a tool's answer can be read, when some of them are malformed or of a kind that came later?

The SDK throws the whole answer away for one of them, though the call was made and the rest says what came of it.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, cast

import mcp_types as types
from mcp.shared.message import SessionMessage
from pydantic import TypeAdapter, ValidationError

from luftpause.runtime.core.json_types import is_list, is_object

KIND_CHARS_MAX: Final = 50
CALLED: Final = frozenset({"content", "structuredContent"})
ABOUT: Final = frozenset({"_meta", "isError", "resultType"})
_PART: Final[TypeAdapter[types.ContentBlock]] = TypeAdapter(types.ContentBlock)


def readable(item: SessionMessage) -> SessionMessage:
    """The message; an answer of a tool with a note in place of each part that the SDK would not take.

    Null stands for what is not there: that is how Go writes an empty list.
    """
    message: Any = item.message
    if not isinstance(message, types.JSONRPCResponse) or not _is_of_a_call(message.result):
        return item
    result = _mended(message.result)
    return item if result == message.result else SessionMessage(message.model_copy(update={"result": result}), item.metadata)


def _is_of_a_call(result: Mapping[str, Any]) -> bool:
    """Of a tool's call, or of something that has no result to speak of."""
    return bool(result.keys() & CALLED) or not result.keys() - ABOUT


def _mended(given: Mapping[str, Any]) -> dict[str, Any]:
    result = {name: value for name, value in given.items() if value is not None}
    if not isinstance(failed := result.get("isError", False), bool):
        result["isError"] = str(failed).lower() not in {"false", "0", ""}
    content: Any = result.get("content", [])
    parts: list[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else content if is_list(content) else [content]
    structured: Any = result.get("structuredContent", {})
    if not is_object(structured):  # results of other kinds came with a later version of the protocol
        del result["structuredContent"]
        parts = parts or [{"type": "text", "text": json.dumps(structured, ensure_ascii=False)}]
    return {**result, "content": [_readable(part) for part in parts]}


def _readable(part: Any) -> Any:
    try:
        _PART.validate_python(part, by_name=False)
    except ValidationError:
        said = cast("object", part.get("type")) if is_object(part) else None
        kind = said[:KIND_CHARS_MAX] if isinstance(said, str) and said else "a part without a kind"
        return {"type": "text", "text": f"[{kind}, not shown: it can't be read]"}
    return part
