"""Where does the body of an engine's answer end, and which of its bytes are payload?

Sans-I/O. Each reader takes what a read brought: `feed` returns how many of these bytes belong to this answer, `payload` is then the
payload among them and `done` whether the body is complete. RFC 9112 sections 6 and 7, read strictly.
"""

import re
from typing import Final

from luftpause.kit.header_names import folded

SIZE_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?\r\n")
TRAILER: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*")
LINE_BYTES_MAX: Final = 8192  # a size line with its extensions, or all trailers
# A recipient that heeds one of these behind the body would frame, route or trust the answer otherwise (RFC 9110, 6.5.1).
NO_TRAILERS: Final = (
    b"connection", b"content-encoding", b"content-length", b"content-range", b"content-type", b"host", b"keep-alive", b"proxy-",
    b"set-cookie", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"x-luftpause-",
)  # fmt: skip


class FramingError(Exception):
    """The body breaks the rules of its framing; nothing of this read can be trusted."""


class Counted:
    """`Content-Length: n`."""

    __slots__ = ("_left", "done", "length", "payload")

    def __init__(self, length: int) -> None:
        self.length = length
        self._left = length
        self.payload = b""
        self.done = length == 0

    def feed(self, data: bytes) -> int:
        if len(data) > self._left:
            data = data[: self._left]
        self._left -= len(data)
        self.payload = data
        self.done = self._left == 0
        return len(data)


class UntilClose:
    """The answer ends when the engine closes the connection in an orderly way."""

    __slots__ = ("done", "payload")

    def __init__(self) -> None:
        self.payload = b""
        self.done = False

    def feed(self, data: bytes) -> int:
        self.payload = data
        return len(data)


class Chunked:
    """`Transfer-Encoding: chunked`."""

    __slots__ = ("_after_chunk", "_left", "_part", "_trailer_bytes", "_trailers", "done", "payload")

    def __init__(self) -> None:
        self._left = 0  # payload bytes that the current chunk still owes
        self._after_chunk = False  # the CRLF behind a chunk comes next
        self._trailers = False
        self._trailer_bytes = 0
        self._part = b""  # of a line that a read cut
        self.payload = b""
        self.done = False

    @property
    def between(self) -> bool:
        """Does a chunk begin with the next byte?"""
        return not (self._left or self._after_chunk or self._part or self._trailers)

    def feed(self, data: bytes) -> int:
        """Raises FramingError."""
        pieces: list[bytes] = []
        before, at = len(self._part), 0
        if before:
            data = self._part + data
            self._part = b""
        if self._left or self._after_chunk:
            at = self._rest_of_chunk(data, pieces)
        if not (self._left or self._after_chunk or self._trailers):
            at = _whole_chunks(data, at, pieces)
        if at != len(data):
            at = self._walk(data, at, pieces)
        self.payload = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return at - before

    def _rest_of_chunk(self, data: bytes, pieces: list[bytes]) -> int:
        """Take what the chunk that a read had cut still owes, if all of it is here."""
        left = self._left
        if not data.startswith(b"\r\n", left):
            return 0
        if left:
            pieces.append(data[:left])
        self._left, self._after_chunk = 0, False
        return left + 2

    def _walk(self, data: bytes, at: int, pieces: list[bytes]) -> int:
        size = len(data)
        while at < size and not self.done:
            if self._left:
                piece = data[at : at + self._left]
                pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
                self._after_chunk = self._left == 0
            elif self._after_chunk:
                at = self._chunk_end(data, at)
            elif self._trailers:
                at = self._trailer(data, at)
            else:
                at = self._size_line(data, at)
        return at

    def _chunk_end(self, data: bytes, at: int) -> int:
        found = data[at : at + 2]
        if found == b"\r\n":
            self._after_chunk = False
            return at + 2
        if found == b"\r":
            return self._keep(data, at)
        raise FramingError("a chunk is not followed by CRLF")

    def _size_line(self, data: bytes, at: int) -> int:
        match = SIZE_LINE.match(data, at)
        if match is not None and match.end() - at <= LINE_BYTES_MAX:
            self._left = int(match[1], 16)
            self._trailers = self._left == 0
            return match.end()
        if match is None and data.find(b"\n", at) < 0:
            return self._keep(data, at)
        raise FramingError("bad chunk size")

    def _trailer(self, data: bytes, at: int) -> int:
        """One trailer line, or the empty line that ends the body."""
        end = data.find(b"\r\n", at)
        if end < 0:
            if data.find(b"\n", at) >= 0:
                raise FramingError("bare LF in a trailer")
            return self._keep(data, at)
        self.done = end == at
        self._trailer_bytes += end + 2 - at
        if not self.done and (TRAILER.fullmatch(data, at, end) is None or _is_barred(data[at:end])):
            raise FramingError("bad trailer")
        if self._trailer_bytes > LINE_BYTES_MAX:
            raise FramingError("endless trailers")
        return end + 2

    def _keep(self, data: bytes, at: int) -> int:
        self._part = data[at:]
        if len(self._part) > LINE_BYTES_MAX:
            raise FramingError("endless line between chunks")
        return len(data)


def _is_barred(trailer: bytes) -> bool:
    name = folded(trailer.partition(b":")[0])
    return any(name.startswith(each) if each.endswith(b"-") else name == each for each in NO_TRAILERS)


def _whole_chunks(data: bytes, at: int, pieces: list[bytes]) -> int:
    """Take what is whole: nearly every read of a stream is some complete chunks. Returns where the rest begins."""
    while (match := SIZE_LINE.match(data, at)) is not None:
        start = match.end()
        end = start + int(match[1], 16)
        if start == end or start - at > LINE_BYTES_MAX or data[end : end + 2] != b"\r\n":
            break
        pieces.append(data[start:end])
        at = end + 2
    return at


Framing = Counted | UntilClose | Chunked
