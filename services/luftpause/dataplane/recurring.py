"""Is this head the one that was read last, but for its Content-Length?

Whoever keeps a connection sends the same head with each request, and an engine with each answer. Bytes that are equal mean what they
meant before, so that only the digits of the length are read anew. Everything else takes the way through the parser.
"""

import re
from typing import Final

LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]+)(?=\r\n)", re.IGNORECASE)
DIGITS_MAX: Final = 15
NOT_THIS: Final = (0, b"")


class Recurring:
    """A head that was parsed and accepted, with its empty line. `around`: what stands before and behind the digits of its length."""

    __slots__ = ("around",)

    def __init__(self, before: bytes, after: bytes) -> None:
        """`after` empty: there are no digits, and `before` is all of the head."""
        self.around = (before, after)

    def match(self, data: bytes) -> tuple[int, bytes]:
        """Where the head ends in `data`, 0: it is another one, or not whole; and the digits of its length, empty: it has none."""
        before, after = self.around
        if not data.startswith(before):
            return NOT_THIS
        start = len(before)
        if not after:
            return start, b""
        end = data.find(b"\r", start, start + DIGITS_MAX + 1)
        digits = data[start:end]
        if end < 0 or not digits.isdigit() or not data.startswith(after, end):
            return NOT_THIS
        return end + len(after), digits


def recurring(head: bytes) -> Recurring | None:
    """None: its length can't be told from the rest."""
    found = list(LENGTH.finditer(head))
    if len(found) != head.lower().count(b"content-length:") or len(found) > 1:
        return None
    return Recurring(head[: found[0].start(1)], head[found[0].end() :]) if found else Recurring(head, b"")
