"""When may the head of an answer go to the client?"""

import pytest

from luftpause.dataplane.gate import Verdict, judge, needs_look

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
