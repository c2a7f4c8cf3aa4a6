"""What does the body of a Chat Completions request say about its turn?"""

import json
import tracemalloc
from typing import Any

import pytest

from luftpause.dataplane.bodies import NO_MODEL
from luftpause.dataplane.chat import ask_for_usage, read_chat, read_completion
from luftpause.dataplane.identify import Reading
from luftpause.dataplane.rejection import Rejection

KEY = b"key"
TOOLS = [{"type": "function", "function": {"name": "f"}}]


def read(**body: Any) -> Reading:
    found = read_chat(json.dumps({"model": "m"} | body).encode(), KEY)
    assert isinstance(found, Reading)
    return found


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def calls(*ids: str | None) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [{"id": each, "type": "function", "function": {}} for each in ids]}


def tool(call: str | None) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": "x"}


@pytest.mark.parametrize(
    ("messages", "ids"),
    [
        ([user("a")], ()),
        ([user("a"), calls("c1", "c2"), tool("c1"), tool("c2")], ("c2", "c1")),
        ([user("a"), calls("c1"), tool("c1"), calls("c2"), tool("c2")], ("c2",)),
        ([user("a"), calls("c1"), tool("c1"), {"role": "assistant", "content": "done"}, user("more")], ("c1",)),
        ([calls("c3"), tool("c3")], ("c3",)),
        ([tool("orphan"), user("a")], ("orphan",)),
        ([user("a"), calls("", None), tool(""), tool(None)], ()),
        ([user("a"), calls("same", "same"), tool("same"), tool("same")], ("same",)),
        ([tool(f"c{n}") for n in range(100)], tuple(f"c{n}" for n in range(99, 35, -1))),
    ],
)
def test_echoed_ids_newest_first_none_empty(messages: list[Any], ids: tuple[str, ...]) -> None:
    assert read(messages=messages).tool_call_ids == ids


@pytest.mark.parametrize(
    ("options", "mentions"),
    [
        ({}, False),
        ({"stream_options": None}, True),  # a second field of that name would be no good JSON
        ({"stream_options": {}}, True),
        ({"stream_options": {"include_usage": True}}, True),
        ({"stream_options": {"include_usage": False}}, True),
        ({"stream_options": 5}, True),
    ],
)
def test_whether_usage_is_a_matter_of_the_clients(options: dict[str, Any], mentions: bool) -> None:
    found = read(stream=True, tools=TOOLS, messages=[user("a")], **options)
    assert (found.stream, found.mentions_usage, bool(found.head_digest)) == (True, mentions, True)


@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        (b"", "not_json", "truncated"),
        (b"nope", "not_json", "invalid character"),
        (b'{"model":"m",}', "not_json", "trailing comma"),
        (b'{"model":"m"} x', "not_json", "trailing characters"),
        (b"[1,2]", "bad_field", "must be an object"),
        (b"null", "bad_field", "must be an object"),
        (b"{}", "no_model", "no `model`"),
        (b'{"model":""}', "no_model", "no `model`"),
        (b'{"model":null}', "no_model", "no `model`"),
        (b'{"model":5}', "bad_field", "`model`"),
        (b'{"model":"m","stream":"yes"}', "bad_field", "`stream`"),
        (b'{"model":"m","x":' + b"[" * 50_000 + b"]" * 50_000 + b"}", "not_json", "recursion"),
        (b'{"model":"\xff"}', "not_json", ""),
    ],
)
def test_a_bad_body_is_told_what_is_wrong_and_where(body: bytes, code: str, says: str) -> None:
    found = read_chat(body, KEY)
    assert isinstance(found, Rejection)
    assert (found.status, found.code) == (400, code)
    assert says in found.message


@pytest.mark.parametrize(
    "messages",
    [
        None,
        [],
        "text",
        [5],
        [None],
        [{"role": 5}],
        [{"tool_calls": {}}],
        [{"role": "user", "tool_calls": [5]}],
        [calls(None)],
        [{"content": {"a": 1}}],
    ],
)
def test_odd_messages_are_left_to_the_engine(messages: Any) -> None:
    assert read(messages=messages, tools=TOOLS).model == "m"


def test_a_missing_content_null_and_lists_are_all_readable() -> None:
    for content in (None, "", [], [{"type": "text", "text": "a"}], [{"type": "image_url"}, 5, None], 7):
        assert len(read(messages=[user(content)], tools=TOOLS).head_digest) == 16
    assert len(read(messages=[{"role": "user"}], tools=TOOLS).head_digest) == 16


@pytest.mark.parametrize("content", [b'"\xff"', b'[{"type":"text","text":"\xc3"}]', b"9" * 5_000, b"[" + b"9" * 5_000 + b"]"])
def test_content_that_no_decoder_takes_is_the_engines_to_judge(content: bytes) -> None:
    """The bytes are told apart all the same: another content is another conversation."""

    def digest(said: bytes) -> bytes:
        body = b'{"model":"m","tools":[],"messages":[{"role":"user","content":' + said + b"}]}"
        found = read_chat(body, KEY)
        assert isinstance(found, Reading)
        return found.head_digest

    assert digest(content) == digest(content) != digest(b'"else"')


def test_lone_surrogates_are_read() -> None:
    messages = rb'[{"role":"user","content":"a \ud83e"},{"role":"tool","tool_call_id":"c1","content":"\udc00"}]'
    body = b'{"model":"m","stream":true,"tools":[],"messages":' + messages + b"}"
    found = read_chat(body, KEY)
    assert isinstance(found, Reading)
    assert (found.stream, found.tool_call_ids) == (True, ("c1",))


@pytest.mark.parametrize(
    ("part", "count", "ids"),
    [
        (b"{},", 150_000, ("c1",)),
        (b"{},", 1_000_000, ()),
        (rb'{"role":"user","content":"%b"},' % (rb"\ud83e" * 100_000), 1, ("c1",)),
        (rb'{"role":"user","content":"%b"},' % (rb"\uD83e" * 1_000_000), 1, ("c1",)),
    ],
    ids=["many messages", "endless messages", "many lone surrogates", "endless lone surrogates"],
)
def test_a_body_of_endless_parts_costs_no_memory(part: bytes, count: int, ids: tuple[str, ...]) -> None:
    """What no conversation has is read only as far as the model's name: a million empty messages would take 80 MB here."""
    last = b'{"role":"tool","tool_call_id":"c1","content":"%b"}' % (b"x" * 600_000)
    body = b'{"stream":true,"messages":[' + part * count + last + b'],"model":"m"}'
    tracemalloc.start()
    try:
        found = read_chat(body, KEY)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(found, Reading)
    assert (found.model, found.stream, found.tool_call_ids) == ("m", True, ids)
    assert peak < 3 * len(body) + 20 * 2**20


HEAD = [{"role": "system", "content": "You are S. Today is 2026-11-30."}, user("do it")]


@pytest.mark.parametrize(
    ("messages", "same"),
    [
        (HEAD, True),
        ([{"role": "system", "content": "You are S. Today is 2026-12-01."}, user("do it")], True),
        ([{"role": "developer", "content": "You are S. Today is 2026-11-30."}, user("do it")], True),
        (
            [
                {
                    "role": "system",
                    "content": [{"type": "text", "text": "You are S. Today is 2026-11-30.", "cache_control": {"type": "ephemeral"}}],
                },
                user("do it"),
            ],
            True,
        ),
        ([*HEAD, calls("c1"), tool("c1"), user("more")], True),
        ([{"id": "msg_1"} | HEAD[0], {"id": "msg_2"} | HEAD[1]], True),
        ([HEAD[0], user("do that")], False),
        ([{"role": "system", "content": "You are T. Today is 2026-11-30."}, user("do it")], False),
        ([user("You are S. Today is 2026-11-30."), user("do it")], False),
        ([HEAD[0], user("do it 17")], False),
    ],
)
def test_the_digest_covers_text_alone(messages: list[Any], same: bool) -> None:
    expected = read(messages=HEAD, tools=TOOLS).head_digest
    assert len(expected) == 16
    assert (read(messages=messages, tools=TOOLS).head_digest == expected) is same


def test_the_digest_needs_its_key_and_is_left_out_where_nobody_asks() -> None:
    body = json.dumps({"model": "m", "messages": HEAD, "tools": TOOLS}).encode()
    one, two = read_chat(body, b"one"), read_chat(body, b"two")
    assert isinstance(one, Reading)
    assert isinstance(two, Reading)
    assert one.head_digest != two.head_digest
    assert read(messages=HEAD).head_digest == b""
    assert read(messages=[*HEAD, calls("c"), tool("c")]).head_digest != b""


def test_long_texts_differ_by_either_end() -> None:
    long = "x" * 100_000

    def digest(text: str) -> bytes:
        return read(messages=[user(text)], tools=TOOLS).head_digest

    assert digest(long) == digest(long)
    assert digest(long + "a") != digest(long + "b")
    assert digest("a" + long) != digest("b" + long)


@pytest.mark.parametrize("body", [b'{"model":"m","stream":true}', b' { "model" : "m", "a": {"b": 1} } \n', b'{"model":"m","x":"}"}'])
def test_asking_for_usage_changes_nothing_else(body: bytes) -> None:
    changed = ask_for_usage(body)
    assert json.loads(changed) == json.loads(body) | {"stream_options": {"include_usage": True}}
    assert changed.replace(b',"stream_options":{"include_usage":true}', b"") == body


def completion(body: bytes) -> Reading | Rejection:
    return read_completion(body, KEY)


def test_a_completion_tells_its_model_and_whether_it_streams() -> None:
    found = completion(b'{"model": "m", "stream": true, "prompt": ["a", 5], "stream_options": {"include_usage": true}}')
    assert isinstance(found, Reading)
    assert (found.model, found.stream, found.mentions_usage, found.tool_call_ids, found.head_digest) == ("m", True, True, (), b"")
    assert completion(b'{"prompt": "a"}') == NO_MODEL
    assert isinstance(completion(b'{"model": "m", "prompt": "\\ud83e"}'), Reading)
