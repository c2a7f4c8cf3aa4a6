"""Do own-loop agents send what they should, and are their turns measured and bounded?"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from luftpause.cli.load_agents import Load, choose_model, run_load
from luftpause.cli.load_report import Outcome
from luftpause.cli.load_turn import TurnFailedError, ask
from luftpause.kit import serve
from luftpause.kit.errors import LuftpauseError

Json = dict[str, Any]
Answer = Callable[[Json], Response]


def events(*chunks: Json | str, done: bool = True) -> Response:
    async def body() -> AsyncGenerator[bytes]:
        for chunk in [*chunks, *(["[DONE]"] if done else [])]:
            yield f"data: {chunk if isinstance(chunk, str) else json.dumps(chunk)}\n\n".encode()

    return StreamingResponse(body(), media_type="text/event-stream", headers={"x-luftpause-run-id": "run_x"})


def delta(**values: object) -> Json:
    return {"choices": [{"index": 0, "delta": values}]}


USAGE: Json = {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}}
CALL = [
    {"index": 0, "id": "c1", "type": "function", "function": {"name": "lookup", "arguments": '{"qu'}},
]  # fmt: skip


class Server:
    """Answers as told and remembers what it was asked."""

    def __init__(self, answer: Answer, models: list[str]) -> None:
        self.answer = answer
        self.models = models
        self.bodies: list[Json] = []
        self.headers: list[dict[str, str]] = []
        self.deleted: list[str] = []

    async def chat(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        return self.answer(body)

    async def forget(self, request: Request) -> Response:
        self.deleted.append(request.path_params["run"])
        return Response(status_code=204)

    async def list_models(self, _: Request) -> Response:
        return JSONResponse({"data": [{"id": name} for name in self.models]})


@contextlib.asynccontextmanager
async def serving(answer: Answer, models: list[str] | None = None) -> AsyncGenerator[tuple[Server, str]]:
    server = Server(answer, ["m"] if models is None else models)
    routes = [
        Route("/v1/chat/completions", server.chat, methods=["POST"]),
        Route("/v1/runs/{run}", server.forget, methods=["DELETE"]),
        Route("/v1/models", server.list_models),
    ]
    sock = serve.listen("127.0.0.1", 0, option="-")
    web = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="warning", lifespan="off", timeout_graceful_shutdown=1))
    task = asyncio.create_task(web.serve([sock]))
    try:
        yield server, serve.url_of(sock) + "/v1"
    finally:
        web.should_exit = True
        await task


def load(base_url: str, **values: Any) -> Load:
    given: Json = {
        "base_url": base_url, "model": "m", "agents": 1, "duration_s": 0.6, "turn_class": "batch", "caller": "me", "context_chars": 200,
        "tool_seconds": 0.0, "tool_calls_max": 3, "max_tokens": 50, "run_ids": True,
    }  # fmt: skip
    return Load(**{**given, **values})


def one_tool_then_text(body: Json) -> Response:
    if body["messages"][-1]["role"] == "user":
        return events(
            delta(role="assistant"), delta(tool_calls=CALL), delta(tool_calls=[{"index": 0, "function": {"arguments": 'ery":1}'}}]), USAGE
        )
    return events(delta(content="the "), delta(content="end"), USAGE)


async def test_a_run_goes_on_until_an_answer_without_tool_calls() -> None:
    async with serving(one_tool_then_text) as (server, url):
        records = await run_load(load(url), lambda _: None)
    completed = [record for record in records if record.outcome is Outcome.COMPLETED]
    assert completed
    first = completed[0]
    assert (first.turns, first.tool_calls, first.prompt_tokens, first.cached_tokens, first.completion_tokens) == (2, 1, 20, 8, 6)
    assert len(first.first_token_s) == 2
    second = server.bodies[1]
    assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "tool"]
    assert second["messages"][2]["tool_calls"][0]["function"] == {"name": "lookup", "arguments": '{"query":1}'}
    assert second["messages"][3]["tool_call_id"] == "c1"
    assert second["stream_options"] == {"include_usage": True}
    assert second["max_tokens"] == 50
    assert server.deleted[0] == "run_x"


async def test_class_caller_and_run_id_are_sent_and_no_two_runs_share_an_id() -> None:
    async with serving(lambda _: events(delta(content="x"))) as (server, url):
        await run_load(load(url, duration_s=0.3), lambda _: None)
    assert {headers["x-luftpause-class"] for headers in server.headers} == {"batch"}
    assert {headers["x-luftpause-caller"] for headers in server.headers} == {"me"}
    run_ids = [headers["x-luftpause-run-id"] for headers in server.headers]
    assert len(set(run_ids)) == len(run_ids) > 1


async def test_without_run_ids_runs_are_left_to_their_tool_call_ids() -> None:
    async with serving(lambda _: events(delta(content="x"))) as (server, url):
        await run_load(load(url, run_ids=False, duration_s=0.2), lambda _: None)
    assert all("x-luftpause-run-id" not in headers for headers in server.headers)


async def test_when_the_tool_calls_are_spent_no_tools_are_offered() -> None:
    def always_a_tool(body: Json) -> Response:
        return events(delta(tool_calls=CALL)) if "tools" in body else events(delta(content="x"))

    async with serving(always_a_tool) as (server, url):
        records = await run_load(load(url, tool_calls_max=2), lambda _: None)
    assert records[0].outcome is Outcome.COMPLETED
    assert records[0].tool_calls == 2
    assert "tools" not in server.bodies[2]


async def test_a_load_ends_in_time_with_the_open_runs_unfinished_and_forgotten() -> None:
    async with serving(one_tool_then_text) as (server, url):
        async with asyncio.timeout(10):
            records = await run_load(load(url, agents=3, tool_seconds=1000.0), lambda _: None)
        assert [record.outcome for record in records] == [Outcome.UNFINISHED] * 3
        assert server.deleted == ["run_x"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda _: JSONResponse({"error": {"message": "new each time"}}, status_code=503), "HTTP 503"),
        (lambda _: JSONResponse({"error": {"message": "no such\nmodel"}}, status_code=404), "HTTP 404: no such model"),
        (lambda _: Response("gone", status_code=404), "HTTP 404"),
        (lambda _: JSONResponse({"error": "no object"}, status_code=400), "HTTP 400"),
        (lambda _: events(delta(content="x"), done=False), "the stream ended before [DONE]"),
        (lambda _: events("{torn"), "an event that is no chat completion chunk"),
        (lambda _: events({"error": {"message": "queue full"}}), "an error within the stream"),
    ],
)
async def test_a_broken_answer_is_a_failed_run_with_its_reason(answer: Answer, reason: str) -> None:
    async with serving(answer) as (_, url):
        records = await run_load(load(url, duration_s=0.4), lambda _: None)
    assert records[0].outcome is Outcome.FAILED
    assert records[0].error == reason


async def test_an_unreachable_server_is_a_failed_turn() -> None:
    sock = serve.listen("127.0.0.1", 0, option="-")  # bound, not listening
    async with httpx.AsyncClient(base_url=serve.url_of(sock) + "/v1/", trust_env=False) as client:
        with pytest.raises(TurnFailedError, match="ConnectError"):
            await ask(client, {}, {})
    sock.close()


async def test_the_environments_proxy_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "socks5h://127.0.0.1:9")
    async with serving(lambda _: events(delta(content="x"))) as (_, url):
        assert await choose_model(url) == "m"
        records = await run_load(load(url, duration_s=0.3), lambda _: None)
    assert records[0].outcome is Outcome.COMPLETED


async def test_a_model_must_be_chosen_where_several_are_served() -> None:
    async with serving(lambda _: events(), models=["b", "a"]) as (_, url):
        with pytest.raises(LuftpauseError, match=r"serves a, b; choose one with --model"):
            await choose_model(url)


async def test_nobody_there_is_said_with_what_to_do() -> None:
    sock = serve.listen("127.0.0.1", 0, option="-")
    with pytest.raises(LuftpauseError, match=r"is `luftpause up` running"):
        await choose_model(serve.url_of(sock) + "/v1")
    sock.close()


async def test_a_base_url_without_v1_is_told_so() -> None:
    async with serving(lambda _: events()) as (_, url):
        with pytest.raises(LuftpauseError, match=r"/models can't be read: it answered 404; a base URL mostly ends in /v1$"):
            await choose_model(url.removesuffix("/v1"))
        with pytest.raises(LuftpauseError, match=r"it answered 404$"):
            await choose_model(url + "/x")
