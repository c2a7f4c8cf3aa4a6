"""How does an event become a line of the journal, and what of a journal can be trusted?

A line is one JSON object: `{"v":1,"run":…,"seq":…,"event":{…},"crc":…}`. `seq` counts a run's events from 0; `crc` is CRC-32 of the bytes
before `,"crc":`. Members that this version doesn't know are ignored.
"""

import re
import zlib
from typing import Final

import msgspec
from msgspec import Struct

from luftpause.runtime.core.events import Event

FORMAT: Final = 1
_MARK: Final = b',"crc":'
_RUN: Final[re.Pattern[bytes]] = re.compile(rb'"run":"([!-~]{1,128}?)"')


class Line(Struct, frozen=True):
    v: int
    run: str
    seq: int
    event: msgspec.Raw


class Entry(Struct, frozen=True):
    """A good line."""

    run: str
    seq: int
    event: Event


class Damaged(Struct, frozen=True):
    """A line that can't be used. `runs`: whose it may be, as far as that can be read. `newer`: a later version of luftpause wrote it."""

    why: str
    runs: tuple[str, ...] = ()
    newer: bool = False


_encode = msgspec.json.Encoder().encode
_decode_line = msgspec.json.Decoder(Line).decode
_events: Final[msgspec.json.Decoder[Event]] = msgspec.json.Decoder(Event)


def encode(run: str, seq: int, event: Event) -> bytes:
    """The line, newline included."""
    body = _encode({"v": FORMAT, "run": run, "seq": seq, "event": event})[:-1]
    return b"%s%s%d}\n" % (body, _MARK, zlib.crc32(body))


def decode(line: bytes) -> Entry | Damaged:
    """`line` without its newline; an editor may have left a carriage return."""
    line = line.removesuffix(b"\r")
    body, mark, rest = line.rpartition(_MARK)
    if not mark or rest != b"%d}" % zlib.crc32(body):
        return Damaged("its checksum is wrong", _runs_of(line))
    try:
        found = _decode_line(body + b"}")
        if found.v > FORMAT:
            return Damaged(f"its format {found.v} is newer than {FORMAT}", (found.run,), newer=True)
        return Entry(found.run, found.seq, _events.decode(found.event))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Damaged(f"it can't be read: {error}", _runs_of(line))


def _runs_of(line: bytes) -> tuple[str, ...]:
    return tuple(each.decode() for each in _RUN.findall(line))
