"""Who may call the runtime, whose are the runs, and which web page may read the answers? (O08)"""

from pathlib import Path
from typing import Any

import httpx
import pytest

from luftpause.kit.auth import Tokens
from luftpause.kit.config import Config
from luftpause.kit.errors import ConfigError
from luftpause.runtime import app
from tests.integration.runtime_mcp.test_http import BOTH, MODERN, MODERN_CALL
from tests.integration.runtime_mcp.test_server import ERAS, INITIALIZE, client, raw_session, text
from tests.support.runtime_fakes import served

TOKEN, WRONG, ANN, BEN = ("right-" + "r" * 30, "wrong-" + "w" * 30, "ann-" + "a" * 30, "ben-" + "b" * 30)
PANEL = "https://panel.example"
ASKED = "authorization, mcp-protocol-version, mcp-session-id, last-event-id, x-luftpause-run-id"


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.fixture
def people(tmp_path: Path) -> Tokens:
    file = tmp_path / "tokens.yaml"
    file.write_text(f"ann: {ANN}\nben: {BEN}\n")
    file.chmod(0o600)
    return Tokens(TOKEN, file)


# ---- who may call


@pytest.mark.parametrize("headers", [{}, bearer(WRONG), {"authorization": f"Basic {TOKEN}"}, {"x-api-key": WRONG}])
async def test_without_the_token_nothing_is_told_and_nothing_done(headers: dict[str, str]):
    async with served(tokens=Tokens(TOKEN)) as at, httpx.AsyncClient(trust_env=False, base_url=at.url, headers=headers, timeout=60) as http:
        for method, path in (
            ("POST", "/mcp"),
            ("GET", "/mcp/"),
            ("DELETE", "/mcp"),
            ("GET", "/status"),
            ("GET", "/metrics"),
            ("GET", "/x"),
        ):
            answer = await http.request(method, path, json=MODERN_CALL if method == "POST" else None, headers={"accept": BOTH, **MODERN})
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer"), path
            assert answer.json()["error"]["type"] == "authentication_error"
            assert WRONG not in answer.text
        assert (await http.get("/health")).status_code == 200
        assert (await http.get("/.well-known/oauth-protected-resource/mcp")).status_code == 404
        assert not at.runs.requests


@pytest.mark.parametrize("headers", [bearer(TOKEN), {"authorization": f"bearer {TOKEN}"}, {"x-api-key": TOKEN}])
@pytest.mark.parametrize("mode", ERAS)
async def test_with_it_clients_of_both_generations_work(mode: str, headers: dict[str, str]):
    async with served(tokens=Tokens(TOKEN)) as at, client(at, mode, {**headers, "x-luftpause-caller": "me"}) as c:
        assert (await c.call_tool("run", {"task": "echo ok"})).structured_content["answer"] == "ok"
        async with httpx.AsyncClient(trust_env=False, base_url=at.url, headers=headers, timeout=60) as http:
            assert len((await http.get("/status")).json()["runs"]) == 1
    assert at.runs.requests[0].caller == "me"
    assert not (at.runs.requests[0].owner or "").startswith("principal:")


async def test_metrics_may_be_opened_on_purpose():
    async with (
        served(tokens=Tokens(TOKEN), metrics_open=True) as at,
        httpx.AsyncClient(trust_env=False, base_url=at.url, timeout=60) as http,
    ):
        assert (await http.get("/metrics")).status_code != 401
        assert (await http.get("/status")).status_code == 401


# ---- whose runs


@pytest.mark.parametrize("mode", ERAS)
async def test_whose_token_it_is_owns_the_run_whatever_the_headers_say(mode: str, people: Tokens):
    async with served(tokens=people) as at:
        async with client(at, mode, {**bearer(ANN), "x-luftpause-caller": "ben"}) as ann:
            mine = (await ann.call_tool("spawn", {"task": "long"})).structured_content["handle"]
        assert (at.runs.requests[0].caller, at.runs.requests[0].owner) == ("ann", "principal:ann")
        async with client(at, mode, bearer(BEN)) as ben:
            for tool, arguments in (
                ("await", {"handles": [mine], "timeout": 0}),
                ("cancel", {"handle": mine}),
                ("status", {"handle": mine}),
            ):
                assert (await ben.call_tool(tool, arguments)).is_error, tool
            assert mine not in text(await ben.call_tool("status", {}))
        assert not at.runs.runs[mine].state.ended
        async with client(at, mode, bearer(ANN)) as again:
            assert mine in text(await again.call_tool("status", {}))
        async with httpx.AsyncClient(trust_env=False, base_url=at.url, timeout=60) as http:
            seen = {
                who: (await http.get("/status", headers=bearer(token))).text for who, token in (("ann", ANN), ("ben", BEN), ("all", TOKEN))
            }
        assert {who for who, page in seen.items() if mine in page} == {"ann", "all"}


async def test_a_session_is_of_use_to_whoever_began_it_only(people: Tokens):
    async with served(tokens=people) as at, httpx.AsyncClient(trust_env=False, headers={"accept": BOTH}, timeout=60) as http:
        began = await http.post(at.mcp, json=INITIALIZE, headers=bearer(ANN))
        session = {"mcp-session-id": began.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
        listing: dict[str, Any] = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        found = {
            who: (await http.post(at.mcp, json=listing, headers=session | bearer(who))).status_code for who in (BEN, TOKEN, WRONG, ANN)
        }
        assert found == {BEN: 404, TOKEN: 404, WRONG: 401, ANN: 200}


async def test_a_principal_who_knows_a_session_can_not_set_its_runs_free(people: Tokens):
    async with served(tokens=people) as at, raw_session(at, bearer(TOKEN)) as session:
        answer = await session.http.post(
            at.mcp, json={"jsonrpc": "2.0", "id": 9, "method": "tools/list"}, headers=session.headers | bearer(BEN)
        )
        assert answer.status_code == 404
        assert (
            await session.http.post(at.mcp, json={"jsonrpc": "2.0", "id": 9, "method": "tools/list"}, headers=session.headers)
        ).status_code == 200


# ---- web pages


def preflight(origin: str, method: str = "POST") -> dict[str, str]:
    return {"origin": origin, "access-control-request-method": method, "access-control-request-headers": ASKED}


async def test_a_browser_asks_first_and_without_a_token():
    async with served(tokens=Tokens(TOKEN), allowed_origins=(PANEL,)) as at, httpx.AsyncClient(trust_env=False, timeout=60) as http:
        for path in ("/mcp", "/mcp/"):
            answer = await http.options(at.url + path, headers=preflight(PANEL))
            assert answer.is_success
            assert answer.headers["access-control-allow-origin"] == PANEL
            assert answer.headers["access-control-allow-methods"] == "GET, POST, DELETE"
            assert set(ASKED.split(", ")) <= set(answer.headers["access-control-allow-headers"].split(", "))
        refused = await http.post(at.mcp, json=MODERN_CALL, headers={"origin": PANEL, "accept": BOTH, **MODERN})
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert refused.headers["access-control-allow-origin"] == PANEL
        assert "mcp-session-id" in refused.headers["access-control-expose-headers"]
        taken = await http.post(at.mcp, json=INITIALIZE, headers={"origin": PANEL, "accept": BOTH, **bearer(TOKEN)})
        assert (taken.status_code, taken.headers["access-control-allow-origin"]) == (200, PANEL)
        assert taken.headers["vary"] == "origin"


async def test_no_page_may_read_what_it_was_not_named_for():
    async with served(status_origins=("http://127.0.0.1:5001",)) as at, httpx.AsyncClient(trust_env=False, timeout=60) as http:
        for path in ("/mcp", "/status"):
            foreign = await http.options(at.url + path, headers=preflight("https://evil.example"))
            assert foreign.status_code == 403
            assert "access-control-allow-origin" not in foreign.headers
            local = await http.options(at.url + path, headers=preflight("http://localhost:3000"))
            assert "access-control-allow-origin" not in local.headers
        page = await http.get(at.url + "/status", headers={"origin": "http://127.0.0.1:5001"})
        assert (page.status_code, page.headers["access-control-allow-origin"]) == (200, "http://127.0.0.1:5001")
        assert (
            "access-control-allow-origin"
            not in (await http.post(at.mcp, json=INITIALIZE, headers={"origin": "http://127.0.0.1:5001"})).headers
        )


async def test_the_schedulers_page_may_read_the_status():
    for config, allowed, denied in (
        (Config(), "http://localhost:5001", "https://status.example"),
        (Config.model_validate({"scheduler": {"http_port": 6001}}), "http://127.0.0.1:6001", "https://status.example"),
        (
            Config.model_validate({"runtime": {"status_origins": ["https://status.example"]}}),
            "https://status.example",
            "http://localhost:5001",
        ),
    ):
        gate = app._gate(config, Tokens(TOKEN))
        assert set(gate._status_origins) >= {allowed}
        assert denied not in gate._status_origins


# ---- towards the dataplane


def test_with_a_tokens_file_the_runtime_needs_a_token_of_the_services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("LUFTPAUSE_TOKEN", raising=False)
    config = Config.model_validate({"auth": {"tokens_file": tmp_path / "tokens.yaml"}})
    with pytest.raises(ConfigError, match="LUFTPAUSE_TOKEN"):
        app._token(config)
    monkeypatch.setenv("LUFTPAUSE_TOKEN", TOKEN)
    assert app._token(config) == TOKEN
