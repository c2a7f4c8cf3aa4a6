"""Does a dataplane with the scheduler in its own process behave as one that has it in another?"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest

from luftpause.cli import one_process
from luftpause.cli.one_process import InProcessLink, Words
from luftpause.dataplane import wire
from luftpause.dataplane.leases import AnswerTold, LeaseEnd, LeaseEnded
from luftpause.dataplane.link import SessionLink
from luftpause.dataplane.turns import Kind, Placement, Refusal, ReturnReason, TurnClass, Usage
from luftpause.kit.config import Config
from luftpause.scheduler import app as scheduler_app
from luftpause.scheduler import translate
from luftpause.scheduler.app import Running
from luftpause.scheduler.core.decide import decide
from luftpause.scheduler.core.events import TurnRequested
from luftpause.scheduler.host import CoreFailedError
from tests.integration.test_link_scheduler import an_engine
from tests.support.processes import Process, running
from tests.support.waiters import Recorder, an_ask

CALL = "call_01234567890123456789"  # long enough to be nobody else's


def a_config(*engines: int, **replica: Any) -> Config:
    replicas = [
        {"name": f"e{i}", "url": f"http://127.0.0.1:{port}", "models": ["m"], "load": "none", **replica} for i, port in enumerate(engines)
    ]
    return Config.model_validate({
        "replicas": replicas,
        "scheduler": {"grpc_port": 0, "http_port": 0, "probe_seconds": 0.2, "dataplanes_expected": ["dataplane"]},
        "dataplane": {"port": 0},
    })


@contextlib.asynccontextmanager
async def joined(config: Config, **link: Any) -> AsyncGenerator[tuple[InProcessLink, Running]]:
    async with scheduler_app.running(config) as scheduler:
        own = InProcessLink(config.dataplane.name, scheduler.host, scheduler.sessions, memory_seconds=60, environ={}, **link)
        own.join()
        living = asyncio.create_task(own.run())
        try:
            yield own, scheduler
        finally:
            living.cancel()
            await asyncio.wait({living})


def in_flight(scheduler: Running) -> int:
    return len(scheduler.host.state.turns)


async def settled(scheduler: Running) -> None:
    while scheduler.host.waiting:
        await asyncio.sleep(0)


async def test_a_turn_is_placed_reported_and_leaves_nothing() -> None:
    async with an_engine() as engine, joined(a_config(engine)) as (link, scheduler):
        assert (link.contacted, link.connected) == (True, True)
        waiter = Recorder()
        link.ask(an_ask("t", run="mine"), waiter)
        assert waiter.told == []  # never within the call
        place = await waiter.placement()
        assert (place.run, place.attempt, place.replica.url, place.replica.state) == ("mine", 1, f"http://127.0.0.1:{engine}", "healthy")
        link.started("t")  # which the first token tells
        link.first_token("t")
        link.tool_calls_seen("t", [CALL])
        link.finished("t", "tool_calls", Usage(10, 5, 3), paused=True, tool_call_ids=[CALL])
        await settled(scheduler)
        assert in_flight(scheduler) == 0
        assert [name for name in scheduler.host.events if name.startswith(("Turn", "First", "Tool"))] == [
            "TurnRequested", "FirstToken", "ToolCallSeen", "TurnFinished",
        ]  # fmt: skip
        again = Recorder()
        link.ask(an_ask("t2", tool_call_ids=(CALL,)), again)
        assert (await again.placement()).run == "mine"


async def test_what_is_kept_of_tool_calls_is_swept_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async with an_engine() as engine, joined(a_config(engine), alive_seconds=0.01) as (link, _):
        swept = asyncio.Event()
        monkeypatch.setattr(link.ledger, "sweep", swept.set)
        async with asyncio.timeout(60):
            await swept.wait()


async def test_a_pass_that_only_one_replica_takes_goes_before_the_scheduler_hears_of_it_and_is_counted() -> None:
    async with an_engine() as port, joined(a_config(port, kind="classifier")) as (link, scheduler):
        async with asyncio.timeout(20):
            while not any(each.passes_unasked for each in link.replicas.values()):
                await asyncio.sleep(0.01)
        waiter = Recorder()
        link.ask(an_ask("t", kind=Kind.CLASSIFIER), waiter)
        assert [isinstance(each, Placement) for each in waiter.told] == [True]  # already
        await settled(scheduler)
        assert (scheduler.host.state.replicas["e0"].passes, scheduler.host.decisions["Place"]) == (1, 1)
        link.finished("t", "", None, paused=False)
        await settled(scheduler)
        assert (scheduler.host.state.replicas["e0"].passes, in_flight(scheduler)) == (0, 0)
        assert link.ledger.counts["stale_attempt"] == 0  # its place was told nobody


async def test_held_turns_hear_why_and_go_when_there_is_room() -> None:
    async with an_engine() as engine, joined(a_config(engine, max_in_flight=1)) as (link, scheduler):
        first, second, left = Recorder(), Recorder(), Recorder()
        link.ask(an_ask("t1"), first)
        await first.placement()
        link.ask(an_ask("t2"), second)
        link.ask(an_ask("t3", turn_class=TurnClass.BATCH), left)
        await second.until(1)
        await left.until(1)
        assert (second.told, left.told) == ([("run_of_t2", "capped")], [("run_of_t3", "capped")])
        link.abandon("t3")
        link.failed("t1", "client_left")
        place = await second.placement()
        assert place.hold_reason == "capped"
        assert place.held_ms >= 0
        link.started("t2")
        link.finished("t2", "stop", None, paused=False)
        await settled(scheduler)
        assert (in_flight(scheduler), left.final) == (0, [])


async def test_a_turn_that_a_replica_did_not_take_goes_to_another() -> None:
    async with an_engine() as one, an_engine() as two, joined(a_config(one, two)) as (link, _):
        waiter = Recorder()
        link.ask(an_ask("t"), waiter)
        first = await waiter.placement()
        link.suspect(first.replica.name, "refused")
        link.give_back("t", ReturnReason.UNREACHABLE)
        async with asyncio.timeout(60):
            while len(waiter.final) < 2:
                await asyncio.sleep(0)
        second = await waiter.placement()
        assert (second.attempt, {first.replica.name, second.replica.name}) == (2, {"e0", "e1"})


async def test_refusals_ended_runs_and_stored_responses_come_back() -> None:
    async with an_engine() as engine, joined(a_config(engine, max_in_flight=1)) as (link, _):
        unknown, busy, held = Recorder(), Recorder(), Recorder()
        link.ask(an_ask("t0", model="nobody"), unknown)
        await unknown.until(1)
        refused = unknown.final[0]
        assert isinstance(refused, Refusal)
        assert (refused.status, refused.code) == (404, "model_not_found")
        link.ask(an_ask("t1"), busy)
        await busy.placement()
        link.response_seen("t1", "resp_1")
        found: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        link.locate("resp_1", "", found.set_result)
        assert await asyncio.wait_for(found, 60) == "e0"
        link.ask(an_ask("t2", run="ended"), held)
        await held.until(1)
        link.end_run("ended")
        await held.until(2)
        end = held.final[0]
        assert isinstance(end, Refusal)
        assert end.status == 409


async def test_a_replica_whose_key_is_not_here_gets_no_turn() -> None:
    async with an_engine() as engine:
        config = a_config(engine, api_key_env="NO_SUCH_KEY", health="/health")
        async with joined(config) as (link, scheduler):
            async with asyncio.timeout(60):
                while not scheduler.host.events["ReplicaUnusable"]:
                    await asyncio.sleep(0.01)
            assert dict(link.replicas) == {}


async def test_turns_in_flight_are_listed_so_that_they_do_not_expire() -> None:
    async with an_engine() as engine, joined(a_config(engine), alive_seconds=0.02, list_seconds=0.01) as (link, scheduler):
        seen: list[tuple[str, ...] | None] = []
        scheduler.host._observers = (*scheduler.host._observers, lambda _state, event, _step: seen.append(getattr(event, "turns", None)))  # pyright: ignore[reportPrivateUsage]
        waiter = Recorder()
        link.ask(an_ask("t"), waiter)
        await waiter.placement()
        link.delivering("e0")
        async with asyncio.timeout(60):
            while ("t",) not in seen:
                await asyncio.sleep(0.01)


async def test_a_thousand_turns_that_each_end_in_another_way_leave_no_count() -> None:
    async with an_engine() as one, an_engine() as two, joined(a_config(one, two, max_in_flight=40)) as (link, scheduler):

        async def turn(number: int) -> None:
            name, waiter = f"t{number}", Recorder()
            link.ask(an_ask(name, run=f"run_{number % 300}"), waiter)
            how = number % 7
            if how == 0:
                link.abandon(name)
                return
            await waiter.until(1, seconds=60)
            if how == 1:
                link.abandon(name)
                return
            await waiter.placement(seconds=60)
            if how == 2:
                link.give_back(name, ReturnReason.UNREACHABLE)
                link.abandon(name)
                return
            link.started(name)
            await asyncio.sleep(0)
            if how == 3:
                link.failed(name, "engine_died")
                return
            link.first_token(name)
            link.finished(name, "stop", Usage(1, 2), paused=how == 4, tool_call_ids=(f"call_{number}",) if how == 4 else ())

        await asyncio.gather(*(turn(number) for number in range(1000)))
        await settled(scheduler)
        assert in_flight(scheduler) == 0
        assert (link.ledger.in_flight(), scheduler.host.undeliverable) == ([], 0)


async def test_a_core_that_fails_ends_the_process_with_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(state: Any, event: Any) -> Any:
        assert not isinstance(event, TurnRequested)
        return decide(state, event)

    monkeypatch.setattr(scheduler_app, "decide", broken)
    async with an_engine() as engine, httpx.AsyncClient(trust_env=False, timeout=60) as http:
        at = tmp_path / "at.json"
        process = asyncio.create_task(one_process.run(a_config(engine), announce=at))
        async with asyncio.timeout(60):
            while not at.exists():
                await asyncio.sleep(0.01)
        url = json.loads(at.read_text())["http"]
        answer = await http.post(f"{url}/v1/chat/completions", json={"model": "m", "messages": []})
        assert answer.status_code == 503  # the turn went back to its client
        with pytest.raises(CoreFailedError, match="TurnRequested"):
            await asyncio.wait_for(process, 60)


FULL = an_ask(
    "t", run="r", turn_class=TurnClass.BATCH, parent="p", kind=Kind.CLASSIFIER, api="responses", tool_call_ids=(CALL,), head_digest=b"h",
    previous_response="resp", body_hash=b"b", principal="alice", body_bytes=7, priority=0,
    answer_tokens_max=300,
)  # fmt: skip
TOLD = AnswerTold(429, {"retry-after": "9"}, "later")
SAID: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "requested": ((FULL,), {"attempt": 2, "run": "r", "arrived": 4.0, "now": 5.0, "without": ("a",), "sent_to": "b"}),
    "abandoned": (("t", 1), {}),
    "returned": (("t", 1, "a", ReturnReason.LIMITED), {}),
    "started": (("t", 1), {}),
    "first_token": (("t",), {}),
    "tool_calls_seen": (("t", (CALL,)), {}),
    "response_seen": (("t", "resp"), {}),
    "finished": (("t", 1, "stop", Usage(1, 2, 3)), {"paused": True, "tool_call_ids": (CALL,), "tools": ("lookup", "add")}),
    "failed": (("t", 1, "engine_died"), {}),
    "answer_told": (("t", 1, TOLD), {}),
    "lease_ended": ((LeaseEnded("t", 1, "a", 7, LeaseEnd.LIMITED, Usage(1, 2), TOLD),), {}),
    "run_ended": (("r", "alice", 4.0, 5.0), {}),
    "locate": (("q", "resp", "alice"), {}),
    "suspected": (("a", "refused"), {}),
    "unusable": (("a", "no key"), {}),
}


@pytest.mark.parametrize("word", [name for name in vars(Words) if not name.startswith("_")])
def test_each_word_is_what_the_scheduler_would_have_read_from_the_wire(word: str) -> None:
    values, named = SAID[word]
    here = getattr(Words("dp", lambda: 5.0), word)(*values, **named)
    assert here == translate.event(getattr(wire, word)(*values, **named), dataplane="dp", now=5.0)


# ---- as a process ---------------------------------------------------------------------------------------------------


def a_file(folder: Path, **sections: Any) -> str:
    path = folder / f"{len(list(folder.glob('*.yaml')))}.yaml"
    path.write_text(json.dumps(sections))
    return str(path)


async def status(process: Process) -> dict[str, Any]:
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        return (await http.get(process.at["status"] + "/status")).json()


async def test_further_dataplanes_join_but_not_under_its_own_name(tmp_path: Path) -> None:
    async with an_engine() as engine:
        sections = json.loads(a_config(engine).model_dump_json(exclude_defaults=True))
        sections["scheduler"] = {"grpc_port": 0, "http_port": 0}
        async with running("dataplane", "--with-scheduler", "--config", a_file(tmp_path, **sections), folder=tmp_path) as both:
            config = Config.model_validate({"dataplane": {"name": "other", "scheduler": both.at["grpc"]}}).dataplane
            twin = SessionLink(config.model_copy(update={"name": "dataplane"}), environ={})
            other = SessionLink(config, environ={})
            tasks = [asyncio.create_task(each.run()) for each in (twin, other)]
            try:
                async with asyncio.timeout(60):
                    while not (other.connected and other.replicas):
                        await asyncio.sleep(0.01)
                waiter = Recorder()
                other.ask(an_ask("t"), waiter)
                assert (await waiter.placement()).replica.name == "e0"
                seen = await status(both)
                here = {each["dataplane"]: each["peer"] == "this process" for each in seen["sessions"]}
                assert here == {"dataplane": True, "other": False}
                async with asyncio.timeout(60):
                    while "runs in this scheduler's own process" not in both.logged():
                        await asyncio.sleep(0.02)  # polling a log
                assert not twin.connected
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            both.terminate()
            assert await both.ended() == 0


async def test_turns_go_through_and_a_second_signal_ends_a_stream_that_runs(tmp_path: Path) -> None:
    async with (
        running("fake-engine", "--port", "0", "--speed", "1", folder=tmp_path) as engine,
        httpx.AsyncClient(trust_env=False, timeout=60) as http,
    ):
        sections = {
            "replicas": [{"name": "e", "url": engine.at["http"], "load": "sglang"}],
            "scheduler": {"grpc_port": 0, "http_port": 0},
            "dataplane": {"port": 0},
        }
        async with running("dataplane", "--with-scheduler", "--config", a_file(tmp_path, **sections), folder=tmp_path) as both:
            messages = [{"role": "user", "content": "[calls=0 answer=4000]"}]
            body = {"model": "fake-1b", "stream": True, "max_tokens": 4000, "messages": messages}
            async with asyncio.timeout(60):
                while not (await http.get(both.at["http"] + "/v1/models")).json()["data"]:
                    await asyncio.sleep(0.05)
            async with http.stream("POST", both.at["http"] + "/v1/chat/completions", json=body) as answer:
                assert answer.status_code == 200
                assert (await status(both))["state"]["replicas"][0]["in_flight"] == 1
                both.terminate()
                async with asyncio.timeout(60):
                    while '"stopping"' not in both.logged():
                        await asyncio.sleep(0.01)
                both.terminate()
                with pytest.raises(httpx.RemoteProtocolError):
                    await answer.aread()
            assert await both.ended() == 0
