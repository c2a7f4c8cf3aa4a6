"""What is told of limits, and is nothing else changed in a request that is cut?"""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from luftpause.dataplane.limits import answer_tokens_max, is_refusal, refuses, shortened, told, with_model
from luftpause.dataplane.outgoing import body_for
from luftpause.dataplane.turns import Lease


def test_the_length_of_an_answer_is_that_of_any_api() -> None:
    assert answer_tokens_max(b'{"model":"m","max_tokens":300}') == 300
    assert answer_tokens_max(b'{"max_completion_tokens":200,"max_tokens":300}') == 200
    assert answer_tokens_max(b'{"max_output_tokens":100}') == 100
    for none in (
        b'{"model":"m"}',
        b'{"max_tokens":null}',
        b'{"max_tokens":"many"}',
        b'{"max_tokens":-1}',
        b'{"max_tokens":1.5}',
        b"not json",
    ):
        assert answer_tokens_max(none) == 0


@pytest.mark.parametrize(
    ("body", "cut"),
    [
        (b'{"model":"m", "max_tokens" : 4000 }', b'{"model":"m", "max_tokens" : 2000 }'),
        (b'{"max_completion_tokens":600,"max_tokens":4000}', b'{"max_completion_tokens":300,"max_tokens":2000}'),
        (b'{"max_tokens":300}', b'{"max_tokens":256}'),
        (b'{"max_tokens":100}', b'{"max_tokens":100}'),
        (b'{"model":"m"}', b'{"model":"m"}'),
        (b'{"tools":[{"max_tokens":4000}],"max_tokens":1000}', b'{"tools":[{"max_tokens":4000}],"max_tokens":500}'),
        (b'{"max_tokens":1000,"tools":[{"max_tokens":4000}]}', b'{"max_tokens":500,"tools":[{"max_tokens":4000}]}'),
        (b'{"tools":[{"max_tokens":4000}]}', b'{"tools":[{"max_tokens":4000}]}'),
        (rb'{"m":"say \"max_tokens\": 4000 now"}', rb'{"m":"say \"max_tokens\": 4000 now"}'),
        (b'{"max_tokens":"4000"}', b'{"max_tokens":"4000"}'),
    ],
)
def test_only_the_length_of_the_answer_itself_is_cut(body: bytes, cut: bytes) -> None:
    assert shortened(body, 0.5, 256) == cut


@pytest.mark.parametrize(
    ("body", "other"),
    [
        (b'{ "model" : "big", "messages":[]}', b'{ "model" : "small", "messages":[]}'),
        (b'{"metadata":{"model":"big"},"model":"big"}', b'{"metadata":{"model":"big"},"model":"small"}'),
        (rb'{"model":"b\"ig","x":1}', b'{"model":"small","x":1}'),
        (rb'{"mo\u0064el":"big","x": 1}', b'{"model":"small","x":1}'),
    ],
)
def test_only_the_name_of_the_model_is_changed(body: bytes, other: bytes) -> None:
    assert with_model(body, "small") == other


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5_000, 5_000) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["max_tokens", "model", "a", "b"]), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["max_tokens", "model", "messages", "tools"]), VALUES, max_size=4), st.booleans(), st.booleans())
def test_whatever_the_request_is_the_rest_means_the_same(fields: dict[str, object], wide: bool, plain: bool) -> None:
    fields["model"] = "big"
    body = json.dumps(fields, ensure_ascii=plain, separators=None if wide else (",", ":")).encode("utf-8", "replace")
    before = json.loads(body)
    after = json.loads(body_for(body, usage=False, priority=None, lease=Lease(1, 1, 0.5, 256, "small")))
    stated = before.get("max_tokens")
    if isinstance(stated, int) and not isinstance(stated, bool) and stated > 256:
        assert after["max_tokens"] == max(-(-stated // 2), 256)
    else:
        assert after.get("max_tokens") == stated
    assert after["model"] == "small"
    for name in before.keys() - {"max_tokens", "model"}:
        assert after[name] == before[name]
    assert list(after) == list(before)


def test_of_a_head_only_what_tells_of_limits_is_told() -> None:
    lines = (
        b"HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 12:00:00 GMT\r\nset-cookie: secret\r\nx-ratelimit-remaining-requests: 7\r\n"
        b"anthropic-ratelimit-tokens-reset: 2026-11-30T12:00:00Z\r\nRetry-After: 3\r\nx-request-id: r\r\n"
    )
    assert told(lines) == {
        "date": "Mon, 30 Nov 2026 12:00:00 GMT",
        "x-ratelimit-remaining-requests": "7",
        "anthropic-ratelimit-tokens-reset": "2026-11-30T12:00:00Z",
        "retry-after": "3",
    }


def test_which_heads_refuse_by_quota() -> None:
    assert refuses(429, b"")
    assert refuses(529, b"")
    assert refuses(403, b"HTTP/1.1 403 Forbidden\r\nretry-after: 60\r\n")
    assert refuses(403, b"HTTP/1.1 403 Forbidden\r\nx-ratelimit-remaining: 0\r\n")
    assert not refuses(403, b"HTTP/1.1 403 Forbidden\r\nx-ratelimit-remaining: 10\r\n")
    assert not refuses(500, b"HTTP/1.1 500 Oh\r\nretry-after: 60\r\n")


@pytest.mark.parametrize(
    "event",
    [
        b'{"type":"response.failed","response":{"status":"failed","error":{"code":"rate_limit_exceeded","message":"slow down"}}}',
        b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}',
        b'{"error":{"code":429,"message":"slow down"},"choices":[{"delta":{}}]}',
        b'{"type":"error","code":"rate_limit_exceeded","message":"slow down"}',
    ],
)
def test_a_refusal_inside_a_stream_is_known_in_the_words_of_each_api(event: bytes) -> None:
    assert is_refusal(event)


def test_an_error_that_names_no_limit_is_no_refusal() -> None:
    assert not is_refusal(b'{"error":{"message":"this model has no tools","type":"invalid_request_error"}}')
    assert not is_refusal(b'{"type":"response.failed","response":{"error":{"code":"server_error","message":"it crashed"}}}')
    assert not is_refusal(b"not json")
