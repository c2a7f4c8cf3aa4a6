"""Which tools of a server's list can be used, when some of them are malformed?

The SDK refuses the whole list, and with it the server, for one tool without a schema or with one that is no object's. It also checks
results against the schema that their tool promises, and throws away what differs; a model can read it all the same, so promises are left
out.
"""

import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types.methods import validate_server_result
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from luftpause.runtime.core.json_types import is_object
from luftpause.runtime.tools.content import readable

NAME_CHARS_MAX: Final = 100
OLD_VERSION: Final = "2025-11-25"

Told = Callable[[str, str], None]  # the tool's name and what is wrong with it


@contextlib.asynccontextmanager
async def usable_lists(streams: TransportStreams, told: Told) -> AsyncGenerator[TransportStreams]:
    """The streams, with lists of tools and answers of tools that hold only what the SDK takes."""
    read, write = streams
    sender, receiver = anyio.create_memory_object_stream[SessionMessage | Exception](0)

    async def relay() -> None:
        version = OLD_VERSION
        async with sender:
            with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                async for item in read:
                    if not isinstance(item, Exception):
                        version = _version(item) or version
                    await sender.send(item if isinstance(item, Exception) else readable(usable(item, told, version)))

    async with anyio.create_task_group() as group, receiver:
        group.start_soon(relay)
        try:
            yield receiver, write
        finally:
            group.cancel_scope.cancel()


def usable(item: SessionMessage, told: Told, version: str = OLD_VERSION) -> SessionMessage:
    """The message; one that answers with a list of tools, without those that can't be used. `version`: of the connection's protocol."""
    message: Any = item.message
    if not isinstance(message, types.JSONRPCResponse) or not isinstance(message.result.get("tools", ""), list | None):
        return item
    given: list[Any] = message.result["tools"] or []
    listed = [_with_object(tool) for tool in given]
    kept = [_without_promise(tool) for tool in listed if not (why := _wrong(tool, version)) or told(_name(tool), why)]
    if kept == message.result["tools"]:
        return item
    answer = message.model_copy(update={"result": {**message.result, "tools": kept}})
    return SessionMessage(answer, item.metadata)


def _version(item: SessionMessage) -> str:
    """That of the protocol, if this message settles it."""
    message: Any = item.message
    if not isinstance(message, types.JSONRPCResponse):
        return ""
    if "supportedVersions" in message.result:
        return max(MODERN_PROTOCOL_VERSIONS)
    version = message.result.get("protocolVersion")
    return version if isinstance(version, str) else ""


def _with_object(tool: Any) -> Any:
    """PHP writes an object without members as an empty list: that is its tool without arguments."""
    schema: Any = tool.get("inputSchema") if is_object(tool) else None
    if not is_object(schema) or schema.get("properties") != []:
        return tool
    return {**tool, "inputSchema": {**schema, "properties": {}}}


def _without_promise(tool: Any) -> Any:
    return {key: value for key, value in tool.items() if key != "outputSchema"}


def _wrong(tool: Any, version: str) -> str:
    """Why the SDK would not take it."""
    try:
        types.Tool.model_validate(tool, by_name=False)
        validate_server_result("tools/list", version, {"tools": [tool]})
    except ValidationError as error:
        found = [each for each in error.errors(include_url=False) if error.title == "Tool" or each["loc"][:1] == ("tools",)]
        if found:  # else it is the list that lacks something
            path = found[0]["loc"] if error.title == "Tool" else found[0]["loc"][2:]
            return f"{'.'.join(map(str, path)) or 'it'}: {found[0]['msg']}"
    except ValueError:
        pass  # a version that the SDK doesn't know, and won't connect with
    return "it has no name" if not tool["name"] else ""


def _name(tool: Any) -> str:
    name = tool.get("name") if isinstance(tool, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return name[:NAME_CHARS_MAX] if isinstance(name, str) and name else "a tool without a name"
