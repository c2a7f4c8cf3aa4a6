"""Does any tool's call through `/proxy/…` go to its target as it was written, and is it governed on the way?"""

import asyncio
import gzip
import hashlib
import json
import zlib
from typing import Any

import pytest

from luftpause.dataplane.app import Dataplane
from luftpause.dataplane.proxy import call, leg
from luftpause.dataplane.proxy.leg import KEPT_BYTES_MAX
from luftpause.kit.quota_port import Granted, NotNow, QuotaUnavailableError, Refused
from tests.support.plane import Answer, Client, client_of, get, post
from tests.support.proxied_calls import proxying
from tests.support.quota_double import QuotaDouble
from tests.support.raw_engine import STREAM_HEAD, Behave, RawEngine, Talk, chunked, json_answer, raw_engine

LIMITS = b"x-ratelimit-limit: 5000\r\nx-ratelimit-remaining: 4999\r\nx-ratelimit-resource: core\r\n"
OK = b'{"ok":true}'
LIMITED = json_answer(
    b'{"message":"slow down"}', "429 Too Many Requests", b"retry-after: 1\r\nx-ratelimit-remaining: 0\r\n" + b"x-own: 1\r\n"
)


async def fine(talk: Talk) -> None:
    await talk.send(json_answer(OK, more=LIMITS))


def first(*answers: bytes) -> Behave:
    """The n-th request gets the n-th answer, all further ones a good one."""
    left = list(answers)

    async def behave(talk: Talk) -> None:
        await talk.send(left.pop(0) if left else json_answer(OK))

    return behave


async def once(quota: QuotaDouble, engine: RawEngine, data: bytes, method: str = "GET", prefix: str = "", **config: Any) -> Answer:
    async with proxying(quota, targets={"api": engine.url + prefix}, **config) as plane, client_of(plane) as client:
        await client.send(data)
        answer = await client.answer(method)
        await over(plane)
        assert len([each for each in quota.kinds() if each in {"report", "release"}]) == quota._fence, (
            "all that was granted is told to be over"
        )
        return answer


async def over(plane: Dataplane) -> None:
    """No call is under way any more."""
    async with asyncio.timeout(60):
        while plane.relay.turns:
            await asyncio.sleep(0.001)  # nothing tells a test when a call's task ends


# ---- as it was written


async def test_a_call_goes_on_byte_for_byte_and_so_does_its_answer() -> None:
    quota = QuotaDouble()
    body = bytes(range(256)) * 10
    head = (
        b"PATCH /proxy/api/repos/a%%2Fb/c?x=%%0A&y=../..&z HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: token ghp_own\r\n"
        b"User-Agent: gh/2\r\nAccept: a\r\nAccept: b\r\nCookie: c=d\r\nContent-Type: application/octet-stream\r\n"
        b"X-Luftpause-Caller: worf\r\nX-GitHub-Api-Version: 2022-11-28\r\nContent-Length: %d\r\n\r\n" % len(body)
    )
    async with raw_engine(fine) as engine:
        answer = await once(quota, engine, head + body, "PATCH", prefix="/base/v1")
        port = engine.url.rpartition(":")[2]
    (talk,) = engine.talks
    assert talk.body == body
    assert talk.head == (
        b"PATCH /base/v1/repos/a%%2Fb/c?x=%%0A&y=../..&z HTTP/1.1\r\nhost: 127.0.0.1:%b\r\nauthorization: token ghp_own\r\n"
        b"user-agent: gh/2\r\naccept: a\r\naccept: b\r\ncookie: c=d\r\ncontent-type: application/octet-stream\r\n"
        b"x-github-api-version: 2022-11-28\r\ncontent-length: %d\r\n\r\n" % (port.encode(), len(body))
    )
    assert (answer.status, answer.body, answer.complete) == (200, OK, True)
    assert answer.headers["x-ratelimit-remaining"] == "4999"
    assert answer.headers["x-luftpause-held-ms"].isdigit()
    (wish,) = quota.wishes
    assert (wish["target"], wish["caller"], wish["priority"], wish["retry"]) == ("api", "worf", 1, False)
    (report,) = await quota.until("report")
    assert (report["status"], report["headers"]["x-ratelimit-limit"], report["body"]) == (200, "5000", "")


FORMS = [
    (get("/proxy/api"), "GET", b"GET / HTTP/1.1", None),
    (get("/proxy/api/"), "GET", b"GET / HTTP/1.1", None),
    (get("/proxy/api?a=b"), "GET", b"GET /?a=b HTTP/1.1", None),
    (get("/proxy/api/a/", "DELETE"), "DELETE", b"DELETE /a/ HTTP/1.1", None),
    (get("/proxy/api/a", "OPTIONS"), "OPTIONS", b"OPTIONS /a HTTP/1.1", None),
    (get("/proxy/api/a", "POST", content_length="0"), "POST", b"POST /a HTTP/1.1", "0"),
    (get("/proxy/api/a", "PROPFIND"), "PROPFIND", b"PROPFIND /a HTTP/1.1", None),
    (
        b"POST /proxy/api/a HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "POST",
        b"POST /a HTTP/1.1",
        "5",
    ),
    (
        b"GET http://127.0.0.1/proxy/api/a?b HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
        "GET",
        b"GET /a?b HTTP/1.1",
        None,
    ),
    (b"GET /proxy/api/old HTTP/1.0\r\nhost: 127.0.0.1\r\n\r\n", "GET", b"GET /old HTTP/1.1", None),
]


async def test_methods_and_forms_of_requests() -> None:
    async with raw_engine(fine) as engine, proxying(QuotaDouble(), targets={"api": engine.url}) as plane:
        for data, method, line, length in FORMS:
            async with client_of(plane) as client:
                await client.send(data)
                answer = await client.answer(method)
            assert (answer.status, answer.body) == (200, OK)
            assert engine.talks[-1].head.startswith(line + b"\r\n")
            assert engine.talks[-1].header("content-length") == length


async def test_a_head_has_an_answer_without_a_body_and_the_connection_goes_on() -> None:
    async def behave(talk: Talk) -> None:
        whole = json_answer(OK, more=LIMITS)
        await talk.send(whole.removesuffix(OK) if talk.head.startswith(b"HEAD") else whole)

    quota = QuotaDouble()
    async with raw_engine(behave) as engine, proxying(quota, targets={"api": engine.url}) as plane, client_of(plane) as client:
        for method in ("HEAD", "GET", "HEAD", "HEAD", "GET"):
            await client.send(get("/proxy/api/a", method))
            answer = await client.answer(method)
            assert (answer.status, answer.headers["content-length"]) == (200, str(len(OK)))
            assert answer.body == (b"" if method == "HEAD" else OK)
        await over(plane)
    assert engine.connections == 1


async def test_whatever_is_no_refusal_by_quota_passes() -> None:
    statuses = ["204 No Content", "304 Not Modified", "301 Moved", "404 Not Found", "500 Internal Server Error"]

    async def behave(talk: Talk) -> None:
        status = statuses[len(engine.talks) - 1]
        body = b"" if status[:3] in {"204", "304"} else b"text"
        length = b"content-length: %d\r\n" % len(body) if body else b""
        await talk.send(b"HTTP/1.1 %b\r\nlocation: http://127.0.0.1:9/elsewhere\r\n%b\r\n%b" % (status.encode(), length, body))

    quota = QuotaDouble()
    async with raw_engine(behave) as engine, proxying(quota, targets={"api": engine.url}) as plane, client_of(plane) as client:
        for status in statuses:
            answer = await client.ask(get("/proxy/api/a"))
            assert (str(answer.status), answer.body) == (status[:3], b"" if status[:3] in {"204", "304"} else b"text")
            assert answer.headers["location"] == "http://127.0.0.1:9/elsewhere"
        reports = await quota.until("report", len(statuses))
    assert len(engine.talks) == len(statuses), "redirects are the client's business"
    assert [facts["status"] for facts in reports] == [int(status[:3]) for status in statuses]


async def test_events_pass_as_they_come_and_the_lease_is_renewed_meanwhile() -> None:
    go_on = asyncio.Event()

    async def behave(talk: Talk) -> None:
        await talk.send(STREAM_HEAD.removesuffix(b"\r\n") + LIMITS + b"\r\n" + chunked(b"data: one\n\n"))
        await go_on.wait()
        await talk.send(chunked(b"data: two\n\n") + b"0\r\n\r\n")

    quota = QuotaDouble(lease_seconds=1.5)
    async with raw_engine(behave) as engine, proxying(quota, targets={"api": engine.url}) as plane, client_of(plane) as client:
        await client.send(get("/proxy/api/events"))
        await client.until(b"data: one")
        await quota.until("renew", 2)
        (seen,) = await quota.until("observe")
        assert seen["headers"]["x-ratelimit-remaining"] == "4999"
        go_on.set()
        await client.until(b"data: two")
        (report,) = await quota.until("report")
    assert (report["status"], report["headers"]) == (200, {}), "what the head said is old by now"


BUSY = b'{"error":{"message":"Rate limit exceeded, try again in 7s","code":429}}'
SAID_INSIDE = {
    "a chunk of chat completions": (b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n', b"data: " + BUSY + b"\n\n"),
    "with CR": (b'data: {"choices":[]}\r\r', b"data:" + BUSY + b"\r\r"),
    "the first event": (b"data: " + BUSY + b"\n\n", b""),
    "messages": (
        b'event: message_start\ndata: {"type":"message_start"}\n\n',
        b'event: error\ndata: {"type":"error","error":{"type":"rate_limit_error","message":"try again in 7s"}}\n\n',
    ),
    "responses": (
        b'data: {"type":"response.created","response":{"error":null}}\n\n',
        b'data: {"type":"response.failed","response":{"error":{"code":"rate_limit_exceeded","message":"try again in 7s"}}}\n\n',
    ),
    "an event of several lines": (
        b'data: {"choices":\ndata: []}\n\n',
        b'data: {"error":\ndata: {"code": 429, "message": "try again in 7s"}}\n\n',
    ),
}


@pytest.mark.parametrize("events", SAID_INSIDE.values(), ids=SAID_INSIDE.keys())
@pytest.mark.parametrize("ends", [True, False], ids=["ends", "breaks"])
async def test_a_refusal_inside_a_stream_passes_and_the_governor_hears_of_it(events: tuple[bytes, bytes], ends: bool) -> None:
    async def behave(talk: Talk) -> None:
        first, second = events
        await talk.send(STREAM_HEAD + b"".join(chunked(first[at : at + 7]) for at in range(0, len(first), 7)))
        await talk.send((chunked(second) if second else b"") + (b"0\r\n\r\n" if ends else b""))
        if not ends:
            talk.writer.close()

    quota = QuotaDouble()
    async with raw_engine(behave) as engine, proxying(quota, targets={"api": engine.url}) as plane, client_of(plane) as client:
        await client.send(get("/proxy/api/events"))
        (report,) = await quota.until("report")
        await over(plane)
    assert report["status"] == 429
    assert "try again in 7s" in report["body"]
    assert "choices" not in report["body"]


async def test_a_client_that_leaves_at_a_refusal_inside_its_stream_takes_it_to_nobodys_grave() -> None:
    async def behave(talk: Talk) -> None:
        await talk.send(STREAM_HEAD + chunked(b"data: one\n\n") + chunked(b"data: " + BUSY + b"\n\n"))
        await talk.gone.wait()

    quota = QuotaDouble()
    async with raw_engine(behave) as engine, proxying(quota, targets={"api": engine.url}) as plane:
        client = await Client.to(plane.url)
        await client.send(get("/proxy/api/events"))
        await client.until(b"429}}\n\n")
        client.reset()
        (report,) = await quota.until("report")
        await over(plane)
    assert report["status"] == 429


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (BUSY, 429),
        (b' { "object": "error", "message": "quota exceeded", "code": 429 }', 429),
        (b'{"error":{"message":"no such model"}}', 200),
        (b'{"id":"1","error":{"code":429}}', 200),
        (b'{"error":{"code":429},"x":"' + b"x" * 5_000 + b'"}', 200),
    ],
)
async def test_a_refusal_in_place_of_a_good_answer_is_heard(body: bytes, status: int) -> None:
    quota = QuotaDouble()
    async with raw_engine(first(json_answer(body))) as engine:
        answer = await once(quota, engine, get("/proxy/api/a"))
    assert (answer.status, answer.body) == (200, body)
    (report,) = [facts for what, _, facts in quota.told if what == "report"]
    assert report["status"] == status


async def test_a_refusal_in_place_of_a_good_answer_keeps_what_its_head_says() -> None:
    quota = QuotaDouble()
    async with raw_engine(first(json_answer(BUSY, "200 OK", b"retry-after: 20\r\n"))) as engine:
        await once(quota, engine, get("/proxy/api/a"))
    (report,) = [facts for what, _, facts in quota.told if what == "report"]
    assert (report["status"], report["headers"]) == (429, {"retry-after": "20"})


async def test_words_of_a_stream_are_no_refusal() -> None:
    said = b'data: {"choices":[{"delta":{"content":"the \\"error\\" was: rate limit, quota, 429"}}],"error":null}\n\n'

    async def behave(talk: Talk) -> None:
        await talk.send(STREAM_HEAD + chunked(b"data: {}\n\n" + said + b'data: {"error":{"message":"bad tool"}}\n\n') + b"0\r\n\r\n")

    quota = QuotaDouble()
    async with raw_engine(behave) as engine:
        await once(quota, engine, get("/proxy/api/events"))
    assert [facts["status"] for what, _, facts in quota.told if what == "report"] == [200]


async def test_a_large_body_and_a_large_answer_pass_whole() -> None:
    size = 2**24
    piece = chunked(b"x" * 65_536)

    async def behave(talk: Talk) -> None:
        await talk.send(
            b"HTTP/1.1 200 OK\r\nx-digest: %b\r\ntransfer-encoding: chunked\r\n\r\n" % hashlib.sha256(talk.body).hexdigest().encode()
        )
        for _ in range(size // 65_536):
            await talk.send(piece)
        await talk.send(b"0\r\n\r\n")

    body = b"\0\r\n\r\n" * (size // 5)
    async with raw_engine(behave) as engine:
        answer = await once(QuotaDouble(), engine, post(body, path="/proxy/api/up", content_type="application/zip"), "POST")
    assert answer.headers["x-digest"] == hashlib.sha256(body).hexdigest()
    assert answer.body == b"x" * size


async def test_a_client_that_does_not_read_stops_its_target() -> None:
    sent = 0
    piece = chunked(b"x" * 65_536)

    async def behave(talk: Talk) -> None:
        nonlocal sent
        await talk.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(4096):
            await talk.send(piece)
            sent += 65_536

    quota = QuotaDouble()
    async with raw_engine(behave) as engine, proxying(quota, targets={"api": engine.url}) as plane:
        client = await Client.to(plane.url)
        await client.send(get("/proxy/api/much"))
        await quota.until("observe")  # a second later
        before = sent
        assert before < 2**26, "all buffers between here and there, and no more"
        client.reset()
        (report,) = await quota.until("report")
    assert report["status"] is None, "it counts as used"


# ---- governed


async def test_a_refusal_by_quota_is_neither_seen_nor_lost() -> None:
    quota = QuotaDouble()
    async with raw_engine(first(LIMITED, LIMITED)) as engine:
        answer = await once(quota, engine, post(b"body", path="/proxy/api/a"), "POST")
    assert (answer.status, answer.body) == (200, OK)
    assert [talk.body for talk in engine.talks] == [b"body"] * 3
    assert [wish["retry"] for wish in quota.wishes] == [False, True, True]
    assert len({wish["want"] for wish in quota.wishes}) == 3
    reports = await quota.until("report", 3)
    assert [report["status"] for report in reports] == [429, 429, 200]
    assert reports[0]["headers"]["retry-after"] == "1"
    assert reports[0]["body"] == '{"message":"slow down"}'


@pytest.mark.parametrize("coding", [b"gzip", b"deflate", b"identity", b""])
async def test_a_refusal_that_only_its_body_tells_is_known(coding: bytes) -> None:
    said = b'{"message":"You have exceeded a secondary rate limit."}'
    body = gzip.compress(said) if coding == b"gzip" else zlib.compress(said) if coding == b"deflate" else said
    more = b"content-encoding: %b\r\n" % coding if coding else b""
    quota = QuotaDouble()
    async with raw_engine(first(json_answer(body, "403 Forbidden", more))) as engine:
        answer = await once(quota, engine, get("/proxy/api/a"))
    assert (answer.status, len(engine.talks)) == (200, 2)
    assert (await quota.until("report"))[0]["body"] == said.decode()


async def test_a_403_that_is_a_matter_of_rights_passes_unchanged() -> None:
    denied = json_answer(b'{"message":"Resource not accessible by integration"}', "403 Forbidden", LIMITS)
    async with raw_engine(first(denied)) as engine:
        answer = await once(QuotaDouble(), engine, get("/proxy/api/a"))
    assert (answer.status, len(engine.talks)) == (403, 1)
    assert answer.body == b'{"message":"Resource not accessible by integration"}'
    assert "retry-after" not in answer.headers
    assert "x-should-retry" not in answer.headers


async def test_a_refusal_whose_window_opens_too_late_passes_with_our_word_on_when() -> None:
    quota = QuotaDouble(retry_seconds=30.2)
    async with raw_engine(first(LIMITED)) as engine:
        answer = await once(quota, engine, get("/proxy/api/a", x_luftpause_wait_ms="5000"))
    assert (answer.status, answer.body, len(engine.talks)) == (429, b'{"message":"slow down"}', 1)
    assert (answer.headers["retry-after"], answer.headers["retry-after-ms"], answer.headers["x-own"]) == ("31", "30200", "1")
    assert "x-should-retry" not in answer.headers


async def test_a_wait_that_clients_packages_would_not_keep_tells_them_not_to_try() -> None:
    async with raw_engine(first(LIMITED)) as engine:
        answer = await once(QuotaDouble(retry_seconds=1800.0), engine, get("/proxy/api/a"))
    assert (answer.status, answer.headers["retry-after"], answer.headers["x-should-retry"]) == (429, "1800", "false")


async def test_a_refusal_that_no_wait_helps_passes_and_says_so() -> None:
    spent = json_answer(b'{"error":{"code":"insufficient_quota"}}', "429 Too Many Requests", b"retry-after: 1\r\n")
    async with raw_engine(first(spent)) as engine:
        answer = await once(QuotaDouble(), engine, get("/proxy/api/a"))
    assert (answer.status, len(engine.talks), answer.headers["x-should-retry"]) == (429, 1, "false")
    assert "retry-after" not in answer.headers


async def test_sendings_are_counted_and_the_last_refusal_passes() -> None:
    async with raw_engine(first(*[LIMITED] * 10)) as engine:
        answer = await once(QuotaDouble(), engine, get("/proxy/api/a"))
    assert (answer.status, answer.body, len(engine.talks)) == (429, b'{"message":"slow down"}', 4)
    assert answer.headers["retry-after-ms"] == "50"


async def test_a_refusal_too_long_to_keep_passes_whole() -> None:
    long = json_answer(b"x" * (KEPT_BYTES_MAX * 3), "429 Too Many Requests", b"retry-after: 1\r\n")
    async with raw_engine(first(long)) as engine:
        answer = await once(QuotaDouble(), engine, get("/proxy/api/a"))
    assert (answer.status, len(answer.body), answer.complete, len(engine.talks)) == (429, KEPT_BYTES_MAX * 3, True, 1)


async def test_a_refusal_that_drips_passes_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leg, "LOOK_SECONDS", 0.05)
    go_on = asyncio.Event()

    async def behave(talk: Talk) -> None:
        await talk.send(b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 4\r\nretry-after: 1\r\n\r\nab")
        await go_on.wait()
        await talk.send(b"cd")

    quota = QuotaDouble()
    async with raw_engine(behave) as engine, proxying(quota, targets={"api": engine.url}) as plane, client_of(plane) as client:
        await client.send(get("/proxy/api/a"))
        await client.until(b"\r\n\r\nab")
        go_on.set()
        await client.until(b"abcd")
        assert len(engine.talks) == 1


async def test_a_second_wait_that_is_too_long_gives_the_targets_own_refusal() -> None:
    quota = QuotaDouble()

    async def decide(wish: dict[str, Any]) -> Granted | NotNow | Refused:
        return NotNow(7.0, "blocked") if wish["retry"] else await quota.grant(wish)

    quota.decide = decide
    async with raw_engine(first(LIMITED)) as engine:
        answer = await once(quota, engine, get("/proxy/api/a", x_luftpause_wait_ms="5000"))
    assert (answer.status, answer.body, answer.complete) == (429, b'{"message":"slow down"}', True)
    assert (answer.headers["retry-after"], answer.headers["x-own"]) == ("7", "1")


@pytest.mark.parametrize(
    ("said", "status", "code", "headers"),
    [
        (NotNow(3.2, "paced"), 429, "quota_wait", {"retry-after": "4", "retry-after-ms": "3200", "x-should-retry": None}),
        (NotNow(900.0, "spent"), 429, "quota_wait", {"retry-after": "900", "x-should-retry": "false"}),
        (Refused("too_large", "too large"), 413, "too_large", {"retry-after": None, "x-should-retry": "false"}),
        (Refused("out_of_credit", "no credit"), 402, "out_of_credit", {"retry-after": None, "x-should-retry": "false"}),
        (Refused("queue_full", "full"), 503, "queue_full", {"retry-after": "1", "x-should-retry": None}),
    ],
)
async def test_the_governors_own_no(said: NotNow | Refused, status: int, code: str, headers: dict[str, str | None]) -> None:
    async def decide(wish: dict[str, Any]) -> NotNow | Refused:
        return said

    async with raw_engine(fine) as engine:
        answer = await once(QuotaDouble(decide), engine, get("/proxy/api/a", x_luftpause_wait_ms="2000"))
    assert (answer.status, answer.error["code"], engine.talks) == (status, code, [])
    assert {name: answer.headers.get(name) for name in headers} == headers


async def test_a_call_is_held_longer_than_one_question_waits() -> None:
    quota = QuotaDouble()

    async def decide(wish: dict[str, Any]) -> Granted | NotNow:
        return NotNow(0.01, "paced") if len(quota.wishes) < 4 else await quota.grant(wish)

    quota.decide = decide
    async with raw_engine(fine) as engine:
        answer = await once(quota, engine, get("/proxy/api/a"))
    assert (answer.status, len(quota.wishes), len({wish["want"] for wish in quota.wishes})) == (200, 4, 1)


async def test_a_call_costs_what_its_method_costs_at_its_provider() -> None:
    quota = QuotaDouble()
    async with (
        raw_engine(fine) as engine,
        proxying(quota, targets={"github": engine.url, "api": engine.url}) as plane,
        client_of(plane) as client,
    ):
        for path, method in (("/proxy/github/a", "GET"), ("/proxy/github/a", "DELETE"), ("/proxy/api/a", "DELETE")):
            await client.ask(get(path, method))
    assert [wish["cost"] for wish in quota.wishes] == [None, {"content": 1, "points": 5, "requests": 1}, None]


async def test_without_the_governor_nothing_goes_out() -> None:
    quota = QuotaDouble()
    quota.failure = QuotaUnavailableError("the scheduler can't be reached")
    async with raw_engine(fine) as engine:
        answer = await once(quota, engine, get("/proxy/api/a"))
    assert (answer.status, answer.error["code"], answer.headers["retry-after"], engine.talks) == (503, "governor_unavailable", "1", [])


async def test_a_governor_that_goes_away_meanwhile_takes_no_answer_along() -> None:
    quota = QuotaDouble()

    async def behave(talk: Talk) -> None:
        quota.failure = QuotaUnavailableError("gone")
        await talk.send(LIMITED)

    async with raw_engine(behave) as engine, proxying(quota, targets={"api": engine.url}) as plane, client_of(plane) as client:
        answer = await client.ask(get("/proxy/api/a"))
    assert (answer.status, answer.body, answer.headers["retry-after"]) == (429, b'{"message":"slow down"}', "1")


async def test_a_fault_while_the_governor_is_told_costs_no_call_its_answer(caplog: pytest.LogCaptureFixture) -> None:
    quota = QuotaDouble()

    async def behave(talk: Talk) -> None:
        quota.failure = RuntimeError("dictionary changed size during iteration")
        await fine(talk)

    async with raw_engine(behave) as engine, proxying(quota, targets={"api": engine.url}) as plane, client_of(plane) as client:
        for _ in range(2):
            quota.failure = None
            assert (await client.ask(get("/proxy/api/a"))).body == OK
            await over(plane)
        assert plane.faults.counter.value(("telling",)) == 2
    assert caplog.text.count("a fault in the background") == 1


SAID: list[tuple[dict[str, str], int, str, float]] = [
    ({}, 1, "", 120.0),
    ({"x_luftpause_class": "batch"}, 2, "", 120.0),
    ({"x_luftpause_caller": "root"}, 0, "root", 120.0),
    ({"x_luftpause_caller": "claimant", "x_luftpause_priority": "0"}, 0, "claimant", 120.0),
    ({"x_luftpause_priority": "2", "x_luftpause_wait_ms": "1500"}, 2, "", 1.5),
    ({"x_luftpause_wait_ms": "999999999"}, 1, "", 120.0),
]


async def test_how_urgent_a_call_is_and_how_long_it_may_wait() -> None:
    quota = QuotaDouble()
    async with raw_engine(fine) as engine, proxying(quota, targets={"api": engine.url}) as plane, client_of(plane) as client:
        for headers, priority, caller, wait in SAID:
            await client.ask(get("/proxy/api/a", **headers))
            wish = quota.wishes[-1]
            assert (wish["priority"], wish["caller"]) == (priority, caller)
            assert wish["wait_seconds"] == pytest.approx(wait, abs=1.0)


BADLY_SAID = [
    ({"x_luftpause_priority": "0"}, 403, "priority_not_allowed"),
    ({"x_luftpause_priority": "7"}, 400, "bad_priority"),
    ({"x_luftpause_class": "urgent"}, 400, "bad_class"),
    ({"x_luftpause_wait_ms": "-1"}, 400, "bad_wait"),
    ({"x_luftpause_wait_ms": "soon"}, 400, "bad_wait"),
]


async def test_a_bad_header_of_ours_is_refused() -> None:
    quota = QuotaDouble()
    async with raw_engine(fine) as engine, proxying(quota, targets={"api": engine.url}) as plane, client_of(plane) as client:
        for headers, status, code in BADLY_SAID:
            answer = await client.ask(get("/proxy/api/a", **headers))
            assert (answer.status, answer.error["code"], quota.wishes) == (status, code, [])


# ---- ends


async def test_a_client_that_leaves_while_it_waits_has_asked_for_nothing() -> None:
    async def decide(wish: dict[str, Any]) -> Granted:
        await asyncio.Event().wait()
        raise AssertionError

    quota = QuotaDouble(decide)
    async with raw_engine(fine) as engine, proxying(quota, targets={"api": engine.url}) as plane:
        for number, leave in enumerate((Client.reset, Client.close), 1):
            client = await Client.to(plane.url)
            await client.send(get("/proxy/api/a"))
            await quota.until_asked(number)
            leave(client)
            await over(plane)
    assert quota.waiting == 0
    assert engine.talks == []
    assert quota.told == []


async def test_a_client_that_leaves_closes_its_targets_connection_and_its_call_counts() -> None:
    asked = asyncio.Event()

    async def behave(talk: Talk) -> None:
        asked.set()
        await talk.gone.wait()

    quota = QuotaDouble()
    async with raw_engine(behave) as engine, proxying(quota, targets={"api": engine.url}) as plane:
        client = await Client.to(plane.url)
        await client.send(get("/proxy/api/a"))
        await asked.wait()
        client.reset()
        (report,) = await quota.until("report")
        async with asyncio.timeout(60):
            await engine.talks[0].gone.wait()
        await over(plane)
    assert report["status"] is None


HALF = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"


@pytest.mark.parametrize(("begun", "version"), [(b"", b"1.0"), (HALF, b"1.1")], ids=["before_the_head", "amid_the_answer"])
async def test_a_client_that_closes_its_side_gives_up_its_lease_while_its_target_hangs(
    begun: bytes, version: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that ends sends no more than that, and nothing that could be written tells it from one that reads on."""
    assert call.HALF_CLOSE_SECONDS_MAX <= 1.5, "within 2 s, with the sweep's 0.25"
    monkeypatch.setattr(call, "HALF_CLOSE_SECONDS_MAX", 0.1)
    asked = asyncio.Event()

    async def behave(talk: Talk) -> None:
        await talk.send(begun)
        asked.set()
        await talk.gone.wait()

    quota = QuotaDouble()
    async with raw_engine(behave) as engine, proxying(quota, targets={"api": engine.url}) as plane, client_of(plane) as client:
        await client.send(get("/proxy/api/a").replace(b"HTTP/1.1", b"HTTP/" + version))
        await asked.wait()
        await client.until(begun[-4:])
        client.half_close()
        (report,) = await quota.until("report")
        async with asyncio.timeout(60):
            await engine.talks[0].gone.wait()
        await over(plane)
    assert report["status"] is None


async def test_a_client_that_closes_its_side_while_it_waits_has_asked_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "HALF_CLOSE_SECONDS_MAX", 0.1)

    async def decide(wish: dict[str, Any]) -> Granted:
        await asyncio.Event().wait()
        raise AssertionError

    quota = QuotaDouble(decide)
    async with raw_engine(fine) as engine, proxying(quota, targets={"api": engine.url}) as plane, client_of(plane) as client:
        await client.send(get("/proxy/api/a"))
        await quota.until_asked(1)
        client.half_close()
        await over(plane)
    assert (quota.withdrawn, engine.talks, quota.told) == (1, [], [])


async def test_a_client_that_closes_its_side_gets_an_answer_that_comes_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "HALF_CLOSE_SECONDS_MAX", 60.0)  # a busy machine is not soon
    asked = asyncio.Event()

    async def behave(talk: Talk) -> None:
        await asked.wait()
        await talk.send(json_answer(OK))

    async with raw_engine(behave) as engine, proxying(QuotaDouble(), targets={"api": engine.url}) as plane, client_of(plane) as client:
        await client.send(get("/proxy/api/a"))
        client.half_close()
        await client.until(b"100 Continue")
        asked.set()
        await client.until(OK)


async def test_a_target_that_is_not_there_costs_nothing() -> None:
    quota = QuotaDouble()
    async with proxying(quota, targets={"api": "http://127.0.0.1:9"}) as plane, client_of(plane) as client:
        answer = await client.ask(get("/proxy/api/a"))
        await quota.until("release")
    assert (answer.status, answer.error["code"]) == (502, "target_unreachable")
    assert quota.kinds() == ["release"]


async def test_a_post_is_never_sent_twice_by_us_alone_and_a_get_over_a_stale_connection_is() -> None:
    async def behave(talk: Talk) -> None:
        if talk.again:
            talk.reset()
        else:
            await fine(talk)

    quota = QuotaDouble()
    async with raw_engine(behave) as engine, proxying(quota, targets={"api": engine.url}) as plane, client_of(plane) as client:
        assert (await client.ask(post(path="/proxy/api/a"))).status == 200
        lost = await client.ask(post(path="/proxy/api/b"))
        assert (lost.status, lost.error["code"]) == (502, "target_failed")
        assert "may have been carried out" in lost.error["message"]
        await client.send(get("/proxy/api/c"))
        assert (await client.answer("GET")).status == 200
        await client.send(get("/proxy/api/d"))
        assert (await client.answer("GET")).status == 200
    sent = [talk.head.split(b" ")[1] for talk in engine.talks]
    assert [sent.count(path) for path in (b"/a", b"/b", b"/c", b"/d")] == [1, 1, 1, 2]


async def test_an_answer_that_breaks_off_is_seen_to_be_broken() -> None:
    async def behave(talk: Talk) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc")
        talk.reset()

    quota = QuotaDouble()
    async with raw_engine(behave) as engine, proxying(quota, targets={"api": engine.url}) as plane, client_of(plane) as client:
        answer = await client.ask(get("/proxy/api/a"))
        (report,) = await quota.until("report")
    assert (answer.status, answer.body, answer.complete) == (200, b"abc", False)
    assert report["status"] is None


async def test_stopping_refuses_who_waits_and_lets_who_is_answered_finish() -> None:
    go_on, asked = asyncio.Event(), asyncio.Event()

    async def behave(talk: Talk) -> None:
        asked.set()
        await go_on.wait()
        await fine(talk)

    async def decide(wish: dict[str, Any]) -> Granted:
        if wish["caller"] == "waits":
            await asyncio.Event().wait()
        return await quota.grant(wish)

    quota = QuotaDouble(decide)
    async with (
        raw_engine(behave) as engine,
        proxying(quota, targets={"api": engine.url}) as plane,
        client_of(plane) as runs,
        client_of(plane) as waits,
    ):
        await runs.send(get("/proxy/api/a"))
        await asked.wait()
        await waits.send(get("/proxy/api/a", x_luftpause_caller="waits"))
        await quota.until_asked(2)
        stopping = asyncio.create_task(plane.stop(asyncio.Event()))
        refused = await waits.answer("GET")
        assert (refused.status, refused.error["code"]) == (503, "stopping")
        go_on.set()
        assert (await runs.answer("GET")).status == 200
        await stopping
    assert [facts["status"] for facts in await quota.until("report")] == [200]


async def test_being_ended_at_once_breaks_off_what_is_answered_and_charges_it() -> None:
    async def behave(talk: Talk) -> None:
        await talk.send(STREAM_HEAD + chunked(b"data: one\n\n"))
        await talk.gone.wait()

    quota = QuotaDouble()
    async with raw_engine(behave) as engine, proxying(quota, targets={"api": engine.url}) as plane, client_of(plane) as client:
        await client.send(get("/proxy/api/a"))
        await client.until(b"data: one")
        now = asyncio.Event()
        now.set()
        await plane.stop(now)
        rest = await client.closed()
        assert not rest.endswith(b"0\r\n\r\n"), "it does not look complete"
    assert [facts["status"] for facts in await quota.until("report")] == [None]


async def test_the_pages_count_calls_by_target_and_never_by_path() -> None:
    quota = QuotaDouble()
    async with (
        raw_engine(fine) as engine,
        proxying(quota, targets={"api": engine.url}) as plane,
        client_of(plane) as client,
    ):
        await client.ask(get("/proxy/api/secret-path"))
        page = (await client.ask(get("/metrics"))).body.decode()
    assert 'route="/proxy/{target}"' in page
    assert "secret-path" not in page
    assert json.dumps("proxy/api") in page
