"""How is an MCP server run as a child process whose lines have a bound?

The SDK's own client keeps what comes without a line end and searches all of it again at each read: a server that prints a gigabyte without
one takes a core and the memory.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncGenerator
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.client._transport import TransportStreams
from mcp.client.stdio import StdioServerParameters, get_default_environment
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

LINE_BYTES_MAX: Final = 32 * 2**20
STOP_SECONDS: Final = 2.0  # to leave after its input was closed, and again after SIGTERM


class LineTooLongError(Exception):
    """The server wrote more than LINE_BYTES_MAX without a line end."""


@contextlib.asynccontextmanager
async def stdio_process(parameters: StdioServerParameters, errlog: Any) -> AsyncGenerator[TransportStreams]:
    """Streams to a new process in a process group of its own, which is gone afterwards. Raises OSError if it can't be started.

    What it writes that is no message comes as an exception, one line at a time; a line that is too long ends the reading.
    """
    process = await asyncio.create_subprocess_exec(
        parameters.command,
        *parameters.args,
        env=get_default_environment() | (parameters.env or {}),
        cwd=parameters.cwd,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=errlog,
        limit=LINE_BYTES_MAX,
        start_new_session=True,
    )
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    if process.stdout is None or process.stdin is None:
        raise RuntimeError("both were asked for as pipes")
    tasks = [asyncio.create_task(_reader(process.stdout, incoming)), asyncio.create_task(_writer(process.stdin, outgoing, incoming))]
    try:
        yield read, write
    finally:
        for task in tasks:
            task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.gather(*tasks, return_exceptions=True)
            for stream in (incoming, read, write, outgoing):
                await stream.aclose()
            await _stop(process)


async def _reader(stdout: asyncio.StreamReader, incoming: Any) -> None:
    async with incoming:
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            while line := await _line(stdout, incoming):
                if line.strip():
                    await incoming.send(_message(line))


async def _line(stdout: asyncio.StreamReader, incoming: Any) -> bytes:
    """The next line; b"" at the end, or after one that is too long."""
    try:
        return await stdout.readline()
    except ValueError:
        await incoming.send(LineTooLongError(f"it wrote {LINE_BYTES_MAX:,} bytes without a line end"))
        return b""


async def _writer(stdin: asyncio.StreamWriter, outgoing: Any, incoming: Any) -> None:
    try:
        async for item in outgoing:
            stdin.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await stdin.drain()
    except OSError:
        await incoming.aclose()  # else a request would wait for ever although nobody has read it


def _message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValidationError as error:
        return error
    except ValueError as error:
        return error


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Its input is closed, then SIGTERM, then SIGKILL, for the whole group."""
    if process.stdin is not None:
        process.stdin.close()
    for sent in (None, signal.SIGTERM, signal.SIGKILL):
        if sent is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, sent)
        draining = asyncio.create_task(_drain(process.stdout))  # one that is stuck in a write can't leave
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
                break
        except TimeoutError:
            pass
        finally:
            draining.cancel()
            await asyncio.gather(draining, return_exceptions=True)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # children that it left behind
    transport: Any = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()


async def _drain(stdout: asyncio.StreamReader | None) -> None:
    while stdout is not None and await stdout.read(65_536):
        pass
