"""Which messages of clients does the MCP server understand, and what does it say of the others?"""

import contextlib
import json
from typing import Any

import httpx
import pytest

from luftpause.runtime.mcp_tools.sessions import session_name
from tests.integration.runtime_mcp.test_http import BOTH, JSON, content
from tests.integration.runtime_mcp.test_server import INITIALIZE, raw_session
from tests.support.runtime_fakes import served


@contextlib.asynccontextmanager
async def a_session():
    """A runtime, a client, and the headers of its session."""
    async with served() as at, raw_session(at) as raw:
        yield at, raw.http, {"accept": BOTH, "mcp-session-id": raw.headers["mcp-session-id"]}


CALL: dict[str, Any] = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "status", "arguments": {}}}


@pytest.mark.parametrize("asked_id", ["null", "1.5", "true", "[]", "{}", "1e+300"])
async def test_a_request_whose_id_is_none_is_refused_instead_of_never_answered(asked_id: str):
    async with a_session() as (at, http, headers):
        body = json.dumps(CALL).replace("7", asked_id)
        answer = await http.post(at.mcp, content=body, headers={**headers, "content-type": JSON})
        assert answer.status_code == 400
        assert answer.json()["error"] == {"code": -32600, "message": f"`id` must be a whole number or a text, not {asked_id}"}


@pytest.mark.parametrize("asked_id", [2**53 + 1, 2**64, -(10**40)])
async def test_a_whole_number_of_any_length_is_an_id(asked_id: int):
    async with a_session() as (at, http, headers):
        answer = await http.post(at.mcp, json={**CALL, "id": asked_id}, headers={**headers, "accept": JSON})
        assert answer.json()["id"] == asked_id


@pytest.mark.parametrize(
    "body",
    [
        json.dumps(CALL).replace("7", "7.0"),
        json.dumps({**CALL, "params": {"name": "status", "arguments": []}}),
        json.dumps({**CALL, "params": {"name": "status", "arguments": ""}}),
        json.dumps({**CALL, "params": {"name": "status", "arguments": "{}"}}),
        json.dumps({**CALL, "method": "ping", "params": []}),
        "\ufeff" + json.dumps(CALL),
    ],
)
async def test_what_other_languages_write_is_understood(body: str):
    async with a_session() as (at, http, headers):
        for kind in (JSON, "Application/JSON; charset=utf-8"):
            answer = await http.post(at.mcp, content=body.encode(), headers={**headers, "content-type": kind})
            assert answer.status_code == 200
            assert content(answer)["id"] == 7
            assert "error" not in content(answer)


async def test_arguments_that_are_json_text_reach_the_tool():
    async with a_session() as (at, http, headers):
        body = {**CALL, "params": {"name": "cancel", "arguments": '{"handle": "nobody"}'}}
        answer = await http.post(at.mcp, json=body, headers=headers)
        assert "there is no run nobody" in content(answer)["result"]["content"][0]["text"]


@pytest.mark.parametrize("body", ["[]", json.dumps([CALL, CALL])])
async def test_a_batch_is_refused_with_what_to_do(body: str):
    async with a_session() as (at, http, headers):
        answer = await http.post(at.mcp, content=body, headers={**headers, "content-type": JSON})
        assert answer.status_code == 400
        assert answer.json()["error"]["message"] == "a batch can't be answered: send one message per request"


async def test_a_body_in_another_form_is_refused_by_name():
    async with a_session() as (at, http, headers):
        for more, code, named in (
            ({"content-type": "text/plain"}, "unsupported_media_type", "content-type must be application/json, not `text/plain`"),
            ({"content-type": JSON, "content-encoding": "gzip"}, "unsupported_coding", "not in the content-encoding `gzip`"),
        ):
            answer = await http.post(at.mcp, content=json.dumps(CALL), headers={**headers, **more})
            assert answer.status_code == 415
            assert answer.json()["error"]["code"] == code
            assert named in answer.json()["error"]["message"]


async def test_a_protocol_version_that_is_not_spoken_is_refused_with_those_that_are():
    async with a_session() as (at, http, headers):
        answer = await http.post(at.mcp, json=CALL, headers={**headers, "mcp-protocol-version": "2099-01-01"})
        assert answer.status_code == 400
        message = answer.json()["error"]["message"]
        assert message.startswith("protocol version `2099-01-01` is not spoken here; there are ")
        assert "2025-11-25" in message
        assert "2026-07-28" in message
        empty = await http.post(at.mcp, json=CALL, headers={**headers, "mcp-protocol-version": ""})
        assert empty.status_code == 200


async def test_who_begins_anew_with_the_session_of_an_earlier_life_gets_a_new_one():
    """As clients do that keep sending it after a restart of the runtime. Whose runs the old session has is not changed by it."""
    async with served() as at, httpx.AsyncClient(trust_env=False) as http:
        old = {"accept": BOTH, "mcp-session-id": "of-an-earlier-life"}
        assert (await http.post(at.mcp, json=CALL, headers=old)).status_code == 404
        begun = await http.post(at.mcp, json=INITIALIZE, headers=old)
        assert begun.status_code == 200
        fresh = begun.headers["mcp-session-id"]
        assert fresh != "of-an-earlier-life"
        assert not at.sessions.lives(f"session:{session_name('of-an-earlier-life')}")
        assert (await http.post(at.mcp, json=CALL, headers={**old, "mcp-session-id": fresh})).status_code == 200
        assert at.sessions.lives(f"session:{session_name(fresh)}")
