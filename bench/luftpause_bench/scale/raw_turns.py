"""How are thousands of turns opened at once, with little memory and CPU on the client's side?"""

import asyncio
import json
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from luftpause.kit.errors import LuftpauseError
from luftpause_bench.live.world import MODEL

OPENED_AT_ONCE: Final = 100
LINE_BYTES_MAX: Final = 65_536
ANSWER_SECONDS_MAX: Final = 240.0


class Turn(Struct):
    """One request on a connection of its own."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


def body(number: int, characters: int, answer_tokens: int) -> bytes:
    """A streaming turn of about so many characters, different for each number."""
    content = f"Turn {number} [calls=0 answer={answer_tokens}] " + f"item {number} " * (characters // 10)
    return json.dumps({"model": MODEL, "stream": True, "messages": [{"role": "user", "content": content}]}).encode()


async def open_all(url: str, count: int, *, characters: int, answer_tokens: int, first: int = 0) -> list[Turn]:
    """Sent, not yet answered."""
    gate = asyncio.Semaphore(OPENED_AT_ONCE)

    async def one(number: int) -> Turn:
        async with gate:
            return await _open(url, body(number, characters, answer_tokens))

    return list(await asyncio.gather(*(one(first + number) for number in range(count))))


async def _open(url: str, data: bytes) -> Turn:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=LINE_BYTES_MAX)
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n"
    )
    writer.write(f"{head}connection: close\r\n\r\n".encode() + data)
    await writer.drain()
    return Turn(reader, writer)


async def head(turn: Turn) -> None:
    """Once the answer begins. Raises LuftpauseError (`refused`) if it is not a 200."""
    async with asyncio.timeout(ANSWER_SECONDS_MAX):
        status = await turn.reader.readline()
    if b" 200 " not in status:
        raise LuftpauseError(f"a turn was answered {status.decode(errors='replace').strip() or 'nothing'}", code="refused")


async def whole(turn: Turn) -> None:
    """Once the answer is over. Raises LuftpauseError (`broken`) if it is not whole."""
    await head(turn)
    last = b""
    while data := await turn.reader.read(LINE_BYTES_MAX):
        last = (last + data)[-64:]
    await leave([turn])
    if b"[DONE]" not in last:
        raise LuftpauseError(f"a stream ended without [DONE]: {last!r}", code="broken")


async def leave(turns: list[Turn]) -> None:
    """Close the connections, whatever is still to come."""
    for turn in turns:
        turn.writer.close()
    await asyncio.gather(*(turn.writer.wait_closed() for turn in turns), return_exceptions=True)
