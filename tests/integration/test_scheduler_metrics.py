"""Do metrics and status tell what agents on two dataplanes did, under load and at rest?"""

import asyncio
import contextlib
import itertools
import json
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path

import jsonschema
import pytest

from tests.support.cluster import Cluster, cluster
from tests.support.promtool import Page
from tests.support.tool_agents import Agent, errors_of

AGENTS = 12
SCRAPE_SECONDS = 0.25
SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "status.schema.json").read_text())
ENGINE = ("--health-seconds", "0", "--decode-seconds", "0.01")
ONE = {"model": "fake-1b", "messages": [{"role": "user", "content": "One question. [answer=16]"}]}
OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"

pytestmark = pytest.mark.timeout(240)


async def scrape(whole: Cluster, accept: str = "") -> Page:
    answer = await whole.http.get(whole.scheduler.at["http"] + "/metrics", headers={"accept": accept} if accept else {})
    assert answer.status_code == 200
    openmetrics = answer.headers["content-type"].startswith("application/openmetrics-text")
    assert openmetrics == (accept == OPENMETRICS)
    return Page(answer.text, openmetrics=openmetrics)


async def rest(whole: Cluster) -> Page:
    """Of a moment in which no sign of life or probe has just come."""
    async with asyncio.timeout(60):
        while (page := await scrape(whole)).sum("luftpause_scheduler_inbox_events"):
            pass
    return page


def agent(whole: Cluster, number: int) -> Agent:
    turn_class = "batch" if number % 3 == 0 else "interactive"
    headers = {"x-luftpause-class": turn_class, "x-luftpause-caller": f"caller-{number}"}
    return Agent(whole.http, f"Task {number}. [calls=3 answer=16]", headers=headers)


@contextlib.asynccontextmanager
async def at_work(whole: Cluster) -> AsyncGenerator[tuple[list[Agent], asyncio.Future[list[None]]]]:
    agents = [agent(whole, number) for number in range(AGENTS)]
    work = asyncio.gather(*(each.loop(lambda n, at=number: whole.url((at + n) % 2), 0.05) for number, each in enumerate(agents)))
    try:
        yield agents, work
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def test_what_agents_saw_is_what_metrics_and_status_count(tmp_path: Path) -> None:
    replicas = [{"load": "none", "max_in_flight": 2}, {"load": "none", "max_in_flight": 2}]
    patient = {"probe_seconds": 10}  # no probe is missed, however busy the machine is
    async with cluster(tmp_path, engines=[ENGINE, ENGINE], replicas=replicas, scheduler=patient) as whole:
        pages = [await scrape(whole)]
        async with at_work(whole) as (agents, work):
            held = await whole.until(
                lambda seen: seen["state"]["held"] >= 3 and [each["in_flight"] for each in seen["state"]["replicas"]] == [2, 2]
            )
            pages.append(await scrape(whole))
            while not work.done():
                pages += [await scrape(whole, OPENMETRICS), await scrape(whole)]
                await asyncio.wait({work}, timeout=SCRAPE_SECONDS)
            await work
        quiet = await whole.quiet()
        pages.append(last := await rest(whole))
        await heads(whole)
        usage = (await whole.http.post(whole.url() + "/chat/completions", json=ONE)).raise_for_status().json()["usage"]
        await whole.quiet()
        pages.append(after_one := await scrape(whole))
    assert errors_of(agents) == []
    for before, after in itertools.pairwise(pages):
        after.follows(before)
    of_status(held)
    of_rest(quiet, last)
    of_turns(agents, last)
    for kind, tokens in (("prompt", usage["prompt_tokens"]), ("completion", usage["completion_tokens"])):
        assert (
            after_one.sum("luftpause_scheduler_tokens_total", type=kind) - last.sum("luftpause_scheduler_tokens_total", type=kind)
            == tokens
            > 0
        )


async def heads(whole: Cluster) -> None:
    """HEAD answers like GET, without a body, on a connection that goes on."""
    for path in ("/", "/status", "/metrics", "/health"):
        head = await whole.http.head(whole.scheduler.at["http"] + path)
        full = await whole.http.get(whole.scheduler.at["http"] + path)
        assert (head.status_code, head.content) == (200, b"")
        assert int(head.headers["content-length"]) > 0
        assert head.headers["content-type"] == full.headers["content-type"]


def of_status(seen: dict) -> None:
    """While turns are held: who, why, for what, and nothing beyond the schema."""
    jsonschema.validate(seen, SCHEMA)
    state = seen["state"]
    assert {each["caller"] for each in state["held_turns"]} <= {f"caller-{number}" for number in range(AGENTS)}
    assert {each["reason"] for each in state["held_turns"]} <= {"capped", "sticky", "reserved"}
    assert all("engine-" in each["waits_for"] or each["reason"] == "reserved" for each in state["held_turns"])
    assert sum(each["held"] for each in state["held_by_caller"]) == state["held"]
    assert all(sum(each["in_flight_by_class"].values()) == each["in_flight"] <= each["cap"] for each in state["replicas"])
    assert all(each["health"] == "healthy" and each["misses"] == 0 and each["health_seconds"] > 0 for each in state["replicas"])


def of_rest(seen: dict, page: Page) -> None:
    """When all have finished nothing is held or in flight, and what came has gone."""
    jsonschema.validate(seen, SCHEMA)
    assert seen["state"]["callers"] == 0
    for gauge in ("in_flight_turns", "held_turns", "held_oldest_seconds", "inbox_events", "callers"):
        assert page.sum("luftpause_scheduler_" + gauge) == 0, gauge
    assert page.sum("luftpause_scheduler_sessions", state="resynced") == 2
    assert page.sum("luftpause_scheduler_replica_health", state="healthy") == 2
    assert page.sum("luftpause_scheduler_build_info") == 1
    assert page.sum("luftpause_scheduler_runs", phase="idle") == AGENTS


def of_turns(agents: list[Agent], page: Page) -> None:
    """Outcomes, places and holds are those that the agents have seen."""
    turns = [turn for each in agents for turn in each.turns]
    p = "luftpause_scheduler_"
    assert page.sum(p + "turns_total", outcome="paused") == sum(bool(turn.calls) for turn in turns)
    assert page.sum(p + "turns_total", outcome="finished") == AGENTS
    assert page.sum(p + "turns_total") == page.sum(p + "placements_total") == len(turns)
    assert page.sum(p + "turns_total", **{"class": "batch"}) == sum(len(each.turns) for each in agents[::3])
    for replica, number in Counter(turn.replica for turn in turns).items():
        assert page.sum(p + "turns_total", replica=replica) == number
    assert page.sum(p + "held_seconds_count") == len(turns)
    none = page.sum(p + "held_seconds_count", reason="none")
    assert len(turns) - none == sum(bool(turn.hold_reason) for turn in turns)
    assert page.sum(p + "held_seconds_sum") == pytest.approx(sum(turn.held_ms for turn in turns) / 1000, rel=0.1, abs=0.1)
    assert page.sum(p + "decide_seconds_count") == page.sum(p + "events_total")
    assert page.sum(p + "decisions_total", type="Place") == len(turns)
    bounded(page)


def bounded(page: Page) -> None:
    """No run, turn or caller is a label."""
    labels = page.labels()
    assert set(labels) == {
        "class", "replica", "outcome", "reason", "type", "state", "phase", "dataplane", "le", "version", "protocol", "python",
    }  # fmt: skip
    assert labels["class"] == {"interactive", "batch"}
    assert labels["replica"] == {"engine-0", "engine-1"}
    assert labels["dataplane"] == {"dp-0", "dp-1"}
