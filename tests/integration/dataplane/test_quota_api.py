"""Do agents share quotas over HTTP as the table of `/v1/quota` says?"""

import asyncio
import contextlib
import inspect
import json
from collections.abc import AsyncGenerator, Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest

from luftpause.dataplane import quota_api
from luftpause.dataplane.app import Dataplane
from luftpause.dataplane.proxy.proxy import Governed
from luftpause.kit.auth import Tokens
from luftpause.kit.config_governor import GovernorConfig
from luftpause.kit.quota_port import QuotaUnavailableError
from luftpause.scheduler.governor.host import Governor
from luftpause.scheduler.governor.local import LocalPort
from luftpause.scheduler.governor.targets import initial_state, specs_of
from luftpause.scheduler.quota.events import TargetConfigured
from tests.support.fake_scheduler import FakeScheduler
from tests.support.plane import client_of, get, post, running_plane

SECONDS = 60
CONFIG = GovernorConfig.model_validate({
    "targets": {
        "one": {"scopes": [{"name": "at_once", "kind": "concurrent", "limit": 1, "counts": ["requests"]}]},
        "github": {"profile": "github"},
        "few": {"scopes": [{"name": "requests", "limit": 9, "window_seconds": 3600, "protect": [0, 0, 0]}]},
    },
    "callers": {"picard": {"priority": 0}, "data": {"may_claim": True}},
    "wait_seconds_max": 30,
})


class World:
    """A dataplane, a governor in its process, and a client."""

    def __init__(self, plane: Dataplane, governor: Governor, port: LocalPort, client: httpx.AsyncClient) -> None:
        self.plane = plane
        self.governor = governor
        self.port = port
        self.client = client

    async def ask(self, what: str, target: str = "one", sent: dict[str, str] | None = None, **body: Any) -> httpx.Response:
        """`sent`: headers of the request."""
        return await self.client.post(f"/v1/quota/{target}/{what}", json=body, headers=sent)

    async def granted(self, target: str = "one", **body: Any) -> dict[str, Any]:
        answer = await self.ask("reserve", target, **body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def leases(self, target: str = "one") -> list[str]:
        return sorted(self.governor.state.targets[target].leases)

    def waiters(self, target: str = "one") -> list[str]:
        return sorted(self.governor.state.targets[target].waiters)

    def only_waiter(self, target: str = "one") -> Any:
        (waiter,) = self.governor.state.targets[target].waiters.values()
        return waiter


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not holds():
            await asyncio.sleep(0.002)


@contextlib.asynccontextmanager
async def worlds(tokens: Tokens | None = None, **headers: str) -> AsyncGenerator[World]:
    governor = Governor(initial_state(CONFIG, asyncio.get_running_loop().time()), clock=asyncio.get_running_loop().time)
    for spec in specs_of(CONFIG, ()):
        governor.post(TargetConfigured(governor.now, spec))
    port = LocalPort(governor, lease_seconds=CONFIG.lease_seconds, wait_seconds_max=CONFIG.wait_seconds_max)
    running = asyncio.create_task(governor.run())
    async with (
        running_plane(FakeScheduler(), tokens=tokens, governed=Governed(CONFIG, port)) as plane,
        httpx.AsyncClient(base_url=plane.url, timeout=SECONDS, headers=headers, trust_env=False) as client,
    ):
        yield World(plane, governor, port, client)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def in_a_world(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Coroutine[Any, Any, None]]:
    """The test with a world of its own, made on the loop that the test runs on."""

    async def run(**arguments: Any) -> None:
        async with worlds() as world:
            await test(world, **arguments)

    run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
    asked = inspect.signature(test)
    run.__signature__ = asked.replace(parameters=[each for name, each in asked.parameters.items() if name != "world"])  # type: ignore[attr-defined]
    return run


# ---- reserve


@in_a_world
async def test_what_is_free_is_granted(world: World) -> None:
    lease = await world.granted()
    assert lease.keys() == {"lease", "fence", "expiresMs", "level"}
    assert 119_000 < lease["expiresMs"] <= 120_000
    assert lease["level"] == 0


@in_a_world
async def test_a_lease_may_be_named_and_is_the_same_when_asked_for_again(world: World) -> None:
    first = await world.granted(lease="my-call", leaseMs=7_000)
    again = await world.granted(lease="my-call", leaseMs=7_000)
    assert (first["lease"], again["lease"], first["fence"]) == ("my-call", "my-call", again["fence"])
    assert 6_000 < first["expiresMs"] <= 7_000


@in_a_world
async def test_not_now_is_a_429_that_says_when_in_seconds_and_milliseconds(world: World) -> None:
    await world.granted()
    answer = await world.ask("reserve")
    assert answer.status_code == 429
    error = answer.json()["error"]
    assert (error["type"], error["code"], error["reason"]) == ("rate_limit_error", "quota", "waiting")
    milliseconds = int(answer.headers["retry-after-ms"])
    assert error["retryMs"] == milliseconds
    named = await world.ask("reserve", lease="mine")
    assert (len(error["lease"]) > 8, named.json()["error"]["lease"]) == (True, "mine"), "asked again by this name it keeps its place"
    assert f"ask again in {milliseconds} ms" in error["message"]
    assert int(answer.headers["retry-after"]) == max(1, -(-milliseconds // 1000))


@in_a_world
async def test_after_a_refusal_each_class_is_sent_into_its_own_window(world: World) -> None:
    lease = await world.granted("github")
    told = await world.ask("report", "github", status=429, headers={"Retry-After": "100"}, **held(lease))
    assert told.json()["limited"] is True
    for priority, (least, most) in enumerate(((100.0, 100.75), (100.5, 103.75), (103.5, 109.75))):
        answer = await world.ask("reserve", "github", {"x-luftpause-caller": "picard", "x-luftpause-priority": str(priority)})
        wait = int(answer.headers["retry-after-ms"]) / 1000
        assert answer.json()["error"]["reason"] == "blocked"
        assert least - 1 < wait <= most


@in_a_world
async def test_whoever_waits_is_granted_when_it_is_free(world: World) -> None:
    first = await world.granted()
    waiting = asyncio.create_task(world.granted(waitMs=20_000))
    await until(lambda: bool(world.waiters()))
    assert (await world.ask("release", **held(first))).json() == {"released": True}
    assert (await asyncio.wait_for(waiting, SECONDS))["fence"] > first["fence"]


@in_a_world
async def test_a_wait_is_over_when_it_was_said_to_be(world: World) -> None:
    await world.granted()
    assert (await world.ask("reserve", waitMs=30)).status_code == 429
    assert world.waiters() == []


@in_a_world
async def test_a_client_that_leaves_has_asked_for_nothing(world: World) -> None:
    first = await world.granted()
    waiting = asyncio.create_task(world.ask("reserve", waitMs=20_000))
    await until(lambda: bool(world.waiters()))
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await until(lambda: not world.waiters())
    await world.ask("release", **held(first))
    assert world.leases() == []


@in_a_world
async def test_a_dataplane_that_stops_lets_nobody_wait(world: World) -> None:
    await world.granted()
    waiting = asyncio.create_task(world.ask("reserve", waitMs=20_000))
    await until(lambda: bool(world.waiters()))
    assert world.plane.quotas is not None
    world.plane.quotas.stop()
    answer = await asyncio.wait_for(waiting, SECONDS)
    assert (answer.status_code, answer.json()["error"]["code"], answer.headers["retry-after"]) == (503, "stopping", "1")
    assert world.waiters() == []
    assert (await world.ask("reserve", "github")).status_code == 503


@in_a_world
async def test_a_client_that_leaves_before_its_answer_has_asked_for_nothing_though_it_did_not_wait(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, withdrawn = asyncio.Event(), asyncio.Event()

    async def slow(*_: Any, **__: Any) -> Any:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            withdrawn.set()

    monkeypatch.setattr(world.port, "reserve", slow)
    async with client_of(world.plane) as client:
        await client.send(post(b"{}", path="/v1/quota/one/reserve"))
        await asyncio.wait_for(asked.wait(), SECONDS)
        client.reset()
        await asyncio.wait_for(withdrawn.wait(), SECONDS)


@in_a_world
async def test_what_a_client_reports_counts_though_it_leaves_before_the_answer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    port = world.port
    asked, left, report = asyncio.Event(), asyncio.Event(), port.report

    async def slow(*told: Any, **more: Any) -> Any:
        asked.set()
        await left.wait()
        return await report(*told, **more)

    monkeypatch.setattr(port, "report", slow)
    lease = await world.granted("few")
    async with client_of(world.plane) as client:
        body = json.dumps({**held(lease), "status": 200, "actual": {"requests": 3}}).encode()
        await client.send(post(body, path="/v1/quota/few/report"))
        await asyncio.wait_for(asked.wait(), SECONDS)
        connections = world.plane._server.server_state.connections
        before = len(connections)
        client.reset()
        await until(lambda: len(connections) < before)
        left.set()
        await until(lambda: not world.leases("few"))
    assert world.governor.state.targets["few"].scopes["requests"].remaining == 6


URGENT: list[tuple[dict[str, str], dict[str, Any], int]] = [
    ({}, {}, 1),
    ({"x-luftpause-class": "batch"}, {}, 2),
    ({}, {"class": "batch"}, 2),
    ({"x-luftpause-class": "batch"}, {"class": "interactive"}, 1),
    ({"x-luftpause-caller": "picard"}, {"class": "batch"}, 0),
    ({}, {"caller": "picard"}, 0),
    ({"x-luftpause-caller": "data"}, {"priority": 0}, 0),
    ({"x-luftpause-caller": "data", "x-luftpause-priority": "0"}, {}, 0),
    ({"x-luftpause-priority": "2"}, {}, 2),
    ({"x-luftpause-priority": "2"}, {"priority": 1}, 1),
]


@in_a_world
async def test_how_urgent_a_call_is(world: World) -> None:
    await world.granted()
    for headers, body, priority in URGENT:
        waiting = asyncio.create_task(world.ask("reserve", sent=headers, waitMs=20_000, **body))
        await until(lambda: bool(world.waiters()))
        assert world.only_waiter().priority == priority, (headers, body)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await until(lambda: not world.waiters())


CLAIMS: list[tuple[dict[str, str], dict[str, Any]]] = [
    ({"x-luftpause-priority": "0"}, {}),
    ({}, {"priority": 0}),
    ({}, {"priority": 1, "class": "batch"}),
]


@in_a_world
async def test_a_claim_that_is_not_allowed_is_403(world: World) -> None:
    for headers, body in CLAIMS:
        answer = await world.ask("reserve", sent=headers, **body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "priority_not_allowed"), (headers, body)
    assert world.leases() == []


MISTAKES: list[tuple[dict[str, str], dict[str, Any], str]] = [
    ({}, {"priority": 3}, "`priority` is 3; it must be 0, 1 or 2"),
    ({"x-luftpause-priority": "high"}, {}, "x-luftpause-priority must be 0, 1 or 2, not 'high'"),
    ({}, {"wait_ms": 5}, "unknown field `wait_ms`; the body is a JSON object of lease, cost, "),
    ({}, {"waitMs": -1}, "`waitMs` is -1; give milliseconds from 0"),
    ({}, {"leaseMs": 0}, "`leaseMs` is 0; give milliseconds from 1"),
    ({}, {"lease": "two words"}, "`lease` must be 1 to 128 visible ASCII characters"),
    ({}, {"cost": 0}, "`cost` of 'requests' is 0; give a number above 0"),
    ({}, {"cost": {"points": -2}}, "`cost` of 'points' is -2; give a number above 0"),
    ({}, {"class": "urgent"}, "invalid enum value 'urgent'"),
    ({"x-luftpause-class": "urgent"}, {}, "x-luftpause-class must be one of"),
]


@in_a_world
async def test_a_mistake_is_a_400_that_names_it(world: World) -> None:
    for headers, body, said in MISTAKES:
        answer = await world.ask("reserve", sent=headers, **body)
        assert answer.status_code == 400, (headers, body)
        assert said in answer.json()["error"]["message"]
    assert world.leases() == []


@in_a_world
async def test_what_is_no_json_is_refused(world: World) -> None:
    path = "/v1/quota/one/reserve"
    assert (await world.client.post(path, content=b"{", headers={"content-type": "application/json"})).status_code == 400
    assert (await world.client.post(path, content=b"[]", headers={"content-type": "application/json"})).status_code == 400
    assert (await world.client.post(path, content=b"{}", headers={"content-type": "text/plain"})).status_code == 415
    assert (await world.client.get(path)).status_code == 405


@in_a_world
async def test_an_unknown_target_is_a_404_that_names_the_known_ones(world: World) -> None:
    lease = {"lease": "a", "fence": 1}
    for what, body in {
        "reserve": {}, "report": lease | {"status": 200}, "renew": lease, "release": lease, "observe": {"status": 200},
    }.items():  # fmt: skip
        answer = await world.ask(what, "gihub", **body)
        assert answer.status_code == 404, what
        assert answer.json()["error"] == {
            "message": "no target is called 'gihub'; known: few, github, one", "type": "not_found_error", "code": "unknown_target",
        }  # fmt: skip


@in_a_world
async def test_a_target_may_be_written_in_percent_codes(world: World) -> None:
    async with client_of(world.plane) as client:
        assert (await client.ask(post(b"{}", path="/v1/quota/f%65w/reserve"))).status == 200
        strange = await client.ask(post(b"{}", path="/v1/quota/a%2Fb/reserve"))
    assert (strange.status, strange.error["message"]) == (404, "no target is called 'a/b'; known: few, github, one")
    assert len(world.leases("few")) == 1


@in_a_world
async def test_a_question_is_answered_on_connections_of_all_kinds(world: World) -> None:
    path, mistake = "/v1/quota/few/reserve", post(b"[]", path="/v1/quota/few/reserve")
    async with client_of(world.plane) as client:
        for _ in range(2):
            answer = await client.ask(post(b"{}", path=path))
            assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
            assert (await client.ask(mistake)).status == 400
        asked = await client.ask(get(path, "OPTIONS"))
        assert (asked.status, asked.headers["allow"]) == (204, "OPTIONS, POST")
        assert (await client.ask(post(b"", path="/v1/quota/github/enable"))).status == 204
    async with client_of(world.plane) as old:
        assert (await old.ask(post(b"{}", path=path, version="1.0"))).status == 200
        assert await old.closed() == b""


@in_a_world
async def test_a_port_that_fails_is_a_500_and_the_connection_goes_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(world.port, "reserve", broken)
    async with client_of(world.plane) as client:
        for _ in range(2):
            answer = await client.ask(post(b"{}", path="/v1/quota/one/reserve"))
            assert (answer.status, answer.error["code"]) == (500, "internal")


@in_a_world
async def test_a_call_above_a_whole_limit_is_413(world: World) -> None:
    answer = await world.ask("reserve", "few", cost=10)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")


# ---- what becomes of a lease


def held(lease: dict[str, Any]) -> dict[str, Any]:
    return {"lease": lease["lease"], "fence": lease["fence"]}


@in_a_world
async def test_a_report_settles_once_and_a_second_one_changes_nothing(world: World) -> None:
    lease = await world.granted("few")
    report = {**held(lease), "status": 200, "headers": {"x-ratelimit-limit-requests": "9"}, "actual": {"requests": 2}}
    first, second = await world.ask("report", "few", **report), await world.ask("report", "few", **report)
    assert (first.json(), second.json()) == ({"settled": True, "limited": False}, {"settled": False, "limited": False})
    assert world.governor.state.targets["few"].scopes["requests"].remaining == 7


@in_a_world
async def test_a_release_gives_back_once(world: World) -> None:
    lease = await world.granted("few")
    assert (await world.ask("release", "few", **held(lease))).json() == {"released": True}
    assert (await world.ask("release", "few", **held(lease))).json() == {"released": False}
    assert world.governor.state.targets["few"].scopes["requests"].remaining == 9


@in_a_world
async def test_a_lease_of_an_older_grant_is_gone(world: World) -> None:
    old = await world.granted(lease="a")
    await world.ask("release", **held(old))
    new = await world.granted(lease="a")
    answer = await world.ask("renew", **held(old))
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "lease_gone")
    assert (await world.ask("renew", **held(new))).json()["expiresMs"] > 119_000
    assert (await world.ask("release", **held(old))).json() == {"released": False}
    assert len(world.leases()) == 1


@in_a_world
async def test_a_call_that_failed_without_an_answer_counts_as_used(world: World) -> None:
    lease = await world.granted("few")
    assert (await world.ask("report", "few", **held(lease), status=None)).json() == {"settled": True, "limited": False}
    assert world.governor.state.targets["few"].scopes["requests"].remaining == 8


@in_a_world
async def test_a_refusal_is_read_from_raw_headers_and_body(world: World) -> None:
    lease = await world.granted("github")
    body = {"headers": {"X-RateLimit-Remaining": "4000"}, "body": "You have exceeded a secondary rate limit."}
    told = (await world.ask("report", "github", **held(lease), status=403, **body)).json()
    assert (told["settled"], told["limited"], told["kind"]) == (True, True, "secondary")
    assert 60_000 < told["retryMs"] <= 64_000


@in_a_world
async def test_what_others_saw_of_limits_counts(world: World) -> None:
    headers = {"X-RateLimit-Limit": "5000", "X-RateLimit-Remaining": "7", "X-RateLimit-Resource": "core", "X-RateLimit-Reset": "9999999999"}
    assert (await world.ask("observe", "github", status=200, headers=headers)).json() == {"settled": False, "limited": False}
    assert world.governor.state.targets["github"].scopes["core"].remaining == 7


@in_a_world
async def test_no_header_that_says_nothing_of_limits_reaches_the_governor(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, str]] = []
    port = world.port
    observe = port.observe

    async def spy(target: str, **told: Any) -> Any:
        seen.append(told["headers"])
        return await observe(target, **told)

    monkeypatch.setattr(port, "observe", spy)
    headers = {"Set-Cookie": "canary", "Authorization": "canary", "X-Api-Key": "canary", "Retry-After": "1", "Long": "x" * 5000}
    await world.ask("observe", "github", status=200, headers=headers)
    assert seen == [{"retry-after": "1"}]


# ---- whose lease


async def test_a_lease_belongs_to_whoever_has_the_token_that_reserved_it(tmp_path: Path) -> None:
    file = tmp_path / "tokens.yaml"
    file.write_text("ralph: ralphs-token-of-some-length\npicard: picards-token-of-some-length\n", encoding="utf-8")
    file.chmod(0o600)
    async with worlds(Tokens(file=file)) as world:
        ralph, picard = ({"authorization": f"Bearer {name}s-token-of-some-length"} for name in ("ralph", "picard"))
        assert (await world.ask("reserve")).status_code == 401
        lease = (await world.ask("reserve", sent=ralph, caller="picard")).json()
        (found,) = world.governor.state.targets["one"].leases.values()
        assert (found.caller, found.priority) == ("ralph", 1)  # not whom it says it is
        assert (await world.ask("release", sent=picard, **held(lease))).json() == {"released": False}
        assert (await world.ask("report", sent=picard, **held(lease), status=200)).json()["settled"] is False
        assert (await world.ask("release", sent=ralph, **held(lease))).json() == {"released": True}


async def test_names_with_colons_lead_to_nobody_elses_lease(tmp_path: Path) -> None:
    file = tmp_path / "tokens.yaml"
    file.write_text('a: token-of-a-with-some-length\n"a:b": token-of-ab-with-some-length\n', encoding="utf-8")
    file.chmod(0o600)
    async with worlds(Tokens(file=file)) as world:
        a, ab = ({"authorization": f"Bearer token-of-{name}-with-some-length"} for name in ("a", "ab"))
        lease = (await world.ask("reserve", sent=ab, lease="c")).json()
        assert (await world.ask("reserve", sent=a, lease="b:c")).status_code == 429
        assert (await world.ask("release", sent=a, lease="b:c", fence=lease["fence"])).json() == {"released": False}


# ---- garbage, and money


@pytest.mark.parametrize(
    ("what", "body", "says"),
    [
        ("renew", {"lease": "x", "fence": -1}, "`fence` is -1"),
        ("release", {"lease": "x", "fence": 2**64}, "`fence` is 1.84467e+19"),
        ("report", {"lease": "x", "fence": 10**30, "status": 200}, "`fence` is 1e+30"),
        ("report", {"lease": "x", "fence": 1, "status": 10**12}, "`status` is 1e+12"),
        ("observe", {"status": -5}, "`status` is -5"),
        ("observe", {"status": 0}, "`status` is 0"),
        ("reserve", {"leaseMs": 3_600_001}, "`leaseMs` is 3.6e+06"),
        ("reserve", {"cost": {str(number): 1 for number in range(65)}}, "`cost` may name 64 limits at most"),
        ("reserve", {"cost": {"n" * 129: 1}}, "with 128 characters each"),
    ],
)
@in_a_world
async def test_garbage_is_named_and_changes_nothing(world: World, what: str, body: dict[str, Any], says: str) -> None:
    answer = await world.ask(what, **body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request")
    assert says in answer.json()["error"]["message"]
    assert not world.leases()


@in_a_world
async def test_a_target_whose_bill_is_paid_is_enabled_again(world: World) -> None:
    lease = await world.granted("github")
    told = await world.ask("report", "github", **held(lease), status=402)
    assert told.json()["kind"] == "credit"
    refused = await world.ask("reserve", "github")
    assert refused.status_code == 402
    assert "pay, then POST /v1/quota/github/enable" in refused.json()["error"]["message"]
    assert (await world.client.post("/v1/quota/github/enable")).status_code == 204
    await world.granted("github", caller="picard")  # critical: its window after a block begins at once
    assert (await world.client.post("/v1/quota/gihub/enable")).status_code == 404


async def test_only_an_operator_enables_a_target_where_callers_have_tokens(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("ann: the-token-of-ann-is-long\n")
    file.chmod(0o600)
    async with worlds(Tokens("the-token-of-operators", file), authorization="Bearer the-token-of-ann-is-long") as world:
        lease = await world.granted("github")
        await world.ask("report", "github", **held(lease), status=402)
        refused = await world.ask("enable", "github")
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "operators_only")
        assert "an operator, who has LUFTPAUSE_TOKEN" in refused.json()["error"]["message"]
        assert (await world.ask("enable", "gihub")).status_code == 403, "nor does it tell which there are"
        assert (await world.ask("reserve", "github")).status_code == 402
        assert (await world.ask("enable", "github", {"authorization": "Bearer the-token-of-operators"})).status_code == 204


# ---- looking on


@in_a_world
async def test_the_state_of_all_targets_is_json(world: World) -> None:
    answer = await world.client.get("/v1/quota")
    assert answer.status_code == 200
    assert [target["name"] for target in answer.json()["targets"]] == ["few", "github", "one"]


@in_a_world
async def test_events_come_as_they_happen_until_the_client_leaves(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_api, "KEEPALIVE_SECONDS", 0.02)  # what is written to a client that closed its side shows that it left
    async with world.client.stream("GET", "/v1/quota/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.aiter_lines()
        assert await anext(lines) == ": quota events"
        lease = await world.granted()
        told = await asyncio.wait_for(next_event(lines), SECONDS)
        assert (told["event"], told["target"]) == ("grant", "one")
        assert lease["lease"] not in json.dumps(told)
    await until(lambda: not world.governor._listeners)


@in_a_world
async def test_events_end_when_the_dataplane_stops(world: World) -> None:
    async with world.client.stream("GET", "/v1/quota/events") as answer:
        lines = answer.aiter_lines()
        await anext(lines)
        assert world.plane.quotas is not None
        world.plane.quotas.stop()
        assert [line async for line in lines if line.startswith("data")] == []
    await until(lambda: not world.governor._listeners)


async def next_event(lines: Any) -> dict[str, Any]:
    async for line in lines:
        if line.startswith("data: "):
            return json.loads(line.removeprefix("data: "))
    raise AssertionError("the stream ended")


# ---- without a governor


@in_a_world
async def test_without_a_governor_everything_is_a_503_that_says_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any, **__: Any) -> Any:
        raise QuotaUnavailableError("the scheduler can't be asked for quota now; nothing was granted, try again")

    async def away_events() -> AsyncGenerator[bytes, None]:
        raise QuotaUnavailableError("away")
        yield b""

    port = world.port
    for name in ("reserve", "report", "renew", "release", "observe", "view"):
        monkeypatch.setattr(port, name, away)
    monkeypatch.setattr(port, "events", away_events)
    lease = {"lease": "a", "fence": 1}
    answers = [
        await world.ask("reserve", waitMs=20_000),
        await world.ask("reserve"),
        await world.ask("report", **lease, status=200),
        await world.ask("renew", **lease),
        await world.ask("release", **lease),
        await world.ask("observe", status=200),
        await world.client.get("/v1/quota"),
        await world.client.get("/v1/quota/events"),
    ]
    assert {(each.status_code, each.json()["error"]["code"], each.headers["retry-after"]) for each in answers} == {
        (503, "governor_unavailable", "1")
    }


@in_a_world
async def test_no_more_look_on_than_may_though_they_come_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_api, "WATCHING_MAX", 2)

    async with contextlib.AsyncExitStack() as stack:
        asked = [world.client.stream("GET", "/v1/quota/events") for _ in range(6)]
        answers = await asyncio.gather(*(stack.enter_async_context(each) for each in asked))
        assert sorted(each.status_code for each in answers) == [200] * 2 + [503] * 4
