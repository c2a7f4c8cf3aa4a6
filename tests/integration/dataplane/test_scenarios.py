"""Do the things that happened to users of other proxies happen here? (The numbers are those of the open scenarios.)"""

import asyncio
import json
from pathlib import Path

import pytest

from luftpause.dataplane.turns import Usage
from tests.support.cluster import cluster
from tests.support.fake_scheduler import FakeScheduler, replica
from tests.support.plane import STREAM_BODY, client_of, post, running_plane
from tests.support.raw_engine import STREAM_HEAD, Talk, chunked, json_answer, raw_engine
from tests.support.tool_agents import Agent, errors_of

ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
TEXT = b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}]}\n\n'
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
USAGE = b'"usage":{"prompt_tokens":7,"completion_tokens":2}'
ASKED = json.dumps({"model": "m", "stream": True, "stream_options": {"include_usage": True}, "messages": []}).encode()
GOOD = b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}'

LAST = {
    "no choices": (ROLE, TEXT, END, b'data: {"choices":[],%b}\n\n' % USAGE, DONE),
    "without choices": (ROLE, TEXT, END, b"data: {%b}\n\n" % USAGE, DONE),
    "an empty delta": (ROLE, TEXT, END, b'data: {"choices":[{"index":0,"delta":{}}],%b}\n\n' % USAGE, DONE),
    "in every chunk": (
        ROLE,
        b'data: {"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":7,"completion_tokens":1}}\n\n',
        b'data: {"choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}],%b}\n\n' % USAGE,
        DONE,
    ),
}


@pytest.mark.parametrize("form", LAST)
@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("usage", ["observe", "ask"])
async def test_the_last_usage_counts_and_nobody_sees_what_he_did_not_ask_for(form: str, asked: bool, usage: str) -> None:
    """O01."""
    events = LAST[form]

    async def behave(talk: Talk) -> None:
        await talk.stream(*events)

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler, usage=usage) as plane, client_of(plane) as client:
            answer = await client.ask(post(ASKED if asked else STREAM_BODY))
    hidden = usage == "ask" and not asked
    expected = [each for each in events if not (hidden and USAGE in each and form != "in every chunk")]
    assert (answer.status, answer.complete, answer.body) == (200, True, b"".join(expected))
    assert scheduler.last("finished")[2:4] == ("stop", Usage(7, 2, None)), "the last one, not the sum"


HALF_CALL = (
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"pay","arguments":""}}]}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\\"amount\\": 1"}}]}}]}\n\n'
)


@pytest.mark.parametrize("sent", [TEXT * 3, HALF_CALL], ids=["text", "half a tool call"])
async def test_what_was_begun_is_never_told_again_from_its_beginning(sent: bytes) -> None:
    """O05. The scheduler is told of a failure, not of a run that waits for a tool."""

    async def dies(talk: Talk) -> None:
        await talk.send(STREAM_HEAD, chunked(sent))
        talk.writer.close()

    async def good(talk: Talk) -> None:
        await talk.stream(TEXT, END, DONE)

    async with raw_engine(dies) as one, raw_engine(good) as two:
        scheduler = FakeScheduler(replica("a", one.url), replica("b", two.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            answer = await client.ask(post(STREAM_BODY))
            assert (answer.status, answer.complete, answer.body) == (200, False, sent)
            assert await client.closed() == b""
    assert not two.talks
    assert scheduler.told()[-1] == "failed"
    assert "finished" not in scheduler.told()


async def test_a_proxy_of_the_environment_gets_no_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """O07. Real processes, one variable of a scheme that nobody knows."""
    connected: list[object] = []

    def takes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.append(writer.get_extra_info("peername"))
        writer.close()

    proxy = await asyncio.start_server(takes, "127.0.0.1", 0)
    port = proxy.sockets[0].getsockname()[1]
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
    monkeypatch.setenv("ALL_PROXY", f"socks5h://127.0.0.1:{port}")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with proxy, cluster(tmp_path, engines=[("--health-seconds", "0")], planes=1) as whole:
        agent = Agent(whole.http, "Hello. [calls=0 answer=3]")
        await agent.turn(whole.url())
        assert errors_of([agent]) == []
        assert (await whole.http.get(whole.url() + "/models")).json()["data"][0]["id"] == "fake-1b"
        monkeypatch.setenv("NO_PROXY", "localhost")  # which is none of the addresses here
        await whole.start_plane("dp-1")
        await agent.turn(whole.planes["dp-1"].at["http"] + "/v1")
        assert errors_of([agent]) == []
    assert not connected


SPLIT = (
    b'data: {"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"content":"\\ude00"}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c\\ud83e","function":{"arguments":"\\ud83e"}}]}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\n',
    DONE,
)


@pytest.mark.parametrize(
    "message",
    [
        rb'{"role":"user","content":"\ud83e"}',
        rb'{"role":"assistant","content":null,"tool_calls":[{"id":"c1","function":{"name":"f","arguments":"{\"a\":\"\ud83e\"}"}}]}',
        rb'{"role":"tool","tool_call_id":"c1","content":"\ud83e"}',
        rb'{"role":"tool","tool_call_id":"\ud83e","content":"x"}',
    ],
)
async def test_half_characters_pass_as_they_are(message: bytes) -> None:
    """O10."""
    body = b'{"model":"m","stream":true,"messages":[' + message + b"]}"

    async def behave(talk: Talk) -> None:
        await talk.stream(*SPLIT)

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            answer = await client.ask(post(body))
    assert (answer.status, answer.complete, answer.body) == (200, True, b"".join(SPLIT))
    assert engine.talks[0].body == body
    assert scheduler.told() == ["ask", "started", "first_token", "tool_calls_seen", "finished"]


@pytest.mark.parametrize(
    ("base", "target"),
    [
        ("/api/paas/v4", b"/api/paas/v4/chat/completions?a=/v1"),
        ("/v1beta/openai/", b"/v1beta/openai/chat/completions?a=/v1"),
        ("/api/v", b"/api/v/v1/chat/completions?a=/v1"),
    ],
)
async def test_a_base_url_with_a_version_of_its_own_needs_no_v1(base: str, target: bytes) -> None:
    async def behave(talk: Talk) -> None:
        await talk.send(json_answer(GOOD))

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url + base))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            assert (await client.ask(post(path="/v1/chat/completions?a=/v1"))).status == 200
    assert engine.talks[0].head.startswith(b"POST " + target + b" HTTP/1.1\r\n")


@pytest.mark.parametrize("base", ["", "/", "/v1", "/v1/", "/some/prefix", "/some/prefix/", "/some/prefix/v1", "/some/prefix/v1/"])
async def test_v1_stands_in_the_path_once_however_the_base_url_is_written(base: str) -> None:
    """R06."""

    async def behave(talk: Talk) -> None:
        await talk.send(json_answer(GOOD))

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url + base))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            assert (await client.ask(post())).status == 200
    prefix = b"/some/prefix" if "some" in base else b""
    assert engine.talks[0].head.startswith(b"POST " + prefix + b"/v1/chat/completions HTTP/1.1\r\n")


async def test_an_event_stream_tells_everybody_on_the_way_not_to_keep_it() -> None:
    """R07. Nor is it compressed, although its client could read that; what the engine says of caching is left alone."""

    async def behave(talk: Talk) -> None:
        if len(engine.talks) > 1:
            await talk.send(STREAM_HEAD[:-2] + b"cache-control: no-store\r\nx-accel-buffering: yes\r\n\r\n" + chunked(TEXT) + b"0\r\n\r\n")
        else:
            await talk.stream(TEXT, END, DONE)

    async with raw_engine(behave) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            first = await client.ask(post(STREAM_BODY, accept_encoding="gzip, br"))
            second = await client.ask(post(STREAM_BODY))
    assert first.headers["cache-control"] == "no-cache"
    assert second.headers["cache-control"] == "no-store"
    for answer in (first, second):
        assert answer.headers["x-accel-buffering"] == "no"
        assert "content-encoding" not in answer.headers
    assert engine.talks[0].header("accept-encoding") == "identity"
