"""Which header lines of a proxied call go on to the target, to the governor and back to the client?"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from luftpause.dataplane.responses import HOP_BY_HOP

Pairs = Sequence[tuple[bytes, bytes]]

OURS: Final = b"x-luftpause-"
_DROPPED: Final = HOP_BY_HOP | {b"host", b"content-length", b"expect", b"x-offered-upgrade"}
_UNSAFE: Final = re.compile(rb"[\r\n\0]")
# What tells of limits, in all families that `quota.headers` reads; credentials, cookies and ids of requests stay here.
_LIMIT: Final = re.compile(rb"date|.*(?:limit|quota|retry|trial-endpoint).*|x-error-message|anthropic-(?:priority|fast)-.*")
_RETRY: Final = re.compile(rb"(?:x-ms-)?retry-after(?:-ms)?|x-should-retry|x-ratelimit-retry-after")
LIMITS_MAX: Final = 64
LIMIT_BYTES_MAX: Final = 1024


def passed_on(headers: Pairs) -> bytes:
    """
    The client's header lines for the target: all but those of the connection, of the framing, and ours.

    The caller's own credentials for the target (`Authorization`, `Cookie`, `x-api-key`, …) are among them. Names are lower case.
    """
    barred = {each.strip().lower() for name, value in headers if name == b"connection" for each in value.split(b",")}
    kept = [
        b"%b: %b\r\n" % (name, value)
        for name, value in headers
        if name not in _DROPPED and name not in barred and not name.startswith((OURS, b"proxy-"))
    ]
    return b"".join(kept)


def is_unsafe(headers: Pairs) -> bool:
    """Does a header hold what would end its line? No parser of ours lets one through; nothing may depend on that alone."""
    return any(_UNSAFE.search(name) or _UNSAFE.search(value) for name, value in headers)


def limits_of(lines: bytes) -> Mapping[str, str]:
    """What an answer's header lines (with the status line before them) tell of limits, by lower-case name; of several the last."""
    found: dict[str, str] = {}
    for line in lines.split(b"\r\n")[1:]:
        name, _, value = line.partition(b": ")
        if _LIMIT.fullmatch(name) and len(value) <= LIMIT_BYTES_MAX and len(found) < LIMITS_MAX:
            found[name.decode("latin-1")] = value.decode("latin-1")
    return found


def without_retry(lines: bytes) -> bytes:
    """An answer's header lines without those that say when to try again."""
    return b"".join(line + b"\r\n" for line in lines.split(b"\r\n")[:-1] if not _RETRY.fullmatch(line.partition(b":")[0]))
