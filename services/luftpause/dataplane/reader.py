"""What does a client ask on its connection, and is it well-formed and within its limits?

Sans-I/O: one httptools parser for the whole life of the connection. The head is fed to it line by line, so that an offered `Upgrade`
can be made harmless before the parser sees it (it would drop the body), and so that no head is longer than its limit.
"""

import functools
import re
from typing import Final

import httptools

from luftpause.dataplane.recurring import Recurring, recurring
from luftpause.dataplane.rejection import Rejection

UPGRADE: Final = re.compile(rb"(?im)^upgrade[ \t]*:")
NO_UPGRADE: Final = b"x-offered-upgrade:"
FIRST_BYTES: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ\r\n")
TARGETS_KNOWN_MAX: Final = 64
STRANGERS_MAX: Final = 3  # so many heads in a row that were unlike the one before: nothing recurs on this connection
CHUNK_OVERHEAD: Final = 8  # bytes of framing that a byte of payload may cost, beyond head_bytes_max


Seen = tuple[str, bytes, str, str, bool, list[tuple[bytes, bytes]], dict[bytes, bytes], int]
"""Method, target, path, version, may the connection go on, headers, the same by name, and which of them is Content-Length."""
NOTHING: Final[Seen] = ("", b"", "", "", False, [], {}, -1)


class Reader:
    """Feed it bytes; then `head_done` and `complete` say how much of a request is there, and `extra` that more came than one."""

    __slots__ = (
        "_body_bytes", "_bytes_max", "_head_bytes", "_headers_max", "_known", "_left", "_parser", "_raw_bytes", "_received", "_seen",
        "_strangers", "_tail",
        "begun", "body_bytes", "complete", "extra", "head_done", "headers", "keep_alive", "method", "named", "path", "target", "version",
    )  # fmt: skip

    def __init__(self, head_bytes_max: int, headers_max: int) -> None:
        self._bytes_max = head_bytes_max
        self._headers_max = headers_max
        self._tail = b""  # the last line of a head, not yet complete
        self._parser = httptools.HttpRequestParser(self)
        self._known: Recurring | None = None  # the last head, where it may come again
        self._seen = NOTHING  # what it says
        self._strangers = 0
        self.extra = False
        self.next()

    def next(self) -> None:
        """Ready for another request."""
        self.begun = self.head_done = self.complete = False
        self.target = b""
        self.path = ""  # of the target: without query and without a slash at its end
        self.method = ""
        self.version = "1.1"
        self.keep_alive = False
        self.headers: list[tuple[bytes, bytes]] = []
        self.named: dict[bytes, bytes] = {}
        self._left: int | None = None  # of a body that is counted here; None: the parser reads it
        self._body_bytes: bytes | bytearray = b""  # one buffer: pieces of a few bytes each would cost twenty times their length
        self._head_bytes = self._received = self._raw_bytes = 0
        self.body_bytes: int | None = 0  # as declared; None: chunked

    def body(self) -> bytes:
        return bytes(self._body_bytes)

    @property
    def received(self) -> int:
        """Body bytes that are here."""
        return self._received

    def drop_body(self) -> None:
        """Nobody will read what came of the body."""
        self._body_bytes = b""

    def feed(self, data: bytes) -> Rejection | None:
        """Raises nothing; after a rejection the connection is of no further use."""
        if self._known is not None and not self.begun:
            data = self._again(self._known, data)
        if self._left is not None:
            self._count_down(self._left, data)
            return None
        return self._parse(data)

    def _parse(self, data: bytes) -> Rejection | None:
        try:
            while data and not self.head_done:
                data = self._head(data)
                if self._head_bytes + len(self._tail) > self._bytes_max or len(self.headers) > self._headers_max:
                    return Rejection(
                        431, "head_too_large", f"the request head has more than {self._bytes_max} bytes or {self._headers_max} lines"
                    )
            if data:
                self._body(data)
        except (httptools.HttpParserUpgrade, httptools.HttpParserError) as error:
            if self.complete and self.method != "CONNECT":
                self.extra = True  # what is wrong stands behind this request
            else:
                return self._malformed(error)
        if self._raw_bytes > CHUNK_OVERHEAD * self._received + self._bytes_max:
            return Rejection(400, "bad_request", "malformed HTTP: more chunk framing than payload")
        return self._fault() if self.head_done else None

    def _malformed(self, error: Exception) -> Rejection:
        if isinstance(error, httptools.HttpParserUpgrade):
            return Rejection(405, "method_not_allowed", "CONNECT is not served here", allow="GET, POST, DELETE")
        if self.target == b"*" and "PRI" in str(error):
            return Rejection(505, "http_version", "HTTP/2 is not served here; use HTTP/1.1")
        return Rejection(400, "bad_request", f"malformed HTTP: {error}")

    def _again(self, known: Recurring, data: bytes) -> bytes:
        """If the request's head is the last one again, take what that said; returns the rest."""
        end = known.match(data)
        if not end or end > self._bytes_max or len(data) - end > known.length:
            self._strangers += 1
            self._known = None
            return data
        self._strangers = 0
        self.begun = self.head_done = True
        self.method, self.target, self.path, self.version, self.keep_alive, headers, named, length_at = self._seen
        self.headers, self.named = headers.copy(), named.copy()
        digits = known.digits
        if digits:
            self.headers[length_at] = (b"content-length", digits)
            self.named[b"content-length"] = digits
        self._left = self.body_bytes = known.length
        return data[end:]

    def _count_down(self, left: int, data: bytes) -> None:
        if len(data) > left:
            self.extra = True
            data = data[:left]
        if data:
            self.on_body(data)
        self._left = left = left - len(data)
        self.complete = left == 0

    def _head(self, data: bytes) -> bytes:
        """Feed the complete lines of the head that are here; returns what lies behind it."""
        if self._tail:
            data = self._tail + data
            self._tail = b""
        elif not self.begun and data[0] not in FIRST_BYTES:
            self._parser.feed_data(data)  # no method begins like that: let the parser say so now, not when a line ends
        if self.begun and data.startswith(b"\r\n"):
            end = 2  # the empty line after what came before
        else:
            end = data.find(b"\r\n\r\n") + 4
            if end < 4:
                end = data.rfind(b"\n") + 1
        block, rest = data[:end], data[end:]
        whole = not self.begun and end >= 4
        self.begun = True
        if block:
            self._head_bytes += len(block)
            offers = b"pgrade" in block.lower()
            self._parser.feed_data(UPGRADE.sub(NO_UPGRADE, block) if offers else block)
            if whole and self.head_done and not offers and self._strangers < STRANGERS_MAX:
                self._remember(block)
        if self.head_done or b"\n" in rest:
            return rest
        self._tail = rest
        return b""

    def _remember(self, head: bytes) -> None:
        """It may come again."""
        named = self.named
        if b"transfer-encoding" not in named and b"expect" not in named and self.keep_alive and self._fault() is None:
            self._known = recurring(head)
            length_at = next((at for at, (name, _) in enumerate(self.headers) if name == b"content-length"), -1)
            self._seen = (self.method, self.target, self.path, self.version, self.keep_alive, self.headers, named, length_at)

    def _body(self, data: bytes) -> None:
        if self.complete:
            self.extra = True
            return
        if self.body_bytes is None:
            self._raw_bytes += len(data)
        self._parser.feed_data(data)

    def _fault(self) -> Rejection | None:
        if self.version not in {"1.1", "1.0"}:
            return Rejection(505, "http_version", f"HTTP/{self.version} is not served here; use HTTP/1.1")
        coding = self.named.get(b"transfer-encoding")
        if coding is not None and (coding.strip().lower() != b"chunked" or self._count(b"transfer-encoding") > 1):
            return Rejection(501, "transfer_coding", "the only transfer coding that is understood is chunked, and that once")
        hosts = self._count(b"host")
        if hosts > 1 or (hosts == 0 and self.version == "1.1"):
            return Rejection(400, "bad_request", "malformed HTTP: there must be one Host header")
        return None

    def _count(self, name: bytes) -> int:
        """How often a header was sent."""
        if len(self.named) == len(self.headers):
            return int(name in self.named)
        return sum(each == name for each, _ in self.headers)

    # ---- called by the parser

    def on_message_begin(self) -> None:
        if self.complete:
            self.extra = True

    def on_url(self, url: bytes) -> None:
        if not self.extra:
            self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.head_done:  # else it is a trailer
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self.head_done:
            return
        self.head_done = True
        parser = self._parser
        self.method = parser.get_method().decode()
        self.version = parser.get_http_version()
        self.path = path_of(self.target)
        self.keep_alive = self.version == "1.1" and parser.should_keep_alive()
        self.named = dict(self.headers)
        if (authority := authority_of(self.target)) is not None and b"host" in self.named:
            self.named[b"host"] = authority  # RFC 9112, 3.2.2
        self.body_bytes = None if b"transfer-encoding" in self.named else int(self.named.get(b"content-length", b"0"))

    def on_body(self, piece: bytes) -> None:
        if not self.complete:
            if not self._received:
                self._body_bytes = piece
            elif isinstance(self._body_bytes, bytearray):
                self._body_bytes += piece
            else:
                self._body_bytes = bytearray(self._body_bytes)
                self._body_bytes += piece
            self._received += len(piece)

    def on_message_complete(self) -> None:
        self.complete = True


def authority_of(target: bytes) -> bytes | None:
    """The host and port of a target in absolute form; None: it names none."""
    if target.startswith(b"/") or b"://" not in target:
        return None
    return target.partition(b"://")[2].partition(b"/")[0].partition(b"?")[0]


@functools.lru_cache(maxsize=TARGETS_KNOWN_MAX)
def path_of(target: bytes) -> str:
    """The path of a request target, without query and without a slash at its end."""
    path = target.partition(b"?")[0].decode("latin-1")
    if not path.startswith("/") and "://" in path:
        path = "/" + path.partition("://")[2].partition("/")[2]
    return path.rstrip("/") or "/"
