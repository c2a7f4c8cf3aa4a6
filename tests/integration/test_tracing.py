"""Do the three services tell one story of a run to an OTLP collector, and does it cost nobody anything when that one is away?"""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.support.otlp import Collector, Seen, collecting
from tests.support.ports import a_refusing_port
from tests.support.stack import Stack, stack

pytestmark = pytest.mark.timeout(300)
TRACE, OUTER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{OUTER}-01"
UNSAMPLED = f"00-{TRACE}-{OUTER}-00"
TASK = "Look it up. [calls=1 tool=lookup answer=5]"
INTERNAL, SERVER, CLIENT = 1, 2, 3


async def ran(whole: Stack, traceparent: str) -> dict[str, Any]:
    """A sub-agent that a client with this trace spawned, once it has ended."""
    meta: Any = {"traceparent": traceparent}
    async with (
        httpx2.AsyncClient(trust_env=False, timeout=60) as http,
        Client(streamable_http_client(whole.mcp, http_client=http)) as client,
    ):
        spawned = await client.call_tool("spawn", {"task": TASK}, meta=meta)
        assert spawned.structured_content is not None, spawned
        ended = await client.call_tool("await", {"handles": [spawned.structured_content["handle"]], "timeout": 50})
        assert ended.structured_content is not None
        return ended.structured_content["runs"][0]


async def said_by(url: str) -> list[str]:
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        return (await client.get(f"{url}/_fake")).json()["traceparents"]


def traced(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def child(collector: Collector, parent: str, beginning: str) -> list[Seen]:
    return sorted((span for span in collector.named(beginning) if span.parent == parent), key=lambda span: span.start)


async def test_one_trace_goes_from_the_client_through_all_services_to_engine_and_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with collecting() as collector:
        traced(monkeypatch, collector.environment)
        async with stack(tmp_path, engine=["--speed", "20"], tools=["--lookup-seconds", "0.05"]) as whole:
            run = await ran(whole, PARENT)
            assert run["state"] == "Completed"
            await collector.until(lambda: len(collector.named("chat")) == 4 and len(collector.named("admit")) == 2)
            await collector.until(lambda: bool(collector.named("invoke_agent")))
            engines = [each for engine in whole.engines for each in await said_by(engine.at["http"])]
            tools = await said_by(whole.tools.at["http"])
    assert {span.trace for span in collector.spans} == {TRACE}

    (agent,) = collector.named("invoke_agent")
    assert (agent.service, agent.kind, agent.parent, agent.error) == ("luftpause-runtime", INTERNAL, OUTER, "")
    assert agent.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert agent.attributes["gen_ai.agent.id"] == agent.attributes["luftpause.run_id"] == run["handle"]
    assert agent.attributes["gen_ai.usage.input_tokens"] == run["promptTokens"]
    assert (agent.attributes["luftpause.turns"], agent.attributes["luftpause.tool_calls"]) == (2, 1)

    chats = child(collector, agent.span, "chat")
    assert [span.attributes["gen_ai.response.finish_reasons"] for span in chats] == [["tool_calls"], ["stop"]]
    for chat in chats:
        assert (chat.service, chat.kind, chat.name) == ("luftpause-runtime", CLIENT, "chat fake-1b")
        assert chat.attributes["gen_ai.usage.output_tokens"] > 0
        assert agent.start <= chat.start <= chat.end <= agent.end
        (proxied,) = child(collector, chat.span, "chat")
        assert (proxied.service, proxied.kind) == ("luftpause-dataplane", SERVER)
        assert proxied.attributes["luftpause.run_id"] == run["handle"]
        assert proxied.attributes["luftpause.replica"] in {"engine-0", "engine-1"}
        assert proxied.attributes["http.response.status_code"] == 200
        assert proxied.attributes["gen_ai.usage.input_tokens"] == chat.attributes["gen_ai.usage.input_tokens"]
        (admitted,) = child(collector, proxied.span, "admit")
        assert (admitted.service, admitted.attributes["luftpause.replica"]) == (
            "luftpause-scheduler",
            proxied.attributes["luftpause.replica"],
        )
        assert admitted.attributes["luftpause.held_ms"] == proxied.attributes["luftpause.held_ms"]
        assert f"00-{TRACE}-{proxied.span}-01" in engines

    (tool,) = child(collector, agent.span, "execute_tool")
    assert (tool.service, tool.name, tool.error) == ("luftpause-runtime", "execute_tool lookup", "")
    assert tools == [f"00-{TRACE}-{tool.span}-01"]
    assert len(collector.spans) == 1 + 2 + 2 + 2 + 1


async def test_a_trace_that_is_not_sampled_is_passed_on_and_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with collecting() as collector:
        traced(monkeypatch, collector.environment)
        async with stack(tmp_path, engine=["--speed", "20"], tools=["--lookup-seconds", "0.05"]) as whole:
            assert (await ran(whole, UNSAMPLED))["state"] == "Completed"
            engines = [each for engine in whole.engines for each in await said_by(engine.at["http"])]
            assert set(engines) == {UNSAMPLED}
            assert await said_by(whole.tools.at["http"]) == [UNSAMPLED]
            # a turn without a trace begins one; it is told last, so nothing of the other comes any more
            async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
                body = {"model": "fake-1b", "messages": [{"role": "user", "content": "[calls=0 answer=2]"}]}
                answer = await client.post(f"{whole.base_url}/chat/completions", json=body, headers={"traceparent": "00-nonsense-1-01"})
                assert answer.is_success
            await collector.until(lambda: len(collector.spans) >= 2)
        (proxied,) = collector.named("chat")
        assert proxied.parent == ""
        assert proxied.trace != TRACE
        assert {span.trace for span in collector.spans} == {proxied.trace}


async def test_a_turn_that_fails_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with collecting() as collector:
        traced(monkeypatch, collector.environment)
        async with stack(tmp_path, engine=["--speed", "20"]) as whole, httpx.AsyncClient(trust_env=False, timeout=60) as client:
            body = {"model": "no-such-model", "messages": []}
            answer = await client.post(f"{whole.base_url}/chat/completions", json=body, headers={"traceparent": PARENT})
            assert answer.status_code == 404
            await collector.until(lambda: len(collector.spans) == 2)
    (proxied,), (refused,) = collector.named("chat"), collector.named("admit")
    assert (proxied.parent, proxied.error) == (OUTER, "model_not_found")
    assert proxied.attributes["http.response.status_code"] == 404
    assert (refused.parent, refused.attributes["error.type"]) == (proxied.span, "model_not_found")


async def test_a_client_that_leaves_in_mid_stream_ends_its_span_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R04."""
    async with collecting() as collector:
        traced(monkeypatch, collector.environment)
        async with stack(tmp_path, engine=["--decode-seconds", "0.05"]) as whole:
            body = {"model": "fake-1b", "stream": True, "messages": [{"role": "user", "content": "[calls=0 answer=2000]"}]}
            async with (
                httpx.AsyncClient(trust_env=False, timeout=60) as client,
                client.stream("POST", f"{whole.base_url}/chat/completions", json=body, headers={"traceparent": PARENT}) as answer,
            ):
                async for _ in answer.aiter_bytes():
                    break  # and leave
            await collector.until(lambda: bool(collector.named("chat")))
        logged = "".join(service.logged() for service in whole.services.values())
    (proxied,) = collector.named("chat")
    assert (proxied.parent, proxied.error) == (OUTER, "client_left")
    assert "Traceback" not in logged
    assert "Context" not in logged


@pytest.mark.parametrize("away", ["refuses", "hangs"])
async def test_a_collector_that_is_away_costs_no_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and says nothing
        port = a_refusing_port() if away == "refuses" else silent.getsockname()[1]
        traced(monkeypatch, {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}", "OTEL_EXPORTER_OTLP_INSECURE": "true"})
        async with stack(tmp_path, engine=["--speed", "20"], tools=["--lookup-seconds", "0.05"]) as whole:
            assert (await ran(whole, PARENT))["state"] == "Completed"
        assert [service.process.returncode for service in whole.services.values()] == [0, 0, 0]


def test_without_an_endpoint_nothing_of_it_is_imported() -> None:
    program = (
        "import sys, luftpause.dataplane.app, luftpause.scheduler.app, luftpause.runtime.app; from luftpause.kit import tracing; "
        "assert tracing.from_environment('x') is None; print([name for name in sys.modules if name.startswith('opentelemetry.proto')])"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert told.stdout == "[]\n"
