"""Which header lines of a proxied call go on to the target, and back to the client?"""

import re
from collections.abc import Sequence
from typing import Final

from luftpause.dataplane.responses import HOP_BY_HOP
from luftpause.kit.header_names import OURS, folded
from luftpause.kit.quota_evidence import says_when

Pairs = Sequence[tuple[bytes, bytes]]

_DROPPED: Final = HOP_BY_HOP | {b"host", b"content-length", b"expect", b"x-offered-upgrade"}
_UNSAFE: Final = re.compile(rb"[\r\n\0]")


def passed_on(headers: Pairs) -> bytes:
    """
    The client's header lines for the target: all but those of the connection, of the framing, and ours, however they are spelt.

    The caller's own credentials for the target (`Authorization`, `Cookie`, `x-api-key`, …) are among them. Names are lower case.
    """
    barred = {each.strip().lower() for name, value in headers if name == b"connection" for each in value.split(b",")}
    kept = [
        b"%b: %b\r\n" % (name, value)
        for name, value in headers
        if name not in barred and (plain := folded(name)) not in _DROPPED and not plain.startswith((OURS, b"proxy-"))
    ]
    return b"".join(kept)


def is_unsafe(headers: Pairs) -> bool:
    """Does a header hold what would end its line? No parser of ours lets one through; nothing may depend on that alone."""
    return any(_UNSAFE.search(name) or _UNSAFE.search(value) for name, value in headers)


def told_in(lines: bytes) -> list[tuple[str, str]]:
    """The headers of an answer's lines (with the status line before them)."""
    pairs = (line.decode("latin-1").partition(": ") for line in lines.split(b"\r\n")[1:] if line)
    return [(name, value) for name, _, value in pairs]


def without_retry(lines: bytes) -> bytes:
    """An answer's header lines without those that say when to try again."""
    return b"".join(line + b"\r\n" for line in lines.split(b"\r\n")[:-1] if not says_when(line.partition(b":")[0].decode("latin-1")))
