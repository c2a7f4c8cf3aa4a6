"""Does the runtime's metrics page say what runs did, once it is on disk, under labels that stay few?"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path

import httpx
import pytest

from luftpause.kit import metrics
from luftpause.kit.config import RuntimeConfig
from luftpause.runtime.journal import Journal
from luftpause.runtime.metrics import RuntimeMetrics
from luftpause.runtime.pages import Pages
from luftpause.runtime.ports import Json, ServiceClass, SpawnRequest, ToolResult, TurnError
from luftpause.runtime.runs import RunService
from tests.support.agents import CountingTools, ScriptedModel, calls, never, spec, text
from tests.support.promtool import Page

P = "luftpause_runtime_"
SPECS = (spec("lookup"), spec("safe", read_only=True), spec("delete", destructive=True))
LOOKUP = ("lookup", '{"q": "x"}')


@pytest.fixture
def config(tmp_path: Path) -> RuntimeConfig:
    return RuntimeConfig(state=tmp_path / "state", journal_reserve_bytes=0)


class Live:
    """A runtime's runs and its page."""

    def __init__(self, runs: RunService, tools: CountingTools, journal: Journal) -> None:
        self.runs = runs
        self.collector = RuntimeMetrics(runs.tally, tools, journal)

    async def page(self) -> Page:
        body, _ = await metrics.page((self.collector,), "")
        return Page(body.decode())

    async def ended(self, *handles: str) -> None:
        views = await self.runs.wait(handles, "all", 60, None)
        assert all(view.state.ended for view in views)

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def live(config: RuntimeConfig, model: ScriptedModel, tools: CountingTools | None = None) -> AsyncGenerator[Live]:
    tools = tools or CountingTools(*SPECS)
    async with await Journal.open(config) as journal, RunService(config, model, tools, journal) as runs:
        yield Live(runs, tools, journal)


def outcomes(page: Page, names: Sequence[str]) -> list[float]:
    return [page.sum(P + "tool_calls_total", outcome=name) for name in names]


async def test_runs_turns_tokens_and_tool_calls_are_those_that_the_runs_tell(config: RuntimeConfig) -> None:
    model = ScriptedModel(calls(LOOKUP, ("nobody", "{}"), ("lookup", "[1]")), text("42"))
    async with live(config, model) as there:
        before = await there.page()
        first = await there.runs.spawn(SpawnRequest("secret", service_class=ServiceClass.BATCH, caller="picard"))
        second = await there.runs.spawn(SpawnRequest("secret"))
        await there.ended(first.handle, second.handle)
        page = await there.page()
        shown = there.runs.everything()
    page.follows(before)
    assert before.sum(P + "runs") == 0
    assert page.sum(P + "runs", state="completed", **{"class": "batch"}) == page.sum(P + "runs", state="completed") / 2 == 1
    assert page.sum(P + "spawned_runs_total") == page.sum(P + "ended_runs_total", state="completed") == 2
    assert page.sum(P + "run_seconds_count", state="completed") == 2
    assert page.sum(P + "turns_total", outcome="paused") == page.sum(P + "turns_total", outcome="finished") == 2
    assert page.sum(P + "turn_seconds_count") == 4
    for kind in ("prompt", "completion", "cached"):
        assert page.sum(P + "tokens_total", type=kind) == sum(getattr(run, f"{kind}_tokens") for run in shown) > 0
    assert page.sum(P + "tool_calls_total") == sum(run.tool_calls for run in shown) == 6
    assert outcomes(page, ["ok", "failed", "rejected"]) == [2, 0, 4]
    assert page.sum(P + "tool_calls_total", server="server") == 4, "two of lookup that can't be made are its server's too"
    assert page.sum(P + "tool_seconds_count", server="server") == 2
    assert page.sum(P + "tool_server_connected", server="server") == 1
    assert page.sum(P + "tools", server="server") == 3
    assert page.sum(P + "journal_bytes") > 0
    assert page.labels().keys() == {"class", "state", "outcome", "reason", "type", "server", "limit", "le", "version", "python"}
    values = {value for values in page.labels().values() for value in values}
    assert not values & {"picard", "m", "lookup", "nobody", first.handle, second.handle}


async def test_a_person_who_declines_a_tool_that_fails_and_a_run_that_is_cancelled(config: RuntimeConfig) -> None:
    async def fails(name: str, arguments: Json) -> ToolResult:
        return ToolResult(f"no {name} of {arguments}", failed=True)

    model = ScriptedModel(calls(LOOKUP, ("delete", "{}"), ("delete", "{}"), ("safe", "{}")), never)
    async with live(config, model, CountingTools(*SPECS, work=fails)) as there:
        run = await there.runs.spawn(SpawnRequest("t"))
        for allow in (False, True):
            await there.until(lambda: there.runs.view(run.handle, None).pending_approvals)
            page = await there.page()
            assert (page.sum(P + "pending_approvals"), page.sum(P + "runs", state="awaiting_approval")) == (1, 1)
            await there.runs.approve(run.handle, allow, None, None)
        await there.until(lambda: len(model.turns) == 2)
        other = await there.runs.spawn(SpawnRequest("t"))
        await there.until(lambda: there.runs.view(other.handle, None).pending_approvals)
        for each in (run, other):
            await there.runs.cancel(each.handle, None)
        page = await there.page()
    assert outcomes(page, ["ok", "failed", "declined", "cancelled"]) == [0, 4, 1, 3]
    assert page.sum(P + "approvals_total", outcome="allowed") == page.sum(P + "approvals_total", outcome="declined") == 1
    assert page.sum(P + "runs", state="cancelled") == page.sum(P + "ended_runs_total", state="cancelled") == 2
    assert page.sum(P + "pending_approvals") == page.sum(P + "runs", state="awaiting_approval") == 0


async def test_a_restart_keeps_the_gauges_begins_the_counters_anew_and_counts_what_it_took_up(config: RuntimeConfig) -> None:
    async def hangs(name: str, arguments: Json) -> ToolResult:
        await asyncio.get_running_loop().create_future()
        raise AssertionError(name, arguments)

    tools = CountingTools(*SPECS, work=hangs)
    async with live(config, ScriptedModel(calls(LOOKUP, ("safe", "{}"))), tools) as there:
        await there.runs.spawn(SpawnRequest("t", parallel_tool_calls=True))
        await there.until(lambda: len(tools.made) == 2)
        assert (await there.page()).sum(P + "tool_calls_total") == 0, "a restart is no end"
    async with live(config, ScriptedModel(text("42"))) as there:
        (run,) = there.runs.everything()
        await there.ended(run.handle)
        page = await there.page()
    assert outcomes(page, ["interrupted", "ok", "cancelled"]) == [1, 1, 0], "safe was made again"
    assert (page.sum(P + "resumed_runs_total"), page.sum(P + "spawned_runs_total")) == (1, 0)
    assert (page.sum(P + "runs", state="completed"), page.sum(P + "runs")) == (1, 1)


async def test_tries_without_an_answer_and_budgets_that_are_used_up(config: RuntimeConfig) -> None:
    model = ScriptedModel(TurnError("wait", retry_after_s=0, limited=True), TurnError("broken", retry_after_s=0), calls(LOOKUP))
    async with live(config, model) as there:
        run = await there.runs.spawn(SpawnRequest("t", budget_tokens=20))
        await there.ended(run.handle)
        page = await there.page()
    for reason in ("limited", "failed"):
        assert page.sum(P + "turn_failures_total", reason=reason, **{"class": "interactive"}) == 1
    assert page.sum(P + "budgets_exceeded_total", limit="tokens") == page.sum(P + "budgets_exceeded_total") == 1
    assert page.sum(P + "tool_calls_total", outcome="cancelled") == page.sum(P + "tool_calls_total") - page.sum(
        P + "tool_calls_total", outcome="ok"
    )


async def test_runs_whose_retention_is_over_are_not_counted(config: RuntimeConfig) -> None:
    short = config.model_copy(update={"retention_seconds": 0.001, "journal_compact_bytes": 1})
    async with live(short, ScriptedModel(text("42"))) as there:
        await there.ended((await there.runs.spawn(SpawnRequest("t"))).handle)
    async with live(short, ScriptedModel(text("42"))) as there:
        await there.until(lambda: not there.runs.everything())
        page = await there.page()
    assert page.sum(P + "runs") == 0


async def test_the_page_is_prometheus_text_or_openmetrics(config: RuntimeConfig) -> None:
    async with live(config, ScriptedModel(text("42"))) as there:
        app = httpx.ASGITransport(Pages(lambda _: (), CountingTools(), (there.collector,)))
        async with httpx.AsyncClient(transport=app, base_url="http://runtime") as http:
            plain, opened = await http.get("/metrics"), await http.get("/metrics", headers={"accept": "application/openmetrics-text"})
            posted = await http.post("/metrics")
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert opened.headers["content-type"].startswith("application/openmetrics-text")
    assert Page(opened.text, openmetrics=True).values.keys() >= {("luftpause_runtime_journal_full", ())}
    assert (posted.status_code, posted.headers["allow"]) == (405, "GET, HEAD")
