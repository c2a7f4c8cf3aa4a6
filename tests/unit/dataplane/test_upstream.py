"""Where do requests for a replica's URL go?"""

import pytest

from luftpause.dataplane.upstream import Origin, origin_of


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://e:1", Origin("e", 1, False, b"", b"e:1")),
        ("http://e:1/", Origin("e", 1, False, b"", b"e:1")),
        ("http://e:1/v1", Origin("e", 1, False, b"", b"e:1")),
        ("http://e:1/v1/", Origin("e", 1, False, b"", b"e:1")),
        ("http://e/base/v1", Origin("e", 80, False, b"/base", b"e")),
        ("https://api.example.com/v1", Origin("api.example.com", 443, True, b"", b"api.example.com")),
        ("https://api.example.com:8443/x", Origin("api.example.com", 8443, True, b"/x", b"api.example.com:8443")),
        ("http://[::1]:8000", Origin("::1", 8000, False, b"", b"[::1]:8000")),
    ],
)
def test_with_or_without_v1_it_is_the_same_engine(url: str, origin: Origin) -> None:
    assert origin_of(url) == origin


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("https://api.anthropic.com", b"x-api-key: k\r\n"),
        ("https://anthropic.com/v1", b"x-api-key: k\r\n"),
        ("https://notanthropic.com", b"authorization: Bearer k\r\n"),
        ("https://anthropic.com.example.com", b"authorization: Bearer k\r\n"),
        ("http://e:1", b"authorization: Bearer k\r\n"),
    ],
)
def test_a_key_travels_as_its_host_wants_it(url: str, line: bytes) -> None:
    assert origin_of(url).key_line("k") == line
    assert origin_of(url).key_line("") == b""
