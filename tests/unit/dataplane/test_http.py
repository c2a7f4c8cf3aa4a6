"""How does a client's connection behave at its limits? On transports without sockets and a clock that the test moves."""

import pytest

from luftpause.dataplane.turns import Ask
from tests.support.fake_scheduler import FakeScheduler, hold_all, replica
from tests.support.plane import STREAM_BODY, post
from tests.support.raw_engine import STREAM_HEAD, chunked, json_answer
from tests.support.wires import FakeTransport, Rig

GOOD = json_answer(b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}')
TEXT = chunked(b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n')


def started(rig: Rig, client: FakeTransport, body: bytes = STREAM_BODY) -> FakeTransport:
    client.receives(post(body))
    engine = rig.connecting[0].made()
    assert engine is not None
    return engine


async def test_the_next_request_waits_until_the_client_has_read_the_last_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = FakeScheduler(replica("a", "http://a"))
    rig = Rig(scheduler).patch(monkeypatch)
    client = rig.client()
    engine = started(rig, client)
    engine.receives(GOOD[:-1])
    client.protocol.pause_writing()
    assert not engine.reading
    client.protocol.resume_writing()
    assert engine.reading
    monkeypatch.setattr(client, "write", lambda data: client.protocol.pause_writing())
    client.protocol.write = client.write  # type: ignore[attr-defined]
    engine.receives(GOOD[-1:])
    assert scheduler.told()[-1] == "finished"
    assert not client.reading
    client.protocol.resume_writing()
    assert client.reading
    assert engine.reading


async def test_a_reader_that_takes_bytes_keeps_its_connection_and_one_that_takes_none_loses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = FakeScheduler(replica("a", "http://a"))
    rig = Rig(scheduler, slow_reader_seconds=10).patch(monkeypatch)
    client = rig.client()
    engine = started(rig, client)
    engine.receives(STREAM_HEAD + TEXT)
    left = [1000]
    monkeypatch.setattr(client, "get_write_buffer_size", lambda: left[0])
    client.protocol.pause_writing()
    start = rig.sweep.now
    for round_ in range(1, 4):
        left[0] -= 1
        rig.sweep.look(start + round_ * 10.5)
        assert not client.lost
    rig.sweep.look(start + 60)
    assert client.lost == "aborted"
    assert engine.lost == "aborted"
    assert scheduler.last("failed")[2] == "client_left"


async def test_an_engine_that_is_silent_because_its_reader_is_slow_is_not_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = FakeScheduler(replica("a", "http://a"))
    rig = Rig(scheduler, idle_seconds=10, slow_reader_seconds=1000).patch(monkeypatch)
    client = rig.client()
    engine = started(rig, client)
    engine.receives(STREAM_HEAD + TEXT)
    client.protocol.pause_writing()
    rig.sweep.look(rig.sweep.now + 100)
    assert not engine.lost
    client.protocol.resume_writing()
    rig.sweep.look(rig.sweep.now + 9)
    assert not engine.lost
    rig.sweep.look(rig.sweep.now + 2)
    assert engine.lost == "aborted"
    assert scheduler.last("failed")[2] == "idle_timeout"


async def test_a_half_closed_client_is_asked_once_and_gone_when_its_kernel_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = FakeScheduler(replica("a", "http://a"), decide=hold_all)
    rig = Rig(scheduler).patch(monkeypatch)
    client = rig.client()
    client.receives(post())
    client.peer_closes()
    assert client.written == b"HTTP/1.1 100 Continue\r\n\r\n"
    rig.sweep.look(rig.sweep.now + 50)
    assert scheduler.told() == ["ask"]
    client.socket.gone = 32
    rig.sweep.look(rig.sweep.now + 0.25)
    assert scheduler.told() == ["ask", "abandon"]
    assert client.lost == "aborted"


@pytest.mark.parametrize(("seconds", "gone"), [(59, False), (61, True)])
async def test_a_half_closed_client_has_its_time(seconds: float, gone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = FakeScheduler(replica("a", "http://a"), decide=hold_all)
    rig = Rig(scheduler).patch(monkeypatch)
    client = rig.client()
    client.receives(post(version="1.0"))
    client.peer_closes()
    assert not client.written, "HTTP/1.0 knows no 100 Continue"
    rig.sweep.look(rig.sweep.now + seconds)
    assert (scheduler.told() == ["ask", "abandon"]) is gone


async def test_each_byte_of_a_stream_is_a_sign_of_a_half_closed_client(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(FakeScheduler(replica("a", "http://a")), half_close_seconds=10).patch(monkeypatch)
    client = rig.client()
    engine = started(rig, client)
    client.peer_closes()
    engine.receives(STREAM_HEAD)
    for _ in range(10):
        engine.receives(TEXT)
        rig.sweep.look(rig.sweep.now + 9)
        assert not client.lost
    rig.sweep.look(rig.sweep.now + 11)
    assert client.lost


async def test_a_request_that_comes_while_the_last_is_served_costs_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def decide(_: FakeScheduler, __: Ask) -> None:
        """Never placed."""

    rig = Rig(FakeScheduler(decide=decide)).patch(monkeypatch)
    client = rig.client()
    client.receives(post())
    reader = client.protocol._reader  # type: ignore[attr-defined]
    for _ in range(1000):
        client.receives(post())
    assert reader.body() == b""
    assert reader._tail == b""
    assert reader.extra


async def test_a_request_that_brings_a_fault_to_light_is_answered_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def decide(_: FakeScheduler, __: Ask) -> None:
        raise RuntimeError("a fault of ours")

    scheduler = FakeScheduler(decide=decide)
    rig = Rig(scheduler).patch(monkeypatch)
    client = rig.client()
    client.receives(post())
    assert client.written.startswith(b"HTTP/1.1 500 ")
    assert b'"code":"internal"' in client.written
    assert b"a fault of ours" not in client.written
    assert scheduler.told() == ["ask", "abandon"]
    assert not rig.relay.turns
