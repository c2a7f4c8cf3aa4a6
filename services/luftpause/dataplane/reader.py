"""What does a client ask on its connection, and is it well-formed and within its limits?

Sans-I/O: one httptools parser for the whole life of the connection. The head is fed to it line by line, so that an offered `Upgrade`
can be made harmless before the parser sees it (it would drop the body), and so that no head is longer than its limit.
"""

import functools
import re
from typing import Final

import httptools

from luftpause.dataplane.recurring import recurring
from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.request_head import LENGTH, NO_HEAD, Headers, Known, KnownHeads, RequestHead

UPGRADE: Final = re.compile(rb"(?im)^upgrade[ \t]*:")
NO_UPGRADE: Final = b"x-offered-upgrade:"
FIRST_BYTES: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ\r\n")
TARGETS_KNOWN_MAX: Final = 64
STRANGERS_MAX: Final = 3  # so many heads in a row that were unlike the one before: nothing recurs on this connection
CHUNK_OVERHEAD: Final = 8  # bytes of framing that a byte of payload may cost, beyond head_bytes_max


class Reader:
    """Feed it bytes; then `head_done` and `complete` say how much of a request is there, and `extra` that more came than one.

    `head` is NO_HEAD until it is complete. `digits` are those of its Content-Length, where the head was seen before with others.
    """

    __slots__ = (
        "_body_bytes", "_bytes_max", "_head_bytes", "_headers", "_headers_max", "_heads", "_known", "_left", "_parser", "_raw_bytes",
        "_received", "_strangers", "_tail", "_target",
        "begun", "body_bytes", "complete", "digits", "extra", "head", "head_done",
    )  # fmt: skip

    def __init__(self, head_bytes_max: int, headers_max: int, heads: KnownHeads | None = None) -> None:
        """`heads`: what connections share of heads that were read."""
        self._bytes_max = head_bytes_max
        self._headers_max = headers_max
        self._heads = KnownHeads() if heads is None else heads
        self._tail = b""  # the last line of a head, not yet complete
        self._parser: httptools.HttpRequestParser | None = None
        self._known: Known | None = None  # the last head, where it may come again
        self._strangers = 0
        self.extra = False
        self.next()

    def next(self) -> None:
        """Ready for another request."""
        self.begun = self.head_done = self.complete = False
        self.head = NO_HEAD
        self.digits = b""
        self._target = b""
        self._headers: Headers | None = None  # of a head that is being read
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

    def rest(self) -> None:
        """The request has been taken over: keep little until the next one. Where heads recur that needs no parser."""
        self._body_bytes = b""
        if self._known is not None:
            self._parser = None

    def close(self) -> None:
        """Nothing more comes. It and its parser know each other: without this both would wait for the garbage collector."""
        self._parser = None

    def feed(self, data: bytes) -> Rejection | None:
        """Raises nothing; after a rejection the connection is of no further use."""
        if self._known is not None and not self.begun:
            data = self._again(self._known, data)
        if self._left is not None:
            self._count_down(self._left, data)
            return None
        parser = self._parser
        if parser is None:
            parser = self._parser = httptools.HttpRequestParser(self)
        return self._parse(parser, data)

    def _parse(self, parser: httptools.HttpRequestParser, data: bytes) -> Rejection | None:
        try:
            while data and not self.head_done:
                data = self._head(parser, data)
                headers = self._headers or self.head.headers
                if self._head_bytes + len(self._tail) > self._bytes_max or len(headers) > self._headers_max:
                    return Rejection(
                        431, "head_too_large", f"the request head has more than {self._bytes_max} bytes or {self._headers_max} lines"
                    )
            if data:
                self._body(parser, data)
        except (httptools.HttpParserUpgrade, httptools.HttpParserError) as error:
            if self.complete and self.head.method != "CONNECT":
                self.extra = True  # what is wrong stands behind this request
            else:
                return self._malformed(error)
        if self._raw_bytes > CHUNK_OVERHEAD * self._received + self._bytes_max:
            return Rejection(400, "bad_request", "malformed HTTP: more chunk framing than payload")
        return self._fault() if self.head_done else None

    def _malformed(self, error: Exception) -> Rejection:
        if isinstance(error, httptools.HttpParserUpgrade):
            return Rejection(405, "method_not_allowed", "CONNECT is not served here", allow="GET, POST, DELETE")
        if self._target == b"*" and "PRI" in str(error):
            return Rejection(505, "http_version", "HTTP/2 is not served here; use HTTP/1.1")
        return Rejection(400, "bad_request", f"malformed HTTP: {error}")

    def _again(self, known: Known, data: bytes) -> bytes:
        """If the request's head is the last one again, take what that said; returns the rest."""
        recurring, head = known
        end, digits = recurring.match(data)
        length = int(digits) if digits else 0
        if not end or end > self._bytes_max or len(data) - end > length:
            self._strangers += 1
            self._known = None
            return data
        self._strangers = 0
        self.begun = self.head_done = True
        self.head = head
        self.digits = digits
        self._left = self.body_bytes = length
        return data[end:]

    def _count_down(self, left: int, data: bytes) -> None:
        if len(data) > left:
            self.extra = True
            data = data[:left]
        if data:
            self.on_body(data)
        self._left = left = left - len(data)
        self.complete = left == 0

    def _head(self, parser: httptools.HttpRequestParser, data: bytes) -> bytes:
        """Feed the complete lines of the head that are here; returns what lies behind it."""
        if self._tail:
            data = self._tail + data
            self._tail = b""
        elif not self.begun and data[0] not in FIRST_BYTES:
            parser.feed_data(data)  # no method begins like that: let the parser say so now, not when a line ends
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
            parser.feed_data(UPGRADE.sub(NO_UPGRADE, block) if offers else block)
            if whole and self.head_done and not offers and self._strangers < STRANGERS_MAX:
                self._remember(block)
        if self.head_done or b"\n" in rest:
            return rest
        self._tail = rest
        return b""

    def _remember(self, head: bytes) -> None:
        """It may come again. A connection on which heads recur needs no parser until one does not."""
        read = self.head
        if b"transfer-encoding" in read.named or b"expect" in read.named or not read.keep_alive or self._fault() is not None:
            return
        found = recurring(head)
        if found is not None:
            self._known = self._heads.share(found, read)
            self.head = self._known[1]
            self.digits = read.named.get(LENGTH, b"")

    def _body(self, parser: httptools.HttpRequestParser, data: bytes) -> None:
        if self.complete:
            self.extra = True
            return
        if self.body_bytes is None:
            self._raw_bytes += len(data)
        parser.feed_data(data)

    def _fault(self) -> Rejection | None:
        version, named = self.head.version, self.head.named
        if version not in {"1.1", "1.0"}:
            return Rejection(505, "http_version", f"HTTP/{version} is not served here; use HTTP/1.1")
        coding = named.get(b"transfer-encoding")
        if coding is not None and (coding.strip().lower() != b"chunked" or self._count(b"transfer-encoding") > 1):
            return Rejection(501, "transfer_coding", "the only transfer coding that is understood is chunked, and that once")
        hosts = self._count(b"host")
        if hosts > 1 or (hosts == 0 and version == "1.1"):
            return Rejection(400, "bad_request", "malformed HTTP: there must be one Host header")
        return None

    def _count(self, name: bytes) -> int:
        """How often a header was sent."""
        named, headers = self.head.named, self.head.headers
        if len(named) == len(headers):
            return int(name in named)
        return sum(each == name for each, _ in headers)

    # ---- called by the parser

    def on_message_begin(self) -> None:
        if self.complete:
            self.extra = True

    def on_url(self, url: bytes) -> None:
        if not self.extra:
            self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.head_done:  # else it is a trailer
            if self._headers is None:
                self._headers = []
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        parser = self._parser
        if self.head_done or parser is None:
            return
        self.head_done = True
        headers, self._headers = self._headers or [], None
        named = dict(headers)
        if (authority := authority_of(self._target)) is not None and b"host" in named:
            named[b"host"] = authority  # RFC 9112, 3.2.2
        version = parser.get_http_version()
        self.head = RequestHead(
            parser.get_method().decode(), self._target, path_of(self._target), headers, named,
            version=version, keep_alive=version == "1.1" and parser.should_keep_alive(),
        )  # fmt: skip
        self.body_bytes = None if b"transfer-encoding" in named else int(named.get(LENGTH, b"0"))

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
