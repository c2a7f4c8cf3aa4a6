"""Which tools of a server's list can be used, when some of them are malformed?

The SDK refuses the whole list, and with it the server, for one tool without a schema.
"""

import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

NAME_CHARS_MAX: Final = 100

Told = Callable[[str, str], None]  # the tool's name and what is wrong with it


@contextlib.asynccontextmanager
async def usable_lists(streams: TransportStreams, told: Told) -> AsyncGenerator[TransportStreams]:
    """The streams, with lists of tools that hold only those that the SDK takes."""
    read, write = streams
    sender, receiver = anyio.create_memory_object_stream[SessionMessage | Exception](0)

    async def relay() -> None:
        async with sender:
            with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                async for item in read:
                    await sender.send(item if isinstance(item, Exception) else usable(item, told))

    async with anyio.create_task_group() as group, receiver:
        group.start_soon(relay)
        try:
            yield receiver, write
        finally:
            group.cancel_scope.cancel()


def usable(item: SessionMessage, told: Told) -> SessionMessage:
    """The message; one that answers with a list of tools, without those that can't be used."""
    message: Any = item.message
    if not isinstance(message, types.JSONRPCResponse) or not isinstance(message.result.get("tools"), list):
        return item
    listed: list[Any] = message.result["tools"]
    kept = [tool for tool in listed if not (why := _wrong(tool)) or told(_name(tool), why)]
    if len(kept) == len(listed):
        return item
    answer = message.model_copy(update={"result": {**message.result, "tools": kept}})
    return SessionMessage(answer, item.metadata)


def _wrong(tool: Any) -> str:
    try:
        types.Tool.model_validate(tool, by_name=False)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['msg']}"
    return "it has no name" if not tool["name"] else ""


def _name(tool: Any) -> str:
    name = tool.get("name") if isinstance(tool, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return name[:NAME_CHARS_MAX] if isinstance(name, str) and name else "a tool without a name"
