"""Does the link keep its word over real gRPC, against a scheduler that misbehaves?"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest

from luftpause.dataplane import link as link_module
from luftpause.dataplane.link import SessionLink
from luftpause.dataplane.session import Timing
from luftpause.dataplane.turns import Refusal, ReturnReason, Usage
from luftpause.kit.config import DataplaneConfig
from luftpause.kit.wire.v1 import scheduler_pb2 as pb
from tests.support.ports import a_quiet_port, a_refusing_port
from tests.support.scheduler_double import SchedulerDouble, Stream, a_list_of
from tests.support.waiters import Recorder, an_ask

QUICK = Timing(alive_seconds=0.1, silence_seconds=0.6, list_seconds=0.3, linger_seconds=0.3)
PATIENT = Timing(alive_seconds=0.1, silence_seconds=60, list_seconds=0.3, linger_seconds=60)  # where silence is not what a test is about


def a_config(port: int, **more: object) -> DataplaneConfig:
    return DataplaneConfig.model_validate({"scheduler": f"127.0.0.1:{port}", "reconnect_seconds": 0.1, **more})


@contextlib.asynccontextmanager
async def linked(double: SchedulerDouble, *, timing: Timing = PATIENT, **more: object) -> AsyncGenerator[SessionLink]:
    """The double and a link that runs against it; both are stopped at the end."""
    if not double.port:
        await double.start()
    link = SessionLink(a_config(double.port, **more), timing=timing, environ={})
    running = asyncio.ensure_future(link.run())
    try:
        yield link
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await double.stop()


async def alive(stream: Stream) -> None:
    """Keep the session up until it is cancelled."""
    while True:
        await stream.order(pb.Order(alive=pb.Alive()))
        await asyncio.sleep(0.05)


async def friendly(stream: Stream) -> None:
    """Welcomes, announces replica `a`, lives."""
    await stream.until("hello_end")
    await stream.welcome()
    await alive(stream)


async def test_hello_comes_first_and_a_turn_asked_before_it_is_asked_after_the_welcome() -> None:
    double = SchedulerDouble(friendly)
    async with linked(double) as link:
        waiter = Recorder()
        link.ask(an_ask("t1", run="mine"), waiter)
        stream = await double.stream()
        (asked,) = await stream.until("turn_requested")
        assert stream.kinds()[:2] == ["hello", "hello_end"]
        assert stream.of("hello")[0].dataplane == "dataplane"
        assert (asked.turn, asked.attempt, asked.run, asked.model) == ("t1", 1, "mine", "m")
        await stream.place("t1", run="mine")
        placement = await waiter.placement()
        assert (placement.replica.url, placement.run) == ("http://a:1", "mine")
        assert link.contacted
        assert link.connected


async def test_facts_of_one_tick_travel_in_one_batch() -> None:
    double = SchedulerDouble(friendly)
    async with linked(double) as link:
        stream = await double.stream()
        first = Recorder()
        link.ask(an_ask("t0"), first)
        await stream.until("turn_requested")
        for number in range(1, 101):
            link.ask(an_ask(f"t{number}"), Recorder())
        await stream.until("turn_requested", 101)
        assert 100 in stream.batches or 101 in stream.batches


async def test_reports_reach_the_scheduler_in_order() -> None:
    double = SchedulerDouble(friendly)
    async with linked(double) as link:
        stream = await double.stream()
        waiter = Recorder()
        link.ask(an_ask("t1"), waiter)
        await stream.until("turn_requested")
        await stream.place("t1")
        await waiter.placement()
        link.started("t1")
        await stream.until("turn_started")
        link.first_token("t1")
        link.tool_calls_seen("t1", ["call_1"])
        link.finished("t1", "tool_calls", Usage(10, 5, 3), paused=True, tool_call_ids=["call_1"])
        (finished,) = await stream.until("turn_finished")
        reports = [kind for kind in stream.kinds() if kind in {"turn_started", "first_token", "tool_call_seen", "turn_finished"}]
        assert reports == ["turn_started", "first_token", "tool_call_seen", "turn_finished"]
        assert (finished.paused, list(finished.tool_call_ids), finished.usage.cached_tokens) == (True, ["call_1"], 3)


async def test_a_scheduler_that_never_answers_is_left_and_tried_again() -> None:
    async def silent(stream: Stream) -> None:
        await asyncio.Event().wait()

    double = SchedulerDouble(silent)
    async with linked(double, timing=QUICK) as link:
        await double.stream(2)
        assert not link.contacted


async def test_a_scheduler_that_accepts_and_does_not_speak_is_left() -> None:
    """Nothing but TCP: no HTTP/2 settings ever come."""
    met = asyncio.Event()
    count = 0
    writers: list[asyncio.StreamWriter] = []

    async def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        writers.append(writer)
        if count == 2:
            met.set()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    link = SessionLink(a_config(port), timing=QUICK, environ={})
    running = asyncio.ensure_future(link.run())
    try:
        await asyncio.wait_for(met.wait(), 60)
        assert not link.connected
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        for writer in writers:
            writer.close()
        server.close()
        await server.wait_closed()


async def test_alive_alone_does_not_replace_the_welcome() -> None:
    double = SchedulerDouble(alive)
    async with linked(double, timing=QUICK) as link:
        await double.stream(2)
        assert not link.connected


async def test_silence_ends_a_session_and_a_held_turn_is_asked_again_under_the_same_id() -> None:
    async def half_open(stream: Stream) -> None:
        await stream.until("hello_end")
        await stream.welcome()
        if len(double.streams) > 1:
            await alive(stream)
        await asyncio.Event().wait()  # the stream stays open, nothing comes any more

    double = SchedulerDouble(half_open)
    async with linked(double, timing=QUICK) as link:
        waiter = Recorder()
        link.ask(an_ask("t1"), waiter)
        await (await double.stream(1)).until("turn_requested")
        second = await double.stream(2)
        (asked,) = await second.until("turn_requested")
        assert (asked.turn, asked.attempt) == ("t1", 1)
        assert asked.age_ms >= 500
        await second.place("t1")
        await waiter.placement()


async def test_a_scheduler_that_reads_nothing_is_left() -> None:
    async def welcome_only(stream: Stream) -> None:
        await stream.welcome()
        await alive(stream)

    double = SchedulerDouble(welcome_only)
    double.deaf = True
    async with linked(double, timing=QUICK) as link:
        await double.stream(1)
        ids = tuple(f"call_{number:060}" for number in range(1_000))
        for number in range(300):  # 20 MB: more than the flow control's window
            link.ask(an_ask(f"turn_{number:026}", tool_call_ids=ids), Recorder())
        await double.stream(2, seconds=60)


async def test_a_scheduler_that_dies_after_hello_is_found_again_on_the_same_port() -> None:
    async def die(stream: Stream) -> None:
        await stream.until("hello")

    double = SchedulerDouble(die)
    async with linked(double) as link:
        waiter = Recorder()
        link.ask(an_ask("t1"), waiter)
        await double.stream(2)
        double.script = friendly
        stream = await double.stream(len(double.streams) + 1)
        await stream.until("turn_requested")
        await stream.place("t1")
        await waiter.placement()


async def knocks(port: int, times: int) -> None:
    """Until somebody has come so many times, and been sent away; a back-off that doubles would take minutes."""
    count, enough = 0, asyncio.Event()

    def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        writer.close()
        if count == times:
            enough.set()

    async with await asyncio.start_server(accept, "127.0.0.1", port):
        await asyncio.wait_for(enough.wait(), 30)


async def test_a_restart_on_the_same_port_is_noticed_soon_however_long_it_was_down() -> None:
    double = SchedulerDouble(friendly)
    await double.start(a_quiet_port())  # else an outgoing connection may take it while nobody listens
    async with linked(double) as link:
        first = await double.stream(1)
        waiter = Recorder()
        link.ask(an_ask("t1"), waiter)
        await first.until("turn_requested")
        await first.place("t1", run="r", turn_seq=7)
        await waiter.placement()
        held = Recorder()
        link.ask(an_ask("t2"), held)
        await first.until("turn_requested", 2)
        await double.stop()
        await knocks(double.port, 12)
        again = SchedulerDouble(friendly)
        await again.start(double.port)
        try:
            second = await again.stream(1)
            await second.until("hello_end")
            parts = second.of("hello_part")
            assert [(turn.turn, turn.replica, turn.turn_seq) for part in parts for turn in part.turns] == [("t1", "a", 7)]
            assert [(lane.model, lane.home) for part in parts for run in part.runs for lane in run.lanes] == [("m", "a")]
            assert [asked.turn for asked in await second.until("turn_requested")] == ["t2"]
            await second.place("t2")
            await held.placement()
        finally:
            await again.stop()


async def test_facts_of_an_outage_are_not_sent_afterwards() -> None:
    async def three_lives(stream: Stream) -> None:
        await stream.until("hello_end")
        await stream.welcome()
        if len(double.streams) == 1:
            await stream.until("turn_requested", 3)
            for turn in ("done", "gone", "back"):
                await stream.place(turn, run=turn)
            await stream.until("turn_started", 2)
            return
        await alive(stream)

    double = SchedulerDouble(three_lives)
    async with linked(double) as link:
        waiters = {turn: Recorder() for turn in ("done", "gone", "back")}
        for turn, waiter in waiters.items():
            link.ask(an_ask(turn), waiter)
        for waiter in waiters.values():
            await waiter.placement()
        link.started("done")
        link.started("gone")
        async with asyncio.timeout(60):
            while link.connected:
                await asyncio.sleep(0.005)
        link.finished("done", "stop", None, paused=False)
        link.failed("gone", "engine_died")
        link.give_back("back", ReturnReason.UNREACHABLE)
        second = await double.stream(2)
        (asked,) = await second.until("turn_requested")
        assert (asked.turn, asked.attempt, list(asked.without), asked.run) == ("back", 2, ["a"], "back")
        assert [turn for part in second.of("hello_part") for turn in part.turns] == []
        assert not {"turn_finished", "turn_failed", "turn_returned"} & set(second.kinds())


async def test_garbage_from_the_scheduler_starts_a_new_session() -> None:
    async def garbage(stream: Stream) -> None:
        await stream.until("hello_end")
        await stream.welcome()
        if len(double.streams) == 1:
            await stream.raw(b"\xff\xff\xff this is no protobuf")
        await alive(stream)

    double = SchedulerDouble(garbage)
    async with linked(double) as link:
        stream = await double.stream(2)
        waiter = Recorder()
        link.ask(an_ask("t1"), waiter)
        await stream.until("turn_requested")
        await stream.place("t1")
        await waiter.placement()


async def test_orders_that_nobody_waits_for_are_skipped_and_the_session_lives_on() -> None:
    double = SchedulerDouble(friendly)
    async with linked(double) as link:
        stream = await double.stream()
        await stream.until("hello_end")
        await stream.order(
            pb.Order(),
            pb.Order(held=pb.Held(turn="nobody", attempt=1, run="r", reason="capped")),
            pb.Order(refused=pb.Refused(turn="nobody", attempt=1, status=404)),
            pb.Order(placed=pb.Placed(turn="nobody", attempt=3, run="r", replica="a")),
        )
        (abandoned,) = await stream.until("turn_abandoned")
        assert (abandoned.turn, abandoned.attempt) == ("nobody", 3)  # else its place would stay counted
        assert link.ledger.counts == {"unknown_order": 1, "unknown_turn": 3}
        assert len(double.streams) == 1


async def test_another_major_protocol_is_not_spoken() -> None:
    async def newer(stream: Stream) -> None:
        await stream.until("hello_end")
        await stream.welcome(major=2)
        await alive(stream)

    double = SchedulerDouble(newer)
    async with linked(double) as link:
        await double.stream(2)
        assert not link.connected


async def test_both_kinds_of_alive() -> None:
    double = SchedulerDouble(friendly)
    async with linked(double) as link:
        stream = await double.stream()
        waiter = Recorder()
        link.ask(an_ask("t1"), waiter)
        await stream.until("turn_requested")
        await stream.place("t1")
        await waiter.placement()
        link.delivering("a")
        alives = await stream.until("alive", 8)
        assert [list(each.delivering) for each in alives if each.delivering] == [["a"]]
        listing = [each for each in alives if each.lists_turns]
        assert listing
        assert all(list(each.turns) == ["t1"] for each in listing)


async def test_a_replica_without_its_key_is_reported_and_a_place_there_goes_back() -> None:
    double = SchedulerDouble(friendly)
    async with linked(double) as link:
        stream = await double.stream()
        await stream.until("hello_end")
        await stream.order(a_list_of("hosted", api_key_env="HOSTED_KEY"), a_list_of("hosted", api_key_env="HOSTED_KEY"))
        (unusable,) = await stream.until("replica_unusable")
        assert unusable.replica == "hosted"
        assert "HOSTED_KEY" in unusable.reason
        waiter = Recorder()
        link.ask(an_ask("t1"), waiter)
        await stream.until("turn_requested")
        await stream.place("t1", "hosted")
        (returned,) = await stream.until("turn_returned")
        assert (returned.replica, returned.attempt) == ("hosted", 1)
        assert waiter.told == []


async def test_close_sends_the_last_reports_before_it_leaves() -> None:
    async def until_it_leaves(stream: Stream) -> None:
        living = asyncio.ensure_future(friendly(stream))
        await stream.ended.wait()
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)

    double = SchedulerDouble(until_it_leaves)
    await double.start()
    link = SessionLink(a_config(double.port), timing=PATIENT, environ={})
    running = asyncio.ensure_future(link.run())
    try:
        stream = await double.stream()
        waiter = Recorder()
        link.ask(an_ask("t1"), waiter)
        await stream.until("turn_requested")
        await stream.place("t1")
        await waiter.placement()
        link.failed("t1", "stopped")
        await asyncio.wait_for(link.close(), 60)
        await asyncio.wait_for(running, 60)
        assert [each.reason for each in await stream.until("turn_failed")] == ["stopped"]
        await asyncio.wait_for(stream.ended.wait(), 20)
    finally:
        running.cancel()
        await double.stop()


async def test_close_without_a_scheduler_returns_at_once() -> None:
    link = SessionLink(a_config(a_refusing_port()), timing=QUICK, environ={})
    running = asyncio.ensure_future(link.run())
    await asyncio.sleep(0)
    await asyncio.wait_for(link.close(), 20)
    await asyncio.wait_for(running, 20)


async def test_close_does_not_wait_for_a_scheduler_that_says_nothing() -> None:
    async def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        writers.append(writer)

    connected, writers = asyncio.Event(), list[asyncio.StreamWriter]()
    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    link = SessionLink(a_config(server.sockets[0].getsockname()[1]), timing=Timing(silence_seconds=60, linger_seconds=0.1), environ={})
    running = asyncio.ensure_future(link.run())
    try:
        await asyncio.wait_for(connected.wait(), 20)
        await asyncio.wait_for(link.close(), 20)  # the silence would be an outage after 60 s only
        await asyncio.wait_for(running, 20)
    finally:
        running.cancel()
        for writer in writers:
            writer.close()
        server.close()
        await server.wait_closed()


async def test_more_facts_than_may_wait_start_a_new_session() -> None:
    double = SchedulerDouble(friendly)
    async with linked(double, facts_max=50) as link:
        await (await double.stream(1)).until("hello_end")
        async with asyncio.timeout(20):
            while not link.connected:
                await asyncio.sleep(0.005)
        for number in range(60):
            link.suspect("a", f"reason {number}")
        await double.stream(2)


async def test_a_run_ended_during_an_outage_is_reported_after_it_and_its_held_turns_are_refused() -> None:
    double = SchedulerDouble(friendly)
    async with linked(double) as link:
        waiter = Recorder()
        link.ask(an_ask("t1", run="mine"), waiter)
        link.end_run("mine")
        assert [word.status for word in waiter.final if isinstance(word, Refusal)] == [409]
        stream = await double.stream()
        assert [each.run for each in await stream.until("run_ended")] == ["mine"]
        assert "turn_requested" not in stream.kinds()


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "grpc_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    double = SchedulerDouble(friendly)
    async with linked(double):
        await (await double.stream()).until("hello_end")


async def test_what_has_had_its_time_is_swept_out_with_and_without_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "SWEEP_SECONDS", 0.01)
    swept = asyncio.Semaphore(0)
    double = SchedulerDouble(friendly)
    async with linked(double) as link:
        monkeypatch.setattr(link.ledger, "sweep", swept.release)
        async with asyncio.timeout(30):
            await double.stream()
            await swept.acquire()
            await double.stop()
            for _ in range(2):
                await swept.acquire()
