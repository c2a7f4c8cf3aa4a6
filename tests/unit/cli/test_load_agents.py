"""Do own-loop agents send what they should, and are their turns measured and bounded?"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any, Literal

import httpx
import msgspec
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from luftpause.cli.load_agents import RUN_HEADER, Crowd, Load, run_load
from luftpause.cli.load_decide import Deciding
from luftpause.cli.load_plan import Plan, Round
from luftpause.cli.load_report import Outcome, RunRecord
from luftpause.cli.load_run import Shape
from luftpause.cli.load_target import choose_model
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
        self.forget_all()

    def forget_all(self) -> None:
        self.bodies: list[Json] = []
        self.headers: list[dict[str, str]] = []
        self.deleted: list[str] = []
        self.decided: list[Json] = []
        self.finished: list[str] = []

    async def chat(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        return self.answer(body)

    async def forget(self, request: Request) -> Response:
        self.deleted.append(request.path_params["run"])
        return Response(status_code=204)

    async def decide(self, request: Request) -> Response:
        self.decided.append(await request.json())
        return JSONResponse({"data": [{"index": 0, "label": "yes"}]})

    async def finish(self, request: Request) -> Response:
        self.finished.append(request.query_params["run"])
        return Response(status_code=204)

    async def list_models(self, _: Request) -> Response:
        return JSONResponse({"data": [{"id": name} for name in self.models]})


@contextlib.asynccontextmanager
async def serving(answer: Answer, models: list[str] | None = None) -> AsyncGenerator[tuple[Server, str]]:
    server = Server(answer, ["m"] if models is None else models)
    routes = [
        Route("/v1/chat/completions", server.chat, methods=["POST"]),
        Route("/v1/runs/{run}", server.forget, methods=["DELETE"]),
        Route("/v1/decide", server.decide, methods=["POST"]),
        Route("/v1/finished", server.finish, methods=["POST"]),
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
        "base_url": base_url, "model": "m", "crowds": (Crowd("batch", 1),), "seconds": 0.6, "caller": "me",
        "shape": Shape((200, 200), tool_seconds=0.0, max_tokens=50), "seed": 1,
    }  # fmt: skip
    return Load(**{**given, **values})


async def runs(wanted: Load) -> list[RunRecord]:
    return (await run_load(wanted, lambda _: None)).runs


async def ended(wanted: Load, server: Server, count: int = 1) -> list[RunRecord]:
    """Of a load in which so many runs end: a longer one where the machine is too busy. The server remembers that one alone."""
    records: list[RunRecord] = []
    for longer in (1, 8, 60):
        server.forget_all()
        records = await runs(msgspec.structs.replace(wanted, seconds=longer * (wanted.seconds or 0)))
        if sum(record.outcome is not Outcome.UNFINISHED for record in records) >= count:
            break
    return records


def one_tool_then_text(body: Json) -> Response:
    if body["messages"][-1]["role"] == "user":
        return events(
            delta(role="assistant"), delta(tool_calls=CALL), delta(tool_calls=[{"index": 0, "function": {"arguments": 'ery":1}'}}]), USAGE
        )
    return events(delta(content="the "), delta(content="end"), USAGE)


async def test_a_run_goes_on_until_an_answer_without_tool_calls() -> None:
    async with serving(one_tool_then_text) as (server, url):
        records = await ended(load(url), server)
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
        await ended(load(url, seconds=0.3), server, 2)
    assert {headers["x-luftpause-class"] for headers in server.headers} == {"batch"}
    assert {headers["x-luftpause-caller"] for headers in server.headers} == {"me"}
    run_ids = [headers["x-luftpause-run-id"] for headers in server.headers]
    assert len(set(run_ids)) == len(run_ids) > 1


async def test_without_run_ids_runs_are_left_to_their_tool_call_ids() -> None:
    async with serving(lambda _: events(delta(content="x"))) as (server, url):
        await ended(load(url, run_header="", seconds=0.2), server)
    assert server.headers
    assert all("x-luftpause-run-id" not in headers for headers in server.headers)


async def test_when_the_tool_calls_are_spent_the_tools_stay_in_the_prompt_and_none_may_be_called() -> None:
    def always_a_tool(body: Json) -> Response:
        return events(delta(content="x")) if body.get("tool_choice") == "none" else events(delta(tool_calls=CALL))

    async with serving(always_a_tool) as (server, url):
        records = await ended(load(url, shape=Shape(tool_calls_max=2, tool_seconds=0.0)), server)
    assert records[0].outcome is Outcome.COMPLETED
    assert records[0].tool_calls == 2
    assert server.bodies[2]["tools"] == server.bodies[0]["tools"]
    assert "tool_choice" not in server.bodies[1]


async def test_a_load_ends_in_time_with_the_open_runs_unfinished_and_forgotten() -> None:
    async with serving(one_tool_then_text) as (server, url):
        async with asyncio.timeout(60):
            records = await runs(load(url, crowds=(Crowd("batch", 3),), shape=Shape(tool_seconds=1000.0)))
        assert [record.outcome for record in records] == [Outcome.UNFINISHED] * 3
        assert server.deleted == ["run_x"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda _: JSONResponse({"error": {"message": "new each time"}}, status_code=503), "HTTP 503"),
        (lambda _: JSONResponse({"error": {"message": "no such\nmodel"}}, status_code=404), "HTTP 404: no such model"),
        (lambda _: Response("gone", status_code=404), "HTTP 404"),
        (lambda _: JSONResponse({"error": "no object"}, status_code=400), "HTTP 400: no object"),
        (lambda _: JSONResponse({"object": "error", "message": "too long"}, status_code=400), "HTTP 400: too long"),
        (lambda _: JSONResponse(["x"], status_code=400), "HTTP 400"),
        (lambda _: events(delta(content="x"), done=False), "the stream ended before [DONE]"),
        (lambda _: events("{torn"), "an event that is no chat completion chunk"),
        (lambda _: events({"error": {"message": "queue full"}}), "an error within the stream"),
    ],
)
async def test_a_broken_answer_is_a_failed_run_with_its_reason(answer: Answer, reason: str) -> None:
    async with serving(answer) as (server, url):
        records = await ended(load(url, seconds=0.4), server)
    assert records[0].outcome is Outcome.FAILED
    assert records[0].error == reason


class AtTheEnd(asyncio.Event):
    """Is set in the moment in which nobody waits for it any more."""

    async def wait(self) -> Literal[True]:
        with contextlib.suppress(asyncio.CancelledError):
            await super().wait()
        self.set()
        return True


async def test_a_load_that_is_stopped_while_it_ends_of_itself_ends() -> None:
    async with serving(never) as (_, url):
        loaded = await run_load(load(url, seconds=0.2), lambda _: None, AtTheEnd())
    assert [run.outcome for run in loaded.runs] == [Outcome.UNFINISHED]


async def test_an_unreachable_server_is_a_failed_turn() -> None:
    sock = serve.listen("127.0.0.1", 0, option="-")  # bound, not listening
    async with httpx.AsyncClient(base_url=serve.url_of(sock) + "/v1/", trust_env=False, timeout=60) as client:
        with pytest.raises(TurnFailedError, match="ConnectError"):
            await ask(client, {}, {})
    sock.close()


async def test_the_environments_proxy_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "socks5h://127.0.0.1:9")
    async with serving(lambda _: events(delta(content="x"))) as (server, url):
        assert await choose_model(url) == "m"
        records = await ended(load(url, seconds=0.3), server)
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


# ---- open loop, plans, questions ----------------------------------------------------------------------------------


def never(_: Json) -> Response:
    async def body() -> AsyncGenerator[bytes]:
        await asyncio.sleep(1000)
        yield b""

    return StreamingResponse(body(), media_type="text/event-stream")


async def test_in_an_open_loop_runs_begin_whatever_becomes_of_those_before() -> None:
    crowds = (Crowd("batch", rate=200.0), Crowd("interactive", agents=1))
    async with serving(never) as (_, url):
        for seconds in (1.0, 10.0, 60.0):  # a busy machine needs longer for as many
            records = await runs(load(url, crowds=crowds, seconds=seconds))
            arrived = [record for record in records if record.turn_class == "batch"]
            if len(arrived) > 20:
                break
        assert len(arrived) > 20
        assert {record.outcome for record in records} == {Outcome.UNFINISHED}
        assert len(records) - len(arrived) == 1
        begun = [record.began_s for record in await runs(load(url, crowds=crowds[:1], seconds=0.5))]
    assert min(begun) > 0


async def test_more_open_runs_than_allowed_are_not_begun_and_said_to_be_so() -> None:
    async with serving(never) as (server, url):
        records = await runs(load(url, crowds=(Crowd("batch", rate=200.0),), seconds=1.0, open_runs_max=3))
    assert len(server.bodies) <= 3
    assert sum(record.outcome is Outcome.UNFINISHED for record in records) == 3
    assert {record.error for record in records if record.outcome is Outcome.FAILED} == {"not begun: 3 runs were open"}


PLAN = Plan("s", (Round(250, 800, 30, 0.0, 256), Round(1080, 60, 40), Round(1180, 60, 120)), turn_class="batch")


def as_planned(prompt: int, answer: int) -> Callable[[Json], Response]:
    """Calls a tool where it must; usage is always the same."""
    usage: Json = {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": answer}}

    def answering(body: Json) -> Response:
        said = delta(tool_calls=[{**CALL[0], "function": {"name": "next_step", "arguments": "{}"}}])
        return events(said if body["tool_choice"] == "required" else delta(content="end"), usage)

    return answering


async def test_a_planned_run_has_prompts_answers_and_calls_as_planned_and_ends_with_the_trace() -> None:
    async with serving(as_planned(1050, 30)) as (server, url):
        async with asyncio.timeout(60):
            (record,) = await runs(load(url, crowds=(), plans=(PLAN,), seconds=None))
    assert (record.outcome, record.turns, record.turn_class, record.prefix_len) == (Outcome.COMPLETED, 3, "batch", 250)
    asked = [(body["tool_choice"], body["min_tokens"], body["max_tokens"]) for body in server.bodies]
    assert asked == [("required", 30, 256), ("required", 40, 40), ("none", 120, 120)]
    lengths = [sum(len(message.get("content") or "") for message in body["messages"]) // 4 for body in server.bodies]
    assert 950 < lengths[0] < 1050
    assert 50 <= lengths[1] - lengths[0] <= 60
    assert lengths[2] - lengths[1] > 100  # of the 1240 planned 1080 are there, says the usage
    assert [message["role"] for message in server.bodies[2]["messages"]] == ["system", "user", *["assistant", "tool"] * 2]


async def test_an_engine_that_calls_no_tool_gets_the_result_as_a_message_and_a_shorter_prompt_is_a_new_conversation() -> None:
    plan = Plan("s", (Round(0, 500, 10), Round(510, 40, 10), Round(0, 200, 10)))
    async with serving(lambda _: events(delta(content="x"))) as (server, url):
        (record,) = await runs(load(url, crowds=(), plans=(plan,), seconds=None, turn_class="interactive"))
    assert (record.outcome, record.turn_class) == (Outcome.COMPLETED, "interactive")
    assert [[message["role"] for message in body["messages"]] for body in server.bodies] == [
        ["user"], ["user", "assistant", "user"], ["user"],
    ]  # fmt: skip
    assert "tool_calls" not in server.bodies[1]["messages"][1]
    assert len(server.bodies[2]["messages"][0]["content"]) < len(server.bodies[0]["messages"][0]["content"])


async def test_agents_take_the_runs_of_their_class_again_and_again_and_no_two_texts_are_the_same() -> None:
    plans = (Plan("a", (Round(0, 100, 5),), turn_class="batch"), Plan("b", (Round(0, 100, 5),), turn_class="interactive", caller="x"))
    crowds = (Crowd("batch", agents=2), Crowd("interactive", agents=1))
    async with serving(lambda _: events(delta(content="x"))) as (server, url):
        records = await ended(load(url, crowds=crowds, plans=plans, callers=2, seconds=0.5), server, 12)
        with pytest.raises(LuftpauseError, match="the trace has no interactive runs"):
            await runs(load(url, crowds=crowds, plans=plans[:1]))
    of_class = {name: [record for record in records if record.turn_class == name] for name in ("batch", "interactive")}
    assert all(record.session_id.startswith("a.") for record in of_class["batch"])
    assert {record.caller for record in of_class["batch"]} == {"me-0", "me-1"}
    assert {record.caller for record in of_class["interactive"]} == {"x"}
    texts = [body["messages"][0]["content"] for body in server.bodies]
    assert len(set(texts)) == len(texts) > 3


async def test_the_runs_of_a_trace_arrive_when_it_says() -> None:
    plans = tuple(Plan(str(number), (Round(0, 60, 1),), arrival_time=3000.0 * number) for number in range(3))
    async with serving(lambda _: events(delta(content="x"))) as (_, url):
        began = sorted(record.began_s for record in await runs(load(url, crowds=(), plans=plans, seconds=None, speed=10)))
    assert began[1] > 0.2  # after 3 s at ten times the speed
    assert began[2] > 0.5


async def test_a_class_may_have_fields_of_its_own_and_the_run_another_header() -> None:
    async with serving(lambda _: events(delta(content="x"))) as (server, url):
        await ended(load(url, bodies={"batch": {"priority": -1}}, run_header="x-session-id", seconds=0.3), server)
    assert {body["priority"] for body in server.bodies} == {-1}
    assert all(headers["x-session-id"].startswith("run_") for headers in server.headers)
    assert all(RUN_HEADER not in headers for headers in server.headers)


async def test_the_id_of_a_run_may_stand_in_the_body_and_its_end_be_told_elsewhere() -> None:
    async with serving(one_tool_then_text) as (server, url):
        told = url + "/finished?run={run}"
        await ended(load(url, run_header="", run_field="vllm_xargs.agentic_context.program_id", run_end=told, seconds=0.4), server)
    programs = [body["vllm_xargs"]["agentic_context"]["program_id"] for body in server.bodies]
    assert programs[0] == programs[1]
    assert programs[0].startswith("run_")
    assert set(server.finished) == set(programs[: 2 * len(server.finished)])
    assert server.finished


async def test_questions_are_asked_beside_the_agents_or_alone() -> None:
    async with serving(lambda _: events(delta(content="x"))) as (server, url):
        deciding = Deciding(clients=2, url=url + "/decide", model="c")
        for seconds in (0.4, 8.0, 60.0):  # a busy machine needs longer for as many
            server.forget_all()
            both = await run_load(load(url, deciding=deciding, seconds=seconds), lambda _: None)
            if both.runs and len(server.decided) >= 10:
                break
        alone = await run_load(load(url, deciding=deciding, crowds=(), seconds=0.4), lambda _: None)
        wrong = await run_load(load(url, deciding=Deciding(1, url + "/nowhere", "c"), crowds=(), seconds=0.4), lambda _: None)
        assert await choose_model(url, classifier=True) == "m"
    assert both.runs
    assert alone.runs == []
    assert {each.error for each in (*both.decided, *alone.decided)} == {None}
    assert len({body["input"] for body in server.decided[:10]}) == 10
    assert {each.error for each in wrong.decided} == {"HTTP 404"}
