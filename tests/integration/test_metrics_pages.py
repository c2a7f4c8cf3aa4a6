"""Do the metrics of all three services pass what promtool asks, while agents, sub-agents and quotas are at work?

What the figures must be is held to beside each service; this is about the form of the pages, and about what may be a label.
"""

import asyncio
import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client

from tests.support.metric_catalog import SERVICES, Known, catalog
from tests.support.promtool import Page
from tests.support.stack import Stack, stack
from tests.support.tool_agents import Agent, errors_of

pytestmark = pytest.mark.timeout(300)

AGENTS = 8
SPAWNED = 4
SCRAPE_SECONDS = 0.2
OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"
QUOTA = {"scopes": [{"name": "requests", "limit": 100, "window_seconds": 3600}]}
CALLERS = "caller-of-metrics"
LABELS = {
    "class", "replica", "model", "outcome", "reason", "type", "state", "phase", "dataplane", "route", "api", "code", "target", "scope",
    "light", "mode", "server", "limit", "le", "version", "protocol", "python",
}  # fmt: skip
BOUNDED = {
    "class": {"interactive", "batch", "p0", "p1", "p2"},
    "replica": {"engine-0", "engine-1", ""},
    "model": {"fake-1b", "other", ""},
    "server": {"tools", ""},
    "target": {"api"},
    "scope": {"requests"},
    "dataplane": {"dataplane"},
}
SOMETIMES = re.compile(r"luftpause_scheduler_(unrecorded_events_total|quota_store_\w+)|luftpause_dataplane_worker_up")
A_RUN = re.compile(r"(run|turn|call|chatcmpl)[_-]?(?=[A-Za-z_-]*\d)\w{6,}")


class Pages:
    """What the services have shown so far, in both formats."""

    def __init__(self, whole: Stack, http: httpx.AsyncClient) -> None:
        self.seen: dict[str, list[Page]] = {name: [] for name in SERVICES}
        self._whole = whole
        self._http = http

    async def scrape(self, *, openmetrics: bool = False) -> None:
        for name in SERVICES:
            headers = {"accept": OPENMETRICS} if openmetrics else {}
            answer = await self._http.get(self._whole.services[name].at["http"] + "/metrics", headers=headers)
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("application/openmetrics-text" if openmetrics else "text/plain; version=0.0.4")
            self.seen[name].append(Page(answer.text, openmetrics=openmetrics))

    async def until_done(self, work: asyncio.Future[Any]) -> None:
        openmetrics = False
        while not work.done():
            await self.scrape(openmetrics=openmetrics)
            openmetrics = not openmetrics
            await asyncio.wait({work}, timeout=SCRAPE_SECONDS)
        await work
        await self.scrape()


async def test_all_three_pages_pass_under_load(tmp_path: Path) -> None:
    known = await catalog(tmp_path)
    async with (
        stack(tmp_path, engine=("--decode-seconds", "0.01"), governor={"targets": {"api": QUOTA}}) as whole,
        httpx.AsyncClient(timeout=60, trust_env=False) as http,
    ):
        pages = Pages(whole, http)
        agents = [agent(http, number) for number in range(AGENTS)]
        work = asyncio.gather(
            *(each.loop(lambda _: whole.base_url, 0.05) for each in agents), sub_agents(whole), governed(whole, http)
        )  # fmt: skip
        await pages.until_done(work)
    assert errors_of(agents) == []
    for name in SERVICES:
        for before, after in itertools.pairwise(pages.seen[name]):
            after.follows(before)
        as_known(name, pages.seen[name][-1], known)
        bounded(pages.seen[name])
    at_work(pages.seen)


def agent(http: httpx.AsyncClient, number: int) -> Agent:
    turn_class = "batch" if number % 2 else "interactive"
    headers = {"x-luftpause-class": turn_class, "x-luftpause-caller": f"{CALLERS}-{number}", "x-luftpause-run-id": f"run_metrics{number}"}
    return Agent(http, f"Task {number}. [calls=2 answer=16]", headers=headers)


async def sub_agents(whole: Stack) -> None:
    async with Client(whole.mcp) as client:
        tasks = [f"Task {number}. [calls=2 answer=60]" for number in range(SPAWNED)]  # long enough that a page shows them at work
        ended = await asyncio.gather(*(client.call_tool("run", {"task": task}) for task in tasks))
    assert [each.structured_content["state"] for each in ended] == ["Completed"] * SPAWNED


async def governed(whole: Stack, http: httpx.AsyncClient) -> None:
    """Calls to a hosted API, one after the other; one of them asks for a target that nobody configured."""
    for number in range(5):
        body = {"waitMs": 1000, "caller": f"{CALLERS}-{number}", "priority": 1}
        lease = (await http.post(f"{whole.base_url}/quota/api/reserve", json=body)).raise_for_status().json()
        told = {"lease": lease["lease"], "fence": lease["fence"], "status": 200, "headers": {}}
        (await http.post(f"{whole.base_url}/quota/api/report", json=told)).raise_for_status()
    assert (await http.post(f"{whole.base_url}/quota/unheard-of/reserve", json={"waitMs": 0})).is_client_error


def as_known(service: str, page: Page, known: dict[str, Known]) -> None:
    """Each metric of the page is documented (a test compares tables and catalogue) and has the labels that it should; none is missing."""
    prefix = f"luftpause_{service}_"
    found: dict[str, Known] = {}
    for bare, family in page.families.items():
        if bare.startswith(prefix):
            name = bare + ("_total" if family.type == "counter" else "")
            labels = known[name].labels if not family.samples else frozenset(family.samples[0].labels) - {"le"}
            found[name] = Known(known[name].type if name.endswith("_info") else family.type, labels)  # the older text knows no info
        else:
            assert bare.startswith("process_"), bare
    assert found == {name: each for name, each in known.items() if name.startswith(prefix) and not SOMETIMES.fullmatch(name)}


def bounded(pages: Sequence[Page]) -> None:
    """No run, turn, caller, task or tool is a label."""
    for page in pages:
        labels = page.labels()
        assert labels.keys() <= LABELS
        for name, values in labels.items():
            assert values <= BOUNDED.get(name, values), name
            assert not [value for value in values if A_RUN.search(value) or CALLERS in value or "Task" in value or "unheard" in value]
            assert values.isdisjoint({"lookup", "search"}), "a tool"


def at_work(seen: dict[str, list[Page]]) -> None:
    """The pages were of services at work, and the three agree on what there was."""
    scheduler, dataplane, runtime = (seen[name][-1] for name in SERVICES)
    turns = 3 * (AGENTS + SPAWNED)
    assert any(page.sum("luftpause_dataplane_in_flight_turns") > 0 for page in seen["dataplane"])
    assert any(page.sum("luftpause_runtime_runs", state="running") > 0 for page in seen["runtime"])
    assert dataplane.sum("luftpause_dataplane_turns_total") == turns
    assert scheduler.sum("luftpause_scheduler_turns_total") <= turns
    assert runtime.sum("luftpause_runtime_turns_total") == 3 * SPAWNED
    assert runtime.sum("luftpause_runtime_tool_calls_total", outcome="ok", server="tools") == 2 * SPAWNED
    assert runtime.sum("luftpause_runtime_runs", state="completed") == SPAWNED
    assert scheduler.sum("luftpause_scheduler_quota_grants_total", target="api", **{"class": "p1"}) == 5
