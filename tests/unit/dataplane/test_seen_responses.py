"""What is seen in an OpenAI Responses answer, whatever form the engine gives it?"""

import json
from typing import Any

import pytest

from luftpause.dataplane.observe import EventStream, WholeJson
from luftpause.dataplane.seen_responses import ResponsesSeen
from luftpause.dataplane.turns import Usage

USAGE = {
    "input_tokens": 9, "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 3, "output_tokens_details": {"reasoning_tokens": 1}, "total_tokens": 12,
}  # fmt: skip
TEXT = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hé"}]}


def event(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "sequence_number": 1} | more


def response(status: str, **more: Any) -> dict[str, Any]:
    full = {"id": "resp_1", "object": "response", "status": status, "error": None, "incomplete_details": None, "usage": None, "output": []}
    return full | {"instructions": "long " * 50, "tools": [{"type": "function"}], "store": True} | more


def call(call_id: Any, kind: str = "function_call") -> dict[str, Any]:
    return {"type": kind, "id": "fc_1", "call_id": call_id, "name": "f", "arguments": "{}", "status": "completed"}


def sse(*events: Any, end: str = "\n\n", space: str = " ", named: bool = True) -> bytes:
    parts: list[str] = []
    for each in events:
        name = f"event: {each['type']}{end[: len(end) // 2]}" if named and isinstance(each, dict) else ""
        parts.append(f"{name}data:{space}{each if isinstance(each, str) else json.dumps(each, ensure_ascii=False)}{end}")
    return "".join(parts).encode()


def watch(stream: bytes, step: int = 0) -> ResponsesSeen:
    seen = ResponsesSeen()
    observer = EventStream(seen, 10_000)
    step = step or len(stream)
    for at in range(0, len(stream), step):
        observer.feed(stream[at : at + step])
    observer.end()
    return seen


CREATED = event("created", response=response("in_progress"))
DELTA = event("output_text.delta", delta="hé", item_id="msg_1")
CALL_ADDED = event("output_item.added", item=call("call_1") | {"arguments": ""}, output_index=1)
ARGUMENTS = event("function_call_arguments.delta", delta='{"type":"response.failed"}')
CALL_DONE = event("output_item.done", item=call("call_1"), output_index=1)
COMPLETED = event("completed", response=response("completed", output=[TEXT, call("call_1")], usage=USAGE))
TOOLS = (CREATED, event("in_progress", response=response("in_progress")), DELTA, DELTA, CALL_ADDED, ARGUMENTS, CALL_DONE, COMPLETED)


@pytest.mark.parametrize("step", [0, 1, 2, 3, 7, 50, 400])
@pytest.mark.parametrize(("end", "space", "named"), [("\n\n", " ", True), ("\r\n\r\n", " ", True), ("\n\n", "", False), ("\n", " ", False)])
def test_a_stream_is_read_however_it_is_cut_and_ended(step: int, end: str, space: str, named: bool) -> None:
    seen = watch(sse(*TOOLS, end=end, space=space, named=named), step)
    assert (seen.first_token, seen.finish_reason, seen.paused, seen.ids) == (True, "completed", True, ["call_1"])
    assert (seen.usage, seen.response, seen.error, seen.events > 0, seen.tools) == (Usage(9, 3, 4), "resp_1", "", True, ["f"])


@pytest.mark.parametrize(
    ("what", "token"),
    [
        (CREATED, False),
        (event("output_item.added", item={"type": "message", "content": []}), False),
        (event("content_part.added", part={"type": "output_text", "text": ""}), False),
        (event("output_text.delta", delta=""), False),
        (DELTA, True),
        (event("reasoning_text.delta", delta="x"), True),
        (event("reasoning_summary_text.delta", delta="x"), True),
        (event("refusal.delta", delta="x"), True),
        (event("function_call_arguments.delta", delta="{"), True),
        (CALL_ADDED, True),
    ],
)
def test_the_first_token_is_the_first_thing_said(what: Any, token: bool) -> None:
    assert watch(sse(what)).first_token is token


@pytest.mark.parametrize(
    ("last", "finish", "paused", "error"),
    [
        (event("completed", response=response("completed")), "completed", False, ""),
        (event("completed", response=response("completed", output=[call("c", "custom_tool_call")])), "completed", True, ""),
        (event("completed", response=response("completed", output=[{"type": "web_search_call", "id": "ws"}])), "completed", False, ""),
        (
            event("incomplete", response=response("incomplete", incomplete_details={"reason": "max_output_tokens"}, output=[call("c")])),
            "max_output_tokens",
            False,
            "",
        ),
        (event("failed", response=response("failed", error={"code": "server_error", "message": "broke"})), "failed", False, "broke"),
        (event("failed", response=response("failed")), "failed", False, "failed"),
        ({"type": "error", "message": "flat", "code": "x"}, "", False, "flat"),
        ({"type": "error", "error": {"message": "nested"}}, "", False, "nested"),
        ({"error": {"message": "bare", "code": 504}}, "", False, "bare"),
    ],
)
def test_how_it_ended(last: Any, finish: str, paused: bool, error: str) -> None:
    seen = watch(sse(CREATED, DELTA, last, named=False))
    assert (seen.finish_reason, seen.paused, seen.error) == (finish, paused, error)


@pytest.mark.parametrize(
    ("items", "tools"),
    [
        ([call("a"), call("b") | {"name": "add"}, call("c")], ["f", "add"]),
        ([call("a", "custom_tool_call") | {"name": "apply_patch"}], ["apply_patch"]),
        (
            [{"type": "local_shell_call", "call_id": "a", "action": {}}, {"type": "computer_call", "call_id": "b"}],
            ["local_shell", "computer"],
        ),
        ([{"type": "web_search_call", "id": "ws"}], []),
        ([call("a") | {"name": 7}], ["function"]),
        ([TEXT], []),
    ],
)
def test_names_of_the_tools_that_were_called_once_each(items: list[Any], tools: list[str]) -> None:
    """A built-in tool of the client's has no name but its type."""
    assert watch(sse(CREATED, event("completed", response=response("completed", output=items)))).tools == tools


def test_a_stream_that_stops_after_its_calls_is_paused() -> None:
    seen = watch(sse(CREATED, DELTA, CALL_ADDED, ARGUMENTS, CALL_DONE))
    assert (seen.paused, seen.ids) == (True, ["call_1"])


@pytest.mark.parametrize(
    "output",
    [[call(7)], [call("")], [call(None)], [{"type": "function_call"}], "odd", [5], {"a": 1}, [{"type": 5, "call_id": "x"}]],
)
def test_what_makes_no_sense_is_passed_over(output: Any) -> None:
    seen = watch(sse(CREATED, event("completed", response=response("completed", output=output, usage=USAGE))))
    assert (seen.ids, seen.usage, seen.finish_reason) == ([], Usage(9, 3, 4), "completed")


@pytest.mark.parametrize("junk", ["not json", '{"type": 5}', "[1]", '{"type":"response.completed","response":5}', "[DONE]", '"x"', "{"])
def test_events_that_cant_be_read_change_nothing(junk: str) -> None:
    seen = watch(sse(CREATED, junk, DELTA, junk, COMPLETED, named=False))
    assert (seen.first_token, seen.ids, seen.usage, seen.error) == (True, ["call_1"], Usage(9, 3, 4), "")


def test_lone_surrogates_are_read() -> None:
    seen = watch(b'data: {"type":"response.output_text.delta","delta":"\\ud83d"}\n\n' + sse(COMPLETED))
    assert (seen.first_token, seen.usage) == (True, Usage(9, 3, 4))


def test_the_response_id_is_news_once_and_only_if_it_is_stored() -> None:
    seen = watch(sse(CREATED))
    assert (seen.response, seen.news) == ("resp_1", True)
    seen = watch(sse(event("created", response=response("in_progress", store=False))))
    assert (seen.response, seen.news) == ("", False)


@pytest.mark.parametrize(
    ("usage", "read"),
    [(USAGE, Usage(9, 3, 4)), ({"input_tokens": 5}, Usage(5, 0, None)), ({}, None), (None, None), ({"input_tokens": "5"}, None), (5, None)],
)
def test_usage_in_every_form(usage: Any, read: Usage | None) -> None:
    assert watch(sse(event("completed", response=response("completed", usage=usage)))).usage == read


def test_a_whole_answer() -> None:
    seen = ResponsesSeen()
    observer = WholeJson(seen, 10_000)
    observer.feed(json.dumps(response("completed", output=[TEXT, call("a"), call("b")], usage=USAGE)).encode())
    observer.end()
    assert (seen.response, seen.ids, seen.paused, seen.usage, seen.first_token) == ("resp_1", ["a", "b"], True, Usage(9, 3, 4), False)
