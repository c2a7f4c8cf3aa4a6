"""Which header lines of a proxied call go where?"""

import pytest

from luftpause.dataplane.proxy.headers import is_unsafe, passed_on, told_in, without_retry

STAY = [
    (b"host", b"localhost:8080"),
    (b"connection", b"close, X-Hop"),
    (b"x-hop", b"1"),
    (b"keep-alive", b"timeout=5"),
    (b"transfer-encoding", b"chunked"),
    (b"content-length", b"5"),
    (b"te", b"trailers"),
    (b"trailer", b"x"),
    (b"expect", b"100-continue"),
    (b"x-offered-upgrade", b"h2c"),
    (b"proxy-authorization", b"Basic abc"),
    (b"proxy-connection", b"keep-alive"),
    (b"x-luftpause-token", b"secret"),
    (b"x-luftpause-priority", b"0"),
    (b"x-luftpause-anything", b"1"),
    (b"x_luftpause_token", b"secret"),
    (b"x-luftpause_priority", b"0"),
    (b"x.luftpause.caller", b"worf"),
    (b"transfer_encoding", b"chunked"),
    (b"proxy_authorization", b"Basic abc"),
]
GO = [
    (b"authorization", b"Bearer ghp_callers-own"),
    (b"cookie", b"a=b"),
    (b"x-api-key", b"k"),
    (b"accept", b"application/json"),
    (b"accept", b"text/plain"),
    (b"accept-encoding", b"gzip, br"),
    (b"user-agent", b"\xc3\xa4"),
    (b"content-type", b"application/octet-stream"),
    (b"traceparent", b"anything"),
    (b"x_luftpausetoken", b"1"),
    (b"x_api_key", b"k"),
]


def test_all_goes_on_but_what_belongs_to_the_connection_or_to_us() -> None:
    assert passed_on([*STAY, *GO]) == b"".join(b"%b: %b\r\n" % pair for pair in GO)


@pytest.mark.parametrize("pair", [(b"a", b"b\r\nc: d"), (b"a", b"b\nc"), (b"a\r", b"b"), (b"a", b"\0")])
def test_what_would_end_a_line_is_seen(pair: tuple[bytes, bytes]) -> None:
    assert is_unsafe([*GO, pair])
    assert not is_unsafe(GO)


def test_when_to_come_again_is_said_once() -> None:
    lines = b"HTTP/1.1 429 Slow down\r\nretry-after: 1\r\nx-a: b\r\nretry-after-ms: 5\r\nx-should-retry: true\r\nx-ratelimit-reset: 9\r\n"
    assert without_retry(lines) == b"HTTP/1.1 429 Slow down\r\nx-a: b\r\nx-ratelimit-reset: 9\r\n"
    assert told_in(lines)[0] == ("retry-after", "1")
    assert len(told_in(lines)) == 5
