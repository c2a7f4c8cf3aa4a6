"""Do replicas come and go in a running scheduler when its file changes or SIGHUP asks, with turns held and in flight?"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import yaml

from luftpause.kit.wire.v1 import scheduler_pb2 as pb
from tests.integration.scheduler.client import Peer, asks, peer
from tests.integration.scheduler.engines import Engine, engine
from tests.integration.scheduler.test_process import IDLE, ends, healthy, started, status, told
from tests.support.processes import Process
from tests.support.terminal import on_a_terminal

OWN = {"grpc_port": 0, "http_port": 0, "start_grace_seconds": 0, "probe_seconds": 0.5}


def rewrite(folder: Path, *replicas: dict[str, Any], **scheduler: Any) -> None:
    """As an editor does: another file in its place."""
    part = folder / "luftpause.yaml.part"
    part.write_text(yaml.safe_dump({"replicas": list(replicas), "scheduler": {**OWN, **scheduler}}))
    part.replace(folder / "luftpause.yaml")


def entry(name: str, at: Engine, **more: Any) -> dict[str, Any]:
    return {"name": name, "url": at.url, **more}


@contextlib.asynccontextmanager
async def reloading(folder: Path, **first: Any) -> AsyncGenerator[tuple[Engine, Engine, Process, Peer]]:
    """Two engines, of which the scheduler knows one as `a`, and a dataplane."""
    async with (
        engine(metrics=(200, IDLE)) as one,
        engine(metrics=(200, IDLE)) as two,
        started(folder, entry("a", one, **first)) as process,
        peer(process.at["grpc"]) as p,
    ):
        await healthy(p)
        p.stay_alive(0.2)
        yield one, two, process, p


async def placed(p: Peer) -> tuple[str, str]:
    order = (await p.next("placed")).placed
    return order.turn, order.replica


async def announced(p: Peer, condition: Callable[[dict[str, str]], bool]) -> dict[str, str]:
    """States by name, as soon as they are so."""
    async with asyncio.timeout(60):
        while True:
            replicas = (await p.next("replicas")).replicas.replicas
            states = {replica.name: replica.state for replica in replicas}
            if condition(states):
                return states


async def test_an_added_replica_takes_the_turns_that_are_held(tmp_path: Path):
    async with reloading(tmp_path, max_in_flight=1) as (one, two, process, p):
        await p.send(asks("1"), asks("2"), asks("3"))
        assert await placed(p) == ("1", "a")
        assert [(await p.next("held")).held.turn for _ in range(2)] == ["2", "3"]
        rewrite(tmp_path, entry("a", one, max_in_flight=1), entry("b", two, max_in_flight=1))
        assert await placed(p) == ("2", "b")
        rewrite(tmp_path, entry("a", one, max_in_flight=1), entry("b", two, max_in_flight=2))  # changed: more room
        assert await placed(p) == ("3", "b")
        shown = {each["name"]: each["in_flight"] for each in (await status(process))["state"]["replicas"]}
        assert shown == {"a": 1, "b": 2}
        assert two.hits["/health"] >= 1


async def test_a_removed_replica_loses_its_probes_and_held_turns_but_not_those_in_flight(tmp_path: Path):
    async with reloading(tmp_path, max_in_flight=1) as (one, two, process, p):
        await p.send(asks("1"), asks("2"))
        assert await placed(p) == ("1", "a")
        await p.next("held")
        rewrite(tmp_path, entry("b", two))
        assert await placed(p) == ("2", "b")
        hits = one.hits["/health"]
        await p.send(pb.Fact(turn_finished=pb.TurnFinished(turn="1", attempt=1, finish_reason="stop")), asks("3"))
        assert await placed(p) == ("3", "b")
        before = two.hits["/health"]
        await two_more_probes(two, before)
        assert one.hits["/health"] == hits
        assert {each["name"]: each["in_flight"] for each in (await status(process))["state"]["replicas"]} == {"b": 2}


async def two_more_probes(at: Engine, before: int) -> None:
    async with asyncio.timeout(60):
        while at.hits["/health"] < before + 2:
            await asyncio.sleep(0.02)  # polling a counter of the engine


async def test_without_the_last_server_of_its_model_a_held_turn_is_refused(tmp_path: Path):
    async with reloading(tmp_path, max_in_flight=0) as (_, _, _, p):
        await p.send(asks("1"))
        await p.next("held")
        rewrite(tmp_path)
        refused = (await p.next("refused")).refused
        assert (refused.turn, refused.status) == ("1", 404)


async def test_a_replica_that_points_elsewhere_is_probed_there(tmp_path: Path):
    async with reloading(tmp_path) as (_, two, _, p):
        rewrite(tmp_path, entry("a", two))
        replica = await told(p, lambda replica: replica.url == two.url and replica.state == "healthy")
        assert list(replica.models) == ["m"]


async def test_under_load_replicas_come_and_go_and_no_turn_is_lost(tmp_path: Path):
    async with reloading(tmp_path, max_in_flight=4) as (one, two, process, p):
        a, b = entry("a", one, max_in_flight=4), entry("b", two, max_in_flight=4)
        rewrite(tmp_path, a, b)
        files = [[b], [b, a], [a]]
        wanted, used = {"a", "b"}, set[str]()
        left = {f"t{number}" for number in range(8)}  # as many are always open, so that some are always held
        number = len(left)
        await p.send(*(asks(turn) for turn in sorted(left)))
        while left:
            order = await asyncio.wait_for(p.orders.get(), 60)
            match order.WhichOneof("order"):
                case "placed":
                    left.remove(order.placed.turn)
                    used.add(order.placed.replica)
                    await asyncio.sleep(0.01)  # so long the turn takes
                    await p.send(pb.Fact(turn_finished=pb.TurnFinished(turn=order.placed.turn, attempt=1, finish_reason="stop")))
                    if wanted:
                        left.add(turn := f"t{number}")
                        number += 1
                        await p.send(asks(turn))
                case "replicas" if {each.name: each.state for each in order.replicas.replicas} == dict.fromkeys(wanted, "healthy"):
                    wanted = set[str]()
                    if files:
                        rewrite(tmp_path, *(file := files.pop(0)))
                        wanted = {each["name"] for each in file}
                case _:
                    pass
        assert used == {"a", "b"}
        shown = (await status(process))["state"]
        assert ([each["name"] for each in shown["replicas"]], shown["held"]) == (["a"], 0)
        assert "Traceback" not in process.logged()


async def test_sighup_reads_again_and_ends_nothing(tmp_path: Path):
    async with reloading(tmp_path) as (one, two, process, p):
        rewrite(tmp_path, entry("a", one), entry("b", two))
        process.process.send_signal(signal.SIGHUP)
        await announced(p, lambda states: states == {"a": "healthy", "b": "healthy"})
        process.process.send_signal(signal.SIGHUP)
        await logged(process, "re-read; the replicas are as before")
        await ends(process)


async def logged(process: Process, text: str) -> None:
    async with asyncio.timeout(60):
        while text not in process.logged():
            await asyncio.sleep(0.02)  # polling a log file


async def test_a_mistake_is_logged_with_its_line_and_the_replicas_stay(tmp_path: Path):
    async with reloading(tmp_path) as (one, two, process, p):
        rewrite(tmp_path, entry("a", one), entry("b", two, helth="/x"))
        await logged(process, "did you mean health?")
        assert "luftpause.yaml:" in process.logged()
        await p.send(asks("1"))
        assert await placed(p) == ("1", "a")
        rewrite(tmp_path, entry("b", two), start_grace_seconds=9)
        await announced(p, lambda states: states == {"b": "healthy"})
        assert "scheduler.start_grace_seconds" in process.logged()


async def test_a_terminal_that_is_closed_ends_it(tmp_path: Path):
    """There SIGHUP is the word that nobody watches any more."""
    rewrite(tmp_path)
    async with on_a_terminal("scheduler", "--config", str(tmp_path / "luftpause.yaml"), folder=tmp_path) as (child, close):
        close()
        assert await asyncio.wait_for(child.wait(), 60) == 0
