"""What text does a model read when a tool of an MCP server answered?"""

import json

import mcp_types as types

from luftpause.runtime.ports import ToolResult

EMPTY = "(the tool returned nothing)"
EMPTY_ERROR = "Error: the tool failed and gave no reason"


def to_result(answer: types.CallToolResult, chars_max: int) -> ToolResult:
    """The answer as text of at most about `chars_max` characters, never empty."""
    failed = bool(answer.is_error)
    text = "\n".join(part for part in map(_part, answer.content) if part)
    if not text.strip() and answer.structured_content is not None:
        text = json.dumps(answer.structured_content, ensure_ascii=False)
    if not text.strip():
        text = EMPTY_ERROR if failed else EMPTY
    return ToolResult(cut(printable(text), chars_max), failed)


def cut(text: str, chars_max: int) -> str:
    """At most `chars_max` characters and a line that says what is missing."""
    if len(text) <= chars_max:
        return text
    return f"{text[:chars_max]}\n[cut: the first {chars_max} of {len(text)} characters]"


def printable(text: str) -> str:
    """Text that UTF-8 can carry: surrogate pairs joined, lone surrogates replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _part(part: types.ContentBlock) -> str:
    match part:
        case types.TextContent():
            return part.text
        case types.ImageContent():
            return f"[image, {part.mime_type}, {_size(part.data)}, not shown]"
        case types.AudioContent():
            return f"[audio, {part.mime_type}, {_size(part.data)}, not shown]"
        case types.ResourceLink():
            return f"[link to resource {part.uri}{_title(part.title or part.name)}]"
        case types.EmbeddedResource():
            return _resource(part.resource)


def _resource(resource: types.TextResourceContents | types.BlobResourceContents) -> str:
    match resource:
        case types.TextResourceContents():
            return f"[resource {resource.uri}]\n{resource.text}"
        case types.BlobResourceContents():
            return f"[resource {resource.uri}, {resource.mime_type or 'binary'}, {_size(resource.blob)}, not shown]"


def _title(title: str) -> str:
    return f": {title}" if title else ""


def _size(base64: str) -> str:
    size = len(base64) * 3 // 4
    return f"{size / 1000:.0f} kB" if size >= 1000 else f"{size} bytes"
