"""Does a program that spawns sub-agents hear in one sentence what went wrong, not as a group of the SDK's tasks?"""

import asyncio

import pytest

from luftpause.cli import subagents
from luftpause.kit.errors import LuftpauseError
from tests.support import processes


async def test_a_tool_that_fails_is_one_error_outside_the_connection_too() -> None:
    """The fake tools speak MCP and are no runtime."""
    async with processes.running("fake-mcp", "--port", "0") as tools:
        url = f"{tools.at['http']}/mcp"
        with pytest.raises(LuftpauseError, match="the MCP tool spawn failed"):
            async with subagents.connect(url, caller="test") as client:
                await asyncio.gather(*(client.spawn("a task") for _ in range(3)))
        with pytest.raises(ExceptionGroup) as caught:  # a fault of our own keeps its traceback
            async with subagents.connect(url, caller="test"):
                raise ZeroDivisionError
        assert any(isinstance(each, ZeroDivisionError) for each in _leaves(caught.value))


def _leaves(error: Exception) -> list[Exception]:
    return [leaf for each in error.exceptions for leaf in _leaves(each)] if isinstance(error, ExceptionGroup) else [error]
