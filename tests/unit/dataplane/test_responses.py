"""Which heads do clients get?"""

import pytest

from luftpause.dataplane.outgoing import engine_request, forwarded
from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.responses import passed_lines, refusal, whole
from luftpause.dataplane.upstream import origin_of


def test_an_engines_head_is_written_anew() -> None:
    headers = [
        (b"content-type", b"text/event-stream"),
        (b"transfer-encoding", b"chunked"),
        (b"content-length", b"5"),
        (b"connection", b"keep-alive, x-hop"),
        (b"x-hop", b"1"),
        (b"keep-alive", b"1"),
        (b"x-luftpause-run-id", b"forged"),
        (b"x-accel-buffering", b"yes"),
        (b"set-cookie", b"a"),
        (b"set-cookie", b"b"),
    ]
    lines = passed_lines(200, "Fine", headers)
    assert lines == b"HTTP/1.1 200 Fine\r\ncontent-type: text/event-stream\r\nset-cookie: a\r\nset-cookie: b\r\n"


@pytest.mark.parametrize(("seconds", "line"), [(0, b""), (1, b"retry-after: 1\r\n"), (90, b"retry-after: 90\r\n")])
def test_a_refusal_has_the_one_error_shape(seconds: int, line: bytes) -> None:
    data = refusal(Rejection(503, "full", "no room", retry_after_s=seconds), close=True)
    assert data.startswith(b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n")
    assert line in data
    assert b"connection: close\r\n" in data
    assert data.endswith(b'{"type":"error","error":{"message":"no room","type":"server_error","code":"full"}}')


def test_an_answer_without_content_has_no_length() -> None:
    assert whole(204, b"", more=b"allow: GET\r\n") == b"HTTP/1.1 204 No Content\r\nallow: GET\r\n\r\n"


def test_the_answer_to_head_has_a_length_and_no_body() -> None:
    assert refusal(Rejection(404, "x", "y"), bodiless=True).endswith(b"\r\n\r\n")


def test_headers_that_go_on() -> None:
    headers = [(b"accept", b"*/*"), (b"cookie", b"c"), (b"traceparent", b"bad"), (b"x-request-id", b"1"), (b"authorization", b"s")]
    allowed = frozenset({b"accept", b"traceparent", b"x-request-id"})
    assert forwarded(headers, dict(headers), allowed) == b"accept: */*\r\nx-request-id: 1\r\n"
    for connection in ([b"close, X-Request-Id"], [b"x-request-id", b"keep-alive"], [b"keep-alive", b"x-request-id"]):
        named = headers + [(b"connection", value) for value in connection]
        assert forwarded(named, dict(named), allowed) == b"accept: */*\r\n"
    twice = [(b"accept", b"a"), (b"accept", b"b"), (b"connection", b"Keep-Alive")]
    assert forwarded(twice, dict(twice), allowed) == b"accept: a\r\naccept: b\r\n"


@pytest.mark.parametrize(
    ("url", "key", "line"),
    [
        ("http://h:1", "", b""),
        ("http://h:1", "k", b"authorization: Bearer k\r\n"),
        ("https://api.anthropic.com", "k", b"x-api-key: k\r\n"),
        ("https://api.anthropic.com", "", b""),
    ],
)
def test_a_request_to_an_engine(url: str, key: str, line: bytes) -> None:
    assert engine_request(b"/v1/x", b"h:1", b"a: b\r\n", origin_of(url).key_line(key), b"{}") == (
        b"POST /v1/x HTTP/1.1\r\nhost: h:1\r\na: b\r\n" + line + b"accept-encoding: identity\r\ncontent-length: 2\r\n\r\n{}"
    )
