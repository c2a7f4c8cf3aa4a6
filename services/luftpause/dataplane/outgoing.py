"""What bytes go to an engine for a turn: which of the client's headers, whose key, which body?"""

from collections.abc import Mapping, Sequence
from typing import Final

from luftpause.dataplane.chat import ask_for_usage
from luftpause.dataplane.identify import TRACEPARENT
from luftpause.dataplane.limits import shortened, with_model
from luftpause.dataplane.splice import with_priority
from luftpause.dataplane.turns import Lease

HARMLESS: Final = frozenset({b"keep-alive", b"close", b""})


def forwarded(headers: Sequence[tuple[bytes, bytes]], named: Mapping[bytes, bytes], allowed: frozenset[bytes]) -> bytes:
    """Header lines that go on: those on the allow-list, unless `Connection` names them or they are a malformed traceparent."""
    usual = len(named) == len(headers) and b"traceparent" not in named  # no name came twice
    if usual and named.get(b"connection", b"").lower() in HARMLESS:
        return b"".join([b"%b: %b\r\n" % pair for pair in headers if pair[0] in allowed])
    barred = {each.strip().lower() for name, value in headers if name == b"connection" for each in value.split(b",")}
    kept = [
        b"%b: %b\r\n" % (name, value)
        for name, value in headers
        if name in allowed and name not in barred and not (name == b"traceparent" and TRACEPARENT.fullmatch(value) is None)
    ]
    return b"".join(kept)


def body_for(body: bytes, *, usage: bool, priority: int | None, lease: Lease | None = None) -> bytes:
    """The client's body, but for what an engine is asked and told besides: its `usage`, the turn's priority there, what its quota cuts."""
    if lease is not None:
        body = _cut(body, lease)
    if usage:
        body = ask_for_usage(body)
    return body if priority is None else with_priority(body, priority)


def _cut(body: bytes, lease: Lease) -> bytes:
    if lease.level:
        body = shortened(body, lease.answer_share, lease.answer_least)
    return with_model(body, lease.model) if lease.model else body


def engine_request(target: bytes, host: bytes, headers: bytes, key: bytes, body: bytes, method: bytes = b"POST") -> bytes:
    """Head and body in one piece. `key` is the header line with the replica's own key: nobody else's ever goes there."""
    return b"%b %b HTTP/1.1\r\nhost: %b\r\n%b%baccept-encoding: identity\r\ncontent-length: %d\r\n\r\n%b" % (
        method, target, host, headers, key, len(body), body,
    )  # fmt: skip
