"""Do questions, tasks, handles and the join with the dataplane hold with the real parts, and over a killed runtime?"""

import asyncio
from pathlib import Path
from typing import Any

import httpx
from mcp import Client

from luftpause.scheduler.replay import replay
from tests.integration.runtime_mcp.clients import TASKS, Stateless, says
from tests.support.stack import Stack, stack

SECONDS = 60.0
DELETING = 'Clean up. [calls=1 tool=delete_note args={"id":"n1"}]'


async def test_questions_tasks_and_handles_outlive_a_killed_runtime_and_sub_agents_have_their_parents(tmp_path: Path) -> None:
    record = {"record": str(tmp_path / "record"), "record_clear": True}
    async with stack(tmp_path, scheduler=record) as whole, httpx.AsyncClient(timeout=60, trust_env=False) as http:
        parent, child = await _a_spawn_is_a_child_of_the_run_whose_model_asked_for_it(whole, http)
        await _a_person_is_asked_in_both_generations(whole)
        await _a_task_and_its_question_outlive_the_runtime(whole, http)
    (log,) = (tmp_path / "record").iterdir()
    with log.open("rb") as lines:
        runs = {run.id: run for run in replay(lines).state.runs.values()}
    assert (runs[child].parent, runs[child].caller) == (parent, f"run:{parent}")


async def _a_spawn_is_a_child_of_the_run_whose_model_asked_for_it(whole: Stack, http: httpx.AsyncClient) -> tuple[str, str]:
    """The two runs; the child goes on waiting for a person."""
    said = {"role": "user", "content": 'Think. [calls=1 tool=spawn args={"task":"x"}]'}
    tool = {"type": "function", "function": {"name": "spawn", "parameters": {"type": "object", "properties": {}}}}
    turn = await http.post(f"{whole.base_url}/chat/completions", json={"model": await whole.ready(), "messages": [said], "tools": [tool]})
    parent, (call,) = turn.headers["x-luftpause-run-id"], turn.json()["choices"][0]["message"]["tool_calls"]
    found = await http.get(f"{whole.base_url}/runs", params={"tool_call_id": call["id"]})
    assert found.json() == {"run": parent}
    assert (await http.get(f"{whole.base_url}/runs", params={"tool_call_id": "toolu_unknown_Zz"})).status_code == 404
    assert (await http.get(f"{whole.base_url}/runs")).json()["error"]["code"] == "bad_tool_call_id"
    async with Client(whole.mcp) as client:
        meta: Any = {"claudecode/toolUseId": call["id"]}
        slow = {"task": 'Look. [calls=1 tool=delete_note args={"id":"n0"}]'}
        child = (await client.call_tool("spawn", slow, meta=meta)).structured_content["handle"]
        awaited = await client.call_tool("await", {"handles": [child]})
        assert awaited.structured_content["runs"][0]["state"] == "AwaitingApproval"
        return parent, child


async def _a_person_is_asked_in_both_generations(whole: Stack) -> None:
    before = await _deleted(whole)
    for mode, allow in (("legacy", True), ("2026-07-28", True), ("legacy", False), ("2026-07-28", False)):
        asked: list[str] = []

        async def answer(_: Any, params: Any, allow: bool = allow, asked: list[str] = asked) -> Any:
            asked.append(params.message)
            return says("accept", allow=allow)

        async with Client(whole.mcp, mode=mode, elicitation_callback=answer) as client:
            result = (await asyncio.wait_for(client.call_tool("run", {"task": DELETING}), SECONDS)).structured_content
        assert result["state"] == "Completed", result
        assert 'delete_note with {"id": "n1"}' in asked[0]
        assert len(asked) == 1
        assert result["failedToolCalls"] == (0 if allow else 1)
    assert await _deleted(whole) == before + 2


async def _a_task_and_its_question_outlive_the_runtime(whole: Stack, http: httpx.AsyncClient) -> None:
    before = await _deleted(whole)
    capabilities = {"elicitation": {"form": {}}, "extensions": {TASKS: {}}}
    client = Stateless(http, whole.mcp, capabilities, {})
    task = (await client.call("run", {"task": DELETING}))["taskId"]
    first = await _asks(client, task)
    async with Client(whole.mcp, mode="legacy") as session:
        handle = (await session.call_tool("spawn", {"task": "Say something."})).structured_content["handle"]
    await whole.kill("runtime")
    await whole.start("runtime")
    assert list(first["inputRequests"]) == list((await _asks(client, task))["inputRequests"])
    (key,) = first["inputRequests"]
    await client.ask("tasks/update", taskId=task, inputResponses={key: {"action": "accept", "content": {"allow": True}}})
    ended = await _until(client, task, "completed")
    assert ended["result"]["structuredContent"]["state"] == "Completed"
    assert await _deleted(whole) == before + 1
    async with Client(whole.mcp, mode="legacy") as session:
        answer = (await session.call_tool("await", {"handles": [handle]})).structured_content["runs"][0]
        assert answer["state"] == "Completed"


async def _asks(client: Stateless, task: str) -> dict[str, Any]:
    return await _until(client, task, "input_required")


async def _until(client: Stateless, task: str, status: str) -> dict[str, Any]:
    async with asyncio.timeout(SECONDS):
        while True:
            seen = (await client.ask("tasks/get", taskId=task))["result"]
            if seen["status"] == status:
                return seen
            await asyncio.sleep(0.05)  # a task is polled


async def _deleted(whole: Stack) -> int:
    counts = await whole.tool_counts()
    return counts["started"].get("delete_note", 0)
