"""Does the scheduler show over HTTP what it knows of itself?"""

import time

import httpx

from luftpause.kit.wire.v1 import scheduler_pb2 as pb
from luftpause.scheduler.core.events import TurnRequested
from luftpause.scheduler.status import Reporter, create_app
from tests.integration.scheduler.client import Scheduler, asks, peer, scheduler


def http(s: Scheduler) -> httpx.AsyncClient:
    reporter = Reporter(s.host, s.server, lambda _state, now: {"asked_at": now}, time.monotonic)
    return httpx.AsyncClient(transport=httpx.ASGITransport(create_app(reporter)), base_url="http://scheduler")


async def test_the_status_names_the_sessions_and_counts_what_happened():
    unknown = pb.Fact.FromString(b"\xfa\x07\x03abc")
    async with scheduler() as s, peer(s) as p, peer(s) as early, http(s) as client:
        welcome = await p.open()
        await early.hello("early")
        await early.next("welcome")
        await p.send(asks("t"), unknown)
        await p.next("placed")
        answer = await client.get("/status")
        assert answer.headers["content-type"] == "application/json"
        status = answer.json()
        assert status["scheduler_epoch"] == welcome.scheduler_epoch
        assert status["uptime_seconds"] >= 0
        assert status["events"]["TurnRequested"] == len(s.core.of(TurnRequested)) == 1
        assert status["decisions"]["Place"] == 1
        assert status["unknown_facts"] == 1
        assert set(status["state"]) == {"asked_at"}
        by_name = {session["dataplane"]: session for session in status["sessions"]}
        assert set(by_name) == {"dp", "early"}
        assert (by_name["dp"]["session"], by_name["dp"]["resynced"], by_name["dp"]["facts"]) == (welcome.session, True, 3)
        assert 0 <= by_name["dp"]["heard_seconds_ago"] < 10
        assert (by_name["early"]["resynced"], by_name["early"]["orders_waiting"]) == (False, 0)


async def test_health_and_the_page_answer():
    async with scheduler() as s, http(s) as client:
        assert (await client.get("/health")).json() == {"status": "ok"}
        page = await client.get("/")
        assert page.headers["content-type"].startswith("text/html")
        assert "/status" in page.text


async def test_an_unknown_path_or_method_is_an_error_in_the_one_shape():
    async with scheduler() as s, http(s) as client:
        missing = await client.get("/nope")
        assert missing.status_code == 404
        assert missing.json()["error"]["type"] == "not_found_error"
        assert "GET /status" in missing.json()["error"]["message"]
        wrong = await client.post("/status")
        assert (wrong.status_code, wrong.json()["error"]["type"]) == (405, "invalid_request_error")
