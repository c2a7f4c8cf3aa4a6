"""Does the scheduler show over HTTP what it knows of itself?"""

import time
from urllib.parse import parse_qs

import httpx
import pytest

from luftpause import __version__
from luftpause.kit.wire.v1 import scheduler_pb2 as pb
from luftpause.scheduler.core.events import TurnRequested
from luftpause.scheduler.status import Reporter, create_app
from tests.integration.scheduler.client import Scheduler, asks, peer, scheduler


def http(s: Scheduler) -> httpx.AsyncClient:
    reporter = Reporter(
        s.host, s.server, lambda _state, now, shown: {"asked_at": now, "shown": [shown.held, shown.callers]}, time.monotonic
    )
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
        assert status["state"]["shown"] == [200, 200]
        assert (status["inbox_events"], status["undeliverable_orders"]) == (0, 0)
        by_name = {session["dataplane"]: session for session in status["sessions"]}
        assert set(by_name) == {"dp", "early"}
        assert (by_name["dp"]["session"], by_name["dp"]["resynced"], by_name["dp"]["facts"]) == (welcome.session, True, 3)
        assert 0 <= by_name["dp"]["heard_seconds_ago"] < 10
        assert (by_name["early"]["resynced"], by_name["early"]["orders_waiting"]) == (False, 0)


async def test_health_and_the_page_answer():
    async with scheduler() as s, http(s) as client:
        assert (await client.get("/health")).json() == {"status": "ok", "service": "scheduler", "version": __version__}
        page = await client.get("/")
        assert page.headers["content-type"].startswith("text/html")
        assert "/status" in page.text


async def test_an_unknown_path_or_method_is_an_error_in_the_one_shape_that_names_what_exists():
    async with scheduler() as s, http(s) as client:
        missing = await client.get("/nope")
        assert missing.status_code == 404
        assert missing.json()["error"]["type"] == "not_found_error"
        for path in ("GET / ", "GET /status ", "GET /metrics ", "GET /health"):
            assert path in missing.json()["error"]["message"]
        for path in ("/status", "/metrics", "/health", "/"):
            wrong = await client.post(path)
            assert (wrong.status_code, wrong.json()["error"]["type"]) == (405, "invalid_request_error")
            assert wrong.json()["error"]["code"] == "method_not_allowed"
            assert set(wrong.headers["allow"].split(", ")) == {"GET", "HEAD"}
        assert (await client.get("/openapi.json")).status_code == 404


@pytest.mark.parametrize("query", ["held=0", "held=1000&callers=7", "callers=1"])
async def test_more_or_less_of_the_long_lists_can_be_asked_for(query: str):
    async with scheduler() as s, http(s) as client:
        wanted = {"held": 200, "callers": 200} | {name: int(value[0]) for name, value in parse_qs(query).items()}
        assert (await client.get(f"/status?{query}")).json()["state"]["shown"] == list(wanted.values())


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("held=-1", "held='-1' is not such a number"),
        ("held=", "held='' is not such a number"),
        ("callers=1001", "callers='1001' is not such a number"),
        ("held=%C2%B2", "held='²' is not such a number"),
        ("held=1e3", "held='1e3' is not such a number"),
        ("held=1&held=2", "held was given twice"),
        ("limit=3", "'limit' is not a parameter of /status"),
    ],
)
async def test_a_bad_parameter_is_named_with_what_is_allowed(query: str, named: str):
    async with scheduler() as s, http(s) as client:
        answer = await client.get(f"/status?{query}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_parameter")
        message = answer.json()["error"]["message"]
        assert message.startswith(named)
        assert message.endswith(
            "held (a whole number from 0 to 1000, 200 if not given) and callers (a whole number from 0 to 1000, 200 if not given)"
        )
