"""What does a handler give back, and what outlives its request?"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import mcp_types as types

from luftpause.runtime.ports import Json

T = TypeVar("T")
Answer = types.CallToolResult | types.InputRequiredResult


def answer(text: str, structured: Json | None, *, failed: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=structured, is_error=failed)


class Kept:
    """Work that a cancelled request does not take along."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def keep(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
