"""What does a client whose stream is held hear, so that it does not give up on a silent connection?

Its 200 and the head of an event stream, then a comment each `hold_keepalive_s`. What goes wrong afterwards is told by an event, in the
shape that clients of its API know.
"""

from typing import TYPE_CHECKING, Final

import orjson

from luftpause.dataplane.observe import as_object, as_text, error_text, parse
from luftpause.dataplane.rejection import Rejection
from luftpause.dataplane.responses import CHUNKED, CLOSE, LAST_CHUNK, chunk, status_line
from luftpause.dataplane.sweep import NEVER

if TYPE_CHECKING:
    from luftpause.dataplane.exchange import Client
    from luftpause.dataplane.turn import Turn

HEAD: Final = b"content-type: text/event-stream\r\ncache-control: no-cache\r\nx-accel-buffering: no\r\n"
SHOWN_CHARS_MAX: Final = 1_000  # of an engine's error that has no message


class Early:
    """The early answer to a turn, watched by the sweep until the engine's answer passes. `begun`: the client has its head."""

    __slots__ = ("_chunked", "_conn", "_seconds", "_since", "_turn", "begun", "deadline")

    def __init__(self, turn: "Turn", conn: "Client", now: float, seconds: float) -> None:
        self._turn = turn
        self._conn = conn
        self._seconds = seconds
        self._since = now
        self._chunked = turn.version == "1.1"
        self.begun = False
        self.deadline = now + seconds
        turn.relay.sweep.watch(self)

    def expire(self, now: float) -> None:
        self.deadline = now + self._seconds
        reason = self._turn.waits_for()
        if not reason and not self.begun:
            return  # an engine has it: its own status is the answer
        comment = b": luftpause: %b, %d s\n\n" % (b"held (%b)" % reason if reason else b"placed", now - self._since)
        if self.begun:
            self._conn.write(self._framed(comment))
        else:
            self._begin(comment)

    def _begin(self, comment: bytes) -> None:
        self.begun = True
        conn = self._conn
        if not self._chunked:
            conn.keeps = False  # an HTTP/1.0 client: the end of the connection is the end of the answer
        framing = (CHUNKED if self._chunked else b"") + (b"" if conn.keeps else CLOSE)
        head = b"%b%b%b%b%b\r\n" % (status_line(200), HEAD, self._turn.names(), conn.more, framing)
        conn.write_head(head + self._framed(comment))

    def stop(self) -> None:
        self.deadline = NEVER
        self._turn.relay.sweep.forget(self)

    def fail(self, event: bytes) -> None:
        """End the answer with an error event. Nothing of an engine's answer has gone on."""
        conn = self._conn
        conn.write(self._framed(event) + (LAST_CHUNK if self._chunked else b""))
        conn.finish()

    def _framed(self, text: bytes) -> bytes:
        return chunk(text) if self._chunked else text


def rejection_of(status: int, body: bytes) -> Rejection:
    """An engine's answer that is no event stream, as an error to be told by an event."""
    answer = as_object(parse(body))
    message = error_text(answer) or body[:SHOWN_CHARS_MAX].decode("utf-8", "replace").strip()
    if 200 <= status < 300:
        return Rejection(502, "engine_failed", "the engine answered a stream's request without a stream")
    code = as_object(answer.get("error")).get("code")
    return Rejection(status, as_text(code) or "engine_error", message or f"the engine answered {status}")


def chat_event(rejection: Rejection) -> bytes:
    """OpenAI's Chat Completions and Completions: an event whose data has `error`."""
    return b"data: %b\n\n" % rejection.body()


def messages_event(rejection: Rejection) -> bytes:
    """Anthropic's Messages: an event named `error`."""
    return b"event: error\ndata: %b\n\n" % rejection.body()


def responses_event(rejection: Rejection) -> bytes:
    """OpenAI's Responses: an event of type `error`, whose fields stand at its top, as documented, and in `error`, where clients look."""
    at_top = {"code": rejection.code, "message": rejection.message, "param": None, "sequence_number": 0}
    return b"event: error\ndata: %b\n\n" % orjson.dumps(orjson.loads(rejection.body()) | at_top)
