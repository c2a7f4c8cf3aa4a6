"""What is seen in an Anthropic Messages answer, whatever form the engine gives it?"""

import json
from typing import Any

import pytest

from luftpause.dataplane.observe import EventStream, WholeJson
from luftpause.dataplane.seen_messages import MessagesSeen
from luftpause.dataplane.turns import Usage


def start(**usage: Any) -> dict[str, Any]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "stop_reason": None, "usage": usage}
    return {"type": "message_start", "message": message}


def delta(kind: str, key: str, value: Any, index: int = 0) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, key: value}}


def block(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": 0, "content_block": {"type": kind} | more}


def end(reason: Any, **usage: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}


PING, STOP, BLOCK_STOP = {"type": "ping"}, {"type": "message_stop"}, {"type": "content_block_stop", "index": 0}
TEXT = delta("text_delta", "text", "hé")
USE = block("tool_use", id="toolu_1", name="f", input={})
ARGUMENTS = delta("input_json_delta", "partial_json", '{"type":"error"}', 1)
TOOLS = (
    start(input_tokens=5, cache_read_input_tokens=4, output_tokens=1),
    PING,
    block("text", text=""),
    TEXT,
    TEXT,
    BLOCK_STOP,
    USE,
    ARGUMENTS,
    BLOCK_STOP,
    end("tool_use", output_tokens=7),
    STOP,
)


def sse(*events: Any, ends: str = "\n\n", space: str = " ", named: bool = True) -> bytes:
    parts: list[str] = []
    for each in events:
        name = f"event: {each['type']}{ends[: len(ends) // 2]}" if named and isinstance(each, dict) else ""
        parts.append(f"{name}data:{space}{each if isinstance(each, str) else json.dumps(each, ensure_ascii=False)}{ends}")
    return "".join(parts).encode()


def watch(stream: bytes, step: int = 0) -> MessagesSeen:
    seen = MessagesSeen()
    observer = EventStream(seen, 10_000)
    step = step or len(stream)
    for at in range(0, len(stream), step):
        observer.feed(stream[at : at + step])
    observer.end()
    return seen


@pytest.mark.parametrize("step", [0, 1, 2, 3, 7, 50])
@pytest.mark.parametrize(
    ("ends", "space", "named"), [("\n\n", " ", True), ("\r\n\r\n", " ", True), ("\n\n", "", False), ("\n", " ", False)]
)
def test_a_stream_is_read_however_it_is_cut_and_ended(step: int, ends: str, space: str, named: bool) -> None:
    seen = watch(sse(*TOOLS, ends=ends, space=space, named=named), step)
    assert (seen.first_token, seen.finish_reason, seen.paused, seen.ids) == (True, "tool_use", True, ["toolu_1"])
    assert (seen.usage, seen.error, seen.events > 0, seen.tools) == (Usage(9, 7, 4), "", True, ["f"])


@pytest.mark.parametrize(
    ("event", "token"),
    [
        (start(input_tokens=1), False),
        (PING, False),
        (block("text", text=""), False),
        (block("thinking", thinking=""), False),
        (delta("text_delta", "text", ""), False),
        (delta("signature_delta", "signature", "x"), False),
        (TEXT, True),
        (delta("thinking_delta", "thinking", "x"), True),
        (ARGUMENTS, True),
        (USE, True),
        (block("text", text="x"), True),
    ],
)
def test_the_first_token_is_the_first_thing_said(event: Any, token: bool) -> None:
    assert watch(sse(event)).first_token is token


@pytest.mark.parametrize(
    ("reason", "with_use", "paused"),
    [
        ("tool_use", True, True), ("tool_use", False, True), ("end_turn", True, True), (None, True, True), ("max_tokens", True, False),
        ("end_turn", False, False), ("stop_sequence", False, False), ("refusal", True, False), ("pause_turn", False, False),
        ("tool_calls", True, True),
        ("stop", True, True), ("model_context_window_exceeded", True, False),
    ],
)  # fmt: skip
def test_whether_tool_results_will_come(reason: Any, with_use: bool, paused: bool) -> None:
    events = [start(), TEXT, *([USE] if with_use else []), end(reason), STOP]
    assert watch(sse(*events)).paused is paused


def test_the_engines_own_tools_are_nobody_elses() -> None:
    seen = watch(sse(start(), block("server_tool_use", id="srvtoolu_1"), end("end_turn"), STOP))
    assert (seen.ids, seen.paused, seen.tools) == ([], False, [])


def test_names_of_the_tools_that_were_used_once_each() -> None:
    uses = [block("tool_use", id=f"toolu_{n}", name=name) for n, name in enumerate(["lookup", "add", "lookup", None, 7, ""])]
    assert watch(sse(start(), TEXT, *uses, end("tool_use"), STOP)).tools == ["lookup", "add"]


@pytest.mark.parametrize(
    ("first", "last", "read"),
    [
        ({"input_tokens": 5}, {"output_tokens": 2}, Usage(5, 2, None)),
        ({"input_tokens": 5, "output_tokens": 1}, {"input_tokens": 6, "output_tokens": 2}, Usage(6, 2, None)),
        ({"input_tokens": 5}, {"input_tokens": 0, "output_tokens": 2}, Usage(5, 2, None)),
        ({"input_tokens": 0}, {"input_tokens": 8, "cache_read_input_tokens": 0, "output_tokens": 2}, Usage(8, 2, 0)),
        ({"input_tokens": 1, "cache_creation_input_tokens": 10, "cache_read_input_tokens": 100}, {"output_tokens": 2}, Usage(111, 2, 100)),
        ({}, {"output_tokens": 2}, Usage(0, 2, None)),
        ({}, {}, None),
        ({"input_tokens": "5"}, {"output_tokens": True}, None),
    ],
)
def test_usage_is_completed_by_the_end(first: dict[str, Any], last: dict[str, Any], read: Usage | None) -> None:
    assert watch(sse(start(**first), TEXT, end("end_turn", **last), STOP)).usage == read


@pytest.mark.parametrize(
    ("event", "error"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "Overloaded"),
        ({"type": "error", "error": {"type": "overloaded_error"}}, "overloaded_error"),
        ({"type": "error"}, "error"),
        ({"error": {"message": "x", "code": 504}}, "x"),
    ],
)
def test_an_error_inside_the_stream(event: Any, error: str) -> None:
    assert watch(sse(start(), TEXT, event, named=False)).error == error


@pytest.mark.parametrize("junk", ["not json", "[1]", '{"type":5}', '{"type":"message_delta","delta":5,"usage":[]}', "[DONE]", "{", '"x"'])
def test_events_that_cant_be_read_change_nothing(junk: str) -> None:
    seen = watch(sse(TOOLS[0], junk, *TOOLS[1:], junk, named=False))
    assert (seen.first_token, seen.ids, seen.usage, seen.error, seen.paused) == (True, ["toolu_1"], Usage(9, 7, 4), "", True)


@pytest.mark.parametrize("use_id", [None, 7, ""])
def test_no_id_is_taken_from_what_is_none(use_id: Any) -> None:
    seen = watch(sse(start(), block("tool_use", id=use_id), end("tool_use"), STOP))
    assert (seen.ids, seen.paused) == ([], True)


def test_a_whole_answer() -> None:
    answer = {
        "type": "message",
        "content": [{"type": "text", "text": "a"}, {"type": "tool_use", "id": "t1"}, {"type": "tool_use", "id": "t2"}],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 5, "output_tokens": 6},
    }
    seen = MessagesSeen()
    observer = WholeJson(seen, 10_000)
    observer.feed(json.dumps(answer).encode())
    observer.end()
    assert (seen.ids, seen.paused, seen.usage, seen.first_token) == (["t1", "t2"], True, Usage(5, 6, None), False)
