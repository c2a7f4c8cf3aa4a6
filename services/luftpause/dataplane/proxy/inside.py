"""Does an answer with a good status say inside that a quota is used up: in an event of its stream, or in place of what was asked for?

Such an answer passes as it is; the governor hears of it as of a 429.
"""

import re
from typing import Final

from luftpause.dataplane.gate import EVENT_STREAM, JSON, kind_of
from luftpause.dataplane.limits import is_refusal
from luftpause.dataplane.observe import EventStream, Observed, as_object, parse
from luftpause.kit.quota_evidence import EXCERPT_BYTES_MAX

EVENT_BYTES_MAX: Final = 65_536
ERROR_BEGINS: Final = re.compile(rb'\s*\{\s*"(?:error"|(?:object|type)"\s*:\s*"error")')


class Inside:
    """What is seen of one answer. `refusal`: the first event, or the whole body, that says so; empty as long as nothing does."""

    def __init__(self, told: bytes, payload: bytes) -> None:
        """`told`: the media type of its head; `payload`: how its body begins."""
        kind = kind_of(told, payload)
        self._errors = _Errors()
        self._stream = EventStream(self._errors, EVENT_BYTES_MAX) if kind == EVENT_STREAM else None
        self._whole = kind == JSON and ERROR_BEGINS.match(payload) is not None
        self._body = b""

    @property
    def refusal(self) -> bytes:
        return self._errors.error_told

    def feed(self, payload: bytes, *, done: bool) -> None:
        """Some more of its body; `done`: that was all."""
        if self._stream is not None:
            self._stream.feed(payload)
            if done:
                self._stream.end()
        elif self._whole:
            self._body += payload
            self._whole = len(self._body) <= EXCERPT_BYTES_MAX
            if done and self._whole:
                self._errors.read(self._body, whole=True)


class _Errors(Observed):
    """Reads what holds an error, and the first event, whose form tells how the others are to be read."""

    telling = re.compile(rb'"error"')

    def read(self, text: bytes, *, whole: bool = False) -> None:
        self.first_token = True
        if not self.error_told and _is_error(text) and is_refusal(text):
            self.error_told = text[:EXCERPT_BYTES_MAX]


def _is_error(text: bytes) -> bool:
    """Responses have an `error` in each answer, null where there is none."""
    answer = as_object(parse(text))
    found = answer.get("error") or as_object(answer.get("response")).get("error")
    return bool(found) or "error" in (answer.get("type"), answer.get("object"))
