"""Is a task a view of its run, whatever happens to runtime and run?"""

import asyncio
import contextlib
from typing import Any

from luftpause.runtime.ports import RunState
from tests.integration.runtime_mcp.clients import SECONDS, TASKS, Stateless, soon, stateless
from tests.integration.runtime_mcp.test_server import client
from tests.support.runtime_fakes import served


async def started(c: Stateless, **arguments: Any) -> dict[str, Any]:
    return await c.call("run", {"task": "long", **arguments})


async def seen(c: Stateless, task: str) -> dict[str, Any]:
    return (await c.ask("tasks/get", taskId=task))["result"]


async def test_run_gives_a_task_that_is_known_at_once_and_ends_as_its_run_does():
    async with served() as at, stateless(at, tasks=True) as c:
        task = await started(c)
        (run,) = at.runs.runs.values()
        assert task["resultType"] == "task"
        assert {key: task[key] for key in ("status", "createdAt", "lastUpdatedAt", "ttlMs")} == {
            "status": "working",
            "createdAt": "2023-11-14T22:13:20.000Z",
            "lastUpdatedAt": "2023-11-14T22:13:20.000Z",
            "ttlMs": 7 * 86_400_000,
        }
        assert at.runs.requests[0].task_id == run.task_id == task["taskId"]
        assert (await seen(c, task["taskId"]))["status"] == "working"
        at.runs.finish(run.handle, answer="42")
        ended = await seen(c, task["taskId"])
        assert (ended["status"], ended["resultType"], ended["lastUpdatedAt"]) == ("completed", "complete", "2023-11-14T22:15:00.000Z")
        assert ended["result"]["structuredContent"]["answer"] == "42"
        assert ended["result"]["isError"] is False


async def test_a_failed_run_is_a_completed_task_whose_result_says_so_and_a_cancelled_one_is_cancelled():
    async with served() as at, stateless(at, tasks=True) as c:
        failed, cancelled = await started(c), await started(c)
        one, other = at.runs.runs
        at.runs.finish(one, RunState.FAILED, error="the engine is gone")
        result = await seen(c, failed["taskId"])
        assert (result["status"], result["result"]["isError"]) == ("completed", True)
        assert "the engine is gone" in result["result"]["content"][0]["text"]
        assert (await c.ask("tasks/cancel", taskId=cancelled["taskId"]))["result"]["resultType"] == "complete"
        assert at.runs.cancelled == [other]
        assert (await seen(c, cancelled["taskId"]))["status"] == "cancelled"
        await c.ask("tasks/cancel", taskId=cancelled["taskId"])
        assert at.runs.cancelled == [other]


async def test_a_task_asks_and_an_answer_goes_to_its_run():
    async with served() as at, stateless(at, tasks=True) as c:
        task = (await started(c))["taskId"]
        (handle,) = at.runs.runs
        first, second = at.runs.ask(handle, path="a"), at.runs.ask(handle, path="b")
        asks = await seen(c, task)
        assert asks["status"] == "input_required"
        assert list(asks["inputRequests"]) == [first.key, second.key]
        yes = {"action": "accept", "content": {"allow": True}}
        assert (await c.ask("tasks/update", taskId=task, inputResponses={first.key: yes, "unknown": yes}))["status"] == 200
        assert list((await seen(c, task))["inputRequests"]) == [second.key]
        await c.ask("tasks/update", taskId=task, inputResponses={first.key: {"action": "decline"}, second.key: {"action": "decline"}})
        assert at.runs.decisions == {first.key: True, second.key: False}
        assert (await seen(c, task))["status"] == "working"


async def test_a_dismissed_question_of_a_task_waits_for_approve():
    async with served() as at, stateless(at, tasks=True) as c:
        task = (await started(c))["taskId"]
        (handle,) = at.runs.runs
        approval = at.runs.ask(handle)
        await c.ask("tasks/update", taskId=task, inputResponses={approval.key: {"action": "cancel"}})
        now = await seen(c, task)
        assert now["status"] == "working"
        assert "waits for consent" in now["statusMessage"]
        await c.ask("tasks/update", taskId=task, inputResponses={approval.key: {"action": "accept", "content": {"allow": True}}})
        assert at.runs.decisions == {}
        assert (await c.call("approve", {"handle": handle, "allow": True}))["structuredContent"]["first"]


async def test_a_task_answers_as_its_run_does_after_a_restart():
    async with served() as at, stateless(at, tasks=True) as c:
        task = (await started(c))["taskId"]
        (handle,) = at.runs.runs
        approval = at.runs.ask(handle)
    async with served(runs=at.runs) as again, stateless(again, tasks=True) as c:
        assert list((await seen(c, task))["inputRequests"]) == [approval.key]
        await c.ask("tasks/update", taskId=task, inputResponses={approval.key: {"action": "accept", "content": {"allow": True}}})
        at.runs.finish(handle, answer="42")
        assert (await seen(c, task))["result"]["structuredContent"]["answer"] == "42"
    assert len(at.runs.requests) == 1


async def test_whoever_does_not_declare_the_extension_gets_a_blocking_call_and_no_tasks():
    async with served() as at, stateless(at, tasks=True) as c, stateless(at) as plain, client(at, "legacy") as legacy:
        task = (await started(c))["taskId"]
        call = asyncio.create_task(plain.call("run", {"task": "echo 42"}))
        assert (await soon(call))["structuredContent"]["answer"] == "42"
        assert (await soon(legacy.call_tool("run", {"task": "echo 42"}))).structured_content["answer"] == "42"
        refused = await plain.ask("tasks/get", taskId=task)
        assert (refused["status"], refused["error"]["code"]) == (400, -32021)
        assert refused["error"]["data"]["requiredCapabilities"] == {"extensions": {TASKS: {}}}
        assert (await plain.ask("subscriptions/listen", notifications={"taskIds": [task]}))["error"]["code"] == -32021


async def test_wrong_tasks_are_named():
    async with served() as at, stateless(at, tasks=True) as c:
        unknown = await c.ask("tasks/get", taskId="task_x")
        assert (unknown["status"], unknown["error"]["code"]) == (400, -32602)
        assert "task_x" in unknown["error"]["message"]
        task = (await started(c))["taskId"]
        async with stateless(at, tasks=True, headers={"mcp-name": "task_other"}) as other:
            assert (await other.ask("tasks/get", taskId=task))["error"]["code"] == -32020
        wrong = await c.call("run", {"task": "long", "maxtoolcalls": 3})
        assert wrong["isError"]
        assert "did you mean `maxToolCalls`?" in wrong["content"][0]["text"]
        assert (await c.ask("tasks/list"))["error"]["code"] == -32601


async def test_a_subscription_tells_each_change_of_a_task_and_ends_with_it():
    async with served() as at, stateless(at, tasks=True) as c:
        task = (await started(c))["taskId"]
        (handle,) = at.runs.runs
        async with c.stream("subscriptions/listen", notifications={"taskIds": [task, "task_x"]}) as messages:
            acknowledged = await soon(anext(messages))
            assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
            assert acknowledged["params"]["notifications"] == {"taskIds": [task]}
            assert (await soon(anext(messages)))["params"]["status"] == "working"
            approval = at.runs.ask(handle)
            assert list((await soon(anext(messages)))["params"]["inputRequests"]) == [approval.key]
            await at.runs.approve(handle, True, None, None)
            assert (await soon(anext(messages)))["params"]["status"] == "working"
            at.runs.finish(handle, answer="42")
            last = await soon(anext(messages))
            assert (last["method"], last["params"]["status"]) == ("notifications/tasks", "completed")
            assert (await soon(anext(messages)))["result"]["resultType"] == "complete"


async def test_changed_tools_are_told_in_both_generations():
    async with served() as at, stateless(at) as c:
        told = asyncio.Event()

        async def on_message(message: Any) -> None:
            if "ToolListChanged" in type(message).__name__:
                told.set()

        async with client(at, "legacy", on_message=on_message) as legacy:
            assert legacy.server_capabilities.tools.list_changed is True
            assert "lookup" in str((await legacy.list_tools()).tools)
            async with c.stream("subscriptions/listen", notifications={"toolsListChanged": True}) as messages:
                assert (await soon(anext(messages)))["params"]["notifications"] == {"toolsListChanged": True}
                at.tools.add("remove")
                assert (await soon(anext(messages)))["method"] == "notifications/tools/list_changed"
            await soon(told.wait())
            assert "There are now: lookup, remove." in str((await legacy.list_tools(cache_mode="bypass")).tools)


async def test_a_subscription_ends_when_the_runtime_stops():
    async with contextlib.AsyncExitStack() as serving:
        at = await serving.enter_async_context(served(stop_grace_seconds=100))
        async with stateless(at) as c, c.stream("subscriptions/listen", notifications={"toolsListChanged": True}) as messages:
            await soon(anext(messages))
            async with asyncio.timeout(SECONDS):
                await serving.aclose()
            assert (await soon(anext(messages)))["result"]["resultType"] == "complete"


async def test_decide_and_tools_say_what_they_found():
    async with served() as at, client(at, "auto") as c:
        at.tools.add("remove")
        decided = await c.call_tool("decide", {"input": "so good", "labels": ["good", "bad", "odd"]})
        assert decided.structured_content == {
            "label": "good",
            "probabilities": {"good": 0.75, "bad": 0.25},
            "unscored": ["odd"],
            "model": "m",
        }
        same = await c.call_tool("decide", {"input": "x", "labels": ["a", "a"]})
        assert same.is_error
        assert "must differ" in same.content[0].text
        one = await c.call_tool("decide", {"input": "x", "labels": ["a"]})
        assert "a list of 2 to 20 different texts" in one.content[0].text
        tools = (await c.call_tool("tools", {})).structured_content["tools"]
        assert {tool["name"]: tool["needsApproval"] for tool in tools} == {"lookup": False, "remove": True}


async def test_budgets_and_consent_reach_the_run():
    async with served() as at, stateless(at) as c:
        await c.call(
            "spawn",
            {"task": "echo", "budgetTokens": 100, "budgetToolCalls": "3", "budgetSeconds": 1.5, "approveTools": ["mail_*"]},
            _meta={"claudecode/toolUseId": "toolu_1"},
        )
        await c.call("spawn", {"task": "echo"}, _meta={"callId": "call_2", "threadId": "t"})
        one, other = at.runs.requests
        assert (one.budget_tokens, one.budget_tool_calls, one.budget_seconds) == (100, 3, 1.5)
        assert (one.approve_tools, one.tool_call_id) == (("mail_*",), "toolu_1")
        assert (other.tool_call_id, other.caller) == ("call_2", "t")
