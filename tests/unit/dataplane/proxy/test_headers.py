"""Which header lines of a proxied call go where?"""

import pytest

from luftpause.dataplane.proxy.headers import LIMIT_BYTES_MAX, is_unsafe, limits_of, passed_on, without_retry
from luftpause.scheduler.quota.headers import observe
from tests.unit.scheduler.quota.header_cases import CASES, NOW, Case

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
]


def test_all_goes_on_but_what_belongs_to_the_connection_or_to_us() -> None:
    assert passed_on([*STAY, *GO]) == b"".join(b"%b: %b\r\n" % pair for pair in GO)


@pytest.mark.parametrize("pair", [(b"a", b"b\r\nc: d"), (b"a", b"b\nc"), (b"a\r", b"b"), (b"a", b"\0")])
def test_what_would_end_a_line_is_seen(pair: tuple[bytes, bytes]) -> None:
    assert is_unsafe([*GO, pair])
    assert not is_unsafe(GO)


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_the_governor_reads_the_same_from_what_it_is_told(case: Case) -> None:
    status, headers, body = case.status, dict(case.headers), case.body
    secrets = {"Set-Cookie": "session=secret", "WWW-Authenticate": "Bearer", "X-Request-Id": "abc", "Content-Length": "12"}
    lines = b"HTTP/1.1 200 OK\r\n" + b"".join(f"{key.lower()}: {value}\r\n".encode() for key, value in (headers | secrets).items())
    told = limits_of(lines)
    assert observe(status, told, body, NOW) == observe(status, headers, body, NOW)
    assert not {"set-cookie", "www-authenticate", "x-request-id", "content-length"} & set(told)


def test_what_is_told_has_limits_of_its_own() -> None:
    lines = b"HTTP/1.1 200 OK\r\nx-ratelimit-huge: %b\r\n" % (b"x" * (LIMIT_BYTES_MAX + 1))
    lines += b"".join(b"x-ratelimit-limit-%d: 1\r\n" % number for number in range(1000))
    told = limits_of(lines)
    assert "x-ratelimit-huge" not in told
    assert len(told) == 64


def test_when_to_come_again_is_said_once() -> None:
    lines = b"HTTP/1.1 429 Slow down\r\nretry-after: 1\r\nx-a: b\r\nretry-after-ms: 5\r\nx-should-retry: true\r\nx-ratelimit-reset: 9\r\n"
    assert without_retry(lines) == b"HTTP/1.1 429 Slow down\r\nx-a: b\r\nx-ratelimit-reset: 9\r\n"
