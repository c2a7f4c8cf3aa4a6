"""What bytes go to an engine for a turn: which of the client's headers, whose key, which body?"""

from collections.abc import Mapping, Sequence
from typing import Final

from luftpause.dataplane.identify import TRACEPARENT

HARMLESS: Final = frozenset({b"keep-alive", b"close", b""})


def forwarded(headers: Sequence[tuple[bytes, bytes]], named: Mapping[bytes, bytes], allowed: frozenset[bytes]) -> bytes:
    """Header lines that go on: those on the allow-list, unless `Connection` names them or they are a malformed traceparent."""
    connection = named.get(b"connection", b"")
    if connection.lower() in HARMLESS and b"traceparent" not in named:
        return b"".join([b"%b: %b\r\n" % pair for pair in headers if pair[0] in allowed])
    barred = {each.strip().lower() for each in connection.split(b",")}
    kept = [
        b"%b: %b\r\n" % (name, value)
        for name, value in headers
        if name in allowed and name not in barred and not (name == b"traceparent" and TRACEPARENT.fullmatch(value) is None)
    ]
    return b"".join(kept)


def engine_request(target: bytes, host: bytes, headers: bytes, key: bytes, body: bytes, method: bytes = b"POST") -> bytes:
    """Head and body in one piece. `key` is the header line with the replica's own key: nobody else's ever goes there."""
    return b"%b %b HTTP/1.1\r\nhost: %b\r\n%b%baccept-encoding: identity\r\ncontent-length: %d\r\n\r\n%b" % (
        method, target, host, headers, key, len(body), body,
    )  # fmt: skip
