"""Does the scheduler as a process place turns, notice its engines, and start and stop in good order?"""

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from luftpause.kit.config import Config
from luftpause.kit.wire.v1 import scheduler_pb2 as pb
from luftpause.scheduler import app
from luftpause.scheduler.core.events import TurnRequested
from luftpause.scheduler.host import CoreFailedError
from tests.integration.scheduler.client import Peer, asks, peer
from tests.integration.scheduler.engines import VLLM, Engine, engine, never
from tests.support.ports import a_quiet_port, a_refusing_port
from tests.support.processes import Process, running

IDLE = VLLM.replace(b"4.0", b"0.0").replace(b"1.0", b"0.0")


def written(folder: Path, *replicas: dict[str, Any], **scheduler: Any) -> Path:
    own = {"grpc_port": 0, "http_port": 0, "start_grace_seconds": 0, "probe_seconds": 0.5, **scheduler}
    path = folder / "luftpause.yaml"
    path.write_text(yaml.safe_dump({"replicas": list(replicas), "scheduler": own}))
    return path


@contextlib.asynccontextmanager
async def started(folder: Path, *replicas: dict[str, Any], env: dict[str, str] | None = None, **own: Any) -> AsyncGenerator[Process]:
    async with running("scheduler", "--config", str(written(folder, *replicas, **own)), folder=folder, env=env) as process:
        yield process


async def status(process: Process) -> dict[str, Any]:
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        return (await client.get(process.at["http"] + "/status")).json()


async def told(p: Peer, condition: Callable[[pb.Replica], bool], seconds: float = 60) -> pb.Replica:
    """The first replica that the scheduler announces so."""
    async with asyncio.timeout(seconds):
        while True:
            replicas = (await p.next("replicas")).replicas.replicas
            for replica in replicas:
                if condition(replica):
                    return replica


async def healthy(p: Peer) -> pb.Replica:
    await p.hello()
    await p.send(pb.Fact(hello_end=pb.HelloEnd()))
    return await told(p, lambda replica: replica.state == "healthy" and bool(replica.models))


@contextlib.asynccontextmanager
async def placing(
    folder: Path, *, metrics: bytes = IDLE, env: dict[str, str] | None = None, **own: Any
) -> AsyncGenerator[tuple[Engine, Process, Peer]]:
    """An engine, a scheduler that finds it healthy, and a dataplane that was told so."""
    async with (
        engine(metrics=(200, metrics)) as vllm,
        started(folder, {"name": "a", "url": vllm.url + "/v1"}, env=env, **own) as process,
        peer(process.at["grpc"]) as p,
    ):
        replica = await healthy(p)
        p.stay_alive(0.2)
        assert (replica.name, replica.url, list(replica.models)) == ("a", vllm.url, ["m"])
        yield vllm, process, p


async def ends(process: Process) -> None:
    """Exit code 0 and no traceback."""
    process.terminate()
    assert await process.ended() == 0, process.logged()
    assert "Traceback" not in process.logged()


async def test_a_turn_is_placed_on_the_engine_that_serves_its_model_and_counted_until_it_ends(tmp_path: Path):
    async with placing(tmp_path) as (_, process, p):
        await p.send(asks("t"))
        placed = (await p.next("placed")).placed
        assert (placed.turn, placed.run, placed.replica, placed.turn_seq) == ("t", "run-t", "a", 1)
        shown = await status(process)
        assert shown["events"]["TurnRequested"] == 1
        assert [session["dataplane"] for session in shown["sessions"]] == ["dp"]
        (replica,) = shown["state"]["replicas"]
        assert (replica["name"], replica["health"], replica["in_flight"], replica["load"]) == ("a", "healthy", 1, "known")
        await p.send(pb.Fact(turn_finished=pb.TurnFinished(turn="t", attempt=1, finish_reason="stop")))
        await p.send(asks("u"))
        assert (await p.next("placed")).placed.turn == "u"
        assert (await status(process))["state"]["replicas"][0]["in_flight"] == 1
        await ends(process)


async def test_a_model_that_nobody_serves_is_refused(tmp_path: Path):
    async with placing(tmp_path) as (_, _, p):
        await p.send(pb.Fact(turn_requested=pb.TurnRequested(turn="t", attempt=1, fresh_run="r", model="nope")))
        refused = (await p.next("refused")).refused
        assert (refused.turn, refused.status) == ("t", 404)


async def test_a_queue_in_the_engine_holds_turns_until_it_is_gone(tmp_path: Path):
    busy = VLLM.replace(b"4.0", b"1.0").replace(b'waiting{engine="0",model_name="m"} 1.0', b'waiting{engine="0",model_name="m"} 9.0')
    async with placing(tmp_path, metrics=busy) as (vllm, _, p):
        await p.send(asks("1"), asks("2"))
        assert (await p.next("placed")).placed.turn == "1"
        held = (await p.next("held")).held
        assert (held.turn, held.reason) == ("2", "capped")
        vllm.pages["/metrics"] = (200, IDLE)
        placed = (await p.next("placed")).placed
        assert (placed.turn, placed.hold_reason) == ("2", "capped")
        assert placed.held_ms > 0


async def test_a_closed_port_is_noticed_at_once_when_a_dataplane_suspects_it_and_its_return_needs_no_restart(tmp_path: Path):
    async with placing(tmp_path, probe_seconds=30) as (vllm, process, p):
        await vllm.stop()
        await p.send(pb.Fact(replica_suspected=pb.ReplicaSuspected(replica="a", reason="refused")))
        await told(p, lambda replica: replica.state == "unhealthy")
        await vllm.start(int(vllm.url.rpartition(":")[2]))
        await p.send(pb.Fact(replica_suspected=pb.ReplicaSuspected(replica="a", reason="refused")))
        await told(p, lambda replica: replica.state == "healthy")
    assert process.logged().count("replica is now unhealthy") == 1


async def test_an_engine_that_hangs_is_unhealthy_after_three_periods_unless_it_delivers_bytes(tmp_path: Path):
    async with placing(tmp_path) as (vllm, _, p):
        vllm.pages["/health"] = never
        before = vllm.hits["/health"]
        async with asyncio.timeout(60):
            while vllm.hits["/health"] - before < 6:  # more than three of them have got no answer
                await p.send(pb.Fact(alive=pb.Alive(delivering=["a"])))
                await asyncio.sleep(0.05)
        assert not [order for order in iter_now(p) if order.HasField("replicas")]
        await told(p, lambda replica: replica.state == "unhealthy")


def iter_now(p: Peer) -> list[pb.Order]:
    found: list[pb.Order] = []
    while not p.orders.empty():
        found.append(p.orders.get_nowait())
    return found


async def test_proxies_of_the_environment_capture_no_engine(tmp_path: Path):
    env = dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY"), "http://127.0.0.1:9")
    async with placing(tmp_path, env=env):
        pass  # it was found healthy


# ---- start and stop ---------------------------------------------------------------------------------------------


async def test_sigterm_ends_it_whoever_is_connected_and_its_ports_are_free_at_once(tmp_path: Path):
    ports = {"grpc_port": a_quiet_port(), "http_port": a_quiet_port()}
    async with placing(tmp_path, **ports) as (_, process, p), peer(process.at["grpc"], reads=False) as deaf:
        await deaf.hello("deaf")
        http_port = int(process.at["http"].rpartition(":")[2])
        _reader, writer = await asyncio.open_connection("127.0.0.1", http_port)
        writer.write(b"GET /status HTTP/1.1\r\nhost: x\r\n")  # a request that never ends
        await ends(process)
        code, details = await p.ended()
        assert "stops" in details, code
        writer.close()
        for port in (http_port, int(process.at["grpc"].rpartition(":")[2])):
            with socket.socket() as again:
                again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                again.bind(("127.0.0.1", port))


async def test_a_second_signal_ends_it_at_once(tmp_path: Path):
    async with started(tmp_path) as process:
        process.terminate()
        process.terminate()
        assert await process.ended() == 0
        assert "Traceback" not in process.logged()


@pytest.mark.parametrize("option", ["grpc_port", "http_port"])
async def test_a_port_in_use_is_named_with_the_option_that_changes_it(tmp_path: Path, option: str):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        config = written(tmp_path, **{option: port})
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "luftpause", "scheduler", "--config", str(config),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=dict(os.environ),
        )  # fmt: skip
        _out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 2
    assert f"port {port} on 127.0.0.1 is in use; choose another with scheduler.{option}" in err.decode()
    assert "Traceback" not in err.decode()


async def test_it_starts_without_replicas_and_with_engines_that_are_not_there(tmp_path: Path):
    async with started(tmp_path, {"name": "a", "url": f"http://127.0.0.1:{a_refusing_port()}", "models": ["m"]}) as process:
        async with peer(process.at["grpc"]) as p:
            await p.open()
            await p.send(asks("t"))
            assert (await p.next("held")).held.reason in {"starting", "no_replica"}
        await ends(process)


# ---- in this process --------------------------------------------------------------------------------------------


async def test_a_core_that_fails_ends_the_scheduler_with_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    decide = app.decide

    def broken(state: Any, event: Any) -> Any:
        if isinstance(event, TurnRequested):
            raise ZeroDivisionError("by design")
        return decide(state, event)

    monkeypatch.setattr(app, "decide", broken)
    config = Config.model_validate({"scheduler": {"grpc_port": 0, "http_port": 0}})
    announced = tmp_path / "at.json"
    serving = asyncio.create_task(app.serve(config, announce=announced))
    async with asyncio.timeout(60):
        while not announced.exists():
            await asyncio.sleep(0.01)  # polling a file
    address = yaml.safe_load(announced.read_text())["grpc"]
    async with peer(address) as p:
        await p.open()
        await p.send(asks("t"))
        with pytest.raises(CoreFailedError, match="failed on TurnRequested"):
            await asyncio.wait_for(serving, 60)


@pytest.mark.parametrize(
    ("host", "port", "reachable"),
    [("0.0.0.0", 5000, "127.0.0.1:5000"), ("::", 5000, "[::1]:5000"), ("::1", 1, "[::1]:1"), ("localhost", 1, "localhost:1")],
)
def test_the_announced_address_can_be_reached_from_here(host: str, port: int, reachable: str):
    assert app._reachable(host, port) == reachable
