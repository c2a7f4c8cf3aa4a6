"""Is this head the one that was read last, but for its Content-Length?

Whoever keeps a connection sends the same head with each request, and an engine with each answer. Bytes that are equal mean what they
meant before, so that only the digits of the length are read anew. Everything else takes the way through the parser.
"""

import re
from typing import Final

LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]+)(?=\r\n)", re.IGNORECASE)
DIGITS_MAX: Final = 15


class Recurring:
    """A head that was parsed and accepted, with its empty line.

    `digits` are those of the last `match`, `length` is what they say; 0 for a head without.
    """

    __slots__ = ("_after", "_before", "digits", "length")

    def __init__(self, before: bytes, after: bytes) -> None:
        """Around the digits; `after` empty: there are none, and `before` is all of the head."""
        self._before = before
        self._after = after
        self.digits = b""
        self.length = 0

    def match(self, data: bytes) -> int:
        """Where the head ends in `data`; 0: it is another one, or not whole."""
        before, after = self._before, self._after
        if not data.startswith(before):
            return 0
        start = len(before)
        if not after:
            return start
        end = data.find(b"\r", start, start + DIGITS_MAX + 1)
        digits = data[start:end]
        if end < 0 or not digits.isdigit() or not data.startswith(after, end):
            return 0
        self.digits, self.length = digits, int(digits)
        return end + len(after)


def recurring(head: bytes) -> Recurring | None:
    """None: its length can't be told from the rest."""
    found = list(LENGTH.finditer(head))
    if len(found) != head.lower().count(b"content-length:") or len(found) > 1:
        return None
    return Recurring(head[: found[0].start(1)], head[found[0].end() :]) if found else Recurring(head, b"")
