"""Which path of which target does a request to `/proxy/…` mean, and may it go there as it is written?

The upstream gets the client's own bytes behind the target's name, so nothing is decoded for it. What is decoded here is looked at only: a
path that some reading of it leads above the upstream's base, or to another host, is refused.
"""

import re
from typing import Final

from msgspec import Struct

from luftpause.dataplane.rejection import Rejection

PREFIX: Final = "/proxy/"
DECODINGS_MAX: Final = 3
_ENCODED: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_BROKEN_CODE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_UNSENDABLE: Final = re.compile(rb"[^\x21-\x7e]|[#\\]")
_CONTROL: Final = re.compile(rb"[\x00-\x1f\x7f]")
_SEPARATOR: Final = re.compile(rb"[/\\]")


class Asked(Struct, frozen=True, gc=False):
    """`rest`: path (empty, or from its slash on) and query, as the client wrote them."""

    target: str
    rest: bytes


def asked_of(request_target: bytes) -> Asked | Rejection:
    """Read a request target whose path begins with PREFIX, in origin form or in absolute form (RFC 9112, 3.2)."""
    path, mark, query = _origin_form(request_target).partition(b"?")
    name, slash, rest = path[len(PREFIX) :].partition(b"/")
    if _UNSENDABLE.search(query):
        return _refused("its query holds a byte that no URL may hold; percent-encode it")
    mistake = _mistake(rest)
    return _refused(mistake) if mistake else Asked(name.decode("latin-1"), slash + rest + mark + query)


def _origin_form(target: bytes) -> bytes:
    if target.startswith(b"/"):
        return target
    return b"/" + target.partition(b"://")[2].partition(b"/")[2]


def _mistake(path: bytes) -> str:
    """Why the path behind the target's name may not go on; empty: it may."""
    if _UNSENDABLE.search(path):
        return "it holds a byte that no path may hold; percent-encode it"
    if _BROKEN_CODE.search(path):
        return "a % is not followed by two hexadecimal digits; write %25 for a percent sign"
    for _ in range(DECODINGS_MAX):
        if mistake := _leads_away(path):
            return mistake
        decoded = _ENCODED.sub(lambda code: bytes.fromhex(code[1].decode()), path)
        if decoded == path:
            return ""
        path = decoded
    return f"it is percent-encoded more than {DECODINGS_MAX} times over; send what is meant"


def _leads_away(path: bytes) -> str:
    if _CONTROL.search(path):
        return "it holds an encoded control character"
    if path.startswith((b"/", b"\\")):
        return "two slashes begin it, which some servers read as another host; write one"
    for segment in _SEPARATOR.split(path):
        if segment.partition(b";")[0].strip() in {b".", b".."}:
            return "it holds `.` or `..` as a segment; write the path that is meant"
    return ""


def _refused(why: str) -> Rejection:
    return Rejection(400, "bad_proxy_path", f"this path can't go on to the target: {why}")
