"""Where do the lines and events of a server-sent event stream begin and end, however it was cut?

Nearly all engines write each event as one `data:` line, so what is read is lines. Nothing here changes a byte of what is passed on, except
`EventFilter`, which removes whole events.
"""

import re
from collections.abc import Callable
from typing import Final

BOM: Final = b"\xef\xbb\xbf"  # a stream may begin with it
END_OF_EVENT: Final = re.compile(rb"\n\r?\n|\r\r")
ENDS_OF_EVENTS: Final = (b"\n\n", b"\n\r\n", b"\r\r")
END_BYTES: Final = 2  # of an end of an event that may still lack its last byte
DONE: Final = b"[DONE]"


class Lines:
    """Cuts a stream into lines; keeps at most `bytes_max` of a line that has no end yet.

    A longer one is given up: it is skipped up to its end, and `given_up` says so.
    """

    __slots__ = ("_bytes_max", "_skipping", "given_up", "tail")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._skipping = False
        self.tail: bytes | bytearray = b""  # grows in place: a long line may come in pieces of a few bytes
        self.given_up = False

    @property
    def even(self) -> bool:
        """Does a line begin with the next byte?"""
        return not self.tail and not self._skipping

    def take(self, data: bytes) -> tuple[bytes, int]:
        """What came with what was left before, and up to where it is complete lines (a CR may stand before their ends)."""
        if self._skipping:
            end = data.find(b"\n")
            if end < 0:
                return b"", 0
            self._skipping = False
            data = data[end + 1 :]
        end = data.rfind(b"\n") + 1
        if self.tail:
            if not end:
                self._lengthen(data)
                return b"", 0
            end += len(self.tail)
            data = bytes(self.tail) + data
        self.tail = data[end:]
        if len(self.tail) > self._bytes_max:
            self._give_up()
        return data, end

    def _lengthen(self, data: bytes) -> None:
        if not isinstance(self.tail, bytearray):
            self.tail = bytearray(self.tail)
        self.tail += data
        if len(self.tail) > self._bytes_max:
            self._give_up()

    def _give_up(self) -> None:
        self.tail = b""
        self._skipping = self.given_up = True

    def rest(self) -> bytes:
        """What is left when the stream ends without a last line end."""
        tail, self.tail = self.tail, b""
        return bytes(tail)


class LineEnds:
    """Makes CRLF and CR, which end lines of a stream too, plain LF for who reads it, however they were cut."""

    __slots__ = ("open",)

    def __init__(self) -> None:
        self.open = False  # the last byte was a CR: an LF that follows is part of the same end

    def plain(self, data: bytes) -> bytes:
        if self.open and data:
            self.open = False
            data = data.removeprefix(b"\n")
        if b"\r" not in data:
            return data
        self.open = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def data_of(line: bytes) -> bytes:
    """What a line carries behind `data:` (with or without a space), stripped; empty for every other line."""
    line = line.removeprefix(BOM)
    return line[5:].strip() if line.startswith(b"data:") else b""


class EventFilter:
    """Passes a stream on without the events that `drop` chooses; `drop` gets the `data` of one event, which holds `mark`.

    An event is held until it is complete, at most `bytes_max` of it; what is longer passes.
    """

    __slots__ = ("_bytes_max", "_drop", "_held", "_mark", "_passing")

    def __init__(self, drop: Callable[[bytes], bool], mark: bytes, bytes_max: int) -> None:
        self._drop = drop
        self._mark = mark
        self._bytes_max = bytes_max
        self._held = bytearray()
        self._passing = False  # the event at hand was too long: pass it up to its end

    def feed(self, data: bytes) -> bytes:
        held = self._held
        if not (held or self._passing) and self._mark not in data and data.endswith(ENDS_OF_EVENTS):
            return data  # whole events, as nearly always
        fresh = max(0, len(held) - END_BYTES)  # what is held has no end yet; one may have begun in its last bytes
        held += data
        kept: list[bytes] = []
        at = 0
        for end in [match.end() for match in END_OF_EVENT.finditer(held, fresh)]:
            event = bytes(held[at:end])
            at = end
            if self._passing or not self._dropped(event):
                kept.append(event)
            self._passing = False
        del held[:at]
        if self._passing or len(held) > self._bytes_max:
            kept.append(bytes(held[:-END_BYTES]))
            del held[:-END_BYTES]
            self._passing = True
        return b"".join(kept)

    def rest(self) -> bytes:
        """What is left when the stream ends."""
        held = bytes(self._held)
        self._held.clear()
        return b"" if held and not self._passing and self._dropped(held) else held

    def _dropped(self, event: bytes) -> bool:
        data = b"\n".join(filter(None, map(data_of, event.replace(b"\r", b"\n").split(b"\n"))))
        return self._mark in data and self._drop(data)
