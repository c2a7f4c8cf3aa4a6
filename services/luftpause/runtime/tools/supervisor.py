"""How does one MCP server stay connected, and what does a call to it become when it does not?"""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final, cast

import mcp_types as types
from mcp import Client
from mcp.client._transport import TransportStreams
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from luftpause import __version__
from luftpause.kit.clock import monotonic
from luftpause.kit.config import RuntimeConfig, UpstreamConfig
from luftpause.kit.logs import Log
from luftpause.runtime.ports import Json, ServerState, ToolResult
from luftpause.runtime.tools import http, stdio
from luftpause.runtime.tools.last_words import LastWords
from luftpause.runtime.tools.listed import list_tools, list_tools_anew
from luftpause.runtime.tools.listing import usable_lists
from luftpause.runtime.tools.reasons import described, what_broke, why_down
from luftpause.runtime.tools.results import printable, to_result

BACKOFF_SECONDS: Final = 0.2
BACKOFF_SECONDS_MAX: Final = 10.0
CONNECT_SECONDS: Final = 30.0  # start, negotiation, first list of tools
LISTEN_AGAIN_SECONDS: Final = 1.0
LIST_AGAIN_SECONDS: Final = 1.0  # between two lists of tools, however often a server says that they changed
SESSION_GONE: Final = re.compile(
    r"session.*(not found|terminated|expired|unknown)|(no valid|invalid|unknown|expired) session", re.IGNORECASE
)
NOTES_MAX: Final = 50


class Supervisor:
    """Owns the connection to one server: its task alone enters and leaves the SDK's client, other tasks only call.

    `changed` is called whenever the connection or the list of tools changed.
    """

    def __init__(self, name: str, config: UpstreamConfig, runtime: RuntimeConfig, changed: Callable[[], None]) -> None:
        self.name = name
        self.known: tuple[types.Tool, ...] = ()  # of the last connection, also while disconnected
        self._config = config
        self._seconds_max = config.tool_seconds_max or runtime.tool_seconds_max
        self._chars_max = runtime.tool_result_chars_max
        self._check_seconds = runtime.server_check_seconds
        self._changed = changed
        self._client: Client | None = None
        self._connected = asyncio.Event()
        self._lost = asyncio.Event()
        self._stale = asyncio.Event()
        self._error = "not connected yet"
        self._was_up = False
        self._stopping = False
        self._calls = 0
        self._turn = asyncio.Semaphore(config.calls_max)
        self._notes: dict[str, str] = {}
        self._refusals = http.Refusals()
        self._words = LastWords(config)
        self._log = Log("runtime.tools")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._supervise(), name=f"tools of {self.name}")

    async def stop(self) -> None:
        self._stopping = True
        self._lost.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def connected(self) -> None:
        """Returns when it is."""
        await self._connected.wait()

    def state(self) -> ServerState:
        connected = self._client is not None
        notes = tuple(f"{tool} can't be used: {printable(why)}" for tool, why in self._notes.items()) if connected else ()
        return ServerState(self.name, connected, "" if connected else self._error, len(self.known) if connected else 0, notes)

    async def call(self, tool: str, arguments: Json, traceparent: str) -> ToolResult:
        """
        Errors and time-outs are failed results. A call that may have reached the server is made again only where its connection broke, the
        answer had not begun and the tool says that it is read-only or idempotent, and once only.
        """
        async with self._turn:
            self._calls += 1
            try:
                async with asyncio.timeout(self._seconds_max):
                    return await self._call_known(tool, arguments, traceparent)
            except TimeoutError:
                return _failed(f"{tool} gave no answer within {self._seconds_max:g} s; it may have happened all the same")
            finally:
                self._calls -= 1

    async def _call_known(self, tool: str, arguments: Json, traceparent: str) -> ToolResult:
        for last in (False, True):
            client = self._client
            if client is None:
                return _failed(f"the tool server {self.name} is not connected: {self._error}")
            try:
                return await self._call_once(client, tool, arguments, traceparent)
            except _SessionGoneError:  # refused before it was looked at, so it did not happen
                self._lose(client, "the server forgot the session")
                if last:
                    return _failed(f"the tool server {self.name} does not keep its sessions")
                await self._connected.wait()
        raise AssertionError

    def _is_repeatable(self, tool: str) -> bool:
        hints = next((each.annotations for each in self.known if each.name == tool), None)
        return hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)

    async def _call_once(self, client: Client, tool: str, arguments: Json, traceparent: str) -> ToolResult:
        meta: Any = {"traceparent": traceparent} if traceparent else None
        try:
            answer = await client.call_tool(tool, arguments, read_timeout_seconds=self._seconds_max + 1, meta=meta)
        except MCPError as error:
            return self._broken(client, tool, error)
        except Exception as error:  # noqa: BLE001 - whatever the SDK or a server invents must not end a run
            self._log.warning("a tool's answer could not be used", server=self.name, tool=tool, error=described(error))
            return _failed(f"the answer of {tool} could not be used: {described(error)}")
        return to_result(answer, self._chars_max)

    def _broken(self, client: Client, tool: str, error: MCPError) -> ToolResult:
        code, message = error.error.code, error.error.message
        if self._refusals.status in {400, 404} and SESSION_GONE.search(message):
            raise _SessionGoneError
        if code == types.REQUEST_TIMEOUT:
            return _failed(f"{tool} gave no answer within {self._seconds_max:g} s; it may have happened all the same")
        self._stale.set()  # is it still there?
        if code == types.CONNECTION_CLOSED and self._config.command:
            self._lose(client, "the connection was lost")
        return _failed(what_broke(self.name, tool, error, status=self._refusals.status, chars_max=self._chars_max))

    # ---- the connection ------------------------------------------------------------------------------------------

    async def _supervise(self) -> None:
        delay, attempt = BACKOFF_SECONDS, 0
        while not self._stopping:  # the SDK may turn a cancellation into an error of its own
            began = monotonic()
            # A server that hangs or dies at the first question of the new protocol gets the old handshake at the next attempt.
            mode = "auto" if attempt % 2 == 0 else "legacy"
            try:
                await self._connection(mode)
            except Exception as error:  # noqa: BLE001 - a broken server must not end its supervisor
                if not self._was_up:  # else leaving a dead connection complained, which says nothing new
                    self._down(self._why(error))
            attempt = 0 if self._was_up else attempt + 1
            if self._was_up and monotonic() - began > BACKOFF_SECONDS_MAX:
                delay = BACKOFF_SECONDS
            if not self._stopping:
                await asyncio.sleep(delay)
            delay = min(2 * delay, BACKOFF_SECONDS_MAX)

    async def _connection(self, mode: Any) -> None:
        """One connection from start to loss."""
        self._was_up = False
        self._notes.clear()
        self._lost.clear()
        self._stale.clear()
        self._refusals.status = 0
        self._words.text = ""
        client = Client(
            _Transport(self._streams()),
            mode=mode,
            client_info=types.Implementation(name="luftpause", version=__version__),
            message_handler=self._message,
            read_timeout_seconds=CONNECT_SECONDS,
            cache=None,
        )
        async with contextlib.AsyncExitStack() as stack:
            async with asyncio.timeout(CONNECT_SECONDS):
                await stack.enter_async_context(client)
                tools = await list_tools(client)
            self._up(client, tools)
            try:
                await self._watch(client)
            except Exception as error:
                self._down(self._why(error))
                raise
            finally:
                self._down("the server closed the connection")

    @contextlib.asynccontextmanager
    async def _streams(self) -> AsyncGenerator[TransportStreams]:
        if self._config.url is not None:
            connection = http.connect(self._config.url, self._config, self._refusals, self._is_repeatable)
        else:
            connection = stdio.connect(self.name, self._config.command or "", self._config, self._lost, self._words)
        async with connection as streams, usable_lists(streams, self._unusable) as usable:
            yield usable

    def _unusable(self, tool: str, why: str) -> None:
        if self._notes.get(tool) != why and len(self._notes) < NOTES_MAX:
            self._notes[tool] = why
            self._log.warning("a tool is malformed and left out", server=self.name, tool=tool, why=why)

    async def _watch(self, client: Client) -> None:
        """Returns when the connection is lost; refreshes the list of tools when told to, and now and then unasked."""
        listener = asyncio.create_task(self._listen(client))
        try:
            while not self._lost.is_set():
                await _first(self._lost, self._stale, self._check_seconds)
                if not self._lost.is_set():
                    self._stale.clear()
                    await self._check(client)
                    await _first(self._lost, self._lost, LIST_AGAIN_SECONDS)
        finally:
            self._lost.set()
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)

    async def _check(self, client: Client) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                tools = await list_tools_anew(client)
        except (TimeoutError, MCPError) as error:
            silent = isinstance(error, TimeoutError) or error.error.code in {types.REQUEST_TIMEOUT, http.UNANSWERED}
            if silent and self._calls:  # a server that does one thing at a time is busy, not dead
                return
            raise
        if tools != self.known:
            self.known = tools
            self._log.info("an MCP server changed its tools", server=self.name, tools=len(tools))
            self._changed()

    async def _listen(self, client: Client) -> None:
        """Change events of a server of the new protocol; a lost stream is a sign that it may be gone, which a check will tell."""
        tools = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
            return
        while not self._lost.is_set():
            try:
                async with client.listen(tools_list_changed=True) as events:
                    async for _ in events:
                        self._stale.set()
            except Exception as error:  # noqa: BLE001 - whatever ended the stream
                self._log.debug("the change events of an MCP server ended", server=self.name, error=described(error))
            self._stale.set()
            if not self._lost.is_set():
                await asyncio.sleep(LISTEN_AGAIN_SECONDS)

    async def _message(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._stale.set()

    def _up(self, client: Client, tools: tuple[types.Tool, ...]) -> None:
        self._client, self._was_up, self._error = client, True, ""
        self._connected.set()
        self._log.info("connected to an MCP server", server=self.name, tools=len(tools), protocol=client.protocol_version)
        self.known = tools
        self._changed()

    def _lose(self, client: Client, why: str) -> None:
        """A call found the connection broken."""
        if client is self._client:
            self._down(why)
            self._lost.set()

    def _down(self, why: str) -> None:
        """No new calls from here on, and no tools; the first reason is the one that counts."""
        if self._client is None and self._was_up:
            return
        if not self._stopping and (self._client is not None or why != self._error):
            self._log.warning("no connection to an MCP server", server=self.name, error=why)
        self._error = why
        self._connected.clear()
        if self._client is not None:
            self._client = None
            self._changed()

    def _why(self, error: Exception) -> str:
        status, command = self._refusals.status, self._config.command
        return why_down(error, status=status, command=command, last_words=self._words.text, seconds_max=CONNECT_SECONDS)


class _SessionGoneError(Exception):
    """The server does not know our session: a reconnect is due, and the call was not made."""


class _Transport:
    """What `Client` takes for a transport: a context manager that yields streams."""

    def __init__(self, streams: contextlib.AbstractAsyncContextManager[TransportStreams]) -> None:
        self._streams = streams

    async def __aenter__(self) -> TransportStreams:
        return await self._streams.__aenter__()

    async def __aexit__(self, *error: object) -> bool | None:
        return await self._streams.__aexit__(*cast("Any", error))


async def _first(one: asyncio.Event, other: asyncio.Event, seconds: float) -> None:
    """Returns when either event is set or the time is over."""
    waits = [asyncio.create_task(one.wait()), asyncio.create_task(other.wait())]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _failed(message: str) -> ToolResult:
    return ToolResult(f"Error: {message}", failed=True)
