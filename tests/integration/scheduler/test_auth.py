"""Who may act as a dataplane, and who may read the scheduler's pages?"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import grpc
import httpx
import pytest

from luftpause.dataplane.link import SessionLink
from luftpause.kit.auth import Tokens
from luftpause.kit.config import AuthConfig, Config, DataplaneConfig, SchedulerConfig
from luftpause.kit.control import server_credentials
from luftpause.kit.errors import ConfigError
from luftpause.scheduler import app
from luftpause.scheduler.door import Door
from luftpause.scheduler.status import Reporter, create_app
from tests.integration.scheduler.client import Scheduler, peer, scheduler
from tests.support.certificates import certificates

TOKEN, OTHER = "right-token-" + "a" * 32, "wrong-token-" + "b" * 32
BEARER = {"authorization": f"Bearer {TOKEN}"}


@contextlib.asynccontextmanager
async def linked(at: str, auth: AuthConfig, token: str = "") -> AsyncGenerator[SessionLink]:
    environ: Mapping[str, str] = {"LUFTPAUSE_CLUSTER_TOKEN": token} if token else {}
    link = SessionLink(DataplaneConfig(scheduler=at, reconnect_seconds=0.05), auth, environ=environ)
    running = asyncio.create_task(link.run())
    try:
        yield link
    finally:
        await link.close()
        await running


async def connected(link: SessionLink) -> None:
    async with asyncio.timeout(60):
        while not link.connected:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("shown", [(), (("authorization", f"Bearer {OTHER}"),), (("authorization", TOKEN),)])
async def test_a_session_without_the_token_is_refused_and_told_which_variable_is_missing(shown: tuple[tuple[str, str], ...]):
    async with scheduler(tokens=Tokens(TOKEN)) as s, peer(s, metadata=shown) as p:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await p.hello()
        code, said = await p.ended()
        assert code is grpc.StatusCode.UNAUTHENTICATED
        assert "LUFTPAUSE_CLUSTER_TOKEN" in said
        assert TOKEN not in said
        assert OTHER not in said
        assert not s.server.sessions
        assert not s.core.events


async def test_with_the_token_it_is_taken():
    async with scheduler(tokens=Tokens(TOKEN)) as s, peer(s, metadata=(("authorization", f"bearer {TOKEN}"),)) as p:
        await p.open()
        assert list(s.server.sessions) == ["dp"]


async def refused_often(s: Scheduler) -> None:
    """Waits until a link has tried five times."""
    tries = 0
    tell = s.server._tell_of_stranger

    def count(peer: str) -> None:
        nonlocal tries
        tries += 1
        tell(peer)

    s.server._tell_of_stranger = count  # type: ignore[method-assign]
    async with asyncio.timeout(60):
        while tries < 5:
            await asyncio.sleep(0.01)


async def test_a_dataplane_with_the_wrong_token_says_so_once_and_goes_on_trying(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        async with scheduler(tokens=Tokens(TOKEN)) as s, linked(s.address, AuthConfig(), OTHER) as link:
            await refused_often(s)
            assert not link.connected
            s.server._tokens = Tokens(OTHER)
            await connected(link)
    of_dataplane = [r for r in caplog.records if "LUFTPAUSE_CLUSTER_TOKEN" in str(vars(r)) and r.name == "luftpause.dataplane"]
    of_scheduler = [r for r in caplog.records if "without the right token" in r.getMessage()]
    assert (len(of_dataplane), len(of_scheduler)) == (1, 1)
    assert OTHER not in caplog.text + str([vars(record) for record in caplog.records])


async def test_tls_with_an_authority_of_ones_own(tmp_path: Path):
    own = certificates(tmp_path)
    credentials = server_credentials(AuthConfig(tls_cert=own.cert, tls_key=own.key), "0.0.0.0")
    async with scheduler(tokens=Tokens(TOKEN), credentials=credentials) as s, linked(s.address, AuthConfig(tls_ca=own.ca), TOKEN) as link:
        await connected(link)


@pytest.mark.parametrize("trusts_another", [True, False])
async def test_a_scheduler_that_is_not_trusted_never_sees_the_token(tmp_path: Path, trusts_another: bool):
    own, other = certificates(tmp_path / "own"), certificates(tmp_path / "other")
    credentials = server_credentials(AuthConfig(tls_cert=own.cert, tls_key=own.key), "127.0.0.1")
    auth = AuthConfig(tls_ca=other.ca) if trusts_another else AuthConfig()
    async with scheduler(tokens=Tokens(TOKEN), credentials=credentials) as s, linked(s.address, auth, TOKEN) as link:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await connected(link)
        assert not s.server.sessions


async def test_beyond_this_machine_the_scheduler_wants_tls():
    config = Config(scheduler=SchedulerConfig(host="0.0.0.0", grpc_port=0, http_port=0))
    with pytest.raises(ConfigError, match="has no TLS"):
        async with app.running(config):
            pass


async def test_agents_tokens_do_not_open_the_scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LUFTPAUSE_TOKEN", TOKEN)
    file = tmp_path / "tokens.yaml"
    file.write_text(f"ann: {OTHER}\n")
    file.chmod(0o600)
    config = Config(scheduler=SchedulerConfig(grpc_port=0, http_port=0), auth=AuthConfig(tokens_file=file))
    with pytest.raises(ConfigError, match="LUFTPAUSE_CLUSTER_TOKEN"):
        async with app.running(config):
            pass
    monkeypatch.setenv("LUFTPAUSE_CLUSTER_TOKEN", "c" * 32)
    async with app.running(config) as running, httpx.AsyncClient(base_url=running.http, trust_env=False, timeout=60) as client:
        found = {token: (await client.get("/status", headers={"x-api-key": token})).status_code for token in (OTHER, TOKEN, "c" * 32)}
    assert found == {OTHER: 401, TOKEN: 401, "c" * 32: 200}


# ---- HTTP


@contextlib.asynccontextmanager
async def pages(*, token: str = TOKEN, metrics_open: bool = False, **config: object) -> AsyncGenerator[httpx.AsyncClient]:
    async with scheduler() as s:
        reporter = Reporter(s.host, s.server, lambda state, now, shown: {"replicas": {}}, asyncio.get_running_loop().time)  # type: ignore[arg-type,return-value]
        door = Door(create_app(reporter), SchedulerConfig.model_validate(config), Tokens(token), metrics_open=metrics_open)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(door), base_url="http://127.0.0.1:5001") as client:
            yield client


async def test_the_page_is_open_and_its_data_is_not():
    async with pages() as client:
        found = {path: (await client.get(path)).status_code for path in ("/", "/health", "/status", "/metrics", "/nothing")}
        assert found == {"/": 200, "/health": 200, "/status": 401, "/metrics": 401, "/nothing": 401}
        found = {path: (await client.get(path, headers=BEARER)).status_code for path in ("/status", "/metrics", "/nothing")}
        assert found == {"/status": 200, "/metrics": 200, "/nothing": 404}


async def test_a_refusal_has_our_error_shape_and_says_how_to_call():
    async with pages() as client:
        for headers, code in (
            ({}, "no_token"),
            ({"authorization": f"Bearer {OTHER}"}, "unknown_token"),
            ({"authorization": "Basic eA=="}, "no_token"),
        ):
            answer = await client.get("/status", headers=headers)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
            error = answer.json()["error"]
            assert (error["type"], error["code"]) == ("authentication_error", code)
            assert OTHER not in answer.text


async def test_metrics_may_be_opened_on_purpose():
    async with pages(metrics_open=True) as client:
        assert (await client.get("/metrics")).status_code == 200
        assert (await client.get("/status")).status_code == 401


async def test_without_a_token_everybody_may_read():
    async with pages(token="") as client:
        assert (await client.get("/status")).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421),
        ("evil.example:5001", 421),
        ("", 421),
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("[::1]:5001", 200),
        ("me", 200),
    ],
)
async def test_a_page_whose_name_was_made_to_point_here_reads_nothing(host: str, status: int):
    async with pages(token="", allowed_hosts=["127.0.0.1", "localhost", "[::1]", "me"]) as client:
        assert (await client.get("/status", headers={"host": host})).status_code == status
        assert (await client.get("/", headers={"host": host})).status_code == status
        assert (await client.get("/health", headers={"host": host})).status_code == 200


async def test_a_star_serves_all_hosts_and_the_own_address_is_one():
    async with pages(token="", allowed_hosts=["*"]) as client:
        assert (await client.get("/status", headers={"host": "any.example"})).status_code == 200
    async with pages(token="", host="10.1.2.3") as client:
        assert (await client.get("/status", headers={"host": "10.1.2.3:5001"})).status_code == 200
