"""When may the head of an answer go to the client?"""

import pytest

from luftpause.dataplane.gate import Verdict, judge, kind_of, needs_look

FULL = b'data: {"error":{"message":"The request queue is full.","code":503}}\n\n'

FULL_MESSAGES = b'data: {"type":"error","error":{"type":"overloaded_error","message":"The request queue is full."}}\n\n'


@pytest.mark.parametrize(
    ("payload", "done", "verdict"),
    [
        (b"", False, Verdict.WAIT),
        (b"", True, Verdict.EMPTY),
        (b"d", False, Verdict.WAIT),
        (b'data: {"id', False, Verdict.GO),
        (b": ping\n\n", False, Verdict.GO),
        (b'data: {"err', False, Verdict.WAIT),
        (b'data : {"error', False, Verdict.WAIT),
        (FULL[:-3], False, Verdict.WAIT),
        (FULL, False, Verdict.BUSY),
        (FULL[:-2], True, Verdict.BUSY),
        (b"\xef\xbb\xbf" + FULL, False, Verdict.BUSY),
        (FULL.replace(b"\n", b"\r"), False, Verdict.BUSY),
        (b"event: error\r" + FULL_MESSAGES.replace(b"\n", b"\r"), False, Verdict.BUSY),
        (b"\r\n" + FULL, False, Verdict.BUSY),
        (b'data:{ "error" : {"message":"The request queue is full.","code":503}}\n', False, Verdict.BUSY),
        (b'data: {"error":{"message":"context","code":400}}\n\n', False, Verdict.GO),
        (b'data: {"error": "' + b"x" * 9000, False, Verdict.GO),
        (b"\n" * 8192, False, Verdict.WAIT),
        (b"\n" * 9000, False, Verdict.GO),
        (b"d", True, Verdict.GO),
        (b"event: mess", False, Verdict.GO),
        (b"event: er", False, Verdict.WAIT),
        (b"event: error\n", False, Verdict.WAIT),
        (b"event: error\r\n" + FULL_MESSAGES[:-3], False, Verdict.WAIT),
        (b"event: error\n" + FULL_MESSAGES, False, Verdict.BUSY),
        (FULL_MESSAGES, False, Verdict.BUSY),
        (b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"broke"}}\n\n', False, Verdict.GO),
        (b'data: {"type":"error","error":{"code":400,"message":"The request queue is full."}}\n\n', False, Verdict.GO),
    ],
)
def test_the_first_event_of_a_stream(payload: bytes, done: bool, verdict: Verdict) -> None:
    assert judge(200, payload, stream=True, done=done, holds_busy=True, full=len(payload) > 8192) is verdict
    passed = verdict if not payload else Verdict.GO
    assert judge(200, payload, stream=True, done=done, holds_busy=False, full=len(payload) > 8192) is passed


def test_which_answers_are_looked_at() -> None:
    assert needs_look(200, holds_busy=False)
    assert needs_look(503, holds_busy=True)
    assert not needs_look(503, holds_busy=False)
    assert not needs_look(429, holds_busy=True)
    assert not needs_look(204, holds_busy=True)


AZURE = b'data: {"error":{"code":"429","message":"Requests have exceeded the call rate limit. Please retry after 37 seconds."}}\n\n'
ANTHROPIC = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'


@pytest.mark.parametrize("payload", [AZURE, ANTHROPIC, b'data: {"error":{"code":"rate_limit_exceeded","message":"later"}}\n\n'])
def test_a_refusal_by_quota_inside_a_stream_is_seen_only_where_it_is_to_be_hidden(payload: bytes) -> None:
    for holds, verdict in ((True, Verdict.LIMITED), (False, Verdict.GO)):
        assert judge(200, payload, stream=True, done=False, holds_busy=True, holds_limits=holds, full=False) is verdict


@pytest.mark.parametrize(
    ("payload", "verdict"),
    [
        (b'data: {"error":{"message":"context length","code":400}}\n\n', Verdict.GO),
        (FULL, Verdict.BUSY),
        (b'data: {"choices":[]}\n\n', Verdict.GO),
    ],
)
def test_other_first_events_are_what_they_are(payload: bytes, verdict: Verdict) -> None:
    assert judge(200, payload, stream=True, done=False, holds_busy=True, holds_limits=True, full=False) is verdict


def test_a_refusal_is_hidden_when_all_of_it_is_here_and_passed_when_it_is_too_long_to_keep() -> None:
    assert needs_look(429, holds_busy=False, holds_limits=True)
    assert judge(429, b"later", stream=False, done=False, holds_busy=False, holds_limits=True, full=False) is Verdict.WAIT
    assert judge(429, b"later", stream=False, done=True, holds_busy=False, holds_limits=True, full=False) is Verdict.LIMITED
    assert judge(429, b"", stream=False, done=True, holds_busy=False, holds_limits=True, full=False) is Verdict.LIMITED
    assert judge(429, b"later", stream=False, done=False, holds_busy=False, holds_limits=True, full=True) is Verdict.GO


@pytest.mark.parametrize("status", [400, 422])
def test_a_refusal_of_the_question_for_usage(status: int) -> None:
    names = b'{"error":{"message":"Unknown field: stream_options"}}'
    assert needs_look(status, holds_busy=False, asked_usage=True)
    assert not needs_look(status, holds_busy=True)

    def verdict(payload: bytes, *, asked: bool = True, done: bool = True, full: bool = False) -> Verdict:
        return judge(status, payload, stream=False, done=done, holds_busy=True, full=full, asked_usage=asked)

    assert verdict(names) is Verdict.UNASKABLE
    assert verdict(names, done=False) is Verdict.WAIT
    assert verdict(names, done=False, full=True) is Verdict.GO
    assert verdict(names, asked=False) is Verdict.GO
    assert verdict(b'{"error":{"message":"max_tokens is too large"}}') is Verdict.GO


STREAM, JSON, PAGE = b"text/event-stream", b"application/json", b"text/html"


@pytest.mark.parametrize(
    ("told", "payload", "kind"),
    [
        (STREAM, b"data: x", STREAM),
        (STREAM, b"d", STREAM),
        (STREAM, b"\n\n", STREAM),
        (STREAM, b'{"error":"x"}', JSON),
        (b"", b"data: x", STREAM),
        (b"text/plain", b"data:x", STREAM),
        (b"text/plain", b"da", STREAM),
        (b"", b"e", STREAM),
        (b"text/plain", b"\n", b"text/plain"),
        (JSON, b"event: message_start\n", STREAM),
        (JSON, b": ping\n", STREAM),
        (b"application/octet-stream", b"\xef\xbb\xbfdata: x", STREAM),
        (b"text/plain", b' \n{"choices":[]}', JSON),
        (JSON, b"[1]", JSON),
        (JSON, b"<html>", PAGE),
        (b"text/html", b"<!doctype html>", PAGE),
        (b"text/html", b"data: x", STREAM),
        (b"compressed", b"data: x", b"compressed"),
        (b"text/plain", b"hello", b"text/plain"),
    ],
)
def test_what_a_body_is_goes_by_how_it_begins(told: bytes, payload: bytes, kind: bytes) -> None:
    assert kind_of(told, payload) == kind
