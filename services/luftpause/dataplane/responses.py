"""What bytes does a client get for luftpause's own answers, and what head for an engine's?"""

import functools
import re
from collections.abc import Iterable
from typing import Final

from luftpause.dataplane.rejection import Rejection
from luftpause.kit.header_names import is_ours

PHRASES: Final = {
    200: "OK", 201: "Created", 202: "Accepted", 204: "No Content", 304: "Not Modified", 400: "Bad Request", 401: "Unauthorized",
    403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 408: "Request Timeout", 409: "Conflict", 413: "Content Too Large",
    415: "Unsupported Media Type", 417: "Expectation Failed", 422: "Unprocessable Content", 429: "Too Many Requests",
    431: "Request Header Fields Too Large", 500: "Internal Server Error", 501: "Not Implemented", 502: "Bad Gateway",
    503: "Service Unavailable", 504: "Gateway Timeout", 505: "HTTP Version Not Supported",
}  # fmt: skip
PHRASE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
CLOSE: Final = b"connection: close\r\n"
CHUNKED: Final = b"transfer-encoding: chunked\r\n"
LAST_CHUNK: Final = b"0\r\n\r\n"
HOP_BY_HOP: Final = frozenset({
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te", b"trailer",
    b"transfer-encoding", b"upgrade",
})  # fmt: skip
PASSING: Final = frozenset({429, 503})  # statuses after which clients try again, and are told when
REPLACED: Final = HOP_BY_HOP | {b"content-length", b"x-accel-buffering"}


@functools.lru_cache(maxsize=64)
def status_line(status: int, phrase: str = "") -> bytes:
    """`phrase` is the engine's; one that no status line may hold (RFC 9112, 4) is replaced by the usual one."""
    if PHRASE.fullmatch(phrase) is None:
        phrase = ""
    return b"HTTP/1.1 %d %b\r\n" % (status, (phrase or PHRASES.get(status, "")).encode("latin-1"))


def chunk(payload: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def whole(
    status: int, body: bytes, *, more: bytes = b"", close: bool = False, bodiless: bool = False, content_type: bytes = b"application/json"
) -> bytes:
    """A complete answer. `more` are further header lines; `bodiless`: the answer to a HEAD request."""
    if status == 204:
        return b"%b%b%b\r\n" % (status_line(status), more, CLOSE if close else b"")
    head = b"%bcontent-type: %b\r\ncontent-length: %d\r\n%b%b\r\n" % (
        status_line(status), content_type, len(body), more, CLOSE if close else b"",
    )  # fmt: skip
    return head if bodiless else head + body


def refusal(rejection: Rejection, *, more: bytes = b"", close: bool = False, bodiless: bool = False) -> bytes:
    if rejection.retry_after_s or rejection.status in PASSING:
        more += b"retry-after: %d\r\n" % max(1, rejection.retry_after_s)
    if rejection.status == 401:
        more += b"www-authenticate: Bearer\r\n"
    if rejection.allow:
        more += b"allow: %b\r\n" % rejection.allow.encode()
    return whole(rejection.status, rejection.body(), more=more, close=close, bodiless=bodiless)


def passed_lines(status: int, phrase: str, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """What goes on of an engine's response head: nothing hop-by-hop, no framing, nothing of ours that we did not add.

    `headers` have lower-case names. Our lines, one framing and an empty line are still to follow.
    """
    nominated = _nominated(headers)
    kept = [
        b"%b: %b\r\n" % (name, value) for name, value in headers if name not in REPLACED and not is_ours(name) and name not in nominated
    ]
    return b"".join((status_line(status, phrase), *kept))


def _nominated(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Header names that `Connection` declares hop-by-hop."""
    found = [value for name, value in headers if name == b"connection" and value.lower() not in {b"keep-alive", b"close"}]
    return frozenset([each.strip().lower() for each in b",".join(found).split(b",")]) if found else frozenset()
