"""What does a read of an engine's stream cost no second look, and what is seen, counted and timed all the same?"""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from luftpause.dataplane.connection import Connection
from tests.support.fake_scheduler import FakeScheduler, replica
from tests.support.plane import STREAM_BODY, post
from tests.support.wires import FakeTransport, Rig

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 9}}


def token(text: str, **more: Any) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": {"content": text}}], **more}).encode() + b"\n\n"


def call(id_: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": {"tool_calls": [{"index": 0, "id": id_}]}}]}).encode() + b"\n\n"


def chunk(payload: bytes, size: str = "%x") -> bytes:
    return (size % len(payload)).encode() + b"\r\n" + payload + b"\r\n"


class Stream:
    """One turn's answer; `looked` are the reads that were taken apart."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.scheduler = FakeScheduler(replica("a", "http://a"))
        self.rig = Rig(self.scheduler).patch(monkeypatch)
        self.client = self.rig.client()
        self.looked: list[bytes] = []
        self.client.receives(post(STREAM_BODY))
        engine = self.rig.connecting[0].made()
        assert engine is not None
        self.engine: FakeTransport = engine
        self.engine.receives(HEAD)
        plain = Connection._body  # pyright: ignore[reportPrivateUsage]

        def body(connection: Connection, receiver: Any, framing: Any, data: bytes) -> None:
            self.looked.append(data)
            plain(connection, receiver, framing, data)

        monkeypatch.setattr(Connection, "_body", body)

    @property
    def flow(self) -> Any:
        return self.rig.relay.upstreams.flows.of("a")

    def comes(self, *reads: bytes) -> None:
        for read in reads:
            before = len(self.client.written)
            self.engine.receives(read)
            assert self.client.written[before:].endswith(read), "what came went on at once"


def run(test: Callable[[Stream], None]) -> None:
    async def story() -> None:
        with pytest.MonkeyPatch.context() as patch:
            test(Stream(patch))
            await asyncio.sleep(0)

    asyncio.run(story())


def test_a_chunk_of_a_length_that_was_seen_before_only_goes_on() -> None:
    def test(stream: Stream) -> None:
        one, other = chunk(token("first")), chunk(token("other"))
        stream.comes(one, one)
        stream.looked.clear()
        stream.comes(*[other] * 5)
        assert stream.looked == []

    run(test)


@pytest.mark.parametrize(
    "odd",
    [
        chunk(token("other"), "0%x"),  # as long as a chunk with one byte more
        chunk(b"data: {}\n\n"),
        chunk(token("other")[:-1]),
        chunk(token("x" * 40)) + chunk(token("y")),
        chunk(b": ping\n\n"),
    ],
)
def test_any_other_read_is_taken_apart(odd: bytes) -> None:
    def test(stream: Stream) -> None:
        one = chunk(token("first"))
        stream.comes(one, one)
        stream.looked.clear()
        stream.comes(odd)
        assert stream.looked == [odd]

    run(test)


def test_what_tells_something_is_seen_however_often_its_length_was() -> None:
    def test(stream: Stream) -> None:
        same = chunk(token("first") + b":" + b"." * (len(call("call_1")) - len(token("first")) - 2) + b"\n")
        assert len(same) == len(chunk(call("call_1")))
        stream.comes(same, same, same, chunk(call("call_1")), same)
        stream.comes(chunk(b"data: " + json.dumps(USAGE).encode() + b"\n\n"), b"0\r\n\r\n")
        assert stream.scheduler.told() == ["ask", "started", "first_token", "tool_calls_seen", "finished"]
        finished = stream.scheduler.facts[-1]
        assert "call_1" in str(finished)
        assert "prompt=7" in str(finished)

    run(test)


def test_a_line_that_a_read_cut_is_read_whole() -> None:
    """The read behind it has a known length and ends a line, but belongs to the line before."""

    def test(stream: Stream) -> None:
        one = chunk(token("first"))
        stream.comes(one, one, one)
        telling = call("call_2")
        begins, ends = telling[:30], telling[30:]
        filled = ends + b":" + b"." * (len(token("first")) - len(ends) - 2) + b"\n"
        assert len(chunk(filled)) == len(one)
        stream.comes(chunk(begins), chunk(filled), one, b"0\r\n\r\n")
        assert "tool_calls_seen" in stream.scheduler.told()

    run(test)


def test_bytes_are_counted_when_the_sweep_looks_and_when_the_answer_ends() -> None:
    def test(stream: Stream) -> None:
        one = chunk(token("first"))
        sweep, delivered = stream.rig.sweep, stream.scheduler.delivered
        sweep.look(sweep.now)
        delivered.clear()
        stream.comes(*[one] * 9)
        sweep.look(sweep.now)
        sweep.look(sweep.now)
        assert stream.flow.received_bytes == len(HEAD) + 9 * len(one)
        assert delivered == ["a"]
        sweep.look(sweep.now)
        assert delivered == ["a"]
        stream.comes(one, b"0\r\n\r\n")
        assert stream.flow.received_bytes == len(HEAD) + 10 * len(one) + 5

    run(test)


def test_bytes_of_an_answer_that_breaks_off_are_counted() -> None:
    def test(stream: Stream) -> None:
        one = chunk(token("first"))
        stream.comes(*[one] * 4)
        stream.engine.peer_closes(ConnectionResetError())
        assert stream.flow.received_bytes == len(HEAD) + 4 * len(one)
        assert stream.client.lost

    run(test)


def test_each_chunk_gives_an_engine_its_idle_seconds_again() -> None:
    def test(stream: Stream) -> None:
        one, sweep = chunk(token("first")), stream.rig.sweep
        seconds = stream.rig.relay.config.idle_seconds
        now = sweep.now
        stream.comes(one, one)
        for _ in range(4):
            stream.comes(one)
            now += seconds * 0.9
            sweep.look(now)
            assert not stream.client.lost
        sweep.look(now + seconds * 0.9)
        assert not stream.client.lost
        sweep.look(now + seconds * 1.1)
        assert stream.client.lost
        assert stream.scheduler.facts[-1][-1] == "idle_timeout"

    run(test)


def test_a_client_that_does_not_read_costs_its_engine_no_time() -> None:
    def test(stream: Stream) -> None:
        one, sweep = chunk(token("first")), stream.rig.sweep
        stream.comes(one, one, one)
        stream.client.protocol.pause_writing()
        sweep.look(sweep.now + 1)
        sweep.look(sweep.now + 10)
        assert not stream.engine.lost
        assert stream.flow.received_bytes == len(HEAD) + 3 * len(one)

    run(test)


payloads = st.sampled_from([
    token("aaaa"), token("bbbb"), token("c"), call("call_1"), call("call_2")[:30], call("call_2")[30:], b": ping\n\n", b"data: [DONE]\n\n",
    b"data: " + json.dumps(USAGE).encode() + b"\n\n", token("aaaa", usage=None)[:-1], b"\n",
])  # fmt: skip


@given(parts=st.lists(payloads, min_size=1, max_size=25), joins=st.lists(st.integers(0, 24), max_size=6))
@settings(max_examples=200)
def test_what_is_told_of_a_stream_does_not_depend_on_which_reads_went_straight(parts: list[bytes], joins: list[int]) -> None:
    chunks = [chunk(token("aaaa")), *map(chunk, parts)]
    reads: list[bytes] = []
    for at, each in enumerate(chunks):
        if at and at - 1 in joins:
            reads[-1] += each
        else:
            reads.append(each)

    def told(reads: list[bytes]) -> tuple[list[Any], bytes]:
        found: list[Any] = []

        def test(stream: Stream) -> None:
            for read in (*reads, b"0\r\n\r\n"):
                stream.engine.receives(read)
            ids = [each for fact in stream.scheduler.facts if fact[0] == "tool_calls_seen" for each in fact[2]]  # type: ignore[union-attr]
            found.extend([ids, [fact[0:1] + fact[2:] for fact in stream.scheduler.facts if fact[0] != "tool_calls_seen"]])
            found.append(bytes(stream.client.written).partition(b"\r\n\r\n")[2])

        run(test)
        return found[:2], found[2]

    assert told(reads) == told([b"".join(chunks)])
