"""Which requests does the runtime's HTTP side take, and how does it stop?"""

import asyncio
import contextlib
import json
from typing import Any

import httpx
import pytest
from mcp.server import _streamable_http_modern
from sse_starlette import EventSourceResponse

from tests.integration.runtime_mcp.test_server import INITIALIZE, SECONDS, raw_session, until
from tests.support.runtime_fakes import served

BOTH = "application/json, text/event-stream"
MODERN_CALL: dict[str, Any] = {
    "jsonrpc": "2.0", "id": 1, "method": "tools/call",
    "params": {"name": "tools", "arguments": {}, "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {},
    }},
}  # fmt: skip
MODERN = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "tools"}


def content(answer: httpx.Response) -> dict[str, Any]:
    """The JSON-RPC response in either form."""
    if answer.headers["content-type"].startswith("application/json"):
        return answer.json()
    events = [line[5:] for line in answer.text.splitlines() if line.startswith("data:")]
    return json.loads(events[-1])


JSON, SSE = "application/json", "text/event-stream"
FORMS = [
    ("*/*", {JSON, SSE}),
    (JSON, {JSON}),
    (SSE, {SSE}),
    ("text/event-stream, application/json;q=0.5", {JSON, SSE}),
    ("", {JSON, SSE}),
    ("APPLICATION/JSON", {JSON}),
    ("application/*, text/html;q=0.1", {JSON}),
    ("text/event-stream;q=0, application/json", {JSON}),
]


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
async def test_both_paths_answer_in_a_form_that_the_client_takes(path: str):
    async with served() as at, httpx.AsyncClient(trust_env=False, timeout=60) as http:
        for accept, kinds in FORMS:
            for body, headers in ((INITIALIZE, {}), (MODERN_CALL, MODERN)):
                answer = await http.post(at.url + path, json=body, headers={"accept": accept, **headers})
                assert answer.status_code == 200, accept
                assert answer.headers["content-type"].partition(";")[0] in kinds, accept
                assert content(answer)["id"] == body["id"]
                assert "result" in content(answer)


async def test_white_space_around_a_header_is_not_part_of_it():
    body = json.dumps(MODERN_CALL).encode()
    lines = ["POST /mcp HTTP/1.1", "host: 127.0.0.1", f"accept: {JSON}  ", f"content-type:  {JSON} ", f"content-length: {len(body)}"]
    lines += ["connection: close", "mcp-protocol-version: 2026-07-28", "mcp-method: tools/call", "mcp-name:  tools  ", "", ""]
    async with served() as at:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(at.url.rpartition(":")[2]))
        writer.write("\r\n".join(lines).encode() + body)
        answer = await asyncio.wait_for(reader.read(), SECONDS)
        writer.close()
        await writer.wait_closed()
    assert answer.startswith(b"HTTP/1.1 200")


async def test_a_client_that_takes_neither_form_is_told_so():
    async with served() as at, httpx.AsyncClient(trust_env=False, timeout=60) as http:
        answer = await http.post(at.mcp, json=INITIALIZE, headers={"accept": "text/html"})
        assert answer.status_code == 406
        assert "text/event-stream" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("host", "origin", "status", "setting"),
    [
        ("runtime:7000", None, 200, ""),
        ("RUNTIME", None, 200, ""),
        ("localhost:1234", "http://localhost:3000", 200, ""),
        ("[::1]:7000", None, 200, ""),
        ("192.0.2.5:7000", None, 421, "runtime.allowed_hosts"),
        ("evil.example", "http://evil.example", 421, "runtime.allowed_hosts"),
        ("127.0.0.1", "http://evil.example", 403, "runtime.allowed_origins"),
        ("127.0.0.1", "http://localhost.evil.example", 403, "runtime.allowed_origins"),
        ("127.0.0.1", "https://panel.example", 200, ""),
    ],
)
async def test_only_configured_hosts_and_origins_are_served(host: str, origin: str | None, status: int, setting: str):
    hosts = ("127.0.0.1", "localhost", "[::1]", "runtime")
    async with (
        served(allowed_hosts=hosts, allowed_origins=("https://panel.example",)) as at,
        httpx.AsyncClient(trust_env=False, timeout=60) as http,
    ):
        headers = {"accept": BOTH, "host": host} | ({"origin": origin} if origin else {})
        answer = await http.post(at.mcp, json=INITIALIZE, headers=headers)
        assert answer.status_code == status
        if setting:
            assert setting in answer.json()["error"]["message"]


async def test_it_listens_on_ipv6():
    async with served(host="::1") as at, httpx.AsyncClient(trust_env=False, timeout=60) as http:
        assert at.url.startswith("http://[::1]:")
        assert (await http.get(at.url + "/health")).json()["status"] == "ok"
        assert (await http.post(at.mcp, json=INITIALIZE, headers={"accept": BOTH})).status_code == 200


async def test_health_needs_no_known_host_and_status_shows_runs_without_their_words():
    async with served() as at, httpx.AsyncClient(trust_env=False, timeout=60) as http, raw_session(at) as session:
        await session.call("spawn", {"task": "echo secret words"}, 1)
        assert (await http.get(at.url + "/health", headers={"host": "10.1.2.3"})).json()["service"] == "runtime"
        assert (await http.get(at.url + "/status", headers={"host": "10.1.2.3"})).status_code == 421
        status = (await http.get(at.url + "/status")).json()
        assert status["runs"][0]["state"] == "Completed"
        assert status["servers"][1]["error"] == "it answered with status 401"
        assert "secret" not in json.dumps(status)


async def test_what_is_not_there_is_an_error_in_the_one_shape():
    async with served() as at, httpx.AsyncClient(trust_env=False, timeout=60) as http:
        missing = await http.get(at.url + "/nothing")
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")
        assert (await http.post(at.url + "/status")).status_code == 405


async def test_a_body_that_is_too_long_is_refused():
    async with served(max_body_bytes=2048) as at, httpx.AsyncClient(trust_env=False, timeout=60) as http:
        answer = await http.post(at.mcp, json={**INITIALIZE, "x": "y" * 4096}, headers={"accept": BOTH})
        assert answer.status_code == 413
        assert "runtime.max_body_bytes" in answer.json()["error"]["message"]


async def test_stopping_ends_open_streams_and_calls_at_once_with_the_states_so_far():
    async with contextlib.AsyncExitStack() as serving:
        at = await serving.enter_async_context(served(stop_grace_seconds=100))
        async with raw_session(at) as session:
            accept = {"accept": "text/event-stream"}
            stream = asyncio.create_task(session.http.get(at.mcp, headers={**session.headers, **accept}))
            handle = (await session.call("spawn", {"task": "long"}, 1))["result"]["structuredContent"]["handle"]
            waiting = asyncio.create_task(session.call("await", {"handles": [handle]}, 2))
            running = asyncio.create_task(session.call("run", {"task": "long"}, 3))
            await until(lambda: at.runs.waits == 2)
            async with asyncio.timeout(SECONDS):
                await serving.aclose()
            awaited, ran = await asyncio.wait_for(asyncio.gather(waiting, running), SECONDS)
            await asyncio.wait([stream], timeout=SECONDS)
            assert stream.done()
            assert awaited["result"]["structuredContent"]["runs"][0]["state"] == "Running"
            assert "goes on when it starts again" in ran["result"]["content"][0]["text"]
            with pytest.raises(httpx.ConnectError):
                await session.http.get(at.url + "/health")


async def test_a_long_call_answers_in_json_when_the_client_takes_only_json_and_drops_progress():
    async with served(progress_seconds=0.02) as at, raw_session(at) as session:
        call = asyncio.create_task(session.call("run", {"task": "long"}, 5))
        await until(lambda: at.runs.waits == 1)
        at.runs.finish(next(iter(at.runs.runs)), answer="done")
        answer = await asyncio.wait_for(call, SECONDS)
        assert answer["id"] == 5
        assert answer["result"]["structuredContent"]["answer"] == "done"


async def test_a_cancelled_call_of_a_client_that_takes_only_json_gets_no_answer():
    async with served() as at, raw_session(at) as session:
        session.headers["accept"] = "application/json"
        body = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "run", "arguments": {"task": "long"}}}
        call = asyncio.create_task(session.http.post(at.mcp, json=body, headers=session.headers))
        await until(lambda: at.runs.waits == 1)
        await session.notify("notifications/cancelled", {"requestId": 7})
        answer = await asyncio.wait_for(call, SECONDS)
        assert (answer.status_code, answer.content) == (202, b"")
        await until(lambda: bool(at.runs.cancelled))


async def test_a_waiting_call_sends_progress_over_raw_sse_and_none_after_its_answer():
    async with served(progress_seconds=0.02) as at, raw_session(at) as session:
        body = {
            "jsonrpc": "2.0", "id": 5, "method": "tools/call",
            "params": {"name": "run", "arguments": {"task": "long"}, "_meta": {"progressToken": "p"}},
        }  # fmt: skip
        async with session.http.stream("POST", at.mcp, json=body, headers=session.headers) as answer:
            lines = answer.aiter_lines()
            count = 0
            async for line in lines:
                count += '"progressToken":"p"' in line
                if count == 3:
                    break
            at.runs.finish(next(iter(at.runs.runs)), answer="done")
            rest = [line async for line in lines if line.startswith("data:")]
        assert '"id":5' in rest[-1]
        assert all("notifications/progress" in line for line in rest[:-1])


async def test_a_stream_asked_to_replay_begins_anew():
    async with served() as at, raw_session(at) as session:
        headers = {**session.headers, "accept": "text/event-stream", "last-event-id": "7"}
        async with session.http.stream("GET", at.mcp, headers=headers) as stream:
            assert stream.status_code == 200


async def test_nothing_is_served_while_stopping_but_a_clear_refusal():
    from luftpause.kit.config import RuntimeConfig
    from luftpause.runtime.front import Front
    from luftpause.runtime.mcp_tools.sessions import LiveSessions

    sent: list[Any] = []

    async def app(*_: Any) -> None:
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    front = Front(RuntimeConfig(), app, app, LiveSessions(60), lambda: True)
    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": [(b"host", b"127.0.0.1")]}
    await front(scope, None, send)  # type: ignore[arg-type]
    assert sent[0]["status"] == 503
    assert (b"retry-after", b"5") in sent[0]["headers"]


def calling(tool: str, arguments: str) -> bytes:
    """A request whose `arguments` are written as they are."""
    text = json.dumps({**MODERN_CALL, "params": {**MODERN_CALL["params"], "name": tool, "arguments": "HERE"}})
    return text.replace('"HERE"', arguments).encode()


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r"cut \ud83e", "cut \ufffd"),
        (r"whole \ud83e\udd16", "whole 🤖"),
        (r"\\ud83e escaped", r"\ud83e escaped"),
        (r"\udd16\ud83e", "\ufffd\ufffd"),
    ],
)
async def test_half_a_character_in_a_task_is_replaced_and_nothing_else(written: str, read: str):
    async with served() as at, httpx.AsyncClient(trust_env=False, timeout=60) as http:
        headers = {**MODERN, "mcp-name": "spawn", "accept": JSON, "content-type": JSON}
        answer = await http.post(at.mcp, content=calling("spawn", f'{{"task": "{written}"}}'), headers=headers)
        assert answer.status_code == 200, answer.text
        assert [request.task for request in at.runs.requests] == [read]


async def test_a_list_nested_without_end_is_an_error_that_names_the_argument():
    async with served() as at, httpx.AsyncClient(trust_env=False, timeout=60) as http:
        headers = {**MODERN, "mcp-name": "await", "accept": JSON, "content-type": JSON}
        answer = await http.post(at.mcp, content=calling("await", '{"handles": "' + "[" * 5000 + '"}'), headers=headers)
        result = content(answer)["result"]
        assert result["isError"]
        assert result["content"][0]["text"].startswith("await: `handles` can't be")


async def test_clients_that_leave_while_they_send_are_no_faults(caplog: pytest.LogCaptureFixture):
    async with served() as at, httpx.AsyncClient(trust_env=False, timeout=60) as http:
        port = int(at.url.rpartition(":")[2])
        for _ in range(5):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {JSON}\r\ncontent-length: 100\r\n\r\n{{".encode())
            await writer.drain()
            writer.transport.abort()
        assert (await http.get(at.url + "/health")).status_code == 200
        assert (await http.post(at.mcp, json=MODERN_CALL, headers=MODERN)).status_code == 200
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("modern", [False, True])
async def test_a_silent_call_keeps_its_stream_alive_with_comments_for_proxies_between(modern: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(EventSourceResponse, "DEFAULT_PING_INTERVAL", 0.02)
    monkeypatch.setattr(_streamable_http_modern, "_SSE_PING_INTERVAL", 0.02)
    async with served() as at, raw_session(at) as session:
        params: dict[str, Any] = {"name": "run", "arguments": {"task": "long"}}
        body = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params}
        headers = session.headers
        if modern:
            params["_meta"] = MODERN_CALL["params"]["_meta"]
            headers = {**MODERN, "mcp-name": "run", "accept": BOTH}
        async with session.http.stream("POST", at.mcp, json=body, headers=headers) as answer:
            lines = answer.aiter_lines()
            comments = 0
            async for line in lines:
                comments += line.startswith(":")
                if comments == 3:
                    break
            at.runs.finish(next(iter(at.runs.runs)), answer="done")
            rest = [line async for line in lines if line.startswith("data:")]
        assert '"answer":"done"' in rest[-1]
