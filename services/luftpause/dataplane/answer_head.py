"""What does the head of an engine's answer say, and which heads came before?"""

import functools
from typing import Final, Self

import httptools
from msgspec import Struct

from luftpause.dataplane.framing import Chunked, Counted, Framing, UntilClose
from luftpause.dataplane.recurring import Recurring, recurring
from luftpause.dataplane.responses import passed_lines

TYPES_KNOWN_MAX: Final = 64
HEADS_KNOWN_MAX: Final = 4
BODILESS: Final = frozenset({204, 304})


class AnswerHead(Struct, gc=False):
    """The head of an engine's final answer. `lines` are those that go on; `keeps`: the connection may be used again.

    `kind` is the media type; `compressed` if nobody here can read the body. `caches`: the engine said how it may be cached.
    """

    status: int
    lines: bytes
    kind: bytes
    framing: Framing
    keeps: bool
    caches: bool

    def again(self, length: int) -> "AnswerHead":
        """The head of another answer, equal but for the length of its body."""
        framing = Counted(length) if isinstance(self.framing, Counted) else Chunked()
        return AnswerHead(self.status, self.lines, self.kind, framing, self.keeps, self.caches)


class Heads:
    """The heads that came last from an engine, newest first.

    Few are remembered between two looks of the sweep: an engine whose heads are all different shall not cost more for it.
    """

    __slots__ = ("_fresh", "known")

    def __init__(self) -> None:
        self.known: tuple[tuple[Recurring, AnswerHead], ...] = ()
        self._fresh = 0

    def remember(self, raw: bytes, head: AnswerHead) -> None:
        if self._fresh >= HEADS_KNOWN_MAX or isinstance(head.framing, UntilClose) or head.status in BODILESS:
            return
        self._fresh += 1
        known = recurring(raw)
        if known is not None:
            self.known = ((known, head), *self.known[: HEADS_KNOWN_MAX - 1])

    def refresh(self) -> None:
        self._fresh = 0


class HeadParser:
    """Collects what httptools finds in the head of an answer."""

    __slots__ = ("headers", "phrase")

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.phrase = b""

    @classmethod
    def parse(cls, head: bytes, headers_max: int) -> AnswerHead | None:
        """None: malformed, or framed in a way that can't be passed on."""
        found: Self = cls()
        parser = httptools.HttpResponseParser(found)
        # Engines do send both; then chunked is the one that counts (RFC 9112, 6.3), and only one is passed on.
        parser.set_dangerous_leniencies(lenient_chunked_length=True)
        try:
            parser.feed_data(head)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            return None
        status = parser.get_status_code()
        named = dict(found.headers)
        framing = _framing(status, named)
        if framing is None or len(found.headers) > headers_max:
            return None
        if isinstance(framing, Chunked) and sum(name == b"transfer-encoding" for name, _ in found.headers) > 1:
            return None  # another coding below the chunks
        keeps = parser.should_keep_alive() and not isinstance(framing, UntilClose)
        lines = passed_lines(status, found.phrase.decode("latin-1"), found.headers)
        return AnswerHead(status, lines, _kind(named), framing, keeps, b"cache-control" in named)

    def on_status(self, phrase: bytes) -> None:
        self.phrase += phrase

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))


def _framing(status: int, headers: dict[bytes, bytes]) -> Framing | None:
    if status in BODILESS or status < 200:
        return Counted(0)
    coding = headers.get(b"transfer-encoding")
    if coding is not None:
        return Chunked() if coding.strip().lower() == b"chunked" else None
    length = headers.get(b"content-length")
    return Counted(int(length)) if length is not None else UntilClose()


def _kind(headers: dict[bytes, bytes]) -> bytes:
    if b"content-encoding" in headers and headers[b"content-encoding"].lower() != b"identity":
        return b"compressed"
    return _media_type(headers.get(b"content-type", b""))


@functools.lru_cache(maxsize=TYPES_KNOWN_MAX)
def _media_type(value: bytes) -> bytes:
    return value.partition(b";")[0].strip().lower()
