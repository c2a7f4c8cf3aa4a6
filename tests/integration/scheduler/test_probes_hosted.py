"""Is a hosted API probed over TLS as it is configured: whom it trusts, where the key goes, and what is asked?"""

import ssl
from pathlib import Path

import pytest

from luftpause.scheduler import engine_http
from luftpause.scheduler.core.events import ProbeOutcome
from luftpause.scheduler.formats import PATHS
from tests.integration.scheduler.client import peer
from tests.integration.scheduler.engines import MODELS, VLLM, Engine, engine
from tests.integration.scheduler.test_probes import probing, replica
from tests.integration.scheduler.test_process import healthy, started
from tests.support.certificates import self_signed

OK, MISSED, REFUSED = ProbeOutcome.OK, ProbeOutcome.MISSED, ProbeOutcome.REFUSED
KEY = {"api_key_env": "THE_KEY"}
HELD = {"env": {"THE_KEY": "s3cret"}}


async def hosted(folder: Path) -> Engine:
    """A hosted API below a path, with a certificate of its own in `folder`/cert.pem."""
    made = Engine()
    made.pages = {"/api/v1/models": (200, MODELS), "/api/status": (200, b"fine"), "POST /api/v1/chat/completions": (400, b"{}")}
    await made.start(tls=self_signed(folder))
    return made


@pytest.fixture
def trusting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with SSL_CERT_FILE, which this process has read already."""
    monkeypatch.setattr(engine_http, "tls", lambda: ssl.create_default_context(cafile=str(tmp_path / "cert.pem")))


@pytest.mark.usefixtures("trusting")
async def test_models_health_and_formats_are_asked_below_its_path_with_its_key(tmp_path: Path):
    at = await hosted(tmp_path)
    try:
        config = {"health": "status", "load": "none", "max_in_flight": 4, **KEY}
        async with probing(replica(at.url + "/api/v1/", **config), **HELD) as (_, found):
            event = await found.next()
            assert (event.outcome, event.load, event.models, event.apis) == (OK, None, ("m",), ("chat",))
        assert set(at.hits) == {"/api/status", "/api/v1/models", *(f"/api{path}" for path in PATHS.values())}
        assert all("authorization: bearer s3cret\r\n" in head.lower() for head in at.heads.values())
        assert "content-length: 0\r\n" in at.heads["/api/v1/chat/completions"].lower()
    finally:
        await at.stop()


@pytest.mark.usefixtures("trusting")
async def test_without_a_health_check_it_is_healthy_while_tls_can_be_spoken_with_it(tmp_path: Path):
    at = await hosted(tmp_path)
    config = {"health": None, "load": "none", "models": ["m"], "apis": ["chat"]}
    async with probing(replica(at.url, **config), again=True) as (_, found):
        assert [(await found.next()).outcome for _ in range(3)] == [OK] * 3
        assert not at.hits
        await at.stop()
        await found.until(lambda event: event.outcome is REFUSED)


@pytest.mark.parametrize("health", ["/health", None])
async def test_a_certificate_that_is_not_trusted_is_a_miss_that_says_how_to_trust_it(
    health: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    at = await hosted(tmp_path)
    try:
        async with probing(replica(at.url, health=health, load="none", models=["m"])) as (_, found):
            assert (await found.next()).outcome is MISSED
    finally:
        await at.stop()
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("replica's health: its certificate is not trusted (self")
    assert line.endswith("name a file with its CA in SSL_CERT_FILE")


@pytest.mark.parametrize("health", [None, "/health"])
async def test_a_server_without_tls_behind_https_is_a_miss(health: str | None):
    async with engine() as plain, probing(replica(plain.url.replace("http:", "https:"), health=health), period=1) as (_, found):
        assert (await found.next()).outcome is MISSED


async def test_the_scheduler_trusts_what_ssl_cert_file_names(tmp_path: Path):
    at = await hosted(tmp_path)
    entry = {"name": "a", "url": at.url + "/api/v1", "health": "/status", "load": "none", **KEY}
    env = {"SSL_CERT_FILE": str(tmp_path / "cert.pem"), "THE_KEY": "s3cret"}
    try:
        async with started(tmp_path, entry, env=env, probe_seconds=30) as process, peer(process.at["grpc"]) as p:
            told = await healthy(p)
            assert (list(told.models), told.url, list(told.apis)) == (["m"], at.url + "/api", ["chat"])
            assert "s3cret" not in process.logged()
    finally:
        await at.stop()


async def test_neither_key_nor_question_follows_a_redirect(tmp_path: Path):
    async with engine() as elsewhere, engine() as at:
        for path in ("/health", "/metrics", "/v1/models", *PATHS.values()):
            at.pages[path] = (308, b"", {"location": elsewhere.url + path})
        async with probing(replica(at.url, **KEY), **HELD) as (_, found):
            event = await found.next()
            assert (event.outcome, event.load, event.models, event.apis) == (OK, None, None, None)
        assert not elsewhere.hits


async def test_the_key_is_not_sent_to_metrics_pages_elsewhere():
    async with engine() as elsewhere, engine() as at:
        at.pages["/engine_metrics"] = (200, VLLM)
        config = {"load_from": [elsewhere.url, at.url + "/engine_metrics"], **KEY}
        async with probing(replica(at.url, **config), **HELD) as (_, found):
            event = await found.next()
            assert event.load is not None
            assert (event.load.running, event.load.waiting) == (8, 2)
        assert "authorization" not in elsewhere.heads["/metrics"].lower()
        assert "authorization: bearer s3cret" in at.heads["/engine_metrics"].lower()
        assert set(elsewhere.hits) == {"/metrics"}
        assert "/metrics" not in at.hits  # a router's own page says nothing of its engines


async def test_a_router_is_healthy_by_itself_while_the_load_of_its_engines_is_unknown(caplog: pytest.LogCaptureFixture):
    async with engine() as router, engine() as one:
        gone = Engine()
        await gone.start()
        await gone.stop()
        config = {"load_from": [one.url, gone.url], "apis": ["chat"], "models": ["m"]}
        async with probing(replica(router.url, **config), again=True) as (_, found):
            for _ in range(4):
                event = await found.next()
                assert (event.outcome, event.load) == (OK, None)
        (line,) = [record.getMessage() for record in caplog.records]
        assert line.startswith(
            f"replica's load: GET {gone.url}/metrics: nobody listens there; without it the sum over load_from is unknown"
        )
        assert line.endswith("its turns are not capped (load: none says so on purpose)")
