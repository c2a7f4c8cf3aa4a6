"""Do sessions open, carry facts and orders, and end as they must, over real gRPC?"""

import asyncio
import contextlib
import signal
import sys
import time

import grpc
import pytest

from luftpause.kit import protocol
from luftpause.kit.errors import LuftpauseError
from luftpause.kit.wire.v1 import scheduler_pb2 as pb
from luftpause.scheduler.core.decisions import Decision, Held, HoldReason
from luftpause.scheduler.core.events import DataplaneAlive, DataplaneLost, Event, Resync, TurnRequested, TurnStarted
from luftpause.scheduler.server import SessionServer
from tests.integration.scheduler.client import OVER, asks, peer, scheduler

PART_BYTES = 256 * 1024


def memory(runs: int) -> list[pb.HelloPart]:
    """Parts of a memory with that many runs, each as long as a part may be."""
    parts = [pb.HelloPart()]
    size = 0
    for n in range(runs):
        calls = [pb.ToolCallRecord(id=f"call_{n:08}_{k:04}", head_digest=b"h" * 16, age_ms=k) for k in range(64)]
        record = pb.RunRecord(run=f"run_{n}", turn_seq=n, tool_calls=calls, lanes=[pb.LaneRecord(model="m", home="a", turn_seq=n)])
        if size + record.ByteSize() > PART_BYTES:
            parts.append(pb.HelloPart())
            size = 0
        parts[-1].runs.append(record)
        size += record.ByteSize()
    parts[-1].turns.append(pb.TurnRecord(turn="t", attempt=1, run="run_1", model="m", replica="a", turn_seq=1, age_ms=500))
    return parts


async def test_a_hello_is_answered_by_a_welcome_then_the_replicas_then_places():
    async with scheduler() as s, peer(s) as p:
        await p.hello()
        welcome = (await p.next("welcome")).welcome
        assert welcome.scheduler_epoch == s.server.epoch
        assert (welcome.protocol.major, welcome.protocol.minor) == (protocol.MAJOR, protocol.MINOR)
        assert s.core.of(Resync) == []
        await p.send(pb.Fact(hello_end=pb.HelloEnd()))
        replicas = (await p.next("replicas")).replicas.replicas
        assert [(replica.name, replica.state) for replica in replicas] == [("a", "healthy")]
        resync = await s.core.resynced()
        assert (resync.dataplane, resync.session, resync.boot) == ("dp", welcome.session, "boot")
        await p.send(asks("t"))
        placed = (await p.next("placed")).placed
        assert (placed.turn, placed.attempt, placed.run, placed.replica) == ("t", 1, "run-t", "a")


async def test_a_hello_of_many_megabytes_in_parts_is_one_event():
    parts = memory(8000)
    assert sum(part.ByteSize() for part in parts) > 15_000_000
    async with scheduler() as s, peer(s) as p:
        await p.hello()
        for part in parts:
            await p.send(pb.Fact(hello_part=part))
        await p.send(pb.Fact(hello_end=pb.HelloEnd()))
        resync = await s.core.resynced()
        assert len(resync.runs) == 8000
        assert [run.turn_seq for run in resync.runs] == list(range(8000))
        assert len(resync.runs[-1].tool_calls) == 64
        (turn,) = resync.turns
        assert resync.now - turn.placed >= 0.5
        assert s.core.events == [resync]


async def test_a_message_of_15_megabytes_is_taken():
    part = pb.HelloPart()
    for piece in memory(5500):
        part.MergeFrom(piece)
    assert 14_000_000 < part.ByteSize() < protocol.MESSAGE_BYTES_MAX
    async with scheduler() as s, peer(s) as p:
        await p.hello()
        await p.send(pb.Fact(hello_part=part), pb.Fact(hello_end=pb.HelloEnd()))
        assert len((await s.core.resynced()).runs) == 5500


async def test_a_hello_beyond_its_limit_ends_the_session_with_the_mend():
    async with scheduler(hello_bytes_max=300_000) as s, peer(s) as p:
        await p.hello()
        with contextlib.suppress(*OVER):  # it may end before all of it is sent
            for part in memory(400):
                await p.send(pb.Fact(hello_part=part))
        code, details = await p.ended()
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "scheduler.hello_bytes_max" in details
        assert s.core.events == []


async def test_facts_that_come_before_the_hello_is_complete_are_applied_after_it():
    async with scheduler() as s, peer(s) as p:
        await p.hello()
        await p.send(asks("early"))
        await p.send(pb.Fact(hello_part=pb.HelloPart()), pb.Fact(hello_end=pb.HelloEnd()), asks("late"))
        await p.next("placed")
        assert (await p.next("placed")).placed.turn == "late"
        assert [type(event).__name__ for event in s.core.events] == ["Resync", "TurnRequested", "TurnRequested"]


async def test_orders_and_facts_keep_their_order_over_thousands():
    async with scheduler() as s, peer(s) as p:
        await p.open()
        for start in range(0, 5000, 100):
            await p.send(*(asks(str(n)) for n in range(start, start + 100)))
        turns = [(await p.next("placed")).placed.turn for _ in range(5000)]
        assert turns == [str(n) for n in range(5000)]
        assert [event.turn for event in s.core.of(TurnRequested)] == turns


async def test_many_orders_travel_in_few_messages():
    async with scheduler() as s, peer(s, reads=False) as p:
        await p.hello()
        await p.send(pb.Fact(hello_end=pb.HelloEnd()), *(asks(str(n)) for n in range(6000)))
        messages = orders = 0
        async with asyncio.timeout(60):
            while orders < 6002:
                batch = await p.call.read()
                assert batch.ByteSize() <= protocol.BATCH_BYTES
                messages += 1
                orders += sum(order.WhichOneof("order") != "alive" for order in batch.orders)
        assert messages < 100


# ---- refusals ---------------------------------------------------------------------------------------------------


async def test_another_major_version_is_refused_with_the_mend_on_both_sides(caplog: pytest.LogCaptureFixture):
    async with scheduler() as s, peer(s) as p:
        await p.hello(major=protocol.MAJOR + 1)
        code, details = await p.ended()
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert "install the same luftpause version on both" in details
        assert s.server.sessions == {}
        assert [record.fields["why"] for record in caplog.records if record.getMessage() == "session refused"] == [details]


@pytest.mark.parametrize("minor", [protocol.MINOR + 1, protocol.MINOR + 7])
async def test_another_minor_version_is_welcome(minor: int):
    async with scheduler() as s, peer(s) as p:
        await p.hello(minor=minor)
        assert (await p.next("welcome")).welcome.protocol.minor == protocol.MINOR


async def test_a_stream_that_does_not_begin_with_hello_is_refused():
    async with scheduler() as s, peer(s) as p:
        await p.send(asks("t"))
        code, details = await p.ended()
        assert (code, details) == (grpc.StatusCode.INVALID_ARGUMENT, "the first fact of a stream must be Hello")
        assert s.core.events == []


@pytest.mark.parametrize(("dataplane", "boot"), [("", "boot"), ("dp", ""), ("x" * 129, "boot")])
async def test_a_hello_without_usable_names_is_refused(dataplane: str, boot: str):
    async with scheduler() as s, peer(s) as p:
        await p.hello(dataplane, boot)
        assert (await p.ended())[0] is grpc.StatusCode.INVALID_ARGUMENT
        assert s.server.sessions == {}


@pytest.mark.parametrize("again", ["hello", "hello_part", "hello_end"])
async def test_a_second_hello_in_one_stream_ends_it(again: str):
    async with scheduler() as s, peer(s) as p:
        await p.open()
        fact = pb.Fact()
        getattr(fact, again).SetInParent()
        await p.send(fact, asks("after"))
        assert (await p.ended())[0] is grpc.StatusCode.INVALID_ARGUMENT
        await s.core.until(lambda: bool(s.core.of(DataplaneLost)))
        assert s.core.of(TurnRequested) == []


async def test_bytes_that_are_no_batch_end_the_stream_and_nothing_else():
    async with scheduler() as s, peer(s) as p, grpc.aio.insecure_channel(s.address) as channel:
        await p.open()
        call = channel.stream_stream("/luftpause.kit.wire.v1.Scheduler/Session")()
        await call.write(b"\xff" * 100)
        assert await asyncio.wait_for(call.code(), 60) is not grpc.StatusCode.OK
        await p.send(asks("t"))
        await p.next("placed")


async def test_unknown_facts_are_counted_logged_a_few_times_and_skipped(caplog: pytest.LogCaptureFixture):
    unknown = pb.Fact.FromString(b"\xfa\x07\x03abc")  # field 127
    async with scheduler() as s, peer(s) as p:
        await p.open()
        await p.send(*[unknown] * 50, asks("t"))
        await p.next("placed")
        assert s.server.sessions["dp"].unknown_facts == 50
        assert s.server.sessions["dp"].ended.done() is False
    assert sum("unknown fact" in record.getMessage() for record in caplog.records) == 5
    assert s.server.unknown_facts == 50


# ---- superseding and loss ---------------------------------------------------------------------------------------


async def test_a_newer_hello_ends_the_older_session_whose_facts_and_loss_no_longer_count():
    async with scheduler() as s, peer(s) as old, peer(s) as new:
        await old.open()
        welcome = await new.open()
        code, details = await old.ended()
        assert code is grpc.StatusCode.ABORTED
        assert "supersedes" in details
        await new.send(asks("t"))
        await new.next("placed")
        assert s.core.of(DataplaneLost) == []
        assert s.server.sessions["dp"].id == welcome.session
        assert s.core.of(Resync)[-1].session == welcome.session


@pytest.mark.parametrize(("boots", "warned"), [(("b1", "b2", "b1"), 2), (("b1", "b1", "b1"), 0)])
async def test_two_living_processes_with_one_name_are_warned_of_and_a_reconnect_is_not(
    boots: tuple[str, ...], warned: int, caplog: pytest.LogCaptureFixture
):
    async with scheduler() as s:
        opened = None
        for boot in boots:
            newer = peer(s)
            await (await newer.__aenter__()).open("dp", boot)
            if opened is not None:
                await opened.__aexit__(None, None, None)
            opened = newer
        await opened.__aexit__(None, None, None)
    assert [record.message for record in caplog.records if record.levelname == "WARNING"].count(
        "two dataplanes have one name and end each other's sessions; give each its own dataplane.name"
    ) == warned


async def test_a_newer_hello_that_never_becomes_complete_loses_the_older_session_when_it_ends():
    async with scheduler() as s, peer(s) as old, peer(s) as new:
        first = await old.open()
        await new.hello()
        await old.ended()
        assert s.core.of(DataplaneLost) == []
        await new.close()
        await s.core.until(lambda: bool(s.core.of(DataplaneLost)))
        (lost,) = s.core.of(DataplaneLost)
        assert (lost.dataplane, lost.session) == ("dp", first.session)


async def test_orders_of_the_older_session_do_not_reach_a_newer_one_before_its_resync():
    async with scheduler() as s, peer(s) as old, peer(s) as new, peer(s) as other:
        await old.open()
        await other.open("other")
        await new.hello()
        await old.ended()

        def for_dp(event: Event) -> tuple[Decision, ...]:
            return (Held("dp", "late", 1, "r", HoldReason.CAPPED),) if isinstance(event, TurnStarted) else s.core.place(event)

        s.core.answer = for_dp
        await other.send(pb.Fact(turn_started=pb.TurnStarted(turn="x", attempt=1)))
        await s.core.until(lambda: bool(s.core.of(TurnStarted)))
        await new.send(pb.Fact(hello_end=pb.HelloEnd()), asks("t"))
        await new.next("placed")
        said = [order.WhichOneof("order") for order in _drain(new.orders)]
        assert "held" not in said


async def test_sessions_of_several_dataplanes_are_apart():
    async with scheduler() as s, peer(s) as a, peer(s) as b:
        await a.open("a")
        await b.open("b")
        await a.send(asks("1"))
        await b.send(asks("2"))
        assert (await a.next("placed")).placed.turn == "1"
        assert (await b.next("placed")).placed.turn == "2"
        assert a.orders.empty()
        await a.close()
        await s.core.until(lambda: bool(s.core.of(DataplaneLost)))
        assert [event.dataplane for event in s.core.of(DataplaneLost)] == ["a"]
        assert set(s.server.sessions) == {"b"}


async def test_a_session_that_is_closed_in_good_order_ends_well_and_is_lost_at_once():
    async with scheduler() as s, peer(s) as p:
        await p.open()
        await p.send(asks("t"))
        await p.call.done_writing()
        assert (await p.ended())[0] is grpc.StatusCode.OK
        await s.core.until(lambda: bool(s.core.of(DataplaneLost)))
        assert [type(event).__name__ for event in s.core.events] == ["Resync", "TurnRequested", "DataplaneLost"]


CLIENT = """
import asyncio, sys
from tests.integration.scheduler.client import Peer

async def main():
    peer = Peer(sys.argv[1])
    await peer.open("victim")
    print("open", flush=True)
    peer.stay_alive(0.1)
    await asyncio.sleep(60)

asyncio.run(main())
"""


async def client_process(address: str) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", CLIENT, address, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), 60) == b"open\n"
    return process


async def test_a_client_that_is_killed_is_lost_at_once():
    async with scheduler(silence=30) as s:
        process = await client_process(s.address)
        process.kill()
        await process.wait()
        await s.core.until(lambda: bool(s.core.of(DataplaneLost)), seconds=15)  # long before the silence
        assert s.server.sessions == {}


async def test_a_client_that_is_paused_is_lost_after_the_silence_whatever_tcp_says():
    silence = 1.5  # its Alive comes fifteen times as often
    async with scheduler(silence=silence) as s:
        process = await client_process(s.address)
        try:
            await asyncio.sleep(1.2 * silence)  # its Alive keeps it here
            assert s.core.of(DataplaneLost) == []
            process.send_signal(signal.SIGSTOP)
            stopped = time.monotonic()
            await s.core.until(lambda: bool(s.core.of(DataplaneLost)))
            assert time.monotonic() - stopped > silence / 2
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()
            await process.wait()


# ---- silence and peers that don't read --------------------------------------------------------------------------


async def test_a_peer_that_says_nothing_is_told_so_and_lost():
    async with scheduler(silence=0.3) as s, peer(s) as p:
        await p.open()
        code, details = await p.ended()
        assert (code, details) == (grpc.StatusCode.DEADLINE_EXCEEDED, "nothing came for 0.3 s")
        await s.core.until(lambda: bool(s.core.of(DataplaneLost)))


async def test_a_stream_that_never_says_hello_ends_too():
    async with scheduler(silence=0.3) as s, peer(s) as p:
        assert (await p.ended())[0] is grpc.StatusCode.DEADLINE_EXCEEDED
        await s.core.until(lambda: not s.server._open)


async def test_a_peer_that_sends_alive_stays_and_hears_alive():
    async with scheduler(silence=0.5, alive=0.1) as s, peer(s) as p:
        await p.open()
        p.stay_alive(0.05)
        for _ in range(10):
            await p.next("alive")
        assert s.core.of(DataplaneLost) == []
        assert s.core.of(DataplaneAlive)


async def test_a_pause_of_the_scheduler_itself_is_not_held_against_its_peers():
    async with scheduler(silence=0.4) as s, peer(s) as p:
        await p.open()
        p.stay_alive(0.05)
        await s.core.until(lambda: bool(s.core.of(DataplaneAlive)))
        time.sleep(1.5)  # noqa: ASYNC251 - the whole loop stands still, as under SIGSTOP
        await p.send(asks("t"))
        await p.next("placed")
        assert s.core.of(DataplaneLost) == []


async def test_a_peer_that_never_reads_blocks_nobody_and_is_ended():
    def long_answer(event: Event) -> tuple[Decision, ...]:
        if not isinstance(event, TurnRequested):
            return ()
        return tuple(Held(event.dataplane, "x" * 1000, n, "r", HoldReason.CAPPED) for n in range(1000 if event.dataplane == "deaf" else 1))

    async with scheduler(orders_max=3000) as s, peer(s, reads=False) as deaf, peer(s) as p:
        await deaf.hello("deaf")
        await deaf.send(pb.Fact(hello_end=pb.HelloEnd()))
        await p.open()
        await s.core.resynced(2)
        s.core.answer = long_answer
        for n in range(40):  # 40 MB: more than gRPC buffers
            with contextlib.suppress(*OVER):
                await deaf.send(asks(str(n)))
            await p.send(asks(str(n)))
            await p.next("held")
        await s.core.until(lambda: bool(s.core.of(DataplaneLost)))
        assert [event.dataplane for event in s.core.of(DataplaneLost)] == ["deaf"]
        await p.send(asks("after"))
        await p.next("held")


async def test_a_peer_that_does_not_read_for_the_silence_is_ended_even_if_few_orders_wait():
    def long_answer(event: Event) -> tuple[Decision, ...]:
        return tuple(Held("dp", "x" * 10_000, n, "r", HoldReason.CAPPED) for n in range(1000)) if isinstance(event, TurnRequested) else ()

    async with scheduler(silence=0.6) as s, peer(s, reads=False) as p:
        await p.hello()
        await p.send(pb.Fact(hello_end=pb.HelloEnd()))
        p.stay_alive(0.1)
        await s.core.resynced()
        s.core.answer = long_answer
        await p.send(asks("t"))
        session = s.server.sessions["dp"]
        await s.core.until(lambda: bool(s.core.of(DataplaneLost)))
        assert session.ended.result().details == "nothing was read for 0.6 s"


async def test_facts_are_read_no_faster_than_they_are_decided_and_that_is_no_silence_of_the_peer():
    go = asyncio.Event()
    async with scheduler(inbox_events_max=100, silence=0.4, go=go) as s, peer(s) as p:
        await p.hello()
        await p.send(pb.Fact(hello_end=pb.HelloEnd()))
        for start in range(0, 5000, 50):
            await p.send(*(asks(str(n)) for n in range(start, start + 50)))
        await s.core.until(lambda: len(s.host._inbox) >= 100)
        await asyncio.sleep(0.8)  # twice the silence, in which nothing more may be read
        assert len(s.host._inbox) <= 150
        p.stay_alive(0.1)
        go.set()
        await s.core.until(lambda: len(s.core.of(TurnRequested)) == 5000)
        assert s.core.of(DataplaneLost) == []


# ---- start and stop ---------------------------------------------------------------------------------------------


async def test_stopping_tells_the_peers_and_takes_no_longer_than_a_second():
    async with scheduler() as s, peer(s) as p, peer(s, reads=False) as deaf:
        await p.open()
        await deaf.hello("deaf")
        await asyncio.wait_for(s.server.stop(), 60)
        code, details = await p.ended()
        assert (code, details) == (grpc.StatusCode.UNAVAILABLE, "the scheduler stops")


async def test_a_second_scheduler_on_the_same_port_is_an_error():
    async with scheduler() as s:
        second = SessionServer(s.host, orders_max=1, hello_bytes_max=1)
        with pytest.raises(LuftpauseError, match="can't listen"):
            await second.start(s.address)


def _drain(queue: asyncio.Queue[pb.Order]) -> list[pb.Order]:
    found: list[pb.Order] = []
    while not queue.empty():
        found.append(queue.get_nowait())
    return found
