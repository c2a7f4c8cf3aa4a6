"""Is the end of an answer's body found, and is what breaks the rules refused?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from luftpause.dataplane.framing import Chunked, Counted, Framing, FramingError, UntilClose


def run(framing: Framing, data: bytes, sizes: list[int]) -> tuple[bytes, int]:
    """Payload and how many bytes belong to the body."""
    payload, at, used = b"", 0, 0
    while at < len(data) and not framing.done:
        size = sizes[at % len(sizes)]
        used = at + framing.feed(data[at : at + size])
        payload += framing.payload
        at += size
    return payload, used


@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=40), st.sampled_from([b"", b";a=b", b" ", b';q="x y"'])), max_size=6),
    st.sampled_from([b"", b"t: v\r\n", b"a: b\r\nc: d\r\n"]),
    st.binary(max_size=5),
    st.lists(st.integers(1, 60), min_size=1, max_size=5),
    st.booleans(),
)
def test_chunks_are_read_however_they_are_cut(
    chunks: list[tuple[bytes, bytes]], trailers: bytes, extra: bytes, sizes: list[int], upper: bool
) -> None:
    size = "%X" if upper else "%x"
    body = b"".join((size % len(data)).encode() + ext + b"\r\n" + data + b"\r\n" for data, ext in chunks) + b"0\r\n" + trailers + b"\r\n"
    framing = Chunked()
    payload, used = run(framing, body + extra, sizes)
    assert framing.done
    assert payload == b"".join(data for data, _ in chunks)
    assert used == len(body)


@given(st.binary(max_size=50), st.integers(0, 60), st.lists(st.integers(1, 60), min_size=1, max_size=5))
def test_a_counted_body_ends_at_its_count(data: bytes, length: int, sizes: list[int]) -> None:
    framing = Counted(length)
    payload, used = run(framing, data, sizes)
    assert payload == data[:length]
    assert used == len(payload)
    assert framing.done is (len(data) >= length)


def test_a_body_until_close_never_ends_by_itself() -> None:
    framing = UntilClose()
    assert framing.feed(b"abc") == 3
    assert (framing.payload, framing.done) == (b"abc", False)


@pytest.mark.parametrize(
    "body",
    [
        b"zz\r\n",
        b"-1\r\n",
        b"0x2\r\n",
        b"+2\r\n",
        b"2_0\r\n",
        b"\r\n",
        b"2\nab\r\n",
        b"2\r\nabc\r\n",
        b"2\r\nab\n0\r\n\r\n",
        b"f" * 16 + b"\r\n",
        b"0\r\nt: v\n\n",
        b"2;" + b"x" * 9000 + b"\r\n",
        b"2;" + b"x" * 9000,
        b"0\r\n" + b"x" * 9000,
        b"0\r\n" + b"t: v\r\n" * 2000,
        b"0\r\nContent-Length: 5\r\n\r\n",
        b"0\r\nt: v\r\ntransfer-encoding: chunked\r\n\r\n",
        b"0\r\nX-Luftpause-Run-Id: r\r\n\r\n",
        b"0\r\n t: v\r\n\r\n",
        b"0\r\nt : v\r\n\r\n",
        b" 2\r\n",
        b"2 x\r\n",
    ],
)
@pytest.mark.parametrize("step", [1, 5, 100_000])
def test_broken_framing_is_refused(body: bytes, step: int) -> None:
    with pytest.raises(FramingError):
        run(Chunked(), body, [step])
