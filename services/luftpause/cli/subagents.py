"""How does a program spawn sub-agents over MCP and wait for them, with the SDK's own client?"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Final, cast
from urllib.parse import urlsplit

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.types import CallToolResult, Implementation, TextContent
from msgspec import Struct, convert

from luftpause import __version__
from luftpause.cli import tokens
from luftpause.kit.errors import LuftpauseError

AWAIT_SECONDS: Final = 50.0  # below the 60 s after which many clients give up a call
CONNECTIONS_MAX: Final = 64
CALL_SECONDS_MAX: Final = 90.0
ENDED: Final = frozenset({"Completed", "Failed", "Cancelled"})

Progress = Callable[[int, str], None]  # of the number of runs that have ended, and what the others do (or nothing)


class SubAgentRun(Struct, frozen=True, rename="camel"):
    """A run as `await` shows it."""

    handle: str
    state: str
    answer: str | None = None
    error: str | None = None
    tool_calls: int = 0
    failed_tool_calls: int = 0
    turns: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    seconds: float = 0.0

    @property
    def completed(self) -> bool:
        return self.state == "Completed"

    @property
    def ended(self) -> bool:
        return self.state in ENDED


class SubAgents:
    """The tools of one runtime."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def spawn(self, task: str, **arguments: object) -> str:
        """The new run's handle; `arguments` are those of the tool `spawn`."""
        given = {key: value for key, value in arguments.items() if value is not None}
        return str((await self._call("spawn", {"task": task, **given}))["handle"])

    async def wait(self, handles: Sequence[str], *, seconds_max: float, progress: Progress) -> list[SubAgentRun]:
        """Their states when all have ended or the time is over."""
        until = asyncio.get_running_loop().time() + seconds_max
        while True:
            left = until - asyncio.get_running_loop().time()
            runs = await self._await(handles, min(AWAIT_SECONDS, max(left, 0.0)), progress)
            ended = sum(run.ended for run in runs)
            progress(ended, "")
            if ended == len(runs) or left <= 0:
                return runs

    async def cancel(self, handle: str) -> None:
        await self._call("cancel", {"handle": handle})

    async def _await(self, handles: Sequence[str], seconds: float, progress: Progress) -> list[SubAgentRun]:
        async def report(done: float, _total: float | None, message: str | None) -> None:
            progress(int(done), message or "")

        result = await self._call("await", {"handles": list(handles), "mode": "all", "timeout": seconds}, report)
        return [convert(run, SubAgentRun) for run in result["runs"]]

    async def _call(self, tool: str, arguments: dict[str, Any], report: Any = None) -> dict[str, Any]:
        try:
            result: CallToolResult = await self._client.call_tool(
                tool, arguments, progress_callback=report, read_timeout_seconds=CALL_SECONDS_MAX
            )
        except MCPError as error:
            raise LuftpauseError(f"the MCP tool {tool} got no answer: {error}", code="mcp_tool") from error
        if result.is_error or result.structured_content is None:
            said = " ".join(part.text for part in result.content if isinstance(part, TextContent))
            raise LuftpauseError(f"the MCP tool {tool} failed: {said}", code="mcp_tool")
        return result.structured_content


@contextlib.asynccontextmanager
async def connect(url: str, *, caller: str, token: str = "") -> AsyncGenerator[SubAgents]:
    """A client of the runtime at `url` (with `/mcp`); raises LuftpauseError when nothing there speaks MCP, or no longer does."""
    try:
        async with _connected(url, caller, token) as client:
            yield SubAgents(client)
    except ExceptionGroup as group:  # the SDK's tasks wrap what goes wrong beside them
        if found := _leaf(group, LuftpauseError):
            raise found from None
        if found := _leaf(group, (httpx2.HTTPError, OSError, MCPError)):
            raise LuftpauseError(f"the MCP server at {url} was lost: {_root(found)}", code="mcp_lost") from group
        raise


@contextlib.asynccontextmanager
async def _connected(url: str, caller: str, token: str) -> AsyncGenerator[Client]:
    refused = False  # the SDK does not say so

    async def look(answer: httpx2.Response) -> None:
        nonlocal refused
        refused = refused or answer.status_code == 401

    http = httpx2.AsyncClient(
        event_hooks={"response": [look]},
        headers={"x-luftpause-caller": caller, **tokens.headers(token)},
        limits=httpx2.Limits(max_connections=CONNECTIONS_MAX),
        timeout=httpx2.Timeout(30, read=CALL_SECONDS_MAX, pool=None),
        trust_env=False,  # a proxy from the environment must not get calls to this machine
    )
    us = Implementation(name="luftpause-cli", version=__version__)
    async with http, contextlib.AsyncExitStack() as stack:
        client = Client(streamable_http_client(url, http_client=http, max_sse_event_size=None), client_info=us)
        try:
            await stack.enter_async_context(client)
        except Exception as error:
            if refused:
                mend = "name the variable that holds your token with --token-env"
                raise LuftpauseError(f"{url} takes no one without the right token (401); {mend}", code="no_token") from error
            raise LuftpauseError(f"no MCP server answers at {url}: {_root(error)}{_hint(url)}", code="no_mcp_server") from error
        yield client


def _leaf(error: Exception, kinds: type[Exception] | tuple[type[Exception], ...]) -> Exception | None:
    """The first of these kinds, in groups too."""
    if isinstance(error, kinds):
        return error
    inner = cast("tuple[Exception, ...]", error.exceptions) if isinstance(error, ExceptionGroup) else ()
    return next((found for each in inner if (found := _leaf(each, kinds))), None)


def _hint(url: str) -> str:
    return "; is `luftpause up` running?" if urlsplit(url).path.endswith("/mcp") else "; the runtime's address ends in /mcp"


def _root(error: Exception) -> str:
    while isinstance(error, ExceptionGroup):
        error = cast("Exception", error.exceptions[0])
    return str(error) or type(error).__name__
