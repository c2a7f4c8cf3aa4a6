"""What is seen in an answer, whatever form the engine gives it?"""

import json
from typing import Any

import pytest

from luftpause.dataplane.observe import EventStream, Observed, WholeJson, is_queue_full
from luftpause.dataplane.seen_chat import ChatSeen, PassSeen, is_usage_only
from luftpause.dataplane.turns import Usage


def delta(index: int = 0, finish: str | None = None, **said: Any) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": said, "finish_reason": finish}]}


def call(call_id: str | None, index: int = 0, **more: Any) -> dict[str, Any]:
    return {"index": index, "function": {"arguments": ""}} | ({"id": call_id} if call_id is not None else {}) | more


def named(call_id: str, name: Any, index: int = 0) -> dict[str, Any]:
    return call(call_id, index, function={"name": name, "arguments": ""})


def sse(*events: Any, end: str = "\n\n", prefix: str = "data: ") -> bytes:
    return "".join(prefix + (event if isinstance(event, str) else json.dumps(event)) + end for event in events).encode()


def watch(stream: bytes, step: int = 0, cap: int = 10_000) -> Observed:
    observer = EventStream(ChatSeen(), cap)
    step = step or len(stream)
    for at in range(0, len(stream), step):
        observer.feed(stream[at : at + step])
    observer.end()
    return observer.seen


ROLE, TEXT, END = delta(role="assistant", content=""), delta(content="hé"), delta(finish="stop")
USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
CACHED = USAGE | {"prompt_tokens_details": {"cached_tokens": 4}}


@pytest.mark.parametrize("step", [0, 1, 2, 3, 7, 50])
@pytest.mark.parametrize(
    ("end", "prefix"),
    [("\n\n", "data: "), ("\r\n\r\n", "data: "), ("\r\r", "data: "), ("\n\n", "data:"), ("\n", "data: "), ("\r", "data:")],
)
def test_a_stream_is_read_however_it_is_cut_and_ended(step: int, end: str, prefix: str) -> None:
    seen = watch(
        sse(
            ROLE,
            TEXT,
            delta(tool_calls=[call("c1")]),
            delta(finish="tool_calls"),
            {"choices": [], "usage": CACHED},
            "[DONE]",
            end=end,
            prefix=prefix,
        ),
        step,
    )
    assert (seen.first_token, seen.finish_reason, seen.paused, seen.ids, seen.usage) == (True, "tool_calls", True, ["c1"], Usage(5, 2, 4))
    assert seen.error == ""


@pytest.mark.parametrize(
    "last", [{"choices": [], "usage": USAGE}, {"usage": USAGE}, {"choices": [{"index": 0, "delta": {}}], "usage": USAGE}]
)
def test_usage_in_every_form(last: dict[str, Any]) -> None:
    seen = watch(sse(ROLE, TEXT, END, last, "[DONE]"))
    assert (seen.usage, seen.finish_reason) == (Usage(5, 2, None), "stop")


@pytest.mark.parametrize(
    ("event", "usage"),
    [
        ({"choices": [{"index": 0, "delta": {}, "usage": USAGE | {"cached_tokens": 3}}]}, Usage(5, 2, 3)),
        ({"choices": [], "usage": USAGE | {"prompt_cache_hit_tokens": 3, "prompt_cache_miss_tokens": 2}}, Usage(5, 2, 3)),
        ({"choices": [], "usage": CACHED | {"cached_tokens": 3}}, Usage(5, 2, 4)),
        ({"choices": [], "x_groq": {"id": "x", "usage": USAGE}}, Usage(5, 2, None)),
        ({"choices": [], "usage": {"prompt_tokens": 5.0, "completion_tokens": 2.0}}, Usage(5, 2, None)),
    ],
)
@pytest.mark.parametrize("whole", [False, True])
def test_usage_in_the_places_and_words_of_other_houses(event: dict[str, Any], usage: Usage, whole: bool) -> None:
    if not whole:
        assert watch(sse(TEXT, event)).usage == usage
        return
    message = {"message": {"content": "x"}, "finish_reason": "stop"}
    choices = [message | each for each in event["choices"]] or [message]
    observer = WholeJson(ChatSeen(), 10_000)
    observer.feed(json.dumps(event | {"choices": choices}).encode())
    observer.end()
    assert observer.seen.usage == usage


def spread(*events: Any, end: str) -> bytes:
    """Each event's JSON text indented, a `data:` line for each of its lines."""
    texts = [event if isinstance(event, str) else json.dumps(event, indent=1) for event in events]
    return "".join("".join(f"data: {line}{end}" for line in text.split("\n")) + end for text in texts).encode()


SPREAD = (ROLE, TEXT, delta(tool_calls=[call("c1")]), delta(finish="tool_calls"), {"choices": [], "usage": CACHED}, "[DONE]")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("step", [0, 1, 2, 3, 7, 50])
def test_an_event_of_several_data_lines_is_one(step: int, end: str) -> None:
    seen = watch(spread(*SPREAD, end=end), step)
    assert (seen.first_token, seen.finish_reason, seen.paused, seen.ids, seen.usage) == (True, "tool_calls", True, ["c1"], Usage(5, 2, 4))


def test_an_event_of_several_lines_without_an_end_takes_no_memory() -> None:
    observer = EventStream(ChatSeen(), 1000)
    for _ in range(200):
        observer.feed(b'data: {"x":\n' + b"data: 0,\n" * 100)
        assert len(observer._part) <= 1000
    observer.feed(b"\n" + sse(TEXT, END))
    assert (observer.seen.first_token, observer.seen.finish_reason) == (True, "stop")


@pytest.mark.parametrize("step", [0, 1, 2])
def test_a_stream_may_begin_with_a_byte_order_mark(step: int) -> None:
    seen = watch(b"\xef\xbb\xbf" + sse(TEXT | {"usage": USAGE}), step)
    assert (seen.first_token, seen.usage) == (True, Usage(5, 2, None))
    assert watch(b"\xef\xbb\xbf" * 30_000 + sse(TEXT), cap=200_000).first_token is False


def test_the_last_of_repeated_usages_wins() -> None:
    events = [TEXT | {"usage": {"prompt_tokens": 5, "completion_tokens": n}} for n in range(1, 6)]
    assert watch(sse(*events)).usage == Usage(5, 5, None)


@pytest.mark.parametrize(
    "usage",
    [
        None, {}, 5, [], {"prompt_tokens": "5"}, {"prompt_tokens": None}, {"prompt_tokens": -1}, {"prompt_tokens": True},
        {"prompt_tokens": 0.5}, {"prompt_tokens": 10**30}, {"prompt_tokens": 1e300},
    ],
)  # fmt: skip
def test_a_usage_without_counts_is_unknown(usage: Any) -> None:
    assert watch(sse(TEXT | {"usage": usage})).usage is None


@pytest.mark.parametrize(
    ("event", "token"),
    [
        (ROLE, False),
        (delta(content=None), False),
        (delta(content=""), False),
        (END, False),
        ({"choices": []}, False),
        (TEXT, True),
        (delta(reasoning_content="x"), True),
        (delta(reasoning="x"), True),
        (delta(tool_calls=[call(None)]), True),
        (delta(tool_calls=[]), False),
        (delta(refusal="no"), True),
        (delta(content=[{"type": "text", "text": "x"}]), True),
        (delta(function_call={"name": "f"}), True),
        (delta(tool_calls=call("a")), True),
        (delta(audio={"id": "a", "data": "AAAA"}), True),
        (delta(images=[{"type": "image_url"}]), True),
        (delta(reasoning_details=[{"type": "reasoning.text", "text": "x"}]), True),
    ],
)
def test_the_first_token_is_the_first_thing_said(event: dict[str, Any], token: bool) -> None:
    assert watch(sse(event)).first_token is token


@pytest.mark.parametrize(
    ("events", "ids"),
    [
        (
            [
                delta(tool_calls=[call("a", 0)]),
                delta(tool_calls=[call(None, 0)]),
                delta(tool_calls=[call("b", 1)]),
                delta(tool_calls=[call(None, 0)]),
            ],
            ["a", "b"],
        ),
        ([delta(tool_calls=[call("a", 0), call("a", 1)])], ["a"]),
        ([delta(tool_calls=[call("a", 0), call(None, 1)])], ["a"]),
        ([delta(tool_calls=[call(None, 0), call("", 1)])], []),
        ([delta(tool_calls=[call("a")]), delta(1, tool_calls=[call("b")])], ["a", "b"]),
        ([delta(tool_calls=[5, None, {"id": 7}])], []),
        ([delta(tool_calls=call("a"))], ["a"]),
        ([delta(tool_calls=[call("a", 0)]), delta(tool_calls=[call("b", 0)])], ["a", "b"]),
        ([delta(tool_calls=[call(f"c{n}") for n in range(300)])], [f"c{n}" for n in range(256)]),
    ],
)
def test_tool_call_ids_once_each_none_empty(events: list[Any], ids: list[str]) -> None:
    assert watch(sse(TEXT, *events), cap=100_000).ids == ids


@pytest.mark.parametrize(
    ("events", "tools"),
    [
        ([delta(tool_calls=[named("a", "lookup")]), delta(tool_calls=[call(None)])], ["lookup"]),
        ([delta(tool_calls=[named("a", "lookup"), named("b", "add", 1), named("c", "lookup", 2)])], ["lookup", "add"]),
        ([delta(tool_calls=[named("a", "lookup")]), delta(1, tool_calls=[named("b", "add")])], ["lookup", "add"]),
        ([delta(tool_calls=[{"type": "custom", "id": "a", "custom": {"name": "patch", "input": ""}}])], ["patch"]),
        ([delta(tool_calls=[named("a", None), named("b", 7), named("c", ""), {"id": "d", "function": "x"}])], []),
        ([delta(function_call={"name": "old", "arguments": ""})], ["old"]),
        ([delta(function_call="x")], []),
        ([delta(tool_calls=[named("a", f"t{n}") for n in range(20)])], [f"t{n}" for n in range(16)]),
        ([TEXT], []),
    ],
)
@pytest.mark.parametrize("whole", [False, True])
def test_names_of_the_tools_that_were_called_once_each(events: list[Any], tools: list[str], whole: bool) -> None:
    if not whole:
        assert watch(sse(TEXT, *events), cap=100_000).tools == tools
        return
    observer = WholeJson(ChatSeen(), 100_000)
    choices = [{"message": each["choices"][0]["delta"], "finish_reason": "tool_calls"} for each in events]
    observer.feed(json.dumps({"choices": choices}).encode())
    observer.end()
    assert observer.seen.tools == tools


def test_ids_are_news_when_they_come_and_only_then() -> None:
    observer = EventStream(ChatSeen(), 10_000)
    observer.feed(sse(delta(tool_calls=[call("a")])))
    assert observer.seen.news
    assert observer.seen.fresh_ids == ["a"]
    observer.seen.news, observer.seen.fresh_ids = False, []
    observer.feed(sse(delta(tool_calls=[call("a", name="x")]), delta(tool_calls=[call(None)])))
    assert not observer.seen.news


@pytest.mark.parametrize(
    ("finish", "calls", "paused"),
    [
        ("tool_calls", True, True),
        ("tool_calls", False, True),
        ("function_call", False, True),
        ("stop", True, True),
        (None, True, True),
        ("tool_use", True, True),
        ("TOOL_CALLS", True, True),
        ("eos_token", True, True),
        ("COMPLETE", True, True),
        ("unknown", True, True),
        ("length", True, False),
        ("LENGTH", True, False),
        ("error", True, False),
        ("abort", True, False),
        ("insufficient_system_resource", True, False),
        ("content_filter", True, False),
        ("stop", False, False),
        (None, False, False),
    ],
)
def test_an_answer_that_ended_in_tool_calls_pauses(finish: str | None, calls: bool, paused: bool) -> None:
    events = [delta(tool_calls=[call("a")])] if calls else [TEXT]
    assert watch(sse(*events, delta(finish=finish))).paused is paused


def test_of_several_choices_the_one_with_calls_says_how_it_ended() -> None:
    assert watch(sse(delta(0, "tool_calls"), delta(1, "stop"))).finish_reason == "tool_calls"
    assert watch(sse(delta(1, "stop"), delta(0, "tool_calls"))).finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("event", "error"),
    [
        ({"error": {"message": "x", "code": 504}}, "x"),
        ({"error": "boom"}, "boom"),
        ({"error": {"code": 1}}, "error"),
        ({"object": "error", "message": "flat"}, "flat"),
        ({"error": None}, ""),
        (TEXT | {"error": None}, ""),
    ],
)
@pytest.mark.parametrize("before", [[], [TEXT]])
def test_an_error_inside_the_stream(event: dict[str, Any], error: str, before: list[Any]) -> None:
    flat_after_token = bool(before) and "object" in event
    assert watch(sse(*before, event)).error == ("" if flat_after_token else error)


@pytest.mark.parametrize(
    "noise",
    [
        ": ping\n\n",
        "event: x\n",
        "data: not json\n\n",
        'data: {"usage":{\n\n',
        "data: [1]\n\n",
        "data: 5\n\n",
        "data: null\n\n",
        "retry: 1\n",
        "\n\n\n",
        "data:\n\n",
        'data: {"choices":5,"usage":{}}\n\n',
        'data: {"choices":[5,null,[]],"finish_reason":"x"}\n\n',
        'data: {"choices":[{"delta":7,"finish_reason":"x","message":"y"}]}\n\n',
    ],
)
def test_noise_harms_nothing(noise: str) -> None:
    stream = sse(ROLE) + noise.encode() + sse(TEXT) + noise.encode() + sse(END | {"usage": USAGE})
    for step in (0, 1, 5):
        seen = watch(stream, step)
        assert (seen.first_token, seen.usage) == (True, Usage(5, 2, None))


def test_keys_inside_text_mean_nothing() -> None:
    text = '"finish_reason":"tool_calls","usage":{"prompt_tokens":9},"tool_calls":[{"id":"fake"}],"error":{"message":"x"}'
    seen = watch(sse(TEXT, delta(content=text), END))
    assert (seen.ids, seen.usage, seen.error, seen.finish_reason) == ([], None, "", "stop")


def test_spaces_around_colons_are_no_hiding_place() -> None:
    seen = watch(
        sse(TEXT)
        + b'data: {"choices" : [ {"delta":{"tool_calls" : [ {"id" : "a"} ]}, "finish_reason" : "tool_calls"} ], '
        + b'"usage" : {"prompt_tokens": 1}}\n\n'
    )
    assert (seen.ids, seen.usage, seen.paused) == (["a"], Usage(1, 0, None), True)


def test_lone_surrogates_are_read() -> None:
    seen = watch(
        sse(TEXT)
        + rb'data: {"choices":[{"delta":{"content":"\ud83d","tool_calls":[{"id":"a","function":{"arguments":"\ude00"}}]}}]}'
        + b"\n\n"
    )
    assert seen.ids == ["a"]


def test_a_stream_without_a_last_line_end_is_read_to_its_end() -> None:
    assert watch(sse(TEXT, END).rstrip()).finish_reason == "stop"


def test_an_event_over_the_cap_is_given_up_and_the_next_is_read() -> None:
    stream = sse(TEXT) + b"data: " + b"x" * 5000 + b"\n\n" + sse(END | {"usage": USAGE})
    for step in (0, 100):
        seen = watch(stream, step, cap=1000)
        assert (seen.finish_reason, seen.usage) == ("stop", Usage(5, 2, None))
    assert watch(sse(TEXT) + b"data: " + b"x" * 5000, 100, cap=1000).usage is None


ANSWER = {
    "choices": [{"message": {"content": "x", "tool_calls": [{"id": "a"}, {"id": "b"}]}, "finish_reason": "tool_calls"}],
    "usage": CACHED,
}


@pytest.mark.parametrize("step", [1, 10, 1000])
def test_a_json_answer_is_read_when_it_is_complete(step: int) -> None:
    body, observer = json.dumps(ANSWER).encode(), WholeJson(ChatSeen(), 10_000)
    for at in range(0, len(body), step):
        observer.feed(body[at : at + step])
    assert observer.seen.ids == []
    observer.end()
    seen = observer.seen
    assert (seen.ids, seen.fresh_ids, seen.usage, seen.paused, seen.first_token) == (["a", "b"], ["a", "b"], Usage(5, 2, 4), True, False)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"choices":null}', b"\xff"])
def test_an_answer_that_is_no_completion_says_nothing(body: bytes) -> None:
    observer = WholeJson(ChatSeen(), 1000)
    observer.feed(body)
    observer.end()
    assert (observer.seen.ids, observer.seen.usage, observer.seen.finish_reason) == ([], None, "")


def test_a_long_json_answer_is_not_kept() -> None:
    observer = WholeJson(ChatSeen(), 1000)
    for _ in range(100):
        observer.feed(b"x" * 100)
        assert sum(map(len, observer._parts)) <= 1000
    observer.end()
    assert observer.seen.usage is None


@pytest.mark.parametrize(
    ("event", "extra"),
    [
        ({"choices": [], "usage": USAGE}, True),
        ({"usage": USAGE}, True),
        ({"choices": [{"index": 0, "delta": {}}], "usage": USAGE}, True),
        ({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": USAGE}, False),
        ({"choices": [{"index": 0, "delta": {"content": "x"}}], "usage": USAGE}, False),
        ({"choices": [], "usage": None}, False),
        ({"choices": []}, False),
        ("[DONE]", False),
        ({"error": {"message": "x"}, "usage": {"prompt_tokens": 1}}, False),
        ({"object": "error", "message": "x", "choices": [], "usage": {"prompt_tokens": 1}}, False),
    ],
)
def test_which_event_is_the_extra_one(event: Any, extra: bool) -> None:
    assert is_usage_only((event if isinstance(event, str) else json.dumps(event)).encode()) is extra


@pytest.mark.parametrize(
    ("status", "body", "full"),
    [
        (
            503,
            '{"error":{"message":"The engine is currently busy and cannot accept new requests. Please try again later","code":503}}',
            True,
        ),
        (503, '{"object":"error","message":"The request queue is full.","code":503}', True),
        (503, '{"object":"error","message":"The request is aborted by a higher priority request.","code":503}', True),
        (503, '{"error":"server busy, please try again.  maximum pending requests exceeded"}', True),
        (200, '{"error":{"message":"The request queue is full.","code":503}}', True),
        (200, '{"error":{"message":"The request queue is full.","code":"503"}}', True),
        (200, '{"error":{"message":"The request queue is full.","code":400}}', False),
        (503, '{"error":{"message":"Loading model","code":503}}', False),
        (503, "Service Unavailable", False),
        (503, "", False),
        (503, "[]", False),
    ],
)
def test_what_says_that_the_queue_is_full(status: int, body: str, full: bool) -> None:
    assert is_queue_full(status, body.encode()) is full


def test_a_legacy_completion_says_text_and_its_end() -> None:
    texts = [{"choices": [{"index": 0, "text": each, "finish_reason": None}]} for each in ("", "a")]
    assert watch(sse(texts[0])).first_token is False
    seen = watch(sse(*texts, {"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}, {"choices": [], "usage": USAGE}, "[DONE]"))
    assert (seen.first_token, seen.finish_reason, seen.paused, seen.usage) == (True, "length", False, Usage(5, 2, None))
    assert not is_usage_only(json.dumps(texts[1] | {"usage": USAGE}).encode())


def test_of_a_single_pass_only_the_usage_is_read() -> None:
    seen = PassSeen()
    observer = WholeJson(seen, 1_000_000)
    observer.feed(json.dumps({"data": [{"embedding": [0.5] * 10_000}], "usage": {"prompt_tokens": 5, "total_tokens": 5}}).encode())
    observer.end()
    assert (seen.usage, seen.paused, seen.first_token, seen.finish_reason) == (Usage(5, 0, None), False, False, "")
    observer = WholeJson(seen := PassSeen(), 1_000)
    observer.feed(b"[1")
    observer.end()
    assert seen.usage is None


@pytest.mark.parametrize(
    "odd",
    [
        {"usage": {"prompt_tokens": "5"}},
        {"usage": {"prompt_tokens": -1, "completion_tokens": 2}},
        {"usage": 5},
        {"choices": 5},
        {"choices": [5, {"message": None, "finish_reason": 7}]},
        {"choices": [{"message": {"tool_calls": [{"id": 7}, {"id": "a"}]}, "finish_reason": "tool_calls"}]},
        {"choices": [{"message": {"function_call": {"name": "f"}}, "finish_reason": "stop"}]},
        {"error": {"message": "broke"}, "choices": []},
        {"error": None, "choices": [{"message": {"tool_calls": None}, "finish_reason": None}], "usage": None},
        {"choices": [{"message": {"tool_calls": [{"id": "a"}, {"id": "a"}, {}]}, "finish_reason": "stop"}], "usage": CACHED},
        {"choices": [{"message": {}, "finish_reason": "tool_calls"}, {"message": {}, "finish_reason": "stop"}]},
        {"choices": [{"text": "x", "finish_reason": "stop"}], "usage": USAGE},
        {"object": "error", "message": "flat"},
        {"choices": [{"message": {"content": "\ud83e"}, "finish_reason": "stop"}], "usage": USAGE},
    ],
)
def test_the_short_way_and_the_long_way_see_the_same(odd: dict[str, Any]) -> None:
    """A whole answer is decoded by a schema where it can be, and looked at field by field where not."""
    text = json.dumps(odd).encode()
    short, long = ChatSeen(), ChatSeen()
    short.take_whole(text)
    long.take_text(text)
    for seen in (short, long):
        seen.first_token = seen.news = False
    assert {name: getattr(short, name) for name in Observed.__slots__} == {name: getattr(long, name) for name in Observed.__slots__}
    assert short.paused is long.paused
