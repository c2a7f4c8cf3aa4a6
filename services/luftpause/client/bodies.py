"""How is an answer's body given on, and what happens when it has been read?"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Final

import httpx

from luftpause.kit.quota_evidence import KEPT_BYTES_MAX, limited_inside

Ended = Callable[[str], None]  # with the beginning of a body that is a refusal by its content
EndedAsync = Callable[[str], Awaitable[None]]
NOTHING: Final[tuple[bytes, ...]] = ()


class Body(httpx.SyncByteStream):
    """A provider's, piece by piece as it comes. `ended` is called once, when it is closed."""

    def __init__(self, rest: httpx.SyncByteStream, kind: str) -> None:
        """`kind`: its content type."""
        self.ended: Ended | None = None
        self._rest = iter(rest)
        self._stream = rest
        self._kind = kind
        self._pieces = NOTHING
        self._excerpt: str | None = None

    def __iter__(self) -> Iterator[bytes]:
        yield from self._pieces
        for piece in self._rest:
            if self._excerpt is None:
                self._excerpt = limited_inside(piece, self._kind)
            yield piece

    def read(self) -> tuple[bytes, bool]:
        """Up to KEPT_BYTES_MAX of it, which stay; and whether that is all."""
        pieces: list[bytes] = []
        for piece in self._rest:
            pieces.append(piece)
            if sum(map(len, pieces)) > KEPT_BYTES_MAX:
                self._pieces = tuple(pieces)
                return b"".join(pieces), False
        self._pieces = tuple(pieces)
        return b"".join(pieces), True

    def close(self) -> None:
        try:
            self._stream.close()
        finally:
            ended, self.ended = self.ended, None
            if ended is not None:
                ended(self._excerpt or "")


class AsyncBody(httpx.AsyncByteStream):
    """The same for an event loop."""

    def __init__(self, rest: httpx.AsyncByteStream, kind: str) -> None:
        self.ended: EndedAsync | None = None
        self._rest = aiter(rest)
        self._stream = rest
        self._kind = kind
        self._pieces = NOTHING
        self._excerpt: str | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece
        async for piece in self._rest:
            if self._excerpt is None:
                self._excerpt = limited_inside(piece, self._kind)
            yield piece

    async def read(self) -> tuple[bytes, bool]:
        pieces: list[bytes] = []
        async for piece in self._rest:
            pieces.append(piece)
            if sum(map(len, pieces)) > KEPT_BYTES_MAX:
                self._pieces = tuple(pieces)
                return b"".join(pieces), False
        self._pieces = tuple(pieces)
        return b"".join(pieces), True

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            ended, self.ended = self.ended, None
            if ended is not None:
                await ended(self._excerpt or "")
