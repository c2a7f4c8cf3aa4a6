"""Does the reader of requests agree with itself however a request is cut, and keep its limits?"""

import gc
import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st

from luftpause.dataplane.reader import Reader, path_of
from luftpause.dataplane.rejection import Rejection

GOOD = [
    b"POST /v1/chat/completions?a=b HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nUpgrade : h2c\r\ncontent-length: 5\r\n\r\nhello".replace(
        b"Upgrade :", b"Upgrade:"
    ),
    b"GET /health HTTP/1.1\r\nhost: h\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
    b"\r\n\r\nGET / HTTP/1.1\r\nhost: h\r\n\r\n",
    b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\ntrailer: x\r\nupgrade: y\r\n\r\n",
    b"POST / HTTP/1.0\r\nhost: h\r\nconnection: keep-alive\r\ncontent-length: 0\r\n\r\n",
]


def outcome(data: bytes, sizes: list[int]) -> tuple[object, ...]:
    reader, at = Reader(4096, 20), 0
    while at < len(data):
        size = sizes[at % len(sizes)]
        rejection = reader.feed(data[at : at + size])
        if rejection is not None:
            return (rejection.status,)
        at += size
    head = reader.head
    return (reader.complete, head.method, head.path, head.headers, reader.body(), head.version, head.keep_alive, reader.extra)


@given(st.sampled_from(GOOD), st.lists(st.integers(1, 80), min_size=1, max_size=6))
def test_a_good_request_is_read_the_same_however_it_is_cut(data: bytes, sizes: list[int]) -> None:
    whole = outcome(data, [len(data)])
    assert whole[0] is True
    assert outcome(data, sizes) == whole


@given(st.lists(st.sampled_from(GOOD), min_size=1, max_size=4), st.lists(st.integers(1, 200), min_size=1, max_size=6))
def test_one_parser_reads_request_after_request(requests: list[bytes], sizes: list[int]) -> None:
    reader = Reader(4096, 20)
    for number, request in enumerate(requests):
        at = 0
        while at < len(request):
            assert reader.feed(request[at : at + sizes[at % len(sizes)]]) is None
            at += sizes[at % len(sizes)]
        assert reader.complete, number
        if b"HTTP/1.0" in request:
            return  # the connection would end here
        if number % 2:
            reader.rest()
        reader.next()


PIECES = st.sampled_from([
    b"GET ",
    b"POST ",
    b"/",
    b" HTTP/1.1",
    b"\r\n",
    b"\n",
    b"\r",
    b"host: h",
    b"content-length: ",
    b"5",
    b"transfer-encoding: chunked",
    b": ",
    b" ",
    b"x",
    b"upgrade: ",
    b"\0",
    b"\xff",
    b"0\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\n",
    b"a" * 500,
])


@given(st.lists(st.one_of(PIECES, st.binary(max_size=6)), max_size=40), st.lists(st.integers(1, 50), min_size=1, max_size=4))
@settings(max_examples=500)
def test_nothing_breaks_the_reader(pieces: list[bytes], sizes: list[int]) -> None:
    reader, data, at = Reader(1024, 10), b"".join(pieces), 0
    while at < len(data):
        size = sizes[at % len(sizes)]
        rejection = reader.feed(data[at : at + size])
        assert rejection is None or isinstance(rejection, Rejection)
        if rejection is not None:
            assert 400 <= rejection.status < 600
            return
        assert len(reader._tail) <= 1024 + 50
        assert len(reader.head.headers) <= 10
        at += size


def test_paths() -> None:
    targets = {b"/a?b=c/": "/a", b"/a/": "/a", b"/": "/", b"//": "/", b"http://h:1/a/b?c": "/a/b", b"*": "*", b"http://h": "/"}
    assert {target: path_of(target) for target in targets} == targets


def test_a_body_in_tiny_chunks_costs_about_its_length() -> None:
    """As a list of pieces it would cost 40 bytes for each two."""
    reader, size = Reader(4096, 20), 200_000
    reader.feed(b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n")
    few = b"2\r\nab\r\n" * 1_000
    tracemalloc.start()
    try:
        for _ in range(size // 2_000):
            assert reader.feed(few) is None
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    reader.feed(b"0\r\n\r\n")
    assert reader.body() == b"ab" * (size // 2)
    assert held < 3 * size


def test_what_is_wrong_behind_a_request_does_not_spoil_it() -> None:
    request = b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\n{}"
    for behind in (b"\0", b"CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n", b"GET / HTTP/1.1 \r\n\r\n"):
        reader = Reader(4096, 20)
        assert reader.feed(request + behind) is None
        assert (reader.complete, reader.extra, reader.body()) == (True, True, b"{}")
    found = Reader(4096, 20).feed(b"CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n")
    assert isinstance(found, Rejection)
    assert found.status == 405


def test_a_reader_that_is_closed_needs_no_garbage_collector() -> None:
    reader = Reader(65_536, 128)
    assert reader.feed(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n") is None
    assert gc.is_tracked(reader)
    reader.close()
    assert not [each for each in gc.get_referrers(reader) if type(each).__name__ in {"HttpRequestParser", "method"}]
