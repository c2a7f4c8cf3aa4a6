"""Can a path lead a proxied call anywhere but below its target's base URL?"""

from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from luftpause.dataplane.proxy.paths import Asked, asked_of
from luftpause.dataplane.rejection import Rejection

GOOD = [
    (b"/proxy/github", Asked("github", b"")),
    (b"/proxy/github/", Asked("github", b"/")),
    (b"/proxy/github?x=1", Asked("github", b"?x=1")),
    (b"/proxy/github/repos/a/b/", Asked("github", b"/repos/a/b/")),
    (b"/proxy/github/repos/a/b?q=a%0d%0ab&x=../..//", Asked("github", b"/repos/a/b?q=a%0d%0ab&x=../..//")),
    (b"/proxy/github/a??b=//c", Asked("github", b"/a??b=//c")),
    (b"/proxy/gitlab/projects/group%2Fproject/x", Asked("gitlab", b"/projects/group%2Fproject/x")),
    (b"/proxy/github/a//b", Asked("github", b"/a//b")),
    (b"/proxy/github/a..b/...", Asked("github", b"/a..b/...")),
    (b"/proxy/github/100%25", Asked("github", b"/100%25")),
    (b"/proxy/github/%C3%A4", Asked("github", b"/%C3%A4")),
    (b"http://localhost:8080/proxy/github/user", Asked("github", b"/user")),
    (b"/proxy/github/http://evil.example/", Asked("github", b"/http://evil.example/")),
    (b"/proxy/", Asked("", b"")),
]  # fmt: skip

BAD = [
    b"/proxy/github/..",
    b"/proxy/github/../../etc/passwd",
    b"/proxy/github/a/../../b",
    b"/proxy/github/./a",
    b"/proxy/github/%2e%2e/admin",
    b"/proxy/github/%2E./admin",
    b"/proxy/github/.%2e",
    b"/proxy/github/%252e%252e/admin",
    b"/proxy/github/%25252e%25252e/admin",
    b"/proxy/github/%2525252e%2525252e/admin",
    b"/proxy/github/a%2f..%2f..%2fb",
    b"/proxy/github/..%5cadmin",
    b"/proxy/github/..\\admin",
    b"/proxy/github/..;/admin",
    b"/proxy/github/..;x=1/admin",
    b"/proxy/github/%20../a",
    b"/proxy/github//evil.example/",
    b"/proxy/github/%2fevil.example/",
    b"/proxy/github/%5cevil.example/",
    b"/proxy/github/%252fevil.example/",
    b"/proxy/github/a%00b",
    b"/proxy/github/a%0d%0aHost:%20evil.example",
    b"/proxy/github/a%250d%250ab",
    b"/proxy/github/a b",
    b"/proxy/github/a\tb",
    b"/proxy/github/a\x00b",
    b"/proxy/github/a\xffb",
    b"/proxy/github/a#b",
    b"/proxy/github/a?b#c",
    b"/proxy/github/a?b\xff",
    b"/proxy/github/%zz",
    b"/proxy/github/a%2",
    b"http://localhost:8080/proxy/github/../x",
]  # fmt: skip


@pytest.mark.parametrize(("target", "asked"), GOOD)
def test_a_path_goes_on_as_it_was_written(target: bytes, asked: Asked) -> None:
    assert asked_of(target) == asked


@pytest.mark.parametrize("target", BAD)
def test_a_path_that_some_reading_leads_elsewhere_is_refused_and_says_why(target: bytes) -> None:
    refused = asked_of(target)
    assert isinstance(refused, Rejection)
    assert (refused.status, refused.code) == (400, "bad_proxy_path")
    assert refused.message.startswith("this path can't go on to the target: ")


PIECES = st.sampled_from([
    b"a", b".", b"..", b"/", b"//", b"%2e", b"%2E", b"%252e", b"%2f", b"%5c", b"\\", b";", b"?", b"#", b"@", b":", b"%", b"%00", b" ",
])  # fmt: skip


@given(st.lists(PIECES, max_size=12).map(b"".join))
def test_whatever_goes_on_has_no_reading_that_climbs(rest: bytes) -> None:
    asked = asked_of(b"/proxy/t/" + rest)
    if isinstance(asked, Rejection):
        return
    assert asked == Asked("t", b"/" + rest)
    path = rest.partition(b"?")[0]
    for _ in range(5):
        segments = path.replace(b"\\", b"/").split(b"/")
        assert not {b".", b".."} & {segment.partition(b";")[0] for segment in segments}
        assert not path.startswith(b"/")
        path = unquote_to_bytes(path)


@given(st.binary(max_size=40))
def test_no_bytes_make_it_raise(rest: bytes) -> None:
    assert isinstance(asked_of(b"/proxy/t/" + rest), Asked | Rejection)
