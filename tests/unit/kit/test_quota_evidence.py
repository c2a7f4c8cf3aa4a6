"""What of an answer goes to the governor?"""

import gzip
import zlib

import pytest

from luftpause.kit.quota_evidence import (
    EXCERPT_BYTES_MAX,
    LIMIT_CHARS_MAX,
    LIMITS_MAX,
    excerpt_of,
    limited_inside,
    limits_of,
    says_when,
)
from luftpause.scheduler.quota.headers import observe
from tests.unit.scheduler.quota.header_cases import CASES, NOW, Case


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_the_governor_reads_the_same_from_what_it_is_told(case: Case) -> None:
    secrets = {"Set-Cookie": "session=secret", "WWW-Authenticate": "Bearer", "X-Request-Id": "abc", "Content-Length": "12"}
    told = limits_of([*case.headers.items(), *secrets.items()])
    assert observe(case.status, told, case.body, NOW) == observe(case.status, case.headers, case.body, NOW)
    assert not {"set-cookie", "www-authenticate", "x-request-id", "content-length"} & set(told)


def test_what_is_told_has_limits_of_its_own() -> None:
    headers = [("X-RateLimit-Huge", "x" * (LIMIT_CHARS_MAX + 1)), *((f"x-ratelimit-limit-{number}", "1") for number in range(1000))]
    told = limits_of(headers)
    assert "x-ratelimit-huge" not in told
    assert len(told) == LIMITS_MAX


@pytest.mark.parametrize(
    ("name", "says"),
    [("Retry-After", True), ("retry-after-ms", True), ("x-should-retry", True), ("x-ratelimit-reset", False), ("x-retry", False)],
)
def test_which_headers_say_when_to_come_again(name: str, says: bool) -> None:
    assert says_when(name) is says


SAID = b'{"message":"You have exceeded a secondary rate limit."}'


@pytest.mark.parametrize(
    ("body", "coding", "read"),
    [
        (SAID, "", SAID.decode()),
        (SAID, "Identity", SAID.decode()),
        (gzip.compress(SAID, mtime=0), "gzip", SAID.decode()),
        (gzip.compress(SAID, mtime=0)[:-4], " GZIP ", SAID.decode()),
        (zlib.compress(SAID), "deflate", SAID.decode()),
        (b"no gzip", "gzip", ""),
        (SAID, "br", ""),
        (b"\xff\xfe", "", "\ufffd\ufffd"),
    ],
)
def test_a_refusals_beginning_is_read_in_what_codings_it_can_be(body: bytes, coding: str, read: str) -> None:
    assert excerpt_of(body, coding) == read


def test_no_bomb_goes_off() -> None:
    assert len(excerpt_of(gzip.compress(b"x" * 50_000_000), "gzip")) == EXCERPT_BYTES_MAX


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "application/graphql-response+json"])
def test_only_a_refusal_leaves_of_a_good_answer(kind: str) -> None:
    limited = b'{"errors":[{"type":"RATE_LIMITED"}]}'
    assert limited_inside(limited, kind) == limited.decode()
    assert limited_inside(b'{"data":{"secret":1}}', kind) == ""
    assert limited_inside(limited, "text/event-stream") == ""
