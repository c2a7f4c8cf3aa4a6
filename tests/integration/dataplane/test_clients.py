"""How does the dataplane treat what clients send on a connection, well-formed or not?"""

import asyncio
import json

import pytest

from luftpause import __version__
from tests.support.fake_scheduler import FakeScheduler, hold_all, place_soon, replica
from tests.support.plane import BODY, STREAM_BODY, Client, client_of, get, post, running_plane
from tests.support.raw_engine import Talk, chunked, json_answer, raw_engine

GOOD = b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}'


CHUNKED_HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
)


async def good(talk: Talk) -> None:
    await talk.send(json_answer(GOOD))


async def in_pieces(client: Client, data: bytes, size: int) -> None:
    for at in range(0, len(data), size):
        client.writer.write(data[at : at + size])
        await asyncio.sleep(0)


@pytest.mark.parametrize("size", [1, 3, 17, 60])
async def test_a_request_cut_anywhere_is_served(size: int) -> None:
    chunks = b"5;ext=1\r\n" + BODY[:5] + b"\r\n" + chunked(BODY[5:]) + b"0\r\ntrailer: x\r\n\r\n"
    upgrade = "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n"
    head = f"POST /v1/chat/completions?a=b HTTP/1.1\r\nhost: localhost:80\r\n{upgrade}content-type: application/json; charset=utf-8\r\n"
    async with raw_engine(good) as engine:
        scheduler = FakeScheduler(replica("a", engine.url), decide=place_soon)
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            for _ in range(2):
                await in_pieces(client, head.encode() + b"transfer-encoding: chunked\r\n\r\n" + chunks, size)
                assert (await client.answer()).body == GOOD
                await in_pieces(client, head.encode() + b"content-length: %d\r\n\r\n" % len(BODY) + BODY, size)
                assert (await client.answer()).body == GOOD
                await in_pieces(client, get("/health"), size)
                answer = json.loads((await client.answer("GET")).body)
                assert answer == {"status": "ok", "service": "dataplane", "version": __version__}
    assert [talk.body for talk in engine.talks] == [BODY] * 4
    assert all(b"upgrade" not in talk.head.lower() for talk in engine.talks)


@pytest.mark.parametrize("second", [get("/health"), post()])
@pytest.mark.parametrize("apart", [False, True])
async def test_pipelining_is_refused_by_closing_after_the_first_answer(second: bytes, apart: bool) -> None:
    async with raw_engine(good) as engine:
        scheduler = FakeScheduler(replica("a", engine.url), decide=hold_all)
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            if apart:
                await client.send(post())
                await scheduler.until(lambda: bool(scheduler.asks))
                await client.send(second)
                await asyncio.sleep(0.05)
            else:
                await client.send(post() + second)
                await scheduler.until(lambda: bool(scheduler.asks))
            scheduler.place(scheduler.only, "a")
            answer = await client.answer()
            assert (answer.status, answer.body, answer.complete) == (200, GOOD, True)
            assert answer.headers.get("connection") == "close"
            assert await client.closed() == b""
    assert len(engine.talks) == 1


async def test_expect_100_continue_is_answered_before_the_body_comes() -> None:
    async with raw_engine(good) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            head = post(BODY, expect="100-continue").removesuffix(BODY)
            await client.send(head)
            await client.until(b"HTTP/1.1 100 Continue\r\n\r\n")
            await client.send(BODY)
            await client.until(GOOD)
    assert engine.talks[0].header("expect") is None


async def test_a_refused_expectation_gets_its_error_without_the_body() -> None:
    async with running_plane(FakeScheduler(), max_body_bytes=1000) as plane, client_of(plane) as client:
        answer = await client.ask(post(b"x" * 1001, expect="100-continue").removesuffix(b"x" * 1001))
        assert (answer.status, answer.interim, answer.headers["connection"]) == (413, [], "close")
    async with running_plane(FakeScheduler()) as plane, client_of(plane) as client:
        assert (await client.ask(post(BODY, expect="200-maybe").removesuffix(BODY))).status == 417


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "http_version"),
        (b"GET /health HTTP/2.0\r\nhost: localhost\r\n\r\n", 505, "http_version"),
        (b"GET /health\r\n\r\n", 505, "http_version"),
        (b"GET /health HTTP/1.1\r\n\r\n", 400, "bad_request"),
        (b"GET /health HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400, "bad_request"),
        (b"GET /health HTTP/1.1\nhost: localhost\n\n", 400, "bad_request"),
        (b"GET /health HTTP/1.1\r\nhost: localhost\nx: y\r\n\r\n", 400, "bad_request"),
        (b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: y\r\n  z\r\n\r\n", 400, "bad_request"),
        (b"GET /health HTTP/1.1\r\nhost : localhost\r\n\r\n", 400, "bad_request"),
        (b"GET /health HTTP/1.1\r\nhost: local\0host\r\n\r\n", 400, "bad_request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", 400, "bad_request"),
        (b"NONSENSE\r\n", 400, "bad_request"),
        (b"CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n", 405, "method_not_allowed"),
        (
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            "bad_request",
        ),
        (
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n0\r\n\r\n",
            400,
            "bad_request",
        ),
        (b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}x", 400, "bad_request"),
        (b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: -2\r\n\r\n{}", 400, "bad_request"),
        (
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            501,
            "transfer_coding",
        ),
        *(
            (
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: %b\r\ntransfer-encoding: chunked\r\n\r\n"
                % other,
                501,
                "transfer_coding",
            )
            for other in (b"gzip", b"identity")
        ),
        (b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 400, "bad_request"),
        (b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n2\n{}\n0\n\n", 400, "bad_request"),
        (
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
            400,
            "bad_request",
        ),
        (b"GET /health HTTP/1.1\r\nhost: localhost\r\n" + b"x: y\r\n" * 200 + b"\r\n", 431, "head_too_large"),
        (b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 70_000, 431, "head_too_large"),
        (b"GET /" + b"y" * 70_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n", 431, "head_too_large"),
    ],
)
async def test_malformed_requests_get_an_error_and_a_close(request_: bytes, status: int, code: str) -> None:
    scheduler = FakeScheduler()
    async with running_plane(scheduler) as plane, client_of(plane) as client:
        await client.send(request_)
        answer = await client.answer()
        assert (answer.status, answer.error["code"], answer.headers["connection"]) == (status, code, "close")
        assert await client.closed() == b""
    assert not scheduler.asks


async def test_endless_chunk_extensions_are_refused() -> None:
    async with running_plane(FakeScheduler()) as plane, client_of(plane) as client:
        await client.send(CHUNKED_HEAD + b"1;")
        for _ in range(20):
            client.writer.write(b"x" * 10_000)
        assert (await client.answer()).status == 400


@pytest.mark.parametrize("framing", ["content-length", "chunked"])
async def test_a_body_that_is_too_long_is_413(framing: str) -> None:
    async with running_plane(FakeScheduler(), max_body_bytes=100_000) as plane, client_of(plane) as client:
        if framing == "chunked":
            await client.send(CHUNKED_HEAD + chunked(b"x" * 60_000) + chunked(b"x" * 60_000))
        else:
            await client.send(post(b"x" * 100_001))
        answer = await client.answer()
    assert (answer.status, answer.error["code"], answer.complete) == (413, "body_too_large", True)


@pytest.mark.parametrize("sends", [b"GET /health HTTP/1.1\r\n", post()[:-5], b"P"])
async def test_a_request_that_drips_is_408(sends: bytes) -> None:
    async with running_plane(FakeScheduler(), head_seconds_max=0.3, body_seconds_max=0.3) as plane, client_of(plane) as client:
        await client.send(sends)
        assert (await client.answer()).status == 408
        assert await client.closed() == b""


async def test_an_idle_connection_is_closed() -> None:
    async with running_plane(FakeScheduler(), idle_connection_seconds=0.3) as plane, client_of(plane) as client:
        assert (await client.ask(get("/health"))).status == 200
        assert await client.closed() == b""


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"host": "evil.example"}, 403, "host"),
        ({"host": ""}, 403, "host"),
        ({"host": "localhost:1@evil.example"}, 403, "host"),
        ({"host": "[::1].evil.example"}, 403, "host"),
        ({"path": "http://evil.example/v1/chat/completions"}, 403, "host"),
        ({"content_encoding": "gzip"}, 415, "content_encoding"),
        ({"origin": "https://evil.example"}, 403, "origin"),
        ({"origin": "null"}, 403, "origin"),
        ({"content_type": "text/plain"}, 415, "content_type"),
        ({"content_type": "application/x-www-form-urlencoded"}, 415, "content_type"),
        ({"content_type": ""}, 415, "content_type"),
    ],
)
async def test_what_a_web_page_could_send_is_refused(headers: dict[str, str], status: int, code: str) -> None:
    scheduler = FakeScheduler()
    async with running_plane(scheduler) as plane, client_of(plane) as client:
        answer = await client.ask(post(**headers))
        assert (answer.status, answer.error["code"]) == (status, code)
        assert (await client.ask(get("/health"))).status == 200, "a small body was read to its end: the connection goes on"
    assert not scheduler.asks


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:9"])
async def test_own_names_are_served(host: str) -> None:
    async with raw_engine(good) as engine, running_plane(FakeScheduler(replica("a", engine.url))) as plane, client_of(plane) as client:
        assert (await client.ask(post(host=host))).status == 200


async def test_an_allowed_origin_gets_its_preflight_and_may_read_the_answer() -> None:
    async with (
        raw_engine(good) as engine,
        running_plane(FakeScheduler(replica("a", engine.url)), cors_origins=("https://app.example",)) as plane,
        client_of(plane) as client,
    ):
        asks = {
            "origin": "https://app.example",
            "access_control_request_method": "POST",
            "access_control_request_headers": "authorization, x-luftpause-run-id",
        }
        await client.send(get("/v1/chat/completions", "OPTIONS", **asks))
        preflight = await client.answer("OPTIONS")
        answer = await client.ask(post(origin="https://app.example"))
        refused = await client.ask(post(b"[]", origin="https://app.example"))
    assert preflight.status == 204
    assert preflight.headers["access-control-allow-origin"] == "https://app.example"
    assert preflight.headers["access-control-allow-headers"] == "authorization, x-luftpause-run-id"
    assert "POST" in preflight.headers["access-control-allow-methods"]
    for got, status in ((answer, 200), (refused, 400)):
        assert got.status == status
        assert got.headers["access-control-allow-origin"] == "https://app.example"
        assert "x-luftpause-run-id" in got.headers["access-control-expose-headers"]


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "/v1/chat/completions", 405, "OPTIONS, POST"),
        ("HEAD", "/v1/chat/completions", 405, "OPTIONS, POST"),
        ("DELETE", "/v1/models", 405, "GET, HEAD, OPTIONS"),
        ("GET", "/v1/runs/x", 405, "DELETE, OPTIONS"),
        ("OPTIONS", "/v1/models", 204, "GET, HEAD, OPTIONS"),
        ("OPTIONS", "/v1/chat/completions", 204, "OPTIONS, POST"),
        ("HEAD", "/v1/models", 200, None),
        ("GET", "/nope", 404, None),
        ("GET", "/docs", 404, None),
        ("GET", "/openapi.json", 404, None),
        ("OPTIONS", "/nope", 404, None),
        ("GET", "/v1/v1/models", 404, None),
        ("HEAD", "/health", 200, None),
        ("GET", "/health/", 200, None),
        ("GET", "/v1/models?x=y", 200, None),
    ],
)
async def test_routes_and_methods(method: str, path: str, status: int, allow: str | None) -> None:
    async with running_plane(FakeScheduler()) as plane, client_of(plane) as client:
        await client.send(get(path, method))
        answer = await client.answer(method)
        assert (answer.status, answer.headers.get("allow")) == (status, allow)
        if status == 404:
            assert path in answer.error["message"]
        if method == "HEAD":
            assert answer.body == b""
        assert (await client.ask(get("/health"))).status == 200, "the connection goes on"


async def test_a_wrong_path_below_a_quota_is_not_sent_to_where_turns_go() -> None:
    async with running_plane(FakeScheduler()) as plane, client_of(plane) as client:
        await client.send(get("/v1/quota/github/frob"))
        message = (await client.answer("GET")).error["message"]
    assert "there is no /v1/quota/github/frob here; /v1/quota/TARGET/ is followed by" in message


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/chat/completions", "/v1/chat/completions"),
        ("/models", "/v1/models"),
        ("/v1/v1/messages", "/v1/messages"),
        ("/responses", "/v1/responses"),
        ("/nope", None),
    ],
)
async def test_a_wrong_base_url_is_told_the_right_path(path: str, meant: str | None) -> None:
    async with running_plane(FakeScheduler()) as plane, client_of(plane) as client:
        await client.send(get(path))
        message = (await client.answer("GET")).error["message"]
        assert f"there is no {path} here" in message
        assert (f"did you mean {meant}?" in message) if meant else ("turns go to /v1/chat/completions" in message)


async def test_models_are_the_union_and_a_run_can_be_ended() -> None:
    scheduler = FakeScheduler(replica("a", "http://a", "m1", "m2"), replica("b", "http://b", "m2", "m3/x", "m*"))
    async with running_plane(scheduler) as plane, client_of(plane) as client:
        models = json.loads((await client.ask(get("/v1/models"))).body)
        assert (models["object"], models["has_more"], models["first_id"], models["last_id"]) == ("list", False, "m1", "m3/x")
        assert {(each["type"], each["display_name"] == each["id"], each["created_at"][-1]) for each in models["data"]} == {
            ("model", True, "Z")
        }
        assert [each["id"] for each in models["data"]] == ["m1", "m2", "m3/x"]
        assert {each["object"] for each in models["data"]} == {"model"}
        assert json.loads((await client.ask(get("/v1/models/m3/x"))).body)["owned_by"] == "b"
        assert (await client.ask(get("/v1/models/none"))).status == 404
        assert (await client.ask(get("/v1/models/m*"))).status == 404, "no model has that name"
        assert json.loads((await client.ask(get("/v1/models/m7"))).body)["owned_by"] == "b", "by its pattern: a turn would go there"
        await client.send(get("/v1/runs/session%3Aagent", "DELETE"))
        assert (await client.answer("DELETE")).status == 204
        await client.send(get("/v1/runs/" + "x" * 129, "DELETE"))
        assert (await client.answer("DELETE")).status == 400
    assert scheduler.ended_runs == ["session:agent"]


async def test_ready_says_whether_a_scheduler_was_ever_there() -> None:
    scheduler = FakeScheduler(replica("a", "http://a", "m1"))
    scheduler.contacted = scheduler.connected = False
    async with running_plane(scheduler) as plane, client_of(plane) as client:
        before = await client.ask(get("/ready", host="any.name"))
        scheduler.contacted = True
        after = await client.ask(get("/ready"))
    assert before.status == 503
    assert after.status == 200
    assert json.loads(after.body) == {
        "ready": True,
        "stopping": False,
        "scheduler": {"connected": False, "contacted": True},
        "replicas": [{"name": "a", "state": "healthy", "kind": "generative", "models": ["m1"]}],
    }


async def test_turns_and_other_requests_share_a_connection() -> None:
    async with raw_engine(good) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler) as plane, client_of(plane) as client:
            for _ in range(3):
                assert (await client.ask(get("/v1/models"))).status == 200
                assert (await client.ask(post())).body == GOOD
                assert (await client.ask(get("/nope"))).status == 404


async def test_connection_close_is_respected() -> None:
    async with raw_engine(good) as engine, running_plane(FakeScheduler(replica("a", engine.url))) as plane, client_of(plane) as client:
        answer = await client.ask(post(STREAM_BODY, connection="close"))
        assert answer.headers["connection"] == "close"
        assert await client.closed() == b""
    assert engine.talks[0].header("connection") is None


async def test_an_early_error_reaches_a_client_that_is_still_sending() -> None:
    async with running_plane(FakeScheduler(), max_body_bytes=100_000) as plane, client_of(plane) as client:
        await client.send(post(b"x" * 20_000_000))
        answer = await client.answer()
    assert (answer.status, answer.complete) == (413, True)
