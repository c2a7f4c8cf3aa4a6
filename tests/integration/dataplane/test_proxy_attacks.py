"""Can somebody use the governed proxy to reach what it does not serve, to smuggle a request, or to learn or leak a credential?"""

import base64
import logging
import ssl
from pathlib import Path

import pytest

from luftpause.dataplane import upstream
from luftpause.kit.auth import Tokens
from luftpause.kit.config_governor import GovernorConfig
from luftpause.kit.errors import ConfigError
from tests.support.certificates import Certificates, certificates
from tests.support.fake_scheduler import FakeScheduler, replica
from tests.support.plane import Client, client_of, get, post, running_plane
from tests.support.proxied_calls import governed, proxying
from tests.support.quota_double import QuotaDouble
from tests.support.raw_engine import Talk, json_answer, raw_engine

TOKEN, ANN = "right-" + "r" * 30, "ann-" + "a" * 30
OWN = "Bearer ghp_callers-own-credential"
OK = b'{"ok":true}'
HOST = b"host: 127.0.0.1\r\n"


async def fine(talk: Talk) -> None:
    await talk.send(json_answer(OK))


# ---- who may


MISPLACED = [
    ({}, 401, "no_token"),
    ({"x_luftpause_token": "wrong-" + "w" * 30}, 401, "unknown_token"),
    ({"x_luftpause_token": f"Bearer {TOKEN}"}, 401, "unknown_token"),
    ({"x_luftpause_token": ""}, 401, "no_token"),
    ({"authorization": f"Bearer {TOKEN}"}, 401, "no_token"),
    ({"x_luftpause_token": TOKEN, "authorization": f"Bearer {TOKEN}"}, 400, "token_misplaced"),
    ({"x_luftpause_token": TOKEN, "authorization": f"token {TOKEN}"}, 400, "token_misplaced"),
    ({"x_luftpause_token": TOKEN, "x_api_key": TOKEN}, 400, "token_misplaced"),
    ({"x_luftpause_token": TOKEN, "x_anything": ANN}, 400, "token_misplaced"),
    ({"x_luftpause_token": ANN, "authorization": f"Basic {base64.b64encode(f'me:{TOKEN}'.encode()).decode()}"}, 400, "token_misplaced"),
]


@pytest.mark.parametrize("is_open", [True, False])
async def test_where_a_token_is_set_it_is_wanted_and_never_goes_on(is_open: bool, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"ann: {ANN}\n")
    file.chmod(0o600)
    quota = QuotaDouble()
    async with (
        raw_engine(fine) as engine,
        proxying(quota, tokens=Tokens(TOKEN, file), is_open=is_open, targets={"api": engine.url}) as plane,
        client_of(plane) as client,
    ):
        for headers, status, code in MISPLACED:
            for request in (get("/proxy/api/a", **headers), post(path="/proxy/api/a", **headers), get("/proxy/nowhere", **headers)):
                refused = await client.ask(request)
                assert (refused.status, refused.error["code"]) == (status, code), headers
                assert TOKEN not in refused.body.decode()
                assert ANN not in refused.body.decode()
        refused = await client.ask(get(f"/proxy/api/a?x=1&key={TOKEN}", x_luftpause_token=TOKEN))
        assert (refused.status, refused.error["code"]) == (400, "token_misplaced")
        assert quota.wishes == []
        taken = await client.ask(post(path="/proxy/api/a", x_luftpause_token=ANN, authorization=OWN, x_luftpause_caller="ben"))
    assert taken.status == 200
    (talk,) = engine.talks
    assert talk.header("authorization") == OWN
    assert ANN.encode() not in talk.head
    assert quota.wishes[0]["caller"] == "ann", "a caller with a token of its own can't be faked"


async def test_without_a_token_it_serves_nobody_unless_it_is_opened() -> None:
    async with raw_engine(fine) as engine:
        async with proxying(QuotaDouble(), is_open=False, targets={"api": engine.url}) as plane, client_of(plane) as client:
            refused = await client.ask(post(path="/proxy/api/a", x_luftpause_token="anything"))
            assert (refused.status, refused.error["code"]) == (403, "proxy_closed")
            assert "governor.proxy.open" in refused.error["message"]
        async with proxying(QuotaDouble(), is_open=True, targets={"api": engine.url}) as plane, client_of(plane) as client:
            assert (await client.ask(post(path="/proxy/api/a"))).status == 200
    assert len(engine.talks) == 1


async def test_it_is_off_unless_a_target_has_an_upstream() -> None:
    async with (
        proxying(QuotaDouble(), tokens=Tokens(TOKEN), targets={"api": None}) as configured,
        running_plane(FakeScheduler()) as bare,
        client_of(configured) as one,
        client_of(bare) as other,
    ):
        for path in ("/proxy", "/proxy/", "/proxy/api", "/proxy/api/a?b"):
            for client in (one, other):
                refused = await client.ask(get(path))
                assert (refused.status, refused.error["code"]) == (404, "proxy_off")
                assert "governor.targets" in refused.error["message"]


async def test_only_what_is_configured_is_reached() -> None:
    async with (
        raw_engine(fine) as engine,
        proxying(QuotaDouble(), targets={"api": engine.url, "other": engine.url, "bare": None}) as plane,
        client_of(plane) as client,
    ):
        for path, code in (
            ("/proxy/bare/a", "no_proxy"),
            ("/proxy/evil.example/a", "unknown_target"),
            ("/proxy/127.0.0.1:22/", "unknown_target"),
            ("/proxy/api%2f/a", "unknown_target"),
            ("/proxy/API/a", "unknown_target"),
            ("/proxy/@evil.example/", "unknown_target"),
            ("/proxy/", "unknown_target"),
        ):
            refused = await client.ask(get(path))
            assert (refused.status, refused.error["code"]) == (404, code)
            assert "api, other" in refused.error["message"]
    assert engine.talks == []


@pytest.mark.parametrize("url", ["http://user:secret@host/", "https://host/?a=b", "http://host:0", "http://host/#x"])
async def test_an_upstream_that_is_no_base_url_is_a_mistake_of_the_configuration(url: str) -> None:
    with pytest.raises(ConfigError, match=r"governor\.targets\.api\.proxy") as raised:
        async with proxying(QuotaDouble(), targets={"api": url}):
            pass
    assert "secret" not in str(raised.value)


async def test_an_upstream_that_leads_back_to_the_proxy_is_a_mistake_too() -> None:
    with pytest.raises(ConfigError, match="leads back to this proxy"):
        async with proxying(QuotaDouble(), targets={"api": "http://localhost:8080/proxy/api"}, port=8080):
            pass


def test_it_is_closed_by_default() -> None:
    assert not GovernorConfig().proxy.open


# ---- where a call goes

EVIL_TARGETS = [
    b"/proxy/api/../../v1/models",
    b"/proxy/api/%2e%2e/%2e%2e/",
    b"/proxy/api//evil.example/x",
    b"/proxy/api/%2Fevil.example",
    b"/proxy/api/..%2f..%2f",
    b"/proxy/api/a/..;/b",
    b"/proxy/api/a%0d%0aHost:%20evil.example",
    b"/proxy/api/a%00",
    b"/proxy/api/\\evil.example",
    b"http://127.0.0.1/proxy/api/../x",
]  # fmt: skip


async def test_no_path_leads_away() -> None:
    quota = QuotaDouble()
    async with (
        raw_engine(fine) as engine,
        proxying(quota, targets={"api": engine.url + "/base"}) as plane,
        client_of(plane) as client,
    ):
        for target in EVIL_TARGETS:
            refused = await client.ask(b"GET " + target + b" HTTP/1.1\r\n" + HOST + b"\r\n")
            assert (refused.status, refused.error["code"]) == (400, "bad_proxy_path"), target
    assert (engine.talks, quota.wishes) == ([], [])


EVIL_REQUESTS = [
    (b"GET http://evil.example/proxy/api/a HTTP/1.1", b""),
    (b"GET //evil.example/proxy/api/a HTTP/1.1", b""),
    (b"CONNECT evil.example:443 HTTP/1.1", b""),
    (b"GET /proxy/api/a\r HTTP/1.1", b""),
    (b"GET /proxy/api/a HTTP/1.1", b"x: a\rb\r\n"),
    (b"GET /proxy/api/a HTTP/1.1", b"x: a\0b\r\n"),
    (b"GET /proxy/api/a HTTP/1.1", b"x: a\n b\r\n"),
    (b"GET /proxy/api/a HTTP/1.1", b"x : a\r\n"),
    (b"GET /proxy/api/a HTTP/1.1", b"x: a\r\n folded\r\n"),
    (b"TRACE /proxy/api/a HTTP/1.1", b""),
    (b"GET /proxy/api/a HTTP/1.1", b"upgrade: websocket\r\nconnection: upgrade\r\n"),
    (b"GET /proxy/api/a HTTP/1.1", b"sec-fetch-site: cross-site\r\n"),
    (b"GET /proxy/api/a HTTP/1.1", b"sec-fetch-site: same-site\r\n"),
    (b"GET /proxy/api/a HTTP/1.1", b"origin: https://evil.example\r\n"),
    (b"POST /proxy/api/a HTTP/1.1", b"content-length: 3\r\ntransfer-encoding: chunked\r\n"),
    (b"POST /proxy/api/a HTTP/1.1", b"content-length: 3\r\ncontent-length: 4\r\n"),
    (b"POST /proxy/api/a HTTP/1.1", b"transfer-encoding: gzip, chunked\r\n"),
    (b"GET /proxy/api/a HTTP/1.1", b"host: evil.example\r\n"),
]


async def test_what_nobody_has_any_business_sending_is_refused() -> None:
    quota = QuotaDouble()
    async with raw_engine(fine) as engine, proxying(quota, targets={"api": engine.url}) as plane:
        for request_line, extra in EVIL_REQUESTS:
            async with client_of(plane) as client:
                await client.send(request_line + b"\r\n" + HOST + extra + b"\r\nabc")
                answer = await client.answer("GET")
            assert 400 <= answer.status <= 505, (request_line, extra)
            assert answer.error["code"]
    assert (engine.talks, quota.wishes) == ([], [])


async def test_a_request_inside_a_body_stays_there() -> None:
    hidden = b"0\r\n\r\nGET /proxy/api/hidden HTTP/1.1\r\n" + HOST + b"\r\n"
    async with raw_engine(fine) as engine, proxying(QuotaDouble(), targets={"api": engine.url}) as plane, client_of(plane) as client:
        for message in (
            post(hidden, path="/proxy/api/a"),
            b"POST /proxy/api/a HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(hidden), hidden),
        ):
            assert (await client.ask(message)).status == 200
    assert [talk.body for talk in engine.talks] == [hidden] * 2
    assert all(talk.header("content-length") == str(len(hidden)) and talk.header("transfer-encoding") is None for talk in engine.talks)


async def test_what_the_connection_header_names_does_not_unframe_a_call() -> None:
    evil = {"connection": "content-length, host, x-hop", "x_hop": "1"}
    async with raw_engine(fine) as engine, proxying(QuotaDouble(), targets={"api": engine.url}) as plane, client_of(plane) as client:
        assert (await client.ask(post(b"body", path="/proxy/api/a", **evil))).status == 200
    (talk,) = engine.talks
    assert (talk.body, talk.header("content-length"), talk.header("x-hop")) == (b"body", "4", None)
    assert talk.header("host") == engine.url.removeprefix("http://")


async def test_an_answer_that_can_be_read_in_two_ways_reaches_nobody() -> None:
    async def behave(talk: Talk) -> None:
        await talk.send(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 3\r\n\r\nhello")

    async with raw_engine(behave) as engine, proxying(QuotaDouble(), targets={"api": engine.url}) as plane, client_of(plane) as client:
        answer = await client.ask(get("/proxy/api/a"))
    assert (answer.status, answer.error["code"]) == (502, "target_failed")


async def test_headers_of_ours_in_an_answer_are_not_believed() -> None:
    async def behave(talk: Talk) -> None:
        forged = (
            b"x-luftpause-run-id: forged\r\nx-luftpause-held-ms: 999999\r\nX_Luftpause_Token: forged\r\nx.luftpause-replica: forged\r\n"
        )
        await talk.send(json_answer(OK, more=forged))

    async with raw_engine(behave) as engine, proxying(QuotaDouble(), targets={"api": engine.url}) as plane, client_of(plane) as client:
        answer = await client.ask(get("/proxy/api/a"))
    assert answer.headers["x-luftpause-held-ms"] != "999999"
    assert "forged" not in answer.headers.values()


async def test_headers_of_ours_reach_no_target_however_they_are_spelt() -> None:
    secret = "wrong-" + "w" * 30
    lines = "".join(
        f"{name}: {secret}\r\n" for name in ("X_Luftpause_Token", "x-luftpause_token", "x.luftpause.token", "x_luftpause_caller")
    )
    async with (
        raw_engine(fine) as engine,
        running_plane(FakeScheduler(replica("a", engine.url)), governed=governed(QuotaDouble(), api=engine.url)) as plane,
        client_of(plane) as client,
    ):
        answer = await client.ask(f"GET /proxy/api/a HTTP/1.1\r\nhost: 127.0.0.1\r\nx_own_one: kept\r\n{lines}\r\n".encode())
        turn = await client.ask(post(more="x").replace(b"more: x\r\n", lines.encode()))
    assert (answer.status, turn.status) == (200, 200)
    proxied, of_turn = engine.talks
    assert proxied.header("x_own_one") == "kept"
    assert secret.encode() not in proxied.head + of_turn.head


async def test_an_allowed_page_may_and_its_preflight_is_answered_here() -> None:
    page = "https://app.example"
    async with (
        raw_engine(fine) as engine,
        proxying(QuotaDouble(), tokens=Tokens(TOKEN), targets={"api": engine.url}, cors_origins=(page,)) as plane,
        client_of(plane) as client,
    ):
        await client.send(get("/proxy/api/a", "OPTIONS", origin=page, access_control_request_method="POST"))
        assert (await client.answer("OPTIONS")).headers["access-control-allow-origin"] == page
        answer = await client.ask(post(path="/proxy/api/a", origin=page, sec_fetch_site="cross-site", x_luftpause_token=TOKEN))
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, page)
    assert len(engine.talks) == 1


# ---- credentials


async def test_no_credential_path_or_query_gets_into_a_log_or_to_the_governor(caplog: pytest.LogCaptureFixture) -> None:
    secrets = ["ghp_canary", "cookie-canary", "key-canary", "path-canary", "query-canary", "body-canary", "answer-canary", TOKEN]
    told = b"set-cookie: answer-canary\r\nwww-authenticate: answer-canary\r\nx-ratelimit-remaining: 0\r\nretry-after: 1\r\n"

    async def behave(talk: Talk) -> None:
        match len(engine.talks):
            case 1:
                talk.reset()
            case 2:
                await talk.send(json_answer(b'{"answer-canary":1}', more=told))
            case 3:
                await talk.send(b"HTTP/1.1 200 OK\r\n\0broken\r\n\r\n")
            case _:
                await talk.send(json_answer(b"", "429 Too Many Requests", told))

    quota = QuotaDouble()
    headers = {
        "authorization": "Bearer ghp_canary", "cookie": "a=cookie-canary", "x_api_key": "key-canary", "x_luftpause_token": TOKEN,
    }  # fmt: skip
    with caplog.at_level(logging.DEBUG):
        async with raw_engine(behave) as engine, proxying(quota, tokens=Tokens(TOKEN), targets={"api": engine.url}) as plane:
            for _ in range(4):
                client = await Client.to(plane.url)
                await client.ask(post(b"body-canary", path="/proxy/api/path-canary?q=query-canary", **headers))
                client.reset()
            client = await Client.to(plane.url)
            await client.ask(post(b"body-canary", path="/proxy/api/../path-canary?q=query-canary", **headers))
            page = (await client.ask(get("/metrics", authorization=f"Bearer {TOKEN}"))).body.decode()
            client.reset()
    assert any("target" in record.getMessage() for record in caplog.records), "what went wrong is logged"
    logged = "\n".join(f"{record.getMessage()} {record.__dict__.get('fields')} {record.exc_text}" for record in caplog.records)
    for where in (logged, repr(quota.told), repr(quota.wishes), page):
        assert [secret for secret in secrets if secret in where] == []


async def test_a_target_whose_certificate_is_not_good_never_sees_a_credential(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = certificates(tmp_path / "good"), certificates(tmp_path / "bad")
    monkeypatch.setenv("SSL_CERT_FILE", str(good.ca))
    upstream.tls_context.cache_clear()
    quota = QuotaDouble()
    try:
        async with (
            raw_engine(fine, tls=serving(good)) as trusted,
            raw_engine(fine, tls=serving(bad)) as other,
            proxying(quota, targets={"good": trusted.url, "bad": other.url}) as plane,
            client_of(plane) as client,
        ):
            assert (await client.ask(post(path="/proxy/good/a", authorization=OWN))).status == 200
            refused = await client.ask(post(path="/proxy/bad/a", authorization=OWN))
            await quota.until("release")
    finally:
        upstream.tls_context.cache_clear()
    assert (refused.status, refused.error["code"]) == (502, "target_unreachable")
    assert "TLS failed" in refused.error["message"]
    assert trusted.talks[0].header("authorization") == OWN
    assert other.talks == []


def serving(made: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.cert, made.key)
    return context
