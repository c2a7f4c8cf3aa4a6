"""What does each way in which a turn can end mean for the run?"""

import asyncio
import datetime
import json
from email.utils import format_datetime

import pytest

from luftpause.kit.config import RuntimeConfig
from luftpause.runtime.model_client import DataplaneClient, retry_after
from luftpause.runtime.model_stream import EVENT_BYTES_MAX
from luftpause.runtime.ports import ModelAnswer, ModelTurn, ServiceClass, TurnError
from tests.support.ports import a_refusing_port
from tests.support.raw_http import RawServer, answering, chunked, head, stream

TEXT = '{"choices":[{"index":0,"delta":{"content":"hi"}}]}'
STOP = '{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
USAGE = '{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":1}}'
HALF_A_CALL = '{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"pay","arguments":"{\\"to\\":"}}]}}]}'
DONE = "[DONE]"


def turn(**changes: object) -> ModelTurn:
    values = {
        "run": "run_1",
        "model": "m",
        "messages": [{"role": "user", "content": "hello"}],
        "tools": [],
        "caller": "me",
        "max_tokens": 256,
    }
    return ModelTurn(service_class=ServiceClass.BATCH, **{**values, **changes})  # type: ignore[arg-type]


async def ask(raw: RawServer, asked: ModelTurn | None = None, **settings: float) -> ModelAnswer:
    async with DataplaneClient(RuntimeConfig(dataplane=raw.url + "/v1/", **settings)) as client:  # type: ignore[arg-type]
        return await client.ask(asked or turn())


async def refusal(*answers: bytes) -> TurnError:
    async with answering(*answers) as raw:
        with pytest.raises(TurnError) as error:
            await ask(raw)
        assert len(raw.heads) == 1  # retries are the core's business
        return error.value


async def test_a_hint_to_compact_comes_with_the_answer():
    plain = chunked(TEXT, STOP, DONE, end=True)
    hinted = plain.replace(b"\r\n", b"\r\nx-luftpause-compact: 1\r\n", 1)
    async with answering(plain, hinted) as raw:
        answers = [await ask(raw), await ask(raw)]
    assert [answer.compact for answer in answers] == [False, True]


async def test_a_whole_stream_is_an_answer_and_the_request_says_whose_turn_it_is():
    tool = {"type": "function", "function": {"name": "f"}}
    async with answering(chunked(TEXT, TEXT, STOP, USAGE, DONE, end=True)) as raw:
        answer = await ask(raw, turn(tools=[tool], traceparent="00-a-b-01", caller="Zürich\r\nx: y"))
    assert answer == ModelAnswer("hihi", (), "stop", 5, 1, 0)
    assert raw.heads[0].startswith("POST /v1/chat/completions HTTP/1.1")
    for line in ("x-luftpause-run-id: run_1", "x-luftpause-class: batch", "traceparent: 00-a-b-01", "x-luftpause-caller: Zürichx: y"):
        assert line in raw.heads[0]
    body = json.loads(raw.bodies[0])
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [tool],
        "max_tokens": 256,
    }


async def test_an_engine_that_refuses_to_be_asked_for_usage_gets_the_turn_without_that_and_is_not_asked_again():
    detail = b'{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"]}]}'
    refused = head("422 Unprocessable", content_type="application/json", connection="close") + detail
    streamed = chunked(TEXT, STOP, DONE, end=True)
    async with answering(refused, streamed, streamed) as raw, DataplaneClient(RuntimeConfig(dataplane=raw.url)) as client:
        answers = [await client.ask(turn()) for _ in range(2)]
    assert answers == [ModelAnswer("hi", (), "stop", 0, 0, 0)] * 2
    assert ["stream_options" in json.loads(body) for body in raw.bodies] == [True, False, False]


async def test_max_tokens_0_and_no_tools_are_left_out_and_a_lone_surrogate_does_no_harm():
    async with answering(stream(TEXT, STOP, DONE)) as raw:
        await ask(raw, turn(max_tokens=0, messages=[{"role": "user", "content": "\ud83d"}]))
    assert set(json.loads(raw.bodies[0])) == {"model", "messages", "stream", "stream_options"}


@pytest.mark.parametrize(
    "answer",
    [
        stream(TEXT, STOP),  # neither [DONE] nor usage
        stream(TEXT, DONE),  # no finish reason
        stream(TEXT, STOP, DONE)[:-2],  # the last blank line is missing
        chunked(TEXT, STOP, end=False),  # lost after the finish reason
        head("200 OK", content_type="application/json", connection="close")
        + b'{"choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}]}',
    ],
)
async def test_an_answer_that_came_to_its_end_is_taken(answer: bytes):
    async with answering(answer) as raw:
        assert (await ask(raw)).content == "hi"


@pytest.mark.parametrize(
    "answer",
    [
        stream(TEXT, TEXT),
        chunked(TEXT, HALF_A_CALL, end=False),
        stream(HALF_A_CALL),
        stream(),
        stream(DONE),
        b"",
        head("200 OK", content_type="application/json", connection="close"),
        head("200 OK", content_type="application/json", connection="close") + b"[1,2]",
        stream('{"error":{"message":"x","code":504}}', DONE),
        stream(TEXT, TEXT, '{"error":{"message":"x","code":504}}'),
        stream("{half"),
    ],
)
async def test_a_cut_or_failed_answer_is_thrown_away_whole_and_may_be_retried(answer: bytes):
    error = await refusal(answer)
    assert error.retry_after_s == 1.0
    assert not error.limited


async def test_an_error_in_a_stream_carries_the_engines_message_and_a_4xx_is_not_retried():
    error = await refusal(stream('{"error":{"message":"context too long","code":400}}', DONE))
    assert (error.retry_after_s, error.limited) == (None, False)
    assert "context too long" in error.message


@pytest.mark.parametrize(
    ("status", "body", "words", "retry"),
    [
        (
            "404 Not Found",
            b'{"error":{"message":"no replica serves model m; there are a, b","code":"model_not_found"}}',
            "there are a, b",
            None,
        ),
        ("400 Bad Request", b'{"error":"bad"}', "status 400: bad", None),
        ("502 Bad Gateway", b"<html><body><h1>502</h1> nginx </body></html>", "status 502: 502 nginx", 1.0),
        ("500 Internal Server Error", b"", "status 500: empty body", 1.0),
        ("503 Service Unavailable", b'{"detail":"busy"}', "status 503: busy", 1.0),
        ("401 Unauthorized", b'{"error":{"message":"token"}}', "status 401: token", None),
        ("307 Temporary Redirect", b"", "status 307", None),
    ],
)
async def test_a_refusal_says_status_and_reason(status: str, body: bytes, words: str, retry: float | None):
    error = await refusal(head(status, content_length=str(len(body))) + body)
    assert words in error.message
    assert (error.retry_after_s, error.limited) == (retry, False)


async def test_a_long_error_page_is_cut_short():
    body = b"<p>" + b"word " * 50_000
    error = await refusal(head("502 Bad Gateway", content_length=str(len(body))) + body)
    assert len(error.message) < 400


async def test_a_429_is_limited_and_says_when_to_come_back():
    error = await refusal(head("429 Too Many Requests", retry_after="7", content_length="0"))
    assert (error.limited, error.retry_after_s) == (True, 7.0)
    error = await refusal(stream('{"error":{"message":"slow down","code":429}}'))
    assert (error.limited, error.retry_after_s) == (True, 1.0)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9),
        ({"retry-after-ms": "0"}, 1),
        ({"retry-after": "0"}, 1),
        ({"retry-after": "-1"}, 1),
        ({"retry-after": "soon"}, 1),
        ({"retry-after": "nan"}, 1),
        ({"retry-after": "inf"}, 1),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 1),
        ({"retry-after": "Fri, 31 Dec 9999 23:59:59 -2359"}, 1),
        ({"retry-after": "411234"}, 411234),
        ({}, 1),
    ],
)
def test_retry_after_in_all_its_forms(headers: dict[str, str], seconds: float):
    assert retry_after(headers) == seconds


def test_retry_after_as_a_date():
    date = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=20)
    assert 18 < retry_after({"retry-after": format_datetime(date, usegmt=True)}) <= 20


async def test_a_dataplane_that_is_not_there_is_named_and_may_be_retried():
    url = f"http://127.0.0.1:{a_refusing_port()}"
    async with DataplaneClient(RuntimeConfig(dataplane=url)) as client:
        with pytest.raises(TurnError, match=f"the dataplane at {url} can't be reached") as error:
            await client.ask(turn())
        assert error.value.retry_after_s == 1.0
        with pytest.raises(TurnError, match="can't be reached"):
            await client.models()
        await client.end_run("run_1")  # never raises


async def test_a_turn_without_an_answer_in_time_is_given_up():
    async with answering(chunked(TEXT, end=False), hang=True) as raw:
        with pytest.raises(TurnError, match=r"no answer within 0.2 s \(runtime.turn_seconds_max\)") as error:
            await ask(raw, turn_seconds_max=0.2)
        assert error.value.retry_after_s is None


async def test_cancelling_a_turn_closes_its_connection():
    async with answering(chunked(TEXT, end=False), hang=True) as raw, DataplaneClient(RuntimeConfig(dataplane=raw.url)) as client:
        asking = asyncio.create_task(client.ask(turn()))
        async with asyncio.timeout(60):
            while not raw.heads:
                await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.wait_for(raw.closed.wait(), 60)


async def test_models_and_the_end_of_a_run_go_to_their_places():
    listed = b'{"object":"list","data":[{"id":"a"},{"id":"judge","kind":"classifier"},{"id":"b","kind":"generative"},7]}'
    ok = head("200 OK", content_type="application/json", content_length=str(len(listed)), connection="close") + listed
    async with (
        answering(ok, head("204 No Content", connection="close")) as raw,
        DataplaneClient(RuntimeConfig(dataplane=raw.url)) as client,
    ):
        assert await client.models() == ("a", "b")
        await client.end_run("run/1")
    assert [line.splitlines()[0] for line in raw.heads] == ["GET /v1/models HTTP/1.1", "DELETE /v1/runs/run%2F1 HTTP/1.1"]


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "socks5h://127.0.0.1:9")
    async with answering(stream(TEXT, STOP)) as raw:
        assert (await ask(raw)).content == "hi"


async def test_an_engine_that_never_stops_does_not_fill_the_memory():
    chunk = json.dumps({"choices": [{"index": 0, "delta": {"content": "z" * 50_000}}]})
    async with answering(chunked(*[chunk] * 30, end=False), hang=True) as raw:
        with pytest.raises(TurnError, match=r"runtime\.answer_chars_max") as error:
            await asyncio.wait_for(ask(raw), 60)  # the server would hang
    assert error.value.retry_after_s is None, "it would do so again"


async def test_a_json_answer_without_end_is_read_up_to_a_limit():
    body = b" " * (EVENT_BYTES_MAX + 1)
    async with answering(head("200 OK", content_type="application/json") + body, hang=True) as raw:
        with pytest.raises(TurnError, match="not JSON"):
            await asyncio.wait_for(ask(raw), 60)


async def test_an_error_body_nested_without_end_is_quoted():
    body = "[" * 50_000
    error = await refusal(head("400 Bad Request", content_type="application/json", content_length=str(len(body))) + body.encode())
    assert error.message.startswith("the turn was refused with status 400: [[[")


async def test_the_dataplane_is_shown_the_token_with_every_request():
    token = "t" * 32
    async with (
        answering(chunked(TEXT, STOP, DONE, end=True)) as raw,
        DataplaneClient(RuntimeConfig(dataplane=raw.url), token=token) as client,
    ):
        await client.ask(turn())
        assert f"authorization: Bearer {token}" in raw.heads[0]
    async with answering(chunked("no list", end=True)) as raw, DataplaneClient(RuntimeConfig(dataplane=raw.url), token=token) as client:
        with pytest.raises(TurnError):
            await client.models()
        assert f"authorization: Bearer {token}" in raw.heads[0]
    async with answering(chunked(TEXT, STOP, DONE, end=True)) as raw:
        await ask(raw)
        assert "authorization" not in raw.heads[0].lower()
