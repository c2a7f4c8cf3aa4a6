"""Is a person asked before a tool call that needs consent, and does only a yes allow it?"""

import asyncio
from typing import Any

import pytest

from luftpause.runtime.ports import RunState
from tests.integration.runtime_mcp.clients import asked_client, says, soon, stateless, until
from tests.integration.runtime_mcp.test_server import client, raw_session, text
from tests.support.runtime_fakes import served

ERAS = ["legacy", "auto"]


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize(
    ("answer", "allowed"), [(says("accept", allow=True), True), (says("accept", allow=False), False), (says("decline"), False)]
)
async def test_await_asks_inside_the_call_and_goes_on(mode: str, answer: Any, allowed: bool):
    async with served() as at, asked_client(at, mode, lambda _: answer) as c:
        handle = (await c.call_tool("spawn", {"task": "long"})).structured_content["handle"]
        approval = at.runs.ask(handle, "remove", path="/tmp/x")
        call = asyncio.create_task(c.call_tool("await", {"handles": [handle]}))
        await until(lambda: approval.key in at.runs.decisions)
        assert at.runs.decisions == {approval.key: allowed}
        assert not call.done()
        at.runs.finish(handle, answer="removed")
        result = await soon(call)
        assert result.structured_content["runs"][0]["answer"] == "removed"
        assert c.asked[0].message == f'The sub-agent {handle} asks for consent to the call of remove with {{"path": "/tmp/x"}}.'
        assert list(c.asked[0].requested_schema["properties"]) == ["allow"]


@pytest.mark.parametrize("mode", ERAS)
async def test_run_asks_about_its_run_and_never_starts_another(mode: str):
    async with served() as at, asked_client(at, mode, lambda _: says("accept", allow=True)) as c:
        call = asyncio.create_task(c.call_tool("run", {"task": "long"}))
        await until(lambda: at.runs.runs)
        (handle,) = at.runs.runs
        first = at.runs.ask(handle, "remove", path="a")
        await until(lambda: first.key in at.runs.decisions)
        second = at.runs.ask(handle, "remove", path="b")
        await until(lambda: second.key in at.runs.decisions)
        at.runs.finish(handle, answer="done")
        assert (await soon(call)).structured_content["answer"] == "done"
        assert len(at.runs.requests) == 1
        assert len(c.asked) == 2


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("answer", [says("cancel"), says("accept"), says("accept", allow="maybe")])
async def test_a_dismissed_question_stays_pending_and_ends_the_await(mode: str, answer: Any):
    async with served() as at, asked_client(at, mode, lambda _: answer) as c:
        handle = (await c.call_tool("spawn", {"task": "long"})).structured_content["handle"]
        approval = at.runs.ask(handle, path="x")
        result = await soon(c.call_tool("await", {"handles": [handle]}))
        run = result.structured_content["runs"][0]
        assert run["state"] == "AwaitingApproval"
        assert run["pendingApproval"] == {"approvalId": approval.id, "tool": "remove", "arguments": {"path": "x"}}
        assert "approve(handle, allow)" in text(result)
        assert at.runs.decisions == {}
        assert len(c.asked) == 1
        decided = await c.call_tool("approve", {"handle": handle, "allow": True})
        assert (decided.structured_content["allowed"], decided.structured_content["first"]) == (True, True)
        again = await c.call_tool("approve", {"handle": handle, "allow": False, "approvalId": approval.id})
        assert (again.structured_content["allowed"], again.structured_content["first"]) == (True, False)
        assert "that decision stands" in text(again)


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("tool", ["await", "run"])
async def test_a_client_without_forms_gets_the_state_at_once(mode: str, tool: str):
    async with served() as at, client(at, mode) as c:
        handle = (await c.call_tool("spawn", {"task": "long"})).structured_content["handle"]
        at.runs.ask(handle)
        call = asyncio.create_task(c.call_tool(tool, {"handles": [handle]} if tool == "await" else {"task": "long"}))
        if tool == "run":
            await until(lambda: len(at.runs.runs) == 2)
            handle = list(at.runs.runs)[1]
            at.runs.ask(handle)
        result = await soon(call)
        run = result.structured_content["runs"][0] if tool == "await" else result.structured_content
        assert (run["handle"], run["state"]) == (handle, "AwaitingApproval")
        assert not result.is_error
        assert (await c.call_tool("approve", {"handle": handle, "allow": False})).structured_content["run"]["state"] == "Running"


@pytest.mark.parametrize("mode", ERAS)
async def test_several_questions_each_get_their_answer(mode: str):
    async with served() as at, asked_client(at, mode, lambda message: says("accept", allow='"a"' in message)) as c:
        handles = [(await c.call_tool("spawn", {"task": "long"})).structured_content["handle"] for _ in range(2)]
        asked = [at.runs.ask(handles[0], path="a"), at.runs.ask(handles[0], path="b"), at.runs.ask(handles[1], path="c")]
        call = asyncio.create_task(c.call_tool("await", {"handles": handles}))
        await until(lambda: len(at.runs.decisions) == 3)
        assert [at.runs.decisions[each.key] for each in asked] == [True, False, False]
        for handle in handles:
            at.runs.finish(handle)
        assert (await soon(call)).structured_content["done"] == 2


async def test_what_somebody_else_decided_is_no_longer_asked():
    never = asyncio.Event()

    async def silent(_: str) -> Any:
        await never.wait()

    async with served() as at, asked_client(at, "legacy", silent) as c, client(at, "legacy") as other:
        handle = (await c.call_tool("spawn", {"task": "long"})).structured_content["handle"]
        at.runs.ask(handle, path="x")
        call = asyncio.create_task(c.call_tool("await", {"handles": [handle]}))
        await until(lambda: c.asked)
        assert (await other.call_tool("approve", {"handle": handle, "allow": True})).structured_content["first"]
        at.runs.finish(handle, answer="removed")
        assert (await soon(call)).structured_content["runs"][0]["answer"] == "removed"


@pytest.mark.parametrize("tool", ["await", "run"])
async def test_a_client_that_never_answers_gets_the_state_after_the_limit(tool: str):
    never = asyncio.Event()

    async def silent(_: str) -> Any:
        await never.wait()

    async with served(await_seconds=1, await_seconds_max=1) as at, asked_client(at, "legacy", silent) as c:
        call: asyncio.Task[Any]
        if tool == "run":
            call = asyncio.create_task(c.call_tool("run", {"task": "long"}))
            await until(lambda: at.runs.runs)
            (handle,) = at.runs.runs
        else:
            handle = (await c.call_tool("spawn", {"task": "long"})).structured_content["handle"]
            call = asyncio.create_task(c.call_tool("await", {"handles": [handle]}))
        at.runs.ask(handle)
        result = await soon(call)
        state = (result.structured_content["runs"][0] if tool == "await" else result.structured_content)["state"]
        assert state == "AwaitingApproval"
        assert c.asked
        assert at.runs.decisions == {}


async def test_an_open_question_does_not_keep_an_await_that_has_what_it_waits_for():
    never = asyncio.Event()

    async def silent(_: str) -> Any:
        await never.wait()

    async with served() as at, asked_client(at, "legacy", silent) as c:
        asking, other = [(await c.call_tool("spawn", {"task": "long"})).structured_content["handle"] for _ in range(2)]
        at.runs.ask(asking)
        call = asyncio.create_task(c.call_tool("await", {"handles": [asking, other], "mode": "any"}))
        await until(lambda: c.asked)
        at.runs.finish(other, answer="here")
        assert [run["state"] for run in (await soon(call)).structured_content["runs"]] == ["AwaitingApproval", "Completed"]


async def test_a_client_that_claims_forms_and_knows_none_gets_the_state():
    async with served() as at, raw_session(at, capabilities={"elicitation": {}}) as session:
        handle = (await session.call("spawn", {"task": "long"}, 1))["result"]["structuredContent"]["handle"]
        at.runs.ask(handle)
        async with session.open_call("await", {"handles": [handle]}, 2) as stream:
            body = ""
            async for part in stream:
                body += part
                if '"elicitation/create"' in part:
                    number = part.split('"id":')[1].split(",")[0].strip().rstrip("}")
                    error = {"jsonrpc": "2.0", "id": int(number), "error": {"code": -32601, "message": "Method not found"}}
                    assert (await session.http.post(at.mcp, json=error, headers=session.headers)).status_code == 202
        assert '"state":"AwaitingApproval"' in body.replace(" ", "")
        assert at.runs.decisions == {}


async def test_a_client_that_takes_only_json_is_not_asked_in_mid_call():
    async with served() as at, raw_session(at, capabilities={"elicitation": {"form": {}}}) as session:
        handle = (await session.call("spawn", {"task": "long"}, 1))["result"]["structuredContent"]["handle"]
        at.runs.ask(handle)
        answer = await soon(session.call("await", {"handles": [handle]}, 2))  # `call` accepts JSON only
        assert answer["result"]["structuredContent"]["runs"][0]["state"] == "AwaitingApproval"


async def test_a_session_that_goes_leaves_its_question_to_others():
    never = asyncio.Event()

    async def silent(_: str) -> Any:
        await never.wait()

    async with served() as at:
        async with asked_client(at, "legacy", silent) as c:
            handle = (await c.call_tool("spawn", {"task": "long"})).structured_content["handle"]
            at.runs.ask(handle)
            call = asyncio.create_task(c.call_tool("await", {"handles": [handle]}))
            await until(lambda: c.asked)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        assert at.runs.decisions == {}
        async with client(at, "auto") as later:
            assert (await later.call_tool("approve", {"handle": handle, "allow": True})).structured_content["first"]


# ---- questions in results ----------------------------------------------------------------------------------------


async def test_a_result_asks_and_the_same_call_brings_the_answer_also_after_a_restart():
    key = b"k" * 32
    async with served(key=key) as at, stateless(at) as c:
        asking = asyncio.create_task(c.call("run", {"task": "long"}))
        await until(lambda: at.runs.runs)
        (handle,) = at.runs.runs
        approval = at.runs.ask(handle, path="x")
        asked = await soon(asking)
        assert asked["resultType"] == "input_required"
        assert list(asked["inputRequests"]) == [approval.key]
        assert asked["inputRequests"][approval.key]["method"] == "elicitation/create"
        assert handle not in asked["requestState"]
    async with served(key=key, runs=at.runs) as again, stateless(again) as c:
        answers = {approval.key: {"action": "accept", "content": {"allow": True}}}
        call = asyncio.create_task(c.call("run", {"task": "long"}, inputResponses=answers, requestState=asked["requestState"]))
        await until(lambda: at.runs.decisions)
        at.runs.finish(handle, answer="removed")
        assert (await soon(call))["structuredContent"]["answer"] == "removed"
    assert at.runs.decisions == {approval.key: True}
    assert len(at.runs.requests) == 1


async def test_answers_count_only_with_the_state_they_belong_to():
    async with served() as at, stateless(at) as c:
        handle = (await c.call("spawn", {"task": "long"}))["structuredContent"]["handle"]
        approval = at.runs.ask(handle)
        yes = {approval.key: {"action": "accept", "content": {"allow": True}}}
        asked = await c.call("await", {"handles": [handle]}, inputResponses=yes)
        assert asked["resultType"] == "input_required"
        assert at.runs.decisions == {}
        other = {"name": "await", "arguments": {"handles": [handle], "mode": "any"}, "requestState": asked["requestState"]}
        assert (await c.ask("tools/call", inputResponses=yes, **other))["error"]["code"] == -32602
        forged = await c.ask("tools/call", name="await", arguments={"handles": [handle]}, inputResponses=yes, requestState="v1.forged")
        assert forged["error"]["code"] == -32602
        assert at.runs.decisions == {}
        lost = await c.call("run", {"task": "long"}, inputResponses=yes)
        assert lost["isError"]
        assert "requestState" in lost["content"][0]["text"]
        assert len(at.runs.requests) == 1


async def test_a_key_that_was_not_asked_about_decides_nothing():
    async with served() as at, stateless(at) as c:
        handle = (await c.call("spawn", {"task": "long"}))["structuredContent"]["handle"]
        at.runs.ask(handle)
        asked = await c.call("await", {"handles": [handle]})
        later = at.runs.ask(handle)
        answers = {later.key: {"action": "accept", "content": {"allow": True}}}
        again = await c.call("await", {"handles": [handle]}, inputResponses=answers, requestState=asked["requestState"])
        assert later.key in again["inputRequests"]
        assert at.runs.decisions == {}


async def test_a_run_that_ended_while_its_question_was_out_gives_its_answer():
    async with served() as at, stateless(at) as c:
        handle = (await c.call("spawn", {"task": "long"}))["structuredContent"]["handle"]
        approval = at.runs.ask(handle)
        asked = await c.call("await", {"handles": [handle]})
        at.runs.finish(handle, RunState.CANCELLED, error="budget exceeded: seconds 3/2")
        answers = {approval.key: {"action": "accept", "content": {"allow": True}}}
        result = await c.call("await", {"handles": [handle]}, inputResponses=answers, requestState=asked["requestState"])
        assert result["structuredContent"]["runs"][0]["state"] == "Cancelled"


async def test_a_run_request_that_is_cancelled_while_its_question_is_open_cancels_the_run():
    never = asyncio.Event()

    async def silent(_: str) -> Any:
        await never.wait()

    async with served() as at, asked_client(at, "legacy", silent) as c:
        call = asyncio.create_task(c.call_tool("run", {"task": "long"}))
        await until(lambda: at.runs.runs)
        (handle,) = at.runs.runs
        at.runs.ask(handle)
        await until(lambda: c.asked)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await until(lambda: at.runs.cancelled == [handle])
        assert at.runs.decisions == {}
        assert (await c.call_tool("status", {"handle": handle})).structured_content["runs"][0]["state"] == "Cancelled"
