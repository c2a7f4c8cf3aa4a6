"""Is an answer put together rightly from the chunks that engines really send?"""

import json
import time
from typing import Any

import pytest

from luftpause.runtime.model_stream import EVENT_BYTES_MAX, AnswerBuilder, EventSplitter, StreamError
from luftpause.runtime.ports import ModelCall


def calls_of(*deltas: dict[str, Any]) -> tuple[ModelCall, ...]:
    builder = AnswerBuilder()
    for delta in deltas:
        builder.chunk({"choices": [{"index": 0, "delta": {"tool_calls": [delta]}}]})
    return builder.answer().calls


def call(arguments: Any = None, *, name: str | None = None, **more: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}, **more}


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        ([call("", name="add", index=0, id="c1"), call('{"a"', index=0), call(":1}", index=0)], [("c1", "add", '{"a":1}')]),
        ([call("{}", name="f", index=0, id="x"), call("{}", name="g", index=1, id="y")], [("x", "f", "{}"), ("y", "g", "{}")]),
        # every call with index 0, told apart by their ids
        ([call("{}", name="f", index=0, id="x"), call("{}", name="f", index=0, id="y")], [("x", "f", "{}"), ("y", "f", "{}")]),
        # the same id for two calls: the core gives them their own
        ([call("{}", name="f", index=0, id="x"), call("{}", name="g", index=1, id="x")], [("x", "f", "{}"), ("x", "g", "{}")]),
        # id and name repeated with every piece
        ([call('{"a"', name="f", index=0, id="x"), call(":1}", name="f", index=0, id="x")], [("x", "f", '{"a":1}')]),
        # no index
        ([call('{"a"', name="f", id="x"), call(":1}")], [("x", "f", '{"a":1}')]),
        # neither index nor id, whole calls
        ([call('{"a":1}', name="f"), call('{"a":2}', name="f")], [("", "f", '{"a":1}'), ("", "f", '{"a":2}')]),
        ([call("{}", name="f"), call("{}", name="g")], [("", "f", "{}"), ("", "g", "{}")]),
        # one index or one id for all calls
        ([call('{"a":1}', name="f", index=0), call('{"a":2}', name="g", index=0)], [("", "f", '{"a":1}'), ("", "g", '{"a":2}')]),
        ([call('{"a":1}', name="f", index=0), call('{"a":2}', name="f", index=0)], [("", "f", '{"a":1}'), ("", "f", '{"a":2}')]),
        ([call('{"a":1}', name="f", id="x"), call('{"a":2}', name="f", id="x")], [("x", "f", '{"a":1}'), ("x", "f", '{"a":2}')]),
        # a call that is said once more as a whole is made once
        (
            [call('{"a"', name="f", index=0, id="x"), call(":1}", index=0), call('{"a":1}', name="f", index=0, id="x")],
            [("x", "f", '{"a":1}')],
        ),
        ([call('{"a":1}', name="f", index=0, id="x"), call("", name="f", index=0, id="x")], [("x", "f", '{"a":1}')]),
        # an index that is no whole number
        (
            [call('{"a"', name="f", index="0"), call("{", name="g", index=1.0), call(":1}", index=0.0), call("}", index="1")],
            [("", "f", '{"a":1}'), ("", "g", "{}")],
        ),
        # arguments that are no text
        ([call({"a": 1}, name="f", index=0, id="x")], [("x", "f", {"a": 1})]),
        ([call(None, name="f", index=0, id="x"), call(None, index=0)], [("x", "f", None)]),
        ([call("", name="f", index=0, id="x"), call({"a": 1}, index=0)], [("x", "f", {"a": 1})]),
        ([{"index": 0, "id": "x", "function": None}], [("x", "", None)]),
    ],
)
def test_tool_calls_are_put_together(deltas: list[dict[str, Any]], expected: list[tuple[str, str, Any]]):
    assert calls_of(*deltas) == tuple(ModelCall(*each) for each in expected)


@pytest.mark.parametrize(
    "last",
    [
        {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 5}}},
        {"usage": {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 5}}},
        {
            "choices": [{"index": 0, "delta": {}}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 5}},
        },
    ],
)
def test_the_last_usage_counts_in_each_form(last: dict[str, Any]):
    builder = AnswerBuilder()
    builder.chunk({"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1}})
    builder.chunk(last)
    answer = builder.answer()
    assert (answer.prompt_tokens, answer.completion_tokens, answer.cached_tokens) == (9, 4, 5)
    assert (answer.content, answer.finish_reason) == ("hi", "stop")


def test_usage_that_is_missing_or_senseless_counts_as_none():
    builder = AnswerBuilder()
    builder.chunk({"choices": [{"delta": {"content": None}}], "usage": {"prompt_tokens": None, "completion_tokens": -3}})
    assert (builder.answer().prompt_tokens, builder.answer().completion_tokens, builder.answer().content) == (0, 0, "")


def test_only_the_first_choice_counts_and_content_may_be_parts():
    builder = AnswerBuilder()
    builder.chunk({
        "choices": [{"index": 1, "delta": {"content": "no"}}, {"index": 0, "delta": {"content": [{"type": "text", "text": "yes"}]}}]
    })
    assert builder.answer().content == "yes"


def test_surrogates_split_over_chunks_are_joined_and_lone_ones_replaced():
    builder = AnswerBuilder()
    for text in ("\ud83d", "\ude00 ok \ud83d"):
        builder.chunk({"choices": [{"delta": {"content": text}}]})
    builder.chunk({"choices": [{"delta": {"tool_calls": [call({"a": "\ud83d"}, name="f", index=0)]}}]})
    answer = builder.answer()
    assert answer.content == "😀 ok \ufffd"
    assert answer.calls[0].arguments == {"a": "\ufffd"}


@pytest.mark.parametrize(
    ("chunk", "message", "status"),
    [
        ({"error": {"message": "too long", "code": 400}}, "too long", 400),
        ({"error": {"message": "x", "code": "504"}}, "x", 504),
        ({"error": "it broke"}, "it broke", 0),
        ({"error": {"message": "slow down", "type": "rate_limit_error"}}, "slow down", 429),
        ({"error": {"message": "no", "type": "invalid_request_error", "code": "context_length_exceeded"}}, "no", 400),
        ({"object": "error", "message": "vllm says no", "code": 400}, "vllm says no", 400),
        ({"error": {}}, "the engine gave no reason", 0),
    ],
)
def test_an_error_object_is_the_engines_word(chunk: dict[str, Any], message: str, status: int):
    with pytest.raises(StreamError) as error:
        AnswerBuilder().event(json.dumps(chunk).encode())
    assert (error.value.message, error.value.status) == (message, status)


def test_events_come_out_whole_however_the_bytes_are_split():
    stream = 'data: {"a":"\u2028"}\r\n\r\n: ping\n\ndata:1\ndata: 2\n\nevent: x\ndata: [DONE]\n\n'.encode()
    expected = ['{"a":"\u2028"}'.encode(), b"1\n2", b"[DONE]"]
    for size in (1, 2, 3, 7, len(stream)):
        splitter = EventSplitter()
        events = [event for start in range(0, len(stream), size) for event in splitter.feed(stream[start : start + size])]
        assert events == expected, size
    assert EventSplitter().feed(b"data: 1") == []


def test_the_last_event_counts_without_its_blank_line():
    splitter = EventSplitter()
    assert splitter.feed(b"data: [DONE]") == []
    assert splitter.end() == [b"[DONE]"]


@pytest.mark.parametrize("piece", [b"x" * 2**20, b"data: " + b"x" * 2**20 + b"\n"])
def test_an_event_without_an_end_is_given_up(piece: bytes):
    splitter = EventSplitter()
    for _ in range(EVENT_BYTES_MAX // len(piece)):
        assert splitter.feed(piece) == []
    with pytest.raises(StreamError, match="longer than"):
        splitter.feed(piece + piece)


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("said", "counted"),
    [(10**400, 2**53), (2**70, 2**53), (1e308, 2**53), (float("nan"), 0), (-5, 0), (2.9, 2), ("7", 0), (None, 0), ([1], 0)],
    ids=repr,
)
def test_token_counts_stay_numbers_that_every_reader_takes(said: object, counted: int):
    builder = AnswerBuilder()
    builder.chunk({"choices": [{"delta": {"content": "x"}}], "usage": {"prompt_tokens": said, "completion_tokens": 1}})
    assert builder.answer().prompt_tokens == counted


def test_a_chunk_that_is_nested_without_end_is_an_error_of_the_engine():
    with pytest.raises(StreamError, match="not JSON"):
        AnswerBuilder().event(DEEP.encode())


def test_arguments_nested_too_deeply_reach_the_core_as_text_that_it_rejects():
    deep: Any = 1
    for _ in range(5_000):
        deep = [deep]
    (made,) = calls_of(call(deep, name="f", index=0, id="x"))
    assert made.arguments == "(nested too deeply)"


def test_a_choice_with_a_senseless_index_is_left_out():
    builder = AnswerBuilder()
    builder.chunk({"choices": [{"index": [], "delta": {"content": "x"}}, {"index": 0, "delta": {"content": "y"}}]})
    assert builder.answer().content == "y"


def test_an_object_as_arguments_is_not_undone_by_an_empty_text():
    (made,) = calls_of(call({"a": 1}, name="f", index=0, id="x"), call("", index=0))
    assert made.arguments == {"a": 1}


@pytest.mark.parametrize("delta", [{"content": "x" * 11}, {"tool_calls": [call("x" * 11, name="f", index=0)]}])
def test_an_answer_that_does_not_end_is_broken_off_for_good(delta: dict[str, Any]):
    builder = AnswerBuilder(chars_max=100)
    for _ in range(9):
        builder.chunk({"choices": [{"index": 0, "delta": delta}]})
    with pytest.raises(StreamError, match=r"100 characters \(runtime.answer_chars_max\)") as error:
        builder.chunk({"choices": [{"index": 0, "delta": delta}]})
    assert error.value.status == 413


def test_arguments_in_a_hundred_thousand_pieces_take_no_time():
    builder = AnswerBuilder(chars_max=10**7)
    began = time.process_time()
    for _ in range(100_000):
        builder.chunk({"choices": [{"index": 0, "delta": {"tool_calls": [call("y" * 50, name="f", index=0, id="x")]}}]})
    assert len(builder.answer().calls[0].arguments) == 5_000_000
    assert time.process_time() - began < 10, "appending to one text copies it each time: minutes"


def test_a_refusal_is_the_answer_where_there_is_no_other() -> None:
    builder = AnswerBuilder()
    for delta in ({"role": "assistant", "refusal": "I can't "}, {"refusal": "do that.", "content": None}):
        builder.chunk({"choices": [{"index": 0, "delta": delta}]})
    assert builder.answer().content == "I can't do that."
    builder.chunk({"choices": [{"index": 0, "delta": {"content": "But this."}}]})
    assert builder.answer().content == "But this."


def test_a_call_in_the_older_form_is_one() -> None:
    builder = AnswerBuilder()
    for piece in ({"name": "add", "arguments": '{"a"'}, {"arguments": ":1}"}):
        builder.chunk({"choices": [{"index": 0, "delta": {"function_call": piece}, "finish_reason": None}]})
    assert builder.answer().calls == (ModelCall("", "add", '{"a":1}'),)


@pytest.mark.parametrize("nothing", [{}, {"name": "", "arguments": ""}, {"name": None, "arguments": None}, None])
def test_an_empty_call_in_the_older_form_is_none(nothing: dict[str, Any] | None) -> None:
    builder = AnswerBuilder()
    builder.chunk({"choices": [{"message": {"content": "Hi.", "function_call": nothing}, "finish_reason": "stop"}]})
    assert (builder.answer().content, builder.answer().calls) == ("Hi.", ())


def test_a_call_in_both_forms_is_made_once() -> None:
    builder = AnswerBuilder()
    both = {"function_call": {"name": "f", "arguments": "{}"}, "tool_calls": [call("{}", name="f", index=0, id="x")]}
    builder.chunk({"choices": [{"message": both, "finish_reason": "tool_calls"}]})
    assert builder.answer().calls == (ModelCall("x", "f", "{}"),)
