"""Who may send turns, as whom, and where do keys go? (O08, O34)"""

import logging
from pathlib import Path

import pytest

from luftpause.dataplane.turns import Replica
from luftpause.kit.auth import LOOK_SECONDS, Tokens
from luftpause.kit.config import Config, DataplaneConfig
from tests.support.fake_scheduler import FakeScheduler, replica
from tests.support.plane import BODY, Client, get, post, running_plane
from tests.support.raw_engine import Talk, json_answer, raw_engine

TOKEN, WRONG, ANN, BEN = ("right-" + "r" * 30, "wrong-" + "w" * 30, "ann-" + "a" * 30, "ben-" + "b" * 30)
APP = "https://app.example"
ASKED = "authorization, mcp-protocol-version, mcp-session-id, last-event-id, x-luftpause-run-id"
ANSWER = b'{"choices":[{"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}'
CANARY_HEADERS = ("x_api_key", "api_key", "x_goog_api_key", "xi_api_key", "cookie", "proxy_authorization", "x_luftpause_caller")


async def good(talk: Talk) -> None:
    await talk.send(json_answer(ANSWER))


@pytest.fixture
def people(tmp_path: Path) -> Tokens:
    file = tmp_path / "tokens.yaml"
    file.write_text(f"ann: {ANN}\nben: {BEN}\n")
    file.chmod(0o600)
    return Tokens(TOKEN, file)


# ---- who may call


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, "no_token"),
        ({"authorization": f"Bearer {WRONG}"}, "unknown_token"),
        ({"authorization": f"Basic {TOKEN}"}, "no_token"),
        ({"authorization": TOKEN}, "no_token"),
        ({"x_api_key": WRONG}, "unknown_token"),
    ],
)
async def test_without_the_token_nothing_under_v1_answers_and_health_does(headers: dict[str, str], code: str) -> None:
    scheduler = FakeScheduler(replica("a", "http://127.0.0.1:9"))
    async with running_plane(scheduler, tokens=Tokens(TOKEN)) as plane:
        client = await Client.to(plane.url)
        for request in (
            post(**headers),
            post(path="/v1/messages", **headers),
            post(path="/v1/decide", **headers),
            post(path="/v1/nothing", **headers),
            get("/v1/models", **headers),
            get("/v1/runs/mine", "DELETE", **headers),
            get("/v1/responses/resp_1", **headers),
            get("/metrics", **headers),
            get("/openapi.json", **headers),
        ):
            answer = await client.ask(request)
            assert (answer.status, answer.error["code"], answer.headers["www-authenticate"]) == (401, code, "Bearer"), request[:40]
            assert answer.error["type"] == "authentication_error"
            assert WRONG.encode() not in client.raw
        for path in ("/health", "/ready"):
            assert (await client.ask(get(path))).status == 200
        client.close()
    assert not scheduler.asks
    assert not scheduler.ended_runs


async def test_a_body_that_nobody_may_send_is_not_read() -> None:
    scheduler = FakeScheduler()
    async with running_plane(scheduler, tokens=Tokens(TOKEN)) as plane:
        client = await Client.to(plane.url)
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        answer = await client.ask(head + b"content-length: 20000000\r\nexpect: 100-continue\r\n\r\n")
        assert (answer.status, answer.interim, answer.headers["connection"]) == (401, [], "close")
        client.close()


@pytest.mark.parametrize("headers", [{"authorization": f"Bearer {TOKEN}"}, {"authorization": f"bearer  {TOKEN}"}, {"x_api_key": TOKEN}])
async def test_the_token_is_taken_as_bearer_and_as_api_key(headers: dict[str, str]) -> None:
    async with raw_engine(good) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler, tokens=Tokens(TOKEN)) as plane:
            client = await Client.to(plane.url)
            assert (await client.ask(post(x_luftpause_caller="me", **headers))).status == 200
            for path in ("/v1/models", "/metrics"):
                assert (await client.ask(get(path, **headers))).status == 200
            client.close()
    (ask,) = scheduler.asks.values()
    assert (ask.caller, ask.principal) == ("me", "")


async def test_metrics_may_be_opened_on_purpose() -> None:
    async with running_plane(FakeScheduler(), tokens=Tokens(TOKEN), metrics_open=True) as plane:
        client = await Client.to(plane.url)
        assert (await client.ask(get("/metrics"))).status != 401
        assert (await client.ask(get("/v1/models"))).status == 401
        client.close()


# ---- as whom


async def test_whose_token_it_is_counts_and_not_what_the_headers_say(people: Tokens) -> None:
    async with raw_engine(good) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler, tokens=people) as plane:
            client = await Client.to(plane.url)
            for headers in (
                {"authorization": f"Bearer {ANN}"},
                {"authorization": f"Bearer {ANN}", "x_luftpause_caller": "ben", "x_luftpause_run_id": "main"},
                {"x_api_key": BEN, "x_luftpause_run_id": "main"},
                {"authorization": f"Bearer {TOKEN}", "x_luftpause_caller": "anybody"},
            ):
                assert (await client.ask(post(**headers))).status == 200
            decided = await client.ask(
                post(
                    b'{"model":"m","input":"x","labels":["a","b"]}',
                    path="/v1/decide",
                    authorization=f"Bearer {BEN}",
                    x_luftpause_caller="ann",
                )
            )
            assert decided.status in {200, 502}
            for token in (ANN, BEN, TOKEN):
                assert (await client.ask(get("/v1/runs/main", "DELETE", authorization=f"Bearer {token}"))).status == 204
            client.close()
    told = [(ask.caller, ask.principal) for ask in scheduler.asks.values()]
    assert told == [("ann", "ann"), ("ann", "ann"), ("ben", "ben"), ("anybody", ""), ("ben", "ben")]
    assert scheduler.principals == ["ann", "ben", ""]
    assert all(talk.header("x-luftpause-caller") is None for talk in engine.talks)


async def test_a_stored_response_of_nobody_knows_whom_is_not_looked_for_on_behalf_of_a_principal(people: Tokens) -> None:
    async with raw_engine(good) as engine:
        scheduler = FakeScheduler(replica("a", engine.url))
        async with running_plane(scheduler, tokens=people) as plane:
            client = await Client.to(plane.url)
            other = await client.ask(get("/v1/responses/resp_1", "DELETE", authorization=f"Bearer {ANN}"))
            assert (other.status, other.error["code"], engine.talks) == (404, "response_not_found", [])
            scheduler.connected = False
            assert (await client.ask(get("/v1/responses/resp_1", authorization=f"Bearer {ANN}"))).status == 503
            scheduler.located["resp_1"] = "a"
            assert (await client.ask(get("/v1/responses/resp_1", authorization=f"Bearer {ANN}"))).status == 200
            del scheduler.located["resp_1"]
            assert (await client.ask(get("/v1/responses/resp_1", authorization=f"Bearer {TOKEN}"))).status == 200
            client.close()
    assert scheduler.principals == ["ann", "ann", "ann", ""]


async def test_a_token_that_is_taken_back_while_the_body_comes_opens_nothing(tmp_path: Path) -> None:
    now, file = [0.0], tmp_path / "tokens.yaml"
    file.write_text(f"ann: {ANN}\n")
    file.chmod(0o600)
    scheduler = FakeScheduler(replica("a", "http://127.0.0.1:9"))
    async with running_plane(scheduler, tokens=Tokens(TOKEN, file, clock=lambda: now[0])) as plane:
        client = await Client.to(plane.url)
        request = post(authorization=f"Bearer {ANN}", expect="100-continue")
        await client.send(request[: -len(BODY)])
        await client.until(b"100 Continue\r\n\r\n")
        file.write_text(f"ann: {BEN}\n")
        now[0] += 2 * LOOK_SECONDS
        await client.send(BODY)
        await client.until(b"401 Unauthorized")
        client.close()
    assert not scheduler.asks


# ---- web pages


async def test_a_preflight_needs_no_token_and_a_refusal_can_be_read_by_the_page() -> None:
    async with running_plane(FakeScheduler(), tokens=Tokens(TOKEN), cors_origins=(APP,)) as plane:
        client = await Client.to(plane.url)
        asks = {"origin": APP, "access_control_request_method": "POST", "access_control_request_headers": ASKED}
        await client.send(get("/v1/chat/completions", "OPTIONS", **asks))
        preflight = await client.answer("OPTIONS")
        assert preflight.status == 204
        assert preflight.headers["access-control-allow-origin"] == APP
        assert preflight.headers["access-control-allow-headers"] == ASKED
        assert preflight.headers["access-control-allow-methods"] == "GET, POST, DELETE"
        refused = await client.ask(post(origin=APP))
        assert (refused.status, refused.headers["www-authenticate"], refused.headers["access-control-allow-origin"]) == (401, "Bearer", APP)
        assert "www-authenticate" in refused.headers["access-control-expose-headers"]
        client.close()


async def test_without_configured_origins_no_page_is_allowed_anything() -> None:
    async with running_plane(FakeScheduler(), tokens=Tokens(TOKEN)) as plane:
        client = await Client.to(plane.url)
        await client.send(get("/v1/chat/completions", "OPTIONS", origin=APP, access_control_request_method="POST"))
        preflight = await client.answer("OPTIONS")
        plain = await client.ask(post())
        assert "access-control-allow-origin" not in preflight.headers | plain.headers
        client.close()


# ---- where keys go


@pytest.mark.parametrize("hosted", [False, True])
@pytest.mark.parametrize("as_api_key", [False, True])
async def test_an_engine_sees_its_own_key_and_no_other_secret(hosted: bool, as_api_key: bool, caplog: pytest.LogCaptureFixture) -> None:
    canaries = dict.fromkeys(CANARY_HEADERS, "canary") | ({"x_api_key": TOKEN} if as_api_key else {"authorization": f"Bearer {TOKEN}"})
    caplog.set_level(logging.DEBUG)
    async with raw_engine(good) as engine:
        scheduler = FakeScheduler(Replica("a", engine.url, ("m",), replica("a", "").kind, "healthy", "own-key" if hosted else ""))
        async with running_plane(scheduler, tokens=Tokens(TOKEN)) as plane:
            client = await Client.to(plane.url)
            assert (await client.ask(post(**canaries))).status == 200
            assert (await client.ask(post(b'{"model":"unread', **canaries))).status == 400
            assert (await client.ask(get("/v1/responses/resp_1", **canaries))).status == 200
            assert (await client.ask(post(BODY, path="/v1/messages/count_tokens", **canaries))).status == 200
            client.close()
    assert len(engine.talks) == 3
    for talk in engine.talks:
        assert talk.header("authorization") == ("Bearer own-key" if hosted else None)
        assert b"canary" not in talk.head + talk.body
        assert TOKEN.encode() not in talk.head + talk.body
    told = caplog.text + str([vars(record) for record in caplog.records]) + client.raw.decode("latin-1")
    assert "canary" not in told
    assert TOKEN not in told
    assert "own-key" not in told


async def test_a_redirect_is_passed_on_and_nothing_goes_where_it_points() -> None:
    async with raw_engine(good) as elsewhere:

        async def away(talk: Talk) -> None:
            await talk.send(json_answer(b"{}", "307 Temporary Redirect", b"location: %b/v1/chat/completions\r\n" % elsewhere.url.encode()))

        async with raw_engine(away) as engine:
            scheduler = FakeScheduler(replica("a", engine.url, api_key="own-key"))
            async with running_plane(scheduler, tokens=Tokens(TOKEN)) as plane:
                client = await Client.to(plane.url)
                answer = await client.ask(post(authorization=f"Bearer {TOKEN}"))
                assert (answer.status, b"own-key" in client.raw) == (307, False)
                client.close()
        assert elsewhere.connections == 0


SECRETS = [("authorization", "api_key_env"), ("Authorization", "api_key_env"), ("x-api-key", "api_key_env"), ("cookie", "api_key_env"),
    ("X_Api_Key", "api_key_env"), ("x-luftpause-token", "own token"), ("X_Luftpause_Token", "own token")]  # fmt: skip


@pytest.mark.parametrize(("name", "why"), SECRETS)
def test_no_configuration_sends_a_clients_secret_on(name: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        DataplaneConfig(forward_headers=("accept", name))
    assert not {"authorization", "x-api-key", "cookie", "x-luftpause-caller"} & set(Config().dataplane.forward_headers)
