"""What does a strict reader of HTTP (h11) find in what the dataplane wrote, or in what it was sent?"""

import re

import h11

HEAD_BYTES_MAX = 400_000  # of h11: it is not the limit that is compared
CLOSED = re.compile("peer unexpectedly closed|closed connection|event type ConnectionClosed")  # what h11 says of a broken transfer
NOT_FORWARDED = frozenset({b"connection", b"upgrade", b"expect", b"te"})


class BrokenError(AssertionError):
    """A promise that does not hold."""


def must(condition: object, text: str) -> None:
    if not condition:
        raise BrokenError(text)


Answer = tuple[int, bytes, bool]


def answers_in(data: bytes, *, closed: bool, methods: tuple[str, ...] = ("POST",), count: int = 1) -> list[Answer]:
    """Status, body, completeness of at most so many answers; raises BrokenError where it is no HTTP for any of the methods."""
    if not data:
        return []
    must(count > 0, f"bytes behind the last answer: {data[:80]!r}")
    for method in methods:
        try:
            status, body, complete, rest = _answer(data, method, closed=closed)
            must(complete or not rest, "bytes behind a broken answer")
            more = answers_in(rest, closed=closed, methods=methods, count=count - 1)
        except BrokenError:
            if method == methods[-1]:
                raise
        else:
            return ([(status, body, complete)] if status else []) + more
    return []


def _answer(data: bytes, method: str, *, closed: bool) -> tuple[int, bytes, bool, bytes]:
    h = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
    h.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
    h.send(h11.EndOfMessage())
    h.receive_data(data)
    if closed:
        h.receive_data(b"")
    status, parts = 0, bytearray()
    while True:
        try:
            event = h.next_event()
        except h11.RemoteProtocolError as error:
            must(closed and CLOSED.search(str(error)), f"the client got no HTTP: {error}")
            return status, bytes(parts), False, b""
        match event:
            case h11.InformationalResponse():
                pass
            case h11.Response():
                status = event.status_code
            case h11.Data():
                parts += event.data
            case h11.EndOfMessage():
                return status, bytes(parts), True, h.trailing_data[0]
            case _:
                return status, bytes(parts), False, b""


def first_request(data: bytes) -> tuple[bytes, bytes] | str:
    """Method and body of the first request as h11 reads it; else why it does not."""
    h = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
    h.receive_data(data)
    method, parts = b"", bytearray()
    try:
        while True:
            match event := h.next_event():
                case h11.Request():
                    method = event.method
                case h11.Data():
                    parts += event.data
                case h11.EndOfMessage():
                    return method, bytes(parts)
                case _:
                    return "incomplete"
    except h11.RemoteProtocolError as error:
        return str(error)


def forwarded(data: bytes) -> list[tuple[bytes, bytes]]:
    """The requests that an engine got on one connection: target and body. Each must be one that nobody can read in two ways."""
    found: list[tuple[bytes, bytes]] = []
    while data:
        h = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        h.receive_data(data)
        request = h.next_event()
        must(isinstance(request, h11.Request), "the engine got no complete head")
        names = [name for name, _ in request.headers]
        must(names.count(b"content-length") == 1 and b"transfer-encoding" not in names, f"framing: {names}")
        must(names.count(b"host") == 1, f"hosts: {names}")
        must(not any(name.startswith(b"x-luftpause") or name in NOT_FORWARDED for name in names), f"headers: {names}")
        body = bytearray()
        while isinstance(event := h.next_event(), h11.Data):
            body += event.data
        must(isinstance(event, h11.EndOfMessage), "the engine got no complete body")
        found.append((request.target, bytes(body)))
        data = h.trailing_data[0]
    return found
