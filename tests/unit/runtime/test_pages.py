"""Does the status page tell the tree, with what every subtree cost?"""

from pathlib import Path

import httpx

from luftpause.kit.config import RuntimeConfig
from luftpause.runtime.journal import Journal
from luftpause.runtime.pages import Pages
from luftpause.runtime.ports import SpawnRequest
from luftpause.runtime.runs import RunService
from tests.support.agents import CountingTools, ScriptedModel, calls, text


async def test_the_tree_with_the_costs_of_every_subtree(tmp_path: Path) -> None:
    config, tools = RuntimeConfig(state=tmp_path / "state", journal_reserve_bytes=0), CountingTools()
    model = ScriptedModel(calls(("lookup", '{"q": "x"}'), ("nobody", "{}")), text("42"))
    async with await Journal.open(config) as journal, RunService(config, model, tools, journal) as runs:
        root = await runs.spawn(SpawnRequest("secret task", budget_tokens=1000))
        child = await runs.spawn(SpawnRequest("t", parent=root.handle))
        leaf = await runs.spawn(SpawnRequest("t", parent=child.handle))
        await runs.wait([root.handle, child.handle, leaf.handle], "all", 60, None)
        app = httpx.ASGITransport(Pages(lambda _: runs.everything(), tools))
        async with httpx.AsyncClient(transport=app, base_url="http://runtime") as http:
            page = await http.get("/status")
    shown = {run["handle"]: run for run in page.json()["runs"]}
    assert list(shown) == [root.handle, child.handle, leaf.handle]
    for handle, count in ((root.handle, 3), (child.handle, 2), (leaf.handle, 1)):
        subtree = shown[handle]["subtree"]
        assert (subtree["turns"], subtree["tool_calls"], subtree["failed_tool_calls"]) == (2 * count, 2 * count, count)
        assert (subtree["prompt_tokens"], subtree["completion_tokens"], subtree["cached_tokens"]) == (20 * count, 4 * count, 8 * count)
        assert {"turn_seconds", "tool_seconds"} <= subtree.keys()
        assert (shown[handle]["turns"], shown[handle]["tool_calls"]) == (2, 2)
    assert shown[root.handle]["budget"] == {
        "limits": {"tokens": 1000, "toolCalls": None, "seconds": None},
        "used": {"tokens": 72, "toolCalls": 6, "seconds": shown[root.handle]["budget"]["used"]["seconds"]},
        "exceeded": None,
    }
    assert shown[child.handle]["budget"] is None
    assert (shown[leaf.handle]["parent"], shown[root.handle]["children"]) == (child.handle, [child.handle])
    assert "secret task" not in page.text
    assert "42" not in {run.get("answer") for run in shown.values()}
