"""Is a head that comes again read as the parser would read it, and anything else left to the parser?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from luftpause.dataplane.reader import Reader
from luftpause.dataplane.recurring import recurring
from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.request_head import KNOWN_MAX, KnownHeads

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: %b\r\nX-A: 1\r\n\r\n"
LENGTHS = [b"0", b"5", b"05", b"123456", b"1234567890123456", b"", b" 7", b"7 ", b"+7", b"-1", b"7,7", b"\xb2", b"5\r\nX-A: 1\r\n\r\nX: "]
TAILS = [b"", b"hello", b"hello, world", b"GET / HTTP/1.1\r\n\r\n"]


def reading(reader: Reader, data: bytes, cut: int) -> tuple[object, ...]:
    for piece in (data[:cut], data[cut:]):
        rejection = reader.feed(piece) if piece else None
        if isinstance(rejection, Rejection):
            return (rejection.status,)
    head = reader.head
    named = head.named | ({b"content-length": reader.digits} if reader.digits else {})
    return (
        reader.complete, head.method, head.target, head.path, head.with_length(reader.digits), named, reader.body(), reader.body_bytes,
        reader.received, head.version, head.keep_alive, reader.extra, reader.head_done,
    )  # fmt: skip


def after_its_like() -> Reader:
    reader = Reader(4096, 20)
    assert reader.feed(HEAD % b"5" + b"hello") is None
    assert reader.complete
    reader.next()
    return reader


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("tail", TAILS)
def test_a_head_reads_the_same_whether_its_like_came_before_or_not(length: bytes, tail: bytes) -> None:
    data = HEAD % length + tail
    assert reading(after_its_like(), data, len(data)) == reading(Reader(4096, 20), data, len(data))


@given(st.integers(0, 200), st.sampled_from([b"5", b"05", b"12"]))
def test_nor_does_it_matter_where_it_is_cut(cut: int, length: bytes) -> None:
    data = HEAD % length + b"hello, world"[: int(length)]
    assert reading(after_its_like(), data, cut) == reading(Reader(4096, 20), data, len(data))


def test_what_follows_the_last_byte_of_a_body_is_seen() -> None:
    reader = after_its_like()
    assert reader.feed(HEAD % b"5" + b"hel") is None
    assert not reader.complete
    assert reader.feed(b"loGET") is None
    assert reader.complete
    assert reader.extra
    assert reader.body() == b"hello"


@pytest.mark.parametrize(
    "change", [(b"Host: h", b"Host: g"), (b"X-A: 1\r\n", b""), (b"POST", b"GET"), (b"X-A: 1", b"Transfer-Encoding: chunked")]
)
def test_another_head_is_another_head(change: tuple[bytes, bytes]) -> None:
    data = (HEAD % b"5").replace(*change) + b"hello"
    assert reading(after_its_like(), data, len(data)) == reading(Reader(4096, 20), data, len(data))


def test_equal_heads_are_one_but_for_the_length_of_each() -> None:
    reader = after_its_like()
    reader.feed(HEAD % b"2" + b"ab")
    first, digits = reader.head, reader.digits
    reader.next()
    reader.feed(HEAD % b"3" + b"abc")
    assert reader.head is first
    assert (b"content-length", b"2") in first.with_length(digits)
    assert (b"content-length", b"3") in reader.head.with_length(reader.digits)
    assert reader.body() == b"abc"


def test_connections_share_what_they_read_of_equal_heads() -> None:
    heads = KnownHeads()
    readers = [Reader(4096, 20, heads) for _ in range(3)]
    for length, reader in enumerate(readers, 4):
        body = b"hello!"[:length]
        assert reader.feed(HEAD % b"%d" % length + body) is None
        assert (reader.body(), reader.digits) == (body, b"%d" % length)
    assert len({id(reader.head) for reader in readers}) == 1


def test_no_more_heads_are_known_than_are_worth_it() -> None:
    heads = KnownHeads()
    for number in range(3 * KNOWN_MAX):
        reader = Reader(4096, 20, heads)
        reader.feed(b"GET /%d HTTP/1.1\r\nhost: h\r\n\r\n" % number)
        assert reader.head.path == f"/{number}"
    assert len(heads) <= KNOWN_MAX


def test_a_connection_whose_head_changes_is_parsed_again_after_it_had_let_its_parser_go() -> None:
    reader = after_its_like()
    reader.feed(HEAD % b"2" + b"ab")
    for data in ((HEAD % b"4").replace(b"X-A", b"X-B") + b"abcd", HEAD % b"3" + b"abc"):
        reader.rest()
        reader.next()
        assert reading(reader, data, len(data)) == reading(Reader(4096, 20), data, len(data))


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1 \r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: content-length: 1\r\n\r\n",
    ],
)
def test_a_head_whose_length_is_not_plain_is_not_remembered(head: bytes) -> None:
    assert recurring(head) is None


def test_a_head_without_a_length_is_known_as_a_whole() -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    known = recurring(head)
    assert known is not None
    assert known.match(head + b"0\r\n\r\n") == (len(head), b"")
    assert known.match(head[:-1]) == (0, b"")
