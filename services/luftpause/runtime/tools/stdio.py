"""How does the runtime start an MCP server as a child process and talk with it?"""

import asyncio
import contextlib
import json
import os
import re
from collections.abc import AsyncGenerator
from typing import Any, Final, cast

import anyio
import mcp_types as types
from mcp.client._transport import TransportStreams
from mcp.client.stdio import StdioServerParameters
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from luftpause.kit.config import UpstreamConfig
from luftpause.kit.logs import Log
from luftpause.runtime.json_bytes import clean
from luftpause.runtime.tools.last_words import LastWords
from luftpause.runtime.tools.stdio_process import LineTooLongError, stdio_process

LINE_CHARS_MAX: Final = 500
REST_SECONDS: Final = 2.0  # for what the server wrote before it ended
MESSAGE: Final = b'{"jsonrpc"'
INT_DIGITS_MAX: Final = 300  # the interpreter refuses to read a number of some thousands
_HEAD: Final = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18}|"[\w-]{1,64}")\s*,')


@contextlib.asynccontextmanager
async def connect(
    name: str, command: str, config: UpstreamConfig, lost: asyncio.Event, words: LastWords
) -> AsyncGenerator[TransportStreams]:
    """Streams to a new process of the server; `lost` is set when it closes its output. Raises OSError if it can't be started."""
    log = Log("runtime.tools")
    parameters = StdioServerParameters(
        command=command, args=list(config.args), env=dict(config.env), cwd=config.cwd, encoding_error_handler="replace"
    )
    async with _stderr(name, log, words) as stderr, stdio_process(parameters, stderr) as (read, write):
        sender, receiver = anyio.create_memory_object_stream[SessionMessage | Exception](0)

        async def relay() -> None:
            """Passes messages on, drops prose, notices the end."""
            try:
                async with sender:
                    async for item in read:
                        message = mended(item) if isinstance(item, Exception) else item
                        if isinstance(item, LineTooLongError):
                            log.warning("an MCP server is started again", server=name, why=str(item))
                        elif message is None:
                            log.warning("an MCP server wrote something that is not MCP to its standard output", server=name)
                        else:
                            await sender.send(message)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass  # we are leaving
            finally:
                lost.set()

        async with anyio.create_task_group() as group, receiver:
            group.start_soon(relay)
            try:
                yield receiver, write
            finally:
                group.cancel_scope.cancel()


def mended(refused: Exception) -> SessionMessage | None:
    """What the SDK refused, as a message it takes; None: it is none.

    An answer that can't be used becomes an error, so that its call doesn't wait until the time-out.
    """
    line = refused.errors(include_url=False)[0]["input"] if isinstance(refused, ValidationError) else None
    if isinstance(line, str | bytes):
        data = clean(line.encode("utf-8", "replace") if isinstance(line, str) else line)
        if not data.lstrip().startswith(b"{"):  # a progress bar that did not end its line
            data = data[max(0, data.find(MESSAGE)) :]
        with contextlib.suppress(ValueError):
            return SessionMessage(types.jsonrpc_message_adapter.validate_json(data, by_name=False))
        try:
            line = json.loads(data, strict=False, parse_int=_int)
        except ValueError:
            return None
        except RecursionError:
            head = _HEAD.match(data)
            line = {"id": json.loads(head[1])} if head else None
        with contextlib.suppress(ValueError):
            return SessionMessage(types.jsonrpc_message_adapter.validate_python(line, by_name=False))
    if not isinstance(line, dict):
        return None
    parts = cast("dict[str, object]", line)
    call = parts.get("id")
    if "method" in parts or isinstance(call, bool) or not isinstance(call, int | str):
        return None
    error = types.ErrorData(code=types.INTERNAL_ERROR, message="the server's answer is no MCP message")
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=call, error=error))


def _int(digits: str) -> int | float:
    return int(digits) if len(digits) <= INT_DIGITS_MAX else float(digits)


@contextlib.asynccontextmanager
async def _stderr(name: str, log: Log, words: LastWords) -> AsyncGenerator[Any]:
    """A file for the server's standard error whose lines go to our log at debug; read to its end when the server is gone."""
    reading, writing = os.pipe()
    reader = asyncio.StreamReader(limit=65_536)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb", buffering=0)
    )
    task = asyncio.create_task(_log_lines(name, log, reader, words))
    with os.fdopen(writing, "w") as file:
        try:
            yield file
        finally:
            file.close()
            try:
                await asyncio.wait({task}, timeout=REST_SECONDS)
            finally:  # also where we are cancelled once more
                task.cancel()
                transport.close()
                await asyncio.gather(task, return_exceptions=True)


async def _log_lines(name: str, log: Log, reader: asyncio.StreamReader, words: LastWords) -> None:
    while True:
        try:
            line = await reader.readline()
        except ValueError:  # longer than the limit; the reader dropped it
            continue
        if not line:
            return
        text = line.decode(errors="replace").rstrip()
        words.heard(text)
        log.debug("an MCP server wrote to its standard error", server=name, line=text[:LINE_CHARS_MAX])
