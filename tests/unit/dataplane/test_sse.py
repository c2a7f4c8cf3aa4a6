"""Are lines and events found however a stream is cut, within bounded memory?"""

import re
from collections.abc import Callable
from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from luftpause.dataplane.sse import EventFilter, LineEnds, Lines, data_of


def taken(lines: Lines, data: bytes) -> list[bytes]:
    """The lines that are complete now."""
    data, end = lines.take(data)
    return data[:end].split(b"\n")[:-1]


@given(st.lists(st.binary(max_size=8), max_size=12), st.lists(st.sampled_from([b"\n", b"\r\n"]), min_size=12, max_size=12), st.data())
def test_lines_do_not_depend_on_cuts(parts: list[bytes], ends: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(part + end for part, end in zip(parts, ends, strict=False))
    lines, at = Lines(10_000), 0
    got: list[bytes] = []
    while at < len(stream):
        size = data.draw(st.integers(1, 10))
        got += taken(lines, stream[at : at + size])
        at += size
    assert [*got, lines.rest()] == stream.split(b"\n")


def test_an_endless_line_is_given_up_and_the_next_one_is_read() -> None:
    lines = Lines(100)
    got: list[bytes] = []
    for _ in range(1000):
        got += taken(lines, b"x" * 50)
        assert len(lines.tail) <= 100
    got += taken(lines, b"xx\nnext\npart")
    assert got == [b"next"]
    assert lines.given_up
    assert lines.rest() == b"part"


@pytest.mark.parametrize(
    ("line", "data"),
    [
        (b"data: x", b"x"),
        (b"data:x\r", b"x"),
        (b"data:  x ", b"x"),
        (b": data: x", b""),
        (b"event: data", b""),
        (b"data", b""),
        (b"", b""),
        (b"\xef\xbb\xbfdata: x", b"x"),
    ],
)
def test_data_of_a_line(line: bytes, data: bytes) -> None:
    assert data_of(line) == data


EVENTS = st.lists(
    st.sampled_from([b"data: keep", b"data: drop", b"event: x\ndata:drop", b": comment", b"data: keep\ndata: drop"]), max_size=8
)


@given(st.lists(st.sampled_from([b"\n", b"\r\n", b"\r", b"x", b"yz"]), max_size=20), st.data())
def test_ends_of_lines_are_the_same_however_they_were_cut(parts: list[bytes], data: st.DataObject) -> None:
    stream, at, got, ends = b"".join(parts), 0, b"", LineEnds()
    while at < len(stream):
        size = data.draw(st.integers(1, 3))
        got += ends.plain(stream[at : at + size])
        at += size
    assert got == b"\n".join(re.split(rb"\r\n|\r|\n", stream))


@given(EVENTS, st.sampled_from([b"\n", b"\r\n", b"\r"]), st.data())
def test_a_filter_removes_whole_events_and_nothing_else_however_it_is_cut(events: list[bytes], end: bytes, data: st.DataObject) -> None:
    def written(chosen: list[bytes]) -> bytes:
        return b"".join(event.replace(b"\n", end) + end + end for event in chosen)

    stream, at, got = written(events), 0, b""
    chosen = EventFilter(lambda text: text == b"drop", b"drop", 10_000)
    while at < len(stream):
        size = data.draw(st.integers(1, 9))
        got += chosen.feed(stream[at : at + size])
        at += size
    assert got + chosen.rest() == written([event for event in events if event not in {b"data: drop", b"event: x\ndata:drop"}])


@given(st.lists(st.integers(1, 40), min_size=1), st.sampled_from([b"\n\n", b"\r\n\r\n", b"\r\r"]))
def test_a_filter_passes_an_event_that_is_too_long(sizes: list[int], end: bytes) -> None:
    stream = b"data: " + b"x" * 500 + end + b"data: drop" + end + b"data: keep" + end
    chosen, got, at = EventFilter(lambda text: text == b"drop", b"drop", 64), b"", 0
    while at < len(stream):
        size = sizes[at % len(sizes)]
        got += chosen.feed(stream[at : at + size])
        assert len(chosen._held) <= 64 + 40
        at += size
    assert got + chosen.rest() == b"data: " + b"x" * 500 + end + b"data: keep" + end


def test_an_incomplete_event_at_the_end_passes_unless_it_is_to_be_dropped() -> None:
    for last, passes in ((b"data: drop", b""), (b"data: dro", b"data: dro"), (b"data: keep\n", b"data: keep\n")):
        chosen = EventFilter(lambda text: text == b"drop", b"drop", 100)
        assert chosen.feed(last) + chosen.rest() == passes


@pytest.mark.parametrize("feed", [Lines(300_000).take, EventFilter(lambda _: False, b"x", 300_000).feed], ids=["lines", "filter"])
def test_a_long_event_in_tiny_pieces_is_not_read_again_with_each(feed: Callable[[bytes], object]) -> None:
    event = b"data: " + b"x" * 250_000
    began = thread_time()
    for at in range(0, len(event), 4):
        feed(event[at : at + 4])
    assert thread_time() - began < 1, "it took 3 s where each piece looked at all before it"
